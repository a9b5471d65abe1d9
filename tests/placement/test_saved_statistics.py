"""What a policy has learned outlives it to the bit, and nothing else is read."""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import replace

import pytest

from tree_placement.policy import (
    Extent,
    PathPart,
    PlannedState,
    PolicySettings,
    SparsePolicy,
    Visit,
)

SETTINGS = PolicySettings(namespaces=3, missed_states=64)
HEADER = struct.Struct("<4sII")


def serve(
    policy: SparsePolicy, prompts: int, *, seed: int, first_branch: int
) -> list[tuple[PlannedState, ...]]:
    """Serve prompts that leave documents at learnable depths; return all plans."""
    draw = random.Random(seed)
    documents: dict[tuple[str, int], int] = {}
    plans = []
    for prompt in range(prompts):
        document = draw.choice(["", "salt", "ключ", "more"]), draw.randrange(3)
        branch = documents.get(document)
        overlap = draw.choice([512, 704]) if branch is not None else 0
        path = (PathPart(branch, overlap),) if branch is not None else ()
        visit = Visit(document[0], path, overlap, 1000 if overlap else 0, len(path))
        plan = policy.plan(visit, policy.observe(visit, 1000), Extent(0, 1000, full=False))
        documents[document] = first_branch + prompt
        policy.publish((PathPart(documents[document], 1000),), plan)
        plans.append(plan)
    return plans


@pytest.fixture(scope="module")
def taught() -> SparsePolicy:
    """A policy in mid-stream: between two updates of its weights, one namespace forgotten."""
    policy = SparsePolicy(SETTINGS)
    serve(policy, 203, seed=1, first_branch=0)
    return policy


@pytest.fixture(scope="module")
def saved(taught: SparsePolicy) -> bytes:
    return taught.statistics()


def sealed(body: bytes, kind: bytes = b"TPSP", version: int = 2) -> bytes:
    return HEADER.pack(kind, version, zlib.crc32(body)) + body


def refused(data: bytes, settings: PolicySettings = SETTINGS) -> str:
    """Return the line with which data is refused, by a policy that is then as it was."""
    policy = SparsePolicy(settings)
    serve(policy, 20, seed=3, first_branch=0)
    before = policy.statistics()
    with pytest.raises(ValueError, match="got") as caught:
        policy.restore(data)
    assert policy.statistics() == before
    return str(caught.value)


def test_it_goes_on_as_if_nothing_had_happened(saved: bytes) -> None:
    one, other, untaught = (SparsePolicy(SETTINGS) for _ in range(3))
    serve(one, 203, seed=1, first_branch=0)
    one.clear_states()
    other.restore(saved)
    assert other.statistics() == one.statistics() == saved
    plans = [
        [[state._replace(new=state.new._replace(era=0)) for state in plan] for plan in served]
        for served in (
            serve(each, 101, seed=2, first_branch=1000) for each in (one, other, untaught)
        )
    ]
    assert plans[0] == plans[1] != plans[2]
    assert one.statistics() == other.statistics() != untaught.statistics()


def test_subtrees_of_the_old_tree_say_nothing_of_new_ones(
    taught: SparsePolicy, saved: bytes
) -> None:
    """Branches are numbered anew after a start, so one may have the number of an old one."""
    restored = SparsePolicy(SETTINGS)
    restored.restore(saved)
    origin = restored.observe(Visit("", (), 0, 0, 0), 1000)
    plans = {
        branch: restored.plan(
            Visit("", (PathPart(branch, 64),), 64, 1000, 1), origin, Extent(0, 5000, full=False)
        )
        for branch in range(190, 203)
    }
    assert len(set(plans.values())) == 1


@pytest.mark.parametrize("length", [0, 1, 11, 12, 13, 100, 5000, -9, -8, -1])
def test_a_torn_file_is_refused(saved: bytes, length: int) -> None:
    assert refused(saved[:length]).startswith("data: got ")
    torn = sealed(saved[12:][:length])
    if torn != saved:
        assert refused(torn).startswith("data: got ")


def test_every_flipped_byte_is_refused(saved: bytes) -> None:
    policy = SparsePolicy(SETTINGS)
    for at in [*range(60), *random.Random(4).sample(range(len(saved)), 60)]:
        spoiled = bytearray(saved)
        spoiled[at] ^= 0x10
        with pytest.raises(ValueError, match=r"^data: got "):
            policy.restore(bytes(spoiled))


def test_another_kind_or_version_is_refused(saved: bytes) -> None:
    assert "another kind" in refused(sealed(saved[12:], kind=b"TPOM"))
    assert "another kind" in refused(b"\x80\x04\x95" + saved)
    assert "got version 1" in refused(sealed(saved[12:], version=1))


@pytest.mark.parametrize("setting", [{"grid": 128}, {"bin": 32}, {"decay": 0.5}, {"namespaces": 9}])
def test_other_settings_are_refused_by_name(saved: bytes, setting: dict[str, float]) -> None:
    (name,) = setting
    line = refused(saved, replace(SETTINGS, **setting))
    assert line.startswith(f"{name} of the statistics: got {getattr(SETTINGS, name)}; need ")


def numbers_of(saved: bytes) -> list[bytes]:
    body = saved[12:]
    return [body[at : at + 8] for at in range(0, len(body), 8)]


@pytest.mark.parametrize(
    ("place", "number"),
    [
        (4, struct.pack("<d", -1.0)),
        (4, struct.pack("<d", 0.5)),
        (4, struct.pack("<d", float("nan"))),
        (5, struct.pack("<q", 12)),
        (5, struct.pack("<q", -12)),
        (6, struct.pack("<q", 12)),
        (7, struct.pack("<d", float("inf"))),
    ],
)
def test_what_cannot_have_been_written_is_refused(saved: bytes, place: int, number: bytes) -> None:
    """With a checksum that fits."""
    numbers = numbers_of(saved)
    numbers[place] = number
    assert refused(sealed(b"".join(numbers))).startswith("data: got ")


def test_namespaces_that_cannot_be_are_refused(saved: bytes) -> None:
    numbers = numbers_of(saved)
    weights, records = struct.unpack("<qq", b"".join(numbers[5:7]))
    count = 7 + 3 * weights + records
    assert numbers[count] == struct.pack("<q", 3)
    for place, wrong in ((count, 4), (count, -1), (count + 1, 0), (count + 1, 4)):
        spoiled = [*numbers[:place], struct.pack("<q", wrong), *numbers[place + 1 :]]
        assert refused(sealed(b"".join(spoiled))).startswith("data: got ")


@pytest.mark.parametrize("number", [-1.0, float("nan"), float("inf")])
def test_records_that_cannot_be_are_refused(saved: bytes, number: float) -> None:
    numbers = numbers_of(saved)
    weights, records = struct.unpack("<qq", b"".join(numbers[5:7]))
    last = 7 + 3 * weights + records - 1
    numbers[last] = struct.pack("<d", number)
    assert "records" in refused(sealed(b"".join(numbers)))


def test_a_policy_that_knows_nothing_can_be_saved() -> None:
    policy, other = SparsePolicy(SETTINGS), SparsePolicy(SETTINGS)
    other.restore(policy.statistics())
    assert serve(policy, 30, seed=5, first_branch=0) == serve(other, 30, seed=5, first_branch=0)
