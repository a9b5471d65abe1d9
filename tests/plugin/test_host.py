"""SGLang is the one relied on: every name, parameter and attribute is missed when it goes."""

from __future__ import annotations

import argparse
import ast
import asyncio
import dataclasses
import enum
import inspect
import io
import json
import logging
import os
import pkgutil
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fastapi import FastAPI

import state_kernels
import tree_placement
from sglang_sparse import backend, host, plugin
from sglang_sparse.host_names import RELIED_ON, HostName
from sglang_sparse.platform.operations import OPERATIONS
from sglang_sparse.requirements import REQUIREMENTS

PACKAGE = Path(host.__file__).parent
PACKAGES = (
    PACKAGE,
    *(Path(package.__file__).parent for package in (tree_placement, state_kernels)),
)

# Whose attributes the package uses beside SGLang's; the last are of a model's configuration, of
# named tuples and of parameter specifications.
ELSEWHERE: tuple[Any, ...] = (str, bytes, dict, list, set, type, Path, os, sys, json)
ELSEWHERE += (dataclasses, dataclasses.Field, HTTPStatus, FastAPI)
ELSEWHERE += (argparse, argparse.ArgumentParser, argparse._ArgumentGroup, logging, logging.Logger)
ELSEWHERE += (torch, torch.Tensor, torch.accelerator, torch.cuda)
ELSEWHERE += (asyncio, asyncio.AbstractEventLoop, io.BufferedWriter, tempfile)
ELSEWHERE += (threading, threading.Thread, time, OSError)
ELSEWHERE += (SimpleNamespace(architectures=[], _replace=None, args=None, kwargs=None),)


CHECK = ("host.py", "host_names.py")
PROGRAMS = ("asking.py", "explain.py", "placement.py")


def sources() -> Iterator[ast.Module]:
    """The package's own modules, but for the check itself, and programs, which run elsewhere."""
    for file in sorted(PACKAGE.rglob("*.py")):
        if file.name not in (*CHECK, *PROGRAMS) and "demo" not in file.parts:
            yield ast.parse(file.read_text())


def attributes(modules: Iterable[ast.Module]) -> set[str]:
    """The names after a dot."""
    return {
        node.attr for tree in modules for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }


def definitions(tree: ast.Module) -> Iterator[str]:
    """The functions, classes and variables of a module, its classes and its instances."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def refusal(monkeypatch: pytest.MonkeyPatch, relied_on: HostName) -> str:
    """What the check says of one name."""
    monkeypatch.setattr(host, "RELIED_ON", (relied_on,))
    with pytest.raises(RuntimeError) as caught:
        host.check()
    return str(caught.value)


def owners(owner: Any, name: str) -> list[Any]:
    """Those of a module, or of a class and its bases, that define a name."""
    return [base for base in getattr(owner, "__mro__", (owner,)) if name in vars(base)]


def remove(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Take a name away from a module or class, and from what a class gives its instances."""
    for base in owners(owner, name):
        monkeypatch.delattr(base, name)
    for base in getattr(owner, "__mro__", (owner,)):
        monkeypatch.delitem(vars(base).get("__annotations__", {}), name, raising=False)
    assigned: Callable[[Any], frozenset[str]] = host._assigned
    monkeypatch.setattr(host, "_assigned", lambda function: assigned(function) - {name})


def test_the_host_is_the_one_relied_on() -> None:
    host.check()


def test_another_version_of_the_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "version", lambda name: "0.6.0")
    with pytest.raises(RuntimeError, match=r"sglang: got 0\.6\.0; need 0\.5\.23; run pip"):
        host.check()


@pytest.mark.parametrize("relied_on", RELIED_ON, ids=lambda relied_on: relied_on.name)
def test_a_name_that_went_is_refused(monkeypatch: pytest.MonkeyPatch, relied_on: HostName) -> None:
    path, _, last = relied_on.name.rpartition(".")
    owner = pkgutil.resolve_name(path)
    if inspect.ismodule(pkgutil.resolve_name(relied_on.name)):
        monkeypatch.setattr(host.pkgutil, "resolve_name", _no_module)
    elif owners(owner, last):
        remove(monkeypatch, owner, last)
    else:
        monkeypatch.delattr(owner, "__getattr__")
    assert refusal(monkeypatch, relied_on).startswith(f"{relied_on.name}: got nothing there")


def _no_module(name: str) -> Any:
    raise ModuleNotFoundError(f"No module named {name!r}")


