"""What cannot work is refused before anything runs, with one line that says what to change."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.server_args import ServerArgs

from sglang_sparse import host, plugin, requirements, startup
from sglang_sparse.options import OptionError, SparseOptions
from sglang_sparse.planner import Planner
from sglang_sparse.requirements import REQUIREMENTS, unmet_requirement
from tree_placement.policy import PolicySettings, SparsePolicy


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
    monkeypatch.setattr(requirements, "current_platform", SimpleNamespace(device_name="cuda"))
    line = unmet_requirement(resolved)
    assert line is not None
    assert line.startswith("device: got cuda; need ")


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


def test_the_host_is_the_one_relied_on() -> None:
    host.check()


def test_another_version_of_the_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "version", lambda name: "0.6.0")
    with pytest.raises(RuntimeError, match=r"sglang: got 0\.6\.0; need 0\.5\.23; run pip"):
        host.check()


@pytest.mark.parametrize(
    "moved",
    [
        host.HostName("sglang.srt.no_such_module.name"),
        host.HostName("sglang.srt.mem_cache.registry.no_such_function"),
        host.HostName("sglang.srt.mem_cache.registry.create_unified_radix_cache", ("context",)),
    ],
)
def test_a_name_that_moved_is_refused(
    monkeypatch: pytest.MonkeyPatch, moved: host.HostName
) -> None:
    monkeypatch.setattr(host, "RELIED_ON", (*host.RELIED_ON, moved))
    with pytest.raises(RuntimeError) as caught:
        host.check()
    assert str(caught.value).startswith(f"{moved.name}: got ")


def test_hugging_faces_kernels_package_is_not_shadowed() -> None:
    import kernels

    assert "site-packages" in str(kernels.__file__)
    assert not (Path(__file__).parents[2] / "kernels" / "__init__.py").exists()


def test_every_import_from_the_host_is_checked() -> None:
    """Each name of SGLang that the package imports is among those checked at start."""
    package = Path(host.__file__).parent
    checked = {relied_on.name for relied_on in host.RELIED_ON}
    imported = set()
    for file in package.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang."):
                imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    imported.discard("sglang.srt.entrypoints.http_server")
    assert imported - checked == set()


def test_an_attribute_that_went_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = host.HostName("sglang.srt.managers.schedule_batch.Req", attributes=("no_such_field",))
    monkeypatch.setattr(host, "RELIED_ON", (gone,))
    with pytest.raises(RuntimeError, match="got no no_such_field; need"):
        host.check()


def test_without_the_flag_only_settings_are_hooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing on SGLang's serving path is touched by the plugin itself."""
    hooked = []
    monkeypatch.setattr(
        plugin.HookRegistry, "register", lambda target, hook, kind: hooked.append(target)
    )
    monkeypatch.setattr(plugin, "register_radix_cache_backend", lambda name, factory: None)
    plugin.register()
    assert sorted(hooked) == [
        "sglang.srt.entrypoints.http_server._setup_and_run_http_server",
        "sglang.srt.server_args.ServerArgs.add_cli_args",
        "sglang.srt.server_args.ServerArgs.check_server_args",
        "sglang.srt.server_args.ServerArgs.from_cli_args",
    ]


def test_a_flag_that_cannot_work_exits_before_sglang_reads_it() -> None:
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    flags = ["--model-path", "M", "--radix-cache-backend", "sparse"]
    for more, line in (
        (["--mamba-radix-cache-strategy", "no_buffer"], "--mamba-radix-cache-strategy: got no_b"),
        (["--speculative-algorithm", "EAGLE"], "--speculative-algorithm: got EAGLE; need not set"),
        (["--linear-attn-backend", "flashinfer"], "--linear-attn-prefill-backend: got "),
    ):
        with pytest.raises(SystemExit, match=f"error: {line}"):
            startup.from_command_line(pytest.fail, None, parser.parse_args([*flags, *more]))


def test_a_state_the_planner_does_not_know_can_go() -> None:
    """Eviction falls back to SGLang's own order, whose states the policy may not know."""
    planner = Planner(SparsePolicy(PolicySettings()))
    planner.state_gone(SimpleNamespace(id=5))
