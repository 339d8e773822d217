"""Scripts that make a saved call again, with the framework and the saved tensors alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from pytest_probe.errors import Unsupported
from pytest_probe.model.arguments import Arguments, Leaf, mapped

SAVED = 'found = {name[7:]: value for name, value in saved.items() if name.startswith("actual.")}\n'


class Script(Struct, frozen=True):
    """A framework's script in its parts: head loads what was saved, forward and backward make the call, tail prints.

    module is the framework's name in front of the paths of its functions, given where the script holds an argument that
    takes part in no backward.
    """

    module: str
    given: str
    head: str
    forward: str
    backward: str
    tail: str

    def text(self, title: str, name: str, path: str, arguments: Arguments, wanted: Sequence[str]) -> str:
        """The script called `name` that makes the call of the function at `path` ("torch.nn.functional.linear").

        wanted are the arguments whose gradients are compared; none: the outputs are. "" for path, and arguments that
        cannot be written down: the script shows both sides as they were saved.
        """

        def tensor(place: str) -> str:
            # What takes part in the backward may be written to only in a copy.
            return f"inputs[{place!r}].clone()" if place in wanted else f"{self.given}[{place!r}]"

        head = self.head.format(title=plain(title), name=plain(name))
        try:
            call = call_text(path, arguments, tensor) if path.startswith(f"{self.module}.") else ""
        except Unsupported:
            call = ""
        if not call:
            return head + SAVED + self.tail
        body = self.backward.format(call=call, wanted=list(wanted)) if wanted else self.forward.format(call=call)
        return head + body + self.tail


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
    if isinstance(value, complex):
        # Python writes "infj", which is no number, and drops the sign of a zero.
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    raise Unsupported(f"{type(value).__name__} has no literal", "no literal")
