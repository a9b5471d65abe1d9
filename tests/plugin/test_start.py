"""What cannot work is refused before anything runs, with one line that says what to change."""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.server_args import ServerArgs

from sglang_sparse import plugin, requirements, startup
from sglang_sparse.options import OptionError, SparseOptions
from sglang_sparse.planner import Planner
from sglang_sparse.requirements import REQUIREMENTS, unmet_requirement, unmet_setting
from tree_placement.policy import LossReason, PolicySettings, SparsePolicy


@pytest.fixture(scope="module")
def resolved(model_folder: Path) -> Any:
    """Settings as SGLang resolves them for the tiny model."""
    server_args = ServerArgs(model_path=str(model_folder), radix_cache_backend="sparse")
    server_args.resolve_once()
    return server_args


def test_the_tiny_model_can_be_served(resolved: Any) -> None:
    assert unmet_requirement(resolved) is None


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.flag)
def test_every_requirement_is_refused_by_its_flag(
    monkeypatch: pytest.MonkeyPatch, resolved: Any, requirement: requirements.Requirement
) -> None:
    wrong = {"--mamba-radix-cache-strategy": "no_buffer", "--disaggregation-mode": "prefill"}
    view = requirements.resolving_view(resolved)
    name = requirement.flag.removeprefix("--").replace("-", "_")
    values = {name: wrong.get(requirement.flag, 3)}

    class Spoiled:
        def __getattr__(self, attribute: str) -> Any:
            return values.get(attribute, getattr(view, attribute))

    monkeypatch.setattr(requirements, "resolving_view", lambda server_args: Spoiled())
    line = unmet_requirement(resolved)
    assert line is not None
    assert line.startswith(f"{requirement.flag}: got {values[name]}; need ")
    assert "\n" not in line


def test_a_model_without_states_is_refused(monkeypatch: pytest.MonkeyPatch, resolved: Any) -> None:
    monkeypatch.setattr(requirements, "mambaish_config", lambda model: None)
    line = unmet_requirement(resolved)
    assert line is not None
    assert "no recurrent state" in line


def test_layers_that_export_no_states_are_refused(
    monkeypatch: pytest.MonkeyPatch, resolved: Any
) -> None:
    """By the model's name: nothing runs on states that were never written."""
    monkeypatch.setattr(requirements, "hybrid_gdn_config", lambda model: None)
    line = unmet_requirement(resolved)
    assert line is not None
    assert "Qwen3_5ForCausalLM" in line


def test_a_device_without_a_capturing_kernel_is_refused(
    monkeypatch: pytest.MonkeyPatch, resolved: Any
) -> None:
    platform = SimpleNamespace(device_name="npu", is_cuda=lambda: False)
    monkeypatch.setattr(requirements, "current_platform", platform)
    line = unmet_requirement(resolved)
    assert line is not None
    assert line.startswith("device: got npu; need CUDA or ")


def test_settings_ride_with_sglangs_own(model_folder: Path) -> None:
    construct = startup.engine_server_args(ServerArgs)
    server_args = construct(
        model_path=str(model_folder), radix_cache_backend="sparse", sparse_states_per_path=4
    )
    assert startup.options_of(server_args) == SparseOptions(states_per_path=4)
    with pytest.raises(OptionError, match="--sparse-sates"):
        construct(model_path="M", radix_cache_backend="sparse", sparse_sates=4)


def test_a_setting_without_the_back_end_is_refused() -> None:
    construct = startup.engine_server_args(ServerArgs)
    with pytest.raises(OptionError, match="need --radix-cache-backend sparse"):
        construct(model_path="M", sparse_states_per_path=4)


def test_a_wrong_flag_exits_with_one_line() -> None:
    given = argparse.Namespace(radix_cache_backend="sparse", sparse_decay=2.0)
    with pytest.raises(SystemExit) as caught:
        startup.from_command_line(lambda cls, args: SimpleNamespace(**vars(args)), None, given)
    assert str(caught.value).startswith("error: --sparse-decay: got 2.0; need ")


def test_hugging_faces_kernels_package_is_not_shadowed() -> None:
    import kernels

    assert "site-packages" in str(kernels.__file__)
    assert not (Path(__file__).parents[2] / "kernels" / "__init__.py").exists()


def test_without_the_flag_only_settings_are_hooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing on SGLang's serving path is touched by the plugin itself."""
    hooked = []
    monkeypatch.setattr(
        plugin.HookRegistry, "register", lambda target, hook, kind: hooked.append(target)
    )
    monkeypatch.setattr(plugin, "register_radix_cache_backend", lambda name, factory: None)
    plugin.register()
    assert sorted(hooked) == [
        "sglang.srt.entrypoints.engine.Engine.shutdown",
        "sglang.srt.entrypoints.http_server._setup_and_run_http_server",
        "sglang.srt.server_args.ServerArgs.add_cli_args",
        "sglang.srt.server_args.ServerArgs.from_cli_args",
        "sglang.srt.server_args.ServerArgs.resolve_once",
    ]


