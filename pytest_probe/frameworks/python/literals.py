"""Scripts that make a call with its values written out: they need the framework alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec import Struct

from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.base import LiteralCall
from pytest_probe.frameworks.python.script import Text, literal, tree_text
from pytest_probe.model.arguments import Leaf, mapped
from pytest_probe.numerics.dtypes import AnyArray, is_floating, widen

# Elements that are written out, and values of a tensor that is zero but for those.
LONGEST, FEW = 4096, 64


HEAD = '''"""{title}: python THIS_FILE [device]"""
import sys

import {module}

device = sys.argv[1] if len(sys.argv) > 1 else {device!r}
{setup}{tensors}

def call({names}):
    return {call}

'''
RUN = """
def run(place, dtype=None):
"""
FORWARD = """    result = call(*map(laid_out, moved, strides))
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
                return Text(literal(value))
            name = f"x{len(tensors)}"
            tensors[name] = value
            return Text(name)

        try:
            tree = mapped(found.arguments, written)
            texts = [tree_text(value) for value in tree.args]
            texts += [f"{name}={tree_text(value)}" for name, value in tree.kwargs.items()]
            lines = [f"{name} = {self.tensor_text(leaf.array)}" for name, leaf in tensors.items()]
            seeds = "".join(f"{self.tensor_text(array)}, " for array in found.seeds.values())
            actual = [self.tensor_text(array) for array in found.actual]
        except Unsupported:
            return ""
        names = ", ".join(tensors)
        call = f"{found.path}({', '.join(texts)})"
        head = HEAD.format(
            title=_title(found.title),
            module=self.module,
            device=found.device,
            setup=self.setup,
            tensors="\n".join(lines),
            names=names,
            call=call,
        )
        listed = f"{names}," if names else ""
        rest = self.backward if found.wanted else FORWARD
        body = RUN + (self.move + rest).format(names=listed, seeds=seeds, module=self.module)
        tail = f"found = [{', '.join(actual)}]\n\n" if actual else ""
        tail += self.tail.format(found="found" if actual else "run(device)")
        if all(leaf.strides is None and not leaf.offset for leaf in tensors.values()):
            return head + body.replace("call(*map(laid_out, moved, strides))", "call(*moved)") + tail
        strides = ", ".join(repr(_layout(leaf)) for leaf in tensors.values())
        return f"{head}strides = [{strides}]\n{self.layout}{body}{tail}"

    def tensor_text(self, array: AnyArray) -> str:
        """An expression that makes the tensor; of many elements, most of them one number, that number and the others.
        Raises Unsupported for a tensor that is too long to be read."""
        dtype = array.dtype.name
        wide = widen(array) if is_floating(array.dtype) else array
        if array.size <= 8:
            return self.tensor.format(values=_listed(wide), dtype=dtype)
        flat, shape = wide.reshape(-1), list(array.shape)
        common, others = _common(flat)
        if not others.size:
            return self.full.format(shape=shape, value=_number(common), dtype=dtype)
        if others.size <= min(FEW, array.size // 2):
            full = self.full.format(shape=[array.size], value=_number(common), dtype=dtype)
            values = self.tensor.format(values=_listed(flat[others]), dtype=dtype)
            places = self.tensor.format(values=others.tolist(), dtype="int64")
            return f"{self.changed.format(full=full, places=places, values=values)}.reshape({shape})"
        if array.size > LONGEST:
            raise Unsupported(f"{array.size:,} different numbers", "no literal")
        return f"{self.tensor.format(values=_listed(flat), dtype=dtype)}.reshape({shape})"


def _title(text: str) -> str:
    # It was made of what a dump says.
    return "".join(letter for letter in text if letter.isprintable() and letter not in "\\\"'{}")


def _layout(leaf: Leaf) -> tuple[tuple[int, ...] | None, int]:
    if leaf.strides is None and leaf.offset:
        order = tuple(stride // leaf.array.itemsize for stride in np.empty(leaf.array.shape, leaf.array.dtype).strides)
        return order, leaf.offset
    return leaf.strides, leaf.offset


def _common(flat: AnyArray) -> tuple[Any, AnyArray]:
    """The most frequent number, and the places of all others. The sign of a zero tells."""
    bits = np.ascontiguousarray(flat).view(np.dtype(f"u{flat.dtype.itemsize}")) if flat.dtype.kind != "c" else flat
    values, first, counts = np.unique(bits, return_index=True, return_counts=True)
    best = int(counts.argmax())
    return flat[first[best]], np.flatnonzero(bits != values[best])


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
