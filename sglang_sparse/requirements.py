"""What `--radix-cache-backend sparse` needs of the other settings, and how to meet it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sglang.srt.arg_groups.overrides import model_config_of, resolving_view
from sglang.srt.configs.hybrid_arch import hybrid_gdn_config, mambaish_config
from sglang.srt.platforms import current_platform

from sglang_sparse.options import BACKEND
from sglang_sparse.platform.torch_cpu import TorchCpuPlatform


class Requirement(NamedTuple):
    """A condition on one setting: its flag, the condition in words, the test, and what to do."""

    flag: str
    need: str
    is_met: Callable[[Any], bool]
    remedy: str


def _off(flag: str) -> Requirement:
    name = flag.removeprefix("--").replace("-", "_")
    return Requirement(flag, "off", lambda cfg: not getattr(cfg, name), f"leave out {flag}")


def _unset(flag: str) -> Requirement:
    name = flag.removeprefix("--").replace("-", "_")
    return Requirement(flag, "not set", lambda cfg: getattr(cfg, name) is None, f"leave out {flag}")


def _one(flag: str, remedy: str) -> Requirement:
    name = flag.removeprefix("--").replace("-", "_")
    return Requirement(flag, "1", lambda cfg: getattr(cfg, name) == 1, remedy)


REQUIREMENTS: tuple[Requirement, ...] = (
    _off("--disable-radix-cache"),
    Requirement(
        "--mamba-radix-cache-strategy",
        "extra_buffer or extra_buffer_lazy",
        lambda cfg: cfg.mamba_radix_cache_strategy != "no_buffer",
        "set it; no_buffer keeps no state inside a prompt",
    ),
    Requirement(
        "--mamba-max-states-per-path",
        "-1",
        lambda cfg: cfg.mamba_max_states_per_path == -1,
        "leave it out and set --sparse-states-per-path",
    ),
    _unset("--speculative-algorithm"),
    _off("--enable-hierarchical-cache"),
    _off("--enable-lmcache"),
    _off("--enable-flexkv"),
    _off("--enable-unified-cache-external-linker"),
    _off("--enable-session-radix-cache"),
    _off("--enable-streaming-session"),
    _off("--enable-unified-memory"),
    _off("--enable-page-major-kv-layout"),
    _off("--enable-linear-replayssm"),
    _off("--enable-linear-replayssm-spec"),
    _off("--enable-int8-mamba-checkpoint"),
    _off("--enable-mis"),
    _off("--enable-two-batch-overlap"),
    _off("--enable-pdmux"),
    _unset("--dllm-algorithm"),
    Requirement(
        "--tokenizer-worker-num",
        "1",
        lambda cfg: cfg.tokenizer_worker_num == 1,
        "leave it out; further workers do not answer /sparse/integrity",
    ),
    Requirement(
        "--disaggregation-mode",
        "null",
        lambda cfg: cfg.disaggregation_mode == "null",
        "serve prefill and decode from one server",
    ),
    _one("--tp-size", "leave it out and serve from one process"),
    _one("--dp-size", "leave it out and start a server for each replica"),
    _one("--pp-size", "leave it out and serve from one process"),
    _one("--dcp-size", "leave it out and serve from one process"),
    Requirement(
        "--linear-attn-prefill-backend",
        "triton",
        lambda cfg: cfg.linear_attn_prefill_backend in (None, "triton"),
        "set it to triton, whose states can be had at every chunk",
    ),
    Requirement(
        "--linear-attn-backend",
        "triton for prefill",
        lambda cfg: "triton" in (cfg.linear_attn_prefill_backend, cfg.linear_attn_backend),
        "leave it out, or add --linear-attn-prefill-backend triton",
    ),
)


def unmet_requirement(server_args: Any) -> str | None:
    """Return one line that says what cannot work and what to change, None if all is well.

    Reads the settings as SGLang has resolved them, and the model's configuration.
    """
    return (
        unmet_setting(resolving_view(server_args))
        or _unmet_by_model(server_args)
        or _unmet_by_device()
    )


def unmet_setting(cfg: Any) -> str | None:
    """Return one line on the first of `REQUIREMENTS` that settings do not meet, None if none.

    `cfg` holds SGLang's settings, as the user gave them or as SGLang resolved them.
    """
    for requirement in REQUIREMENTS:
        if not requirement.is_met(cfg):
            name = requirement.flag.removeprefix("--").replace("-", "_")
            return (
                f"{requirement.flag}: got {getattr(cfg, name)}; need {requirement.need} with "
                f"--radix-cache-backend {BACKEND}; {requirement.remedy}"
            )
    return None


def _unmet_by_model(server_args: Any) -> str | None:
    model = model_config_of(server_args)
    architecture = model.hf_config.architectures[0]
    if mambaish_config(model) is None:
        return (
            f"--model-path: got {architecture}, which has no recurrent state; need a hybrid model "
            f"with --radix-cache-backend {BACKEND}; leave that flag out, SGLang's own cache "
            "serves this model"
        )
    if hybrid_gdn_config(model) is None:
        return (
            f"--model-path: got {architecture}, whose layers export no states inside a prompt yet; "
            f"need GatedDeltaNet layers with --radix-cache-backend {BACKEND}; leave that flag out"
        )
    return None


def _unmet_by_device() -> str | None:
    if isinstance(current_platform, TorchCpuPlatform) or current_platform.is_cuda():
        return None
    return (
        f"device: got {current_platform.device_name}; need CUDA or the torch_cpu platform with "
        f"--radix-cache-backend {BACKEND}, since no capturing kernel exists for this device; "
        "leave that flag out"
    )
