"""Scripts that make a call again with the framework alone: on saved tensors, or with its values written out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.base import LiteralCall
from pytest_probe.model.run import Arguments, Leaf, mapped
from pytest_probe.numerics.dtypes import PACKED, AnyArray, dtype_name, is_floating, widen

_SAVED = 'found = {name[7:]: value for name, value in saved.items() if name.startswith("actual.")}\n'


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

        head = self.head.format(title=_plain(title), name=_plain(name))
        try:
            call = _call_text(path, arguments, tensor) if path.startswith(f"{self.module}.") else ""
        except Unsupported:
            call = ""
        if not call:
            return head + _SAVED + self.tail
        body = self.backward.format(call=call, wanted=list(wanted)) if wanted else self.forward.format(call=call)
        return head + body + self.tail


def _call_text(path: str, arguments: Arguments, tensor: Callable[[str], str]) -> str:
    """The call of the function at `path`; tensor gives the text of the one at a place ("input.0").

    Raises Unsupported where arguments cannot be written down.
    """

    def written(value: Any, place: str) -> Any:
        return _Text(tensor(place) if isinstance(value, Leaf) else literal(value))

    if not all(name.isidentifier() for name in arguments.kwargs):
        raise Unsupported("a keyword that is no name", "no literal")
    return _written_call(path, mapped(arguments, written))


def _written_call(path: str, texts: Arguments) -> str:
    named = (f"{name}={_tree_text(value)}" for name, value in texts.kwargs.items())
    return f"{path}({', '.join([*map(_tree_text, texts.args), *named])})"


def _plain(text: str) -> str:
    """What a dump names, without letters that mean something in a script."""
    return "".join(letter if letter.isalnum() or letter in "._-[]" else "_" for letter in text)


class _Text(str):
    """A piece of the script."""

    __slots__ = ()


def _tree_text(value: Any) -> str:
    if isinstance(value, _Text):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_tree_text(item)}" for key, item in value.items()) + "}"
    inside = ", ".join(map(_tree_text, value))
    return f"[{inside}]" if isinstance(value, list) else f"({inside},)"


def literal(value: Any) -> str:
    """Raises Unsupported for anything but a number, a text or None."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, complex):
        # Python writes "infj", which is no number, and drops the sign of a zero.
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    raise Unsupported(f"{type(value).__name__} has no literal", "no literal")


# Elements that are written out, and values of a tensor that is zero but for those.
_LONGEST, _FEW = 4096, 64


_HEAD = '''"""{title}: python THIS_FILE [device]"""
import sys

import {module}

device = sys.argv[1] if len(sys.argv) > 1 else {device!r}
{setup}{tensors}

def call({names}):
    return {call}

'''
_RUN = """
def run(place, dtype=None):
"""
_FORWARD = """    result = call(*map(laid_out, moved, strides))
    return [x for x in (result if isinstance(result, (tuple, list)) else [result]) if {module}.is_tensor(x)]

"""


class LiteralScript(Struct, frozen=True):
    """A framework's script in its parts. module is what it imports, setup what it does before it makes tensors; move
    are the first lines of run(), backward its further ones for gradients; layout defines laid_out(), tail prints.

    tensor is the expression for a list of numbers, full that for one number everywhere, changed that for another tensor
    with some elements replaced.
    """

    module: str
    setup: str
    move: str
    backward: str
    layout: str
    tail: str
    tensor: str
    full: str
    changed: str

    def text(self, found: LiteralCall) -> str:
        """See Framework.literal_script."""
        tensors: dict[str, Leaf] = {}

        def written(value: Any, place: str) -> Any:
            if not isinstance(value, Leaf):
                return _Text(literal(value))
            name = f"x{len(tensors)}"
            tensors[name] = value
            return _Text(name)

        try:
            call = _written_call(found.path, mapped(found.arguments, written))
            lines = [f"{name} = {self.tensor_text(leaf.array)}" for name, leaf in tensors.items()]
            seeds = "".join(f"{self.tensor_text(array)}, " for array in found.seeds.values())
            actual = [self.tensor_text(array) for array in found.actual]
        except Unsupported:
            return ""
        names = ", ".join(tensors)
        head = _HEAD.format(
            # It was made of what a dump says.
            title="".join(letter for letter in found.title if letter.isprintable() and letter not in "\\\"'{}"),
            module=self.module,
            device=found.device,
            setup=self.setup,
            tensors="\n".join(lines),
            names=names,
            call=call,
        )
        listed = f"{names}," if names else ""
        rest = self.backward if found.wanted else _FORWARD
        body = _RUN + (self.move + rest).format(names=listed, seeds=seeds, module=self.module)
        tail = f"found = [{', '.join(actual)}]\n\n" if actual else ""
        tail += self.tail.format(found="found" if actual else "run(device)")
        if all(leaf.strides is None and not leaf.offset for leaf in tensors.values()):
            return head + body.replace("call(*map(laid_out, moved, strides))", "call(*moved)") + tail
        strides = ", ".join(repr(_layout(leaf)) for leaf in tensors.values())
        return f"{head}strides = [{strides}]\n{self.layout}{body}{tail}"

    def tensor_text(self, array: AnyArray) -> str:
        """An expression that makes the tensor; of many elements, most of them one number, that number and the others.
        Raises Unsupported for a tensor that is too long to be read."""
        dtype = dtype_name(array.dtype)
        if dtype == PACKED:
            raise Unsupported("bytes of two numbers each", "no literal")
        wide = widen(array) if is_floating(array.dtype) else array
        if array.size <= 8:
            return self.tensor.format(values=_listed(wide), dtype=dtype)
        flat, shape = wide.reshape(-1), list(array.shape)
        # The most frequent number, and the places of all others. Zeros of both signs are two numbers.
        bits = np.ascontiguousarray(flat).view(np.dtype(f"u{flat.dtype.itemsize}")) if flat.dtype.kind != "c" else flat
        numbers, first, counts = np.unique(bits, return_index=True, return_counts=True)
        best = int(counts.argmax())
        common, others = flat[first[best]], np.flatnonzero(bits != numbers[best])
        if not others.size:
            return self.full.format(shape=shape, value=_number(common), dtype=dtype)
        if others.size <= min(_FEW, array.size // 2):
            full = self.full.format(shape=[array.size], value=_number(common), dtype=dtype)
            values = self.tensor.format(values=_listed(flat[others]), dtype=dtype)
            places = self.tensor.format(values=others.tolist(), dtype="int64")
            return f"{self.changed.format(full=full, places=places, values=values)}.reshape({shape})"
        if array.size > _LONGEST:
            raise Unsupported(f"{array.size:,} different numbers", "no literal")
        return f"{self.tensor.format(values=_listed(flat), dtype=dtype)}.reshape({shape})"


def _layout(leaf: Leaf) -> tuple[tuple[int, ...] | None, int]:
    if leaf.strides is None and leaf.offset:
        order = tuple(stride // leaf.array.itemsize for stride in np.empty(leaf.array.shape, leaf.array.dtype).strides)
        return order, leaf.offset
    return leaf.strides, leaf.offset


def _listed(array: AnyArray) -> str:
    if array.ndim == 0:
        return _number(array[()])
    return f"[{', '.join(_listed(part) if part.ndim else _number(part[()]) for part in map(np.asarray, array))}]"


def _number(value: Any) -> str:
    number = value.item()
    if not isinstance(number, float):
        return repr(number)
    if not math.isfinite(number):
        return f"float('{number}')"
    # As few digits as name it: most are float32, or narrower.
    return str(np.float32(number)) if float(np.float32(number)) == number else repr(number)
