"""Runs of `triton_checks` where Triton can run, and what is said where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import SIZES, capture_all, make_pass, same_bits

from state_kernels import KDA, GatedDeltaRule, Recurrence, SimpleDecay
from state_kernels.recurrence import Sizes

CHECKS = Path(__file__).with_name("triton_checks.py")
SHARED_MEMORY_OF_HOPPER = 227 * 1024
TRITON_NAMES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int64: "*i64"}


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def run_checks(**environment: str) -> None:
    ran = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(CHECKS), **environment)
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_kernels_under_the_interpreter() -> None:
    run_checks(TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device to run full shapes on")
def test_kernels_on_a_gpu() -> None:
    run_checks(TRITON_INTERPRET="0")


def compile_for_hopper(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> int:
    """Compile a launch instead of running it, and return the bytes of shared memory it takes."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    options = {x: named.pop(x) for x in ("num_warps", "num_stages") if x in named}
    given = dict(zip(kernel.arg_names, arguments, strict=False)) | named
    signature, constants, aligned = {}, {}, {}
    for place, name in enumerate(kernel.arg_names):
        value = given[name]
        if isinstance(value, torch.Tensor):
            signature[name] = TRITON_NAMES[value.dtype]
            aligned[place,] = [["tt.divisibility", 16]]
        elif kernel.params[place].is_constexpr or value is None or value == 1:
            signature[name], constants[place,] = "constexpr", value
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i64"
    source = ASTSource(kernel, signature, constants, aligned)
    shared: int = compile(source, GPUTarget("cuda", 90, 32), options).metadata.shared
    return shared


def launches_of(rule: Recurrence[Any, Any], size: int, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Return the shared memory of each launch of a pass with heads of this size in bfloat16."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("nothing is compiled under the interpreter")
    runtime = pytest.importorskip("triton.runtime.jit")
    from state_kernels.gpu.launch import run_kernels

    taken = set()
    monkeypatch.setattr(
        runtime.JITFunction, "run", lambda *x, **named: taken.add(compile_for_hopper(*x, **named))
    )
    given = make_pass(rule, (130,), sizes=Sizes(16, 32, size, size))
    terms = rule.kernel_terms(given.inputs.map(lambda x: x.to(torch.bfloat16)))
    assert terms is not None
    pool = given.initial_state.expand(2, *given.row)
    run_kernels(terms, (0, 130), given.initial_state, capture_all(0, range(64, 66), range(2)), pool)
    return taken


@pytest.mark.parametrize(
    "rule", [GatedDeltaRule(qk_l2norm=True), KDA()], ids=lambda each: each.name
)
def test_launches_fit_a_hopper_gpu(
    rule: Recurrence[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = launches_of(rule, 128, monkeypatch)
    print(f"bytes of shared memory: {sorted(taken)}")
    assert max(taken) <= SHARED_MEMORY_OF_HOPPER


def test_longer_keys_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(launches_of(SimpleDecay(), 256, monkeypatch)) > SHARED_MEMORY_OF_HOPPER


def test_auto_on_a_cpu_is_chunked() -> None:
    given = make_pass(GatedDeltaRule(), (70,), sizes=SIZES)
    got, expected = given.run(implementation="auto"), given.run(implementation="chunked")
    assert same_bits(got.output, expected.output)
    assert same_bits(got.final_state, expected.final_state)


def test_triton_is_neither_imported_nor_missed_unless_asked_for() -> None:
    program = """
import sys, torch
from state_kernels import gated_delta_rule
x, g = torch.ones(3, 1, 16), -torch.ones(3, 1)
batch = dict(cu_seqlens=torch.tensor([0, 3]))
gated_delta_rule(x, x, x, g, -g, **batch)
print("triton" in sys.modules)
for installed in (True, False):
    if not installed:
        sys.modules["triton"] = None
    try:
        gated_delta_rule(x, x, x, g, -g, **batch, implementation="triton")
    except ValueError as error:
        print(str(error).split(";")[0])
"""
    ran = run_python("-c", program, TRITON_INTERPRET="0")
    assert ran.stdout.splitlines() == [
        "False",
        "implementation: got 'triton' for tensors on cpu",
        "implementation: got 'triton'",
    ], ran.stderr
