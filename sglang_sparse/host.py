"""The check at start that SGLang is the one relied on.

SGLang's internals change between releases without notice. A name that moved, a parameter or an
attribute that went, stops the start here with a line that says which.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import textwrap
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any

from sglang_sparse.host_names import RELIED_ON, HostName

VERSION = "0.5.23"


def check() -> None:
    """Check SGLang's version and every name of `host_names.RELIED_ON`.

    Raises
    ------
    RuntimeError
        On the first that does not fit, with what to install.
    """
    installed = version("sglang")
    if installed != VERSION:
        raise RuntimeError(
            f"sglang: got {installed}; need {VERSION}; run pip install sglang=={VERSION}"
        )
    for relied_on in RELIED_ON:
        problem = _problem(relied_on)
        if problem is not None:
            raise RuntimeError(
                f"{relied_on.name}: got {problem}; need the one of sglang {VERSION}; "
                f"run pip install --force-reinstall sglang=={VERSION}"
            )


def _problem(relied_on: HostName) -> str | None:
    try:
        found = pkgutil.resolve_name(relied_on.name)
    except (ImportError, AttributeError) as error:
        return f"nothing there ({error})"
    if relied_on.parameters:
        if not callable(found):
            return f"a {type(found).__name__}, which cannot be called"
        parameters = iter(inspect.signature(found).parameters)
        if not all(name in parameters for name in relied_on.parameters):
            return f"the signature {inspect.signature(found)}"
    missing = [name for name in relied_on.attributes if not _has(found, name)]
    return f"no {', '.join(missing)}" if missing else None


def _has(found: Any, attribute: str) -> bool:
    """Tell whether a module or class has an attribute, or a class gives one to its instances.

    A class gives what it annotates or a method assigns; what a method only reads does not count.
    """
    if hasattr(found, attribute):
        return True
    for base in getattr(found, "__mro__", ()):
        if attribute in inspect.get_annotations(base):
            return True
        functions = filter(inspect.isfunction, map(_original, vars(base).values()))
        # The bytecode tells cheaply which methods mention the name at all.
        if any(
            attribute in function.__code__.co_names and attribute in _assigned(function)
            for function in functions
        ):
            return True
    return False


def _original(member: Any) -> Any:
    """Return a method as its class defines it, without the hooks around it."""
    return inspect.unwrap(member) if callable(member) else member


@cache
def _assigned(function: Callable[..., Any]) -> frozenset[str]:
    """Return the attributes that a method assigns of its first parameter."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except OSError:
        return frozenset()
    itself = next(iter(function.__code__.co_varnames), None)
    return frozenset(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == itself
    )