@pytest.mark.parametrize(
    ("relied_on", "parameter"),
    [(relied_on, name) for relied_on in RELIED_ON for name in relied_on.parameters],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_parameter_that_was_renamed_is_refused(
    monkeypatch: pytest.MonkeyPatch, relied_on: HostName, parameter: str
) -> None:
    path, _, last = relied_on.name.rpartition(".")
    signature = inspect.signature(pkgutil.resolve_name(relied_on.name))

    def renamed(*args: Any, **kwargs: Any) -> None: ...

    renamed.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            each.replace(name="renamed") if each.name == parameter else each
            for each in signature.parameters.values()
        ]
    )
    monkeypatch.setattr(pkgutil.resolve_name(path), last, renamed)
    line = refusal(monkeypatch, relied_on)
    assert line.startswith(f"{relied_on.name}: got the signature (")
    assert "renamed" in line


def test_what_can_no_longer_be_called_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    relied_on = HostName(f"{host.__name__}.VERSION", ("name",))
    assert "VERSION: got a str, which cannot be called; need" in refusal(monkeypatch, relied_on)


@pytest.mark.parametrize(
    ("relied_on", "attribute"),
    [(relied_on, name) for relied_on in RELIED_ON for name in relied_on.attributes],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_an_attribute_that_went_is_refused(
    monkeypatch: pytest.MonkeyPatch, relied_on: HostName, attribute: str
) -> None:
    """Also where methods go on reading it."""
    found = pkgutil.resolve_name(relied_on.name)
    if isinstance(found, type) and issubclass(found, enum.Enum):
        # Flags made of others are members too, which iteration leaves out.
        members = {name: each.value for name, each in found.__members__.items()}
        del members[attribute]
        monkeypatch.setattr(relied_on.name, enum.Enum("Spoiled", members))
    else:
        isclass = inspect.isclass(found) or inspect.ismodule(found)
        remove(monkeypatch, found if isclass else type(found), attribute)
    assert f"got no {attribute}; need" in refusal(monkeypatch, relied_on)


class Reads:
    """A class that gives its instances one attribute, and reads and writes those of others."""

    annotated: int

    def __init__(self, other: Any) -> None:
        self.assigned = self.only_read
        other.of_another = 1


@pytest.mark.parametrize("name", ["only_read", "of_another", "absent"])
def test_what_a_class_only_reads_it_does_not_have(name: str) -> None:
    assert not host._has(Reads, name)


@pytest.mark.parametrize("name", ["assigned", "annotated", "__init__"])
def test_what_a_class_assigns_or_annotates_it_has(name: str) -> None:
    assert host._has(Reads, name)


# Nothing is forgotten


def test_every_import_from_the_host_is_checked() -> None:
    checked = {relied_on.name for relied_on in RELIED_ON}
    imported = {
        f"{node.module}.{alias.name}"
        for module in sources()
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang.")
        for alias in node.names
    }
    assert len(imported) > 20
    assert imported - checked == set()


def test_every_hook_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    hooked = [*backend.HOOKS, *OPERATIONS]
    monkeypatch.setattr(
        plugin.HookRegistry, "register", lambda target, hook, kind: hooked.append(target)
    )
    monkeypatch.setattr(plugin, "register_radix_cache_backend", lambda name, factory: None)
    plugin.register()
    named = {relied_on.name for relied_on in RELIED_ON if relied_on.parameters}
    assert set(hooked) - named == set()


def forgotten(modules: Iterable[ast.Module]) -> set[str]:
    """The attributes that modules use, and nothing defines but SGLang, and nothing checks."""
    ours = {
        name
        for package in PACKAGES
        for file in package.rglob("*.py")
        for name in definitions(ast.parse(file.read_text()))
    }
    elsewhere = {name for each in ELSEWHERE for name in dir(each)}
    checked = {relied_on.name.rpartition(".")[2] for relied_on in RELIED_ON}
    checked |= {name for relied_on in RELIED_ON for name in relied_on.attributes}
    return attributes(modules) - ours - elsewhere - checked


def test_every_attribute_that_only_the_host_has_is_checked() -> None:
    """By its name alone: one that something else has too is not found missing."""
    assert forgotten(sources()) == set()
    assert forgotten([ast.parse("node.lock_ref = node.hit_count")]) == {"hit_count"}


def test_nothing_is_checked_that_is_not_used() -> None:
    text = "\n".join(map(ast.unparse, sources())).replace("--", "").replace("-", "_")
    used = set(re.findall(r"\w+", text))
    for relied_on in RELIED_ON:
        names = relied_on.attributes or (relied_on.name.rpartition(".")[2],)
        assert {name for name in names if not name.startswith("__")} - used == set()


def test_every_setting_that_is_read_is_checked() -> None:
    (settings,) = (each for each in RELIED_ON if each.name.endswith(".ServerArgs"))
    read = {requirement.flag.removeprefix("--").replace("-", "_") for requirement in REQUIREMENTS}
    read |= {
        node.attr
        for module in sources()
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("cfg", "server_args")
    }
    assert read - set(settings.attributes) == set()
