"""`python -m state_kernels.verify`: what it prints and returns, where all is well and where not."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest
import torch

from state_kernels import SimpleDecay, all_recurrences, transfer
from state_kernels.verify import recurrences, states
from state_kernels.verify.__main__ import main
from state_kernels.verify.records import Check
from state_kernels.verify.trial import relative_error

ONE = ["--quick", "--recurrence", "simple_decay"]


def test_everything_is_within_its_bound_and_what_is_wrong_is_caught() -> None:
    command = [sys.executable, "-m", "state_kernels.verify", "--quick", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    checked = {check["kernel"] for check in report["checks"]}
    assert checked == {r.name for r in all_recurrences()} | {"convolution", "copy", "8 bits"}
    for check in report["checks"]:
        assert check["error"] <= check["bound"] < check["wrong_error"]
    count = len(report["checks"])
    assert f"{count} of {count} errors are within their bounds" in ran.stderr
    assert f"of {count} deliberately wrong results {count} were caught" in ran.stderr
    for cost in report["costs"]:
        assert cost["bytes_moved"] > 0
        assert len(cost["overheads"]) == (0 if cost["kernel"] == "copy" else 4)


def test_a_kernel_off_by_one_in_ten_thousand_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    attend = SimpleDecay.attend

    def slightly_wrong(*arguments: object) -> tuple[torch.Tensor, torch.Tensor]:
        writes, output = attend(*arguments)  # type: ignore[arg-type]
        return writes, output * 1.0001

    monkeypatch.setattr(SimpleDecay, "attend", slightly_wrong)
    assert main(ONE) == 1
    printed = capsys.readouterr().out
    assert printed.count("WRONG") == 2
    assert "1 of 3 errors are within their bounds" in printed


def test_a_write_to_another_slot_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recurrences.Trial.run

    def spill(trial, implementation, captures=None, pool=None):  # type: ignore[no-untyped-def]
        result = run(trial, implementation, captures, pool)
        if pool is not None:
            pool[-1, 0, 0, 0] = 0.0
        return result

    monkeypatch.setattr(recurrences.Trial, "run", spill)
    assert main(ONE) == 1
    assert "inf" in capsys.readouterr().out


def test_a_comparison_that_sees_nothing_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recurrences, "relative_error", lambda got, expected: 0.0)
    assert main(ONE) == 1
    printed = capsys.readouterr().out
    assert printed.count("NOT CAUGHT") == 3
    assert "of 3 deliberately wrong results 0 were caught" in printed


def test_a_copy_that_does_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(check.is_right for check in states.check_copies(torch.device("cpu")))
    monkeypatch.setattr(transfer, "_copy_on_device", lambda *given: None)
    permuted, _ = states.check_copies(torch.device("cpu"))
    assert not permuted.is_right


def test_results_that_are_no_numbers_are_wrong() -> None:
    poisoned = torch.tensor([1.0, math.nan])
    assert relative_error(poisoned, torch.ones(2)) == math.inf
    check = Check("8 bits", "torch", "states", math.nan, 1e-5, "7 bits", math.nan, 0.0)
    assert not check.is_right
    assert not check.caught


def test_help_and_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "--recurrence" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["--recurrence", "lstm"])
    assert ended.value.code == 2
    assert "invalid choice: 'lstm'" in capsys.readouterr().err
