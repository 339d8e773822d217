"""A call as a line of a script."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from pytest_probe.core.arguments import Arguments, Leaf, mapped
from pytest_probe.errors import Unsupported


def call_text(path: str, arguments: Arguments, tensor: Callable[[str], str]) -> str:
    """The call of the function at `path`; tensor gives the text of the one at a place ("input.0").

    Raises Unsupported where arguments cannot be written down.
    """

    def written(value: Any, place: str) -> Any:
        return Text(tensor(place) if isinstance(value, Leaf) else literal(value))

    if not all(name.isidentifier() for name in arguments.kwargs):
        raise Unsupported("a keyword that is no name", "no literal")
    found = mapped(arguments, written)
    texts = [tree_text(value) for value in found.args] + [
        f"{name}={tree_text(value)}" for name, value in found.kwargs.items()
    ]
    return f"{path}({', '.join(texts)})"


def plain(text: str) -> str:
    """What a dump names, without letters that mean something in a script."""
    return "".join(letter if letter.isalnum() or letter in "._-[]" else "_" for letter in text)


class Text(str):
    """A piece of the script."""

    __slots__ = ()


def tree_text(value: Any) -> str:
    if isinstance(value, Text):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {tree_text(item)}" for key, item in value.items()) + "}"
    inside = ", ".join(map(tree_text, value))
    return f"[{inside}]" if isinstance(value, list) else f"({inside},)"


def literal(value: Any) -> str:
    """Raises Unsupported for what is no number, text or None."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or type(value) in (bool, int, float, complex, str):
        return repr(value)
    raise Unsupported(f"{type(value).__name__} has no literal", "no literal")
