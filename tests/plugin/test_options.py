"""Settings are read strictly: a wrong or unknown one is refused by name."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from sglang_sparse.options import OptionError, SparseOptions, add_arguments


def test_defaults_are_valid() -> None:
    assert SparseOptions.from_mapping({}) == SparseOptions()


def test_one_state_would_be_the_end_s_alone() -> None:
    with pytest.raises(OptionError, match="got 1; need a whole number from 2 to 1024; change it"):
        SparseOptions(states_per_path=1)
    assert SparseOptions(states_per_path=2).states_per_path == 2


def test_names_carry_a_prefix() -> None:
    assert SparseOptions.from_mapping({"sparse_states_per_path": 4}).states_per_path == 4


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"sparse_states_per_paht": 4}, "--sparse-states-per-paht"),
        ({"sparse_states_per_path": 0}, "--sparse-states-per-path"),
        ({"sparse_states_per_path": 1}, "--sparse-states-per-path"),
        ({"sparse_states_per_path": 1025}, "--sparse-states-per-path"),
        ({"sparse_states_per_path": "8"}, "--sparse-states-per-path"),
        ({"sparse_states_per_path": True}, "--sparse-states-per-path"),
        ({"sparse_decay": 0.0}, "--sparse-decay"),
        ({"sparse_decay": 1.5}, "--sparse-decay"),
        ({"sparse_decay": float("nan")}, "--sparse-decay"),
        ({"sparse_bin": 0}, "--sparse-bin"),
        ({"sparse_tail": -1}, "--sparse-tail"),
        ({"sparse_subtrees": 0}, "--sparse-subtrees"),
        ({"sparse_config": "no/such/file.json"}, "--sparse-config"),
    ],
)
def test_refused_by_name(given: dict[str, object], named: str) -> None:
    with pytest.raises(OptionError) as caught:
        SparseOptions.from_mapping(given)
    message = str(caught.value)
    assert message.startswith(f"{named}: got ")
    assert "; need " in message
    assert "\n" not in message


def test_a_file_gives_settings_and_a_flag_wins(tmp_path: Path) -> None:
    file = tmp_path / "sparse.json"
    file.write_text(json.dumps({"states_per_path": 4, "decay": 0.9}))
    options = SparseOptions.from_mapping({"sparse_config": str(file), "sparse_decay": 0.5})
    assert options == SparseOptions(states_per_path=4, decay=0.5)


@pytest.mark.parametrize("text", ["", "[1]", '{"state_per_path": 4}', "{"])
def test_a_wrong_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "sparse.json"
    file.write_text(text)
    with pytest.raises(OptionError, match="--sparse-"):
        SparseOptions.from_mapping({"sparse_config": str(file)})


def test_help_lists_every_setting_with_its_default() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    text = " ".join(parser.format_help().split())
    for flag, default in (
        ("--sparse-states-per-path", "(default: 16)"),
        ("--sparse-decay", "(default: 0.99)"),
        ("--sparse-bin", "(default: 64)"),
        ("--sparse-tail", "(default: 192)"),
        ("--sparse-subtrees", "(default: 4096)"),
        ("--sparse-statistics", "(default: none)"),
        ("--sparse-config", "JSON"),
    ):
        assert flag in text
        assert default in text


def test_flags_not_given_are_not_in_the_namespace() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert vars(parser.parse_args([])) == {}
    assert vars(parser.parse_args(["--sparse-tail", "64"])) == {"sparse_tail": 64}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('{"sparse_tail": 1}', "got a setting that does not exist"),
        ('{"tail": 4.5}', "need a whole number"),
        ('{"tail": 1, "tail": 2}', "tail is there twice"),
        ('{"states-per-path": 4, "states_per_path": 5}', "states_per_path is there twice"),
        ("[" * 200_000, "need a readable JSON file"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, wrong: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(text)
    with pytest.raises(OptionError, match=wrong) as refused:
        SparseOptions.from_mapping({"sparse_config": str(file)})
    assert str(file) in str(refused.value)
    assert "--sparse-config" in str(refused.value)