def parsed(*flags: str) -> argparse.Namespace:
    """The settings of a command with the sparse back end, as SGLang's own parser reads them."""
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser.parse_args(["--model-path", "M", "--radix-cache-backend", "sparse", *flags])


def from_command_line(args: argparse.Namespace) -> Any:
    """Build SGLang's settings from parsed flags, as the plugin does."""
    return startup.from_command_line(
        lambda cls, args: ServerArgs.from_cli_args(args), ServerArgs, args
    )


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--disable-radix-cache", "--disable-radix-cache: got True; need off"),
        (
            "--mamba-radix-cache-strategy no_buffer",
            "--mamba-radix-cache-strategy: got no_buffer; need extra_buffer",
        ),
        ("--speculative-algorithm EAGLE", "--speculative-algorithm: got EAGLE; need not set"),
        ("--tp-size 2", "--tp-size: got 2; need 1"),
        ("--dp-size 2", "--dp-size: got 2; need 1"),
        ("--pp-size 2", "--pp-size: got 2; need 1"),
        ("--linear-attn-backend flashinfer", "--linear-attn-backend: got flashinfer; need triton"),
        (
            "--linear-attn-prefill-backend flashinfer",
            "--linear-attn-prefill-backend: got flashinfer; need triton",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_sglang_reads_it(flags: str, line: str) -> None:
    """On the command line by an exit, for `Engine` by an exception, with the same line."""
    args = parsed(*flags.split())
    with pytest.raises(SystemExit, match=f"^error: {line}") as exited:
        startup.resolve(pytest.fail, from_command_line(args))
    with pytest.raises(ValueError, match=f"^{line}") as raised:
        startup.resolve(pytest.fail, ServerArgs.from_cli_args(args))
    assert str(exited.value) == f"error: {raised.value}"
    assert "\n" not in str(raised.value)


def test_sglang_alone_would_advise_what_does_not_help(model_folder: Path) -> None:
    """Why settings are looked at before SGLang resolves them."""
    given = {"radix_cache_backend": "sparse", "mamba_radix_cache_strategy": "no_buffer"}
    with pytest.raises(AssertionError, match="Try to set disable_overlap_schedule"):
        ServerArgs(model_path=str(model_folder), **given).resolve_once()


def test_another_linear_backend_serves_where_prefill_is_tritons() -> None:
    args = parsed("--linear-attn-backend", "flashinfer", "--linear-attn-prefill-backend", "triton")
    assert unmet_setting(args) is None


def test_what_sglang_resolves_to_is_looked_at_too(
    monkeypatch: pytest.MonkeyPatch, model_folder: Path
) -> None:
    server_args = ServerArgs(model_path=str(model_folder), radix_cache_backend="sparse")
    monkeypatch.setattr(startup, "unmet_requirement", lambda server_args: "as resolved")
    with pytest.raises(ValueError, match="as resolved"):
        startup.resolve(lambda server_args: None, server_args)


def test_settings_are_checked_once(monkeypatch: pytest.MonkeyPatch, model_folder: Path) -> None:
    """Every process of a server resolves its copy again, which then passes through."""
    server_args = ServerArgs(model_path=str(model_folder), radix_cache_backend="sparse")
    startup.resolve(ServerArgs.resolve_once, server_args)
    copy = pickle.loads(pickle.dumps(server_args))
    monkeypatch.setattr(startup, "unmet_requirement", pytest.fail)
    assert startup.resolve(lambda server_args: "passed", copy) == "passed"


@pytest.mark.parametrize("name", ["spares", "Sparse", "sparse-cache"])
def test_a_name_that_is_almost_ours_is_refused(name: str) -> None:
    server_args = ServerArgs(model_path="M", radix_cache_backend=name)
    with pytest.raises(ValueError, match=f"^--radix-cache-backend: got {name}; need sparse"):
        startup.resolve(pytest.fail, server_args)


@pytest.mark.parametrize("name", [None, "flexkv"])
def test_other_back_ends_pass(name: str | None) -> None:
    server_args = ServerArgs(model_path="M", radix_cache_backend=name)
    assert startup.resolve(lambda server_args: "passed", server_args) == "passed"


def test_a_registered_name_close_to_ours_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "registered_radix_cache_backends", lambda: ["sparser"])
    server_args = ServerArgs(model_path="M", radix_cache_backend="sparser")
    assert startup.resolve(lambda server_args: "passed", server_args) == "passed"


def test_a_state_the_planner_does_not_know_can_go() -> None:
    """Eviction falls back to SGLang's own order, whose states the policy may not know."""
    planner = Planner(SparsePolicy(PolicySettings()))
    planner.state_gone(SimpleNamespace(id=5), LossReason.EVICTED)
