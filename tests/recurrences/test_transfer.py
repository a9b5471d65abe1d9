"""Copies of states against copies of their bytes one by one; states in 8 bits against the bound.

Triton's kernel takes part where there is a CUDA device, and under Triton's interpreter, which has
to be chosen before Triton is imported: `test_under_the_interpreter` runs this file again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest
import torch
from cases import same_bits

from state_kernels import (
    StatePools,
    copy_states,
    dequantize_states,
    quantize_states,
    transfer,
)
from state_kernels.transfer import CopyImplementation

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
IMPLEMENTATIONS: list[CopyImplementation] = ["torch"]
if INTERPRETED or DEVICE.type == "cuda":
    IMPLEMENTATIONS.append("triton")

every_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)


def random_bits(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Return numbers of every kind: NaN with payloads, infinities, denormal ones."""
    size = torch.empty(0, dtype=dtype).element_size()
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(256, (*shape[:-1], shape[-1] * size), generator=generator)
    return bits.to(torch.uint8).view(dtype).to(DEVICE)


def make_pools(slots: int, seed: int = 0) -> StatePools:
    """Return three layers of states, of windows with an odd number of bytes, and of int8."""
    return StatePools(
        random_bits(3, slots, 2, 8, 5, seed=seed),
        random_bits(3, slots, 7, 3, dtype=torch.bfloat16, seed=seed + 1),
        [random_bits(slots, 11, dtype=torch.int8, seed=seed + 2)],
    )


def snapshot(pools: StatePools) -> list[torch.Tensor]:
    return [rows.clone() for rows in pools.tensors]


def expected_after(
    source: Sequence[torch.Tensor],
    taken: Sequence[int],
    target: Sequence[torch.Tensor],
    written: Sequence[int],
) -> list[torch.Tensor]:
    """Return the target's layers with one slot replaced after the other, from a snapshot."""
    expected = []
    for rows, into in zip(source, target, strict=True):
        slots = list(into)
        for one, other in zip(taken, written, strict=True):
            slots[other] = rows[one]
        expected.append(torch.stack(slots))
    return expected


def assert_copied(
    source: StatePools,
    taken: Sequence[int],
    target: StatePools,
    written: Sequence[int],
    copy: Callable[[], None],
) -> None:
    expected = expected_after(snapshot(source), taken, snapshot(target), written)
    copy()
    for got, right in zip(target.tensors, expected, strict=True):
        assert same_bits(got, right)


@every_implementation
def test_from_pool_to_pool(implementation: CopyImplementation) -> None:
    source, target = make_pools(6), make_pools(9, seed=9)
    taken, written = [5, 0, 0, 3], [8, 1, 4, 0]

    def copy() -> None:
        slots = torch.tensor(taken)
        copy_states(source, slots, target, written, implementation=implementation)

    assert_copied(source, taken, target, written, copy)


@every_implementation
def test_swapped_slots_would_be_caught(implementation: CopyImplementation) -> None:
    source, target = make_pools(6), make_pools(6, seed=9)

    def copy() -> None:
        copy_states(source, [1, 2], target, [4, 3], implementation=implementation)

    with pytest.raises(AssertionError):
        assert_copied(source, [1, 2], target, [3, 4], copy)


@every_implementation
@pytest.mark.parametrize(
    ("taken", "written"),
    [([0, 1], [1, 0]), ([0, 1, 2, 3], [1, 2, 3, 4]), ([4, 4, 0], [0, 1, 4]), ([3], [3])],
    ids=["swapped", "shifted", "spread", "itself"],
)
def test_within_the_same_pools(
    implementation: CopyImplementation, taken: list[int], written: list[int]
) -> None:
    pools = make_pools(6)

    def copy() -> None:
        copy_states(pools, taken, pools, written, implementation=implementation)

    assert_copied(pools, taken, pools, written, copy)


