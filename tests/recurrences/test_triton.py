"""Runs of `triton_checks` where Triton can run, and what is said where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cases import SIZES, make_pass, same_bits

from state_kernels import GatedDeltaRule

CHECKS = Path(__file__).with_name("triton_checks.py")


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