@every_implementation
def test_views_of_the_same_memory(implementation: CopyImplementation) -> None:
    memory = random_bits(2, 7, 4, 5)
    lower, upper = StatePools(memory[:, :5]), StatePools(memory[:, 1:6])
    before = memory.clone()
    copy_states(lower, [1, 2, 3], upper, [1, 2, 3], implementation=implementation)
    assert same_bits(memory[:, 2:5], before[:, 1:4])
    assert same_bits(memory[:, [0, 1, 5, 6]], before[:, [0, 1, 5, 6]])


@every_implementation
def test_pools_with_strides_between_slots(implementation: CopyImplementation) -> None:
    every_other, layers_inside = random_bits(2, 12, 4, 5), random_bits(6, 2, 4, 5, seed=1)
    source = StatePools(every_other[:, ::2])
    target = StatePools(layers_inside.transpose(0, 1))

    def copy() -> None:
        copy_states(source, [1, 5], target, [0, 3], implementation=implementation)

    between = every_other[:, 1::2].clone()
    assert_copied(source, [1, 5], target, [0, 3], copy)
    assert same_bits(every_other[:, 1::2], between)


def test_rows_with_strides() -> None:
    source = StatePools(random_bits(2, 6, 4, 5).transpose(2, 3))
    target = StatePools(random_bits(2, 6, 5, 8, seed=1)[..., ::2])

    def copy() -> None:
        copy_states(source, [1, 5], target, [0, 3])

    assert_copied(source, [1, 5], target, [0, 3], copy)
    if "triton" in IMPLEMENTATIONS:
        with pytest.raises(ValueError, match="need contiguous rows"):
            copy_states(source, [1], target, [0], implementation="triton")


@every_implementation
def test_packed_and_back(implementation: CopyImplementation) -> None:
    pools = make_pools(8)
    packed = pools.packed(4)
    packed.buffer.fill_(0xA5)
    copy_states(pools, [6, 2, 7], packed, [0, 3, 1], implementation=implementation)
    row = packed.buffer[3]
    for rows in pools.tensors:
        state = rows[2].flatten().view(torch.uint8)
        assert same_bits(row[: len(state)], state)
        filling = -len(state) % 16
        assert bool((row[len(state) :][:filling] == 0xA5).all())
        row = row[len(state) + filling :]
    assert len(row) == 0
    assert bool((packed.buffer[2] == 0xA5).all())

    other = make_pools(5, seed=7)

    def copy() -> None:
        copy_states(packed, [3, 0], other, [1, 4], implementation=implementation)

    assert_copied(packed, [3, 0], other, [1, 4], copy)
    assert same_bits(other.tensors[0][4], pools.tensors[0][6])


@every_implementation
def test_addresses_beyond_32_bits(implementation: CopyImplementation) -> None:
    # Only the pages of three slots are ever touched.
    pool = torch.empty(1, 3, 3 << 28, dtype=torch.float32, device=DEVICE)
    mark = random_bits(300)
    pool[0, 2, -300:] = mark
    source = StatePools(pool[:, :, -300:])
    target = StatePools(torch.zeros(1, 2, 300, device=DEVICE))
    copy_states(source, [2], target, [1], implementation=implementation)
    assert same_bits(target.tensors[0][1], mark)
    copy_states(target, [1], source, [1], implementation=implementation)
    assert same_bits(pool[0, 1, -300:], mark)


@every_implementation
def test_no_slots(implementation: CopyImplementation) -> None:
    source, target = make_pools(4), make_pools(4, seed=9)
    none = torch.tensor([], dtype=torch.int64)
    assert_copied(
        source,
        [],
        target,
        [],
        lambda: copy_states(source, none, target, [], implementation=implementation),
    )


def test_what_a_copy_between_devices_does_on_one() -> None:
    assert list(transfer._runs([4, 5, 6, 2, 3, 9])) == [(0, 3), (3, 5), (5, 6)]
    pools, host = make_pools(10), make_pools(1).packed(8)
    host.buffer.zero_()

    def leave() -> None:
        transfer._copy_between_devices(pools, [9, 1, 4], host, [2, 3, 7], "auto")

    def come_back() -> None:
        transfer._copy_between_devices(host, [3, 2, 7], pools, [0, 6, 2], "auto")

    assert_copied(pools, [9, 1, 4], host, [2, 3, 7], leave)
    assert_copied(host, [3, 2, 7], pools, [0, 6, 2], come_back)
    with pytest.raises(ValueError, match="need packed ones on one side"):
        transfer._copy_between_devices(pools, [0], make_pools(2), [0], "auto")


@pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a CUDA device")
def test_to_pinned_memory_and_back_on_a_stream() -> None:
    pools = make_pools(64)
    before = snapshot(pools)
    host = pools.packed(40, device="cpu")
    assert host.buffer.is_pinned()
    slots = list(range(63, 23, -1))
    with torch.cuda.stream(torch.cuda.Stream()):
        copy_states(pools, slots, host, range(40))
        torch.cuda.current_stream().synchronize()
        for rows, kept in zip(before, host.tensors, strict=True):
            assert same_bits(rows[slots].cpu(), kept)
        for rows in pools.tensors:
            rows.zero_()
        copy_states(host, range(40), pools, slots)
        torch.cuda.current_stream().synchronize()
    for rows, was in zip(pools.tensors, before, strict=True):
        assert same_bits(rows[slots], was[slots])


@pytest.mark.parametrize(
    ("taken", "written", "message"),
    [
        ([6], [0], r"source_slots: got 6; need 0\.\.5"),
        ([-1], [0], r"source_slots: got -1; need 0\.\.5"),
        ([0], [4], r"target_slots: got 4; need 0\.\.3"),
        ([0, 1], [2], "slots: got 2 of the source and 1 of the target"),
        ([0, 1, 2], [2, 1, 2], "target_slots: got 2 twice"),
        ([0, 1.5], [0, 1], r"source_slots: got 1\.5; need whole numbers"),
        ([1, 2], [3, True], "target_slots: got True; need whole numbers"),
        (torch.tensor([1.0]), [0], r"source_slots: got torch.float32 of shape \(1,\)"),
        (torch.tensor([True]), [0], r"source_slots: got torch.bool of shape \(1,\)"),
        ([0], torch.tensor(0), r"target_slots: got torch.int64 of shape \(\)"),
    ],
)
def test_bad_slots_are_refused(
    taken: list[int] | torch.Tensor, written: list[int] | torch.Tensor, message: str
) -> None:
    source, target = make_pools(6), make_pools(4, seed=9)
    before = snapshot(target)
    with pytest.raises(ValueError, match=message):
        copy_states(source, taken, target, written)
    assert all(same_bits(a, b) for a, b in zip(target.tensors, before, strict=True))


def test_pools_that_do_not_fit_are_refused() -> None:
    states = StatePools(torch.zeros(2, 4, 3))
    with pytest.raises(ValueError, match=r"pools: got .*float32.* and .*bfloat16"):
        copy_states(states, [0], StatePools(torch.zeros(2, 4, 3).bfloat16()), [0])
    with pytest.raises(ValueError, match=r"pools: got .*\(3,\)\) and .*\(5,\)"):
        copy_states(states, [0], StatePools(torch.zeros(2, 4, 5)), [0])
    with pytest.raises(ValueError, match="pools: got 2 layers and 3 layers"):
        copy_states(states, [0], StatePools(torch.zeros(3, 4, 3)), [0])
    with pytest.raises(ValueError, match=r"pools: got \['4 slots on cpu', '5 slots on cpu'\]"):
        StatePools(torch.zeros(2, 4, 3), torch.zeros(2, 5, 3))
    for absent in ((), (torch.zeros(2),)):
        with pytest.raises(ValueError, match=r"need \[slots, \.\.\.\] for each layer"):
            StatePools(*absent)
    with pytest.raises(ValueError, match="pools: got strides"):
        StatePools(torch.zeros(2, 1, 3).expand(2, 4, 3))
    one = torch.zeros(4, 3)
    for twice in (([one, one],), (one[None].expand(2, 4, 3),)):
        with pytest.raises(ValueError, match=r"pools: got (a layer twice|strides)"):
            StatePools(*twice)
    with pytest.raises(ValueError, match="pools: got a tensor without axes"):
        StatePools(torch.zeros(()))
    for other in (None, [[0.0, 1.0]], [torch.zeros(4, 3).numpy()]):
        with pytest.raises(TypeError, match=r"pools: got \w+; need a tensor"):
            StatePools(other)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="implementation: got 'numpy'"):
        copy_states(states, [0], states, [1], implementation="numpy")  # type: ignore[arg-type]


def test_no_gradient_follows_a_copy() -> None:
    source, target = torch.rand(2, 4, 3, requires_grad=True), torch.zeros(2, 4, 3)
    for _ in range(2):
        copy_states(StatePools(source), [1], StatePools(target), [3])
    assert not target.requires_grad
    assert torch.equal(target[:, 3], source.detach()[:, 1])
    copy_states(StatePools(target), [0], StatePools(source), [1])
    assert not source.detach()[:, 1].any()


def test_states_in_8_bits_stay_within_the_bound() -> None:
    generator = torch.Generator().manual_seed(0)
    row_sizes = 10.0 ** torch.linspace(-44, 38, 500, dtype=torch.float64)[:, None, None]
    states = (row_sizes * (2 * torch.rand(500, 4, 128, generator=generator) - 1)).float()
    for given in (states, states.bfloat16(), states[230:290].half()):
        quantized = quantize_states(given)
        assert (quantized.values.dtype, quantized.scale.dtype) == (torch.int8, torch.float32)
        error = (dequantize_states(quantized).double() - given.double()).abs().amax(dim=-1)
        largest = given.double().abs().amax(dim=-1)
        assert bool((error <= largest * (1 / 254 + 2e-7) + 1e-38).all())
        # Half a step is met: the bound could not be smaller.
        normal = largest > 1e-30
        assert float((error / largest)[normal].max()) >= 0.99 / 254
        half_of_it = largest / 508 + 1e-38
        assert not bool((error <= half_of_it).all())


def test_zeros_and_numbers_that_are_not_finite_in_8_bits() -> None:
    states = torch.tensor([[0.0, -0.0], [torch.inf, 1.0], [-torch.inf, 0.0], [torch.nan, 2.0]])
    back = dequantize_states(quantize_states(states))
    assert not back[0].any()
    assert bool(back[1:].isnan().all())
    with pytest.raises(ValueError, match=r"states: got torch\.float64"):
        quantize_states(states.double())


def test_states_in_8_bits_travel_in_pools() -> None:
    quantized = quantize_states(torch.randn(3, 6, 2, 8, 16))
    pools = StatePools(*quantized)
    kept = pools.packed(2)
    copy_states(pools, [5, 2], kept, [0, 1])
    assert same_bits(kept.tensors[1][0], quantized.values[1, 5])
    assert same_bits(kept.tensors[4][1], quantized.scale[1, 2])


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(INTERPRETED, reason="this is the run under the interpreter")
def test_under_the_interpreter() -> None:
    again = run_python(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "triton", __file__),
        TRITON_INTERPRET="1",
        CUDA_VISIBLE_DEVICES="",
    )
    assert again.returncode == 0, again.stdout + again.stderr


@pytest.mark.skipif(INTERPRETED, reason="this is the run under the interpreter")
def test_triton_is_neither_imported_nor_missed_unless_asked_for() -> None:
    program = """
import sys, torch
from state_kernels import StatePools, copy_states
pools = StatePools(torch.zeros(1, 2, 3))
copy_states(pools, [0], pools, [1])
print("triton" in sys.modules)
for installed in (True, False):
    if not installed:
        sys.modules["triton"] = None
    try:
        copy_states(pools, [0], pools, [1], implementation="triton")
    except ValueError as error:
        print(error)
"""
    ran = run_python("-c", program)
    assert ran.stdout.splitlines() == [
        "False",
        "implementation: got 'triton' for tensors on cpu; need a CUDA device; move the tensors "
        "there, or set TRITON_INTERPRET=1 to try the kernels without one",
        "implementation: got 'triton'; need Triton, which is not installed; pip install triton",
    ], ran.stderr
