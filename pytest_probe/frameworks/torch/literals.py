"""A script that makes a call with its values written out: torch is all that it needs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pytest_probe.core.arguments import Leaf, mapped
from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.base import LiteralCall
from pytest_probe.frameworks.script import Text, literal, tree_text
from pytest_probe.numerics.dtypes import AnyArray, is_floating, widen

# Elements that are written out, and values of a tensor that is zero but for those.
LONGEST, FEW = 4096, 64

HEAD = '''"""{title}: python THIS_FILE [device]"""
import sys

import torch

device = sys.argv[1] if len(sys.argv) > 1 else {device!r}
{tensors}

def call({names}):
    return {call}

'''
FORWARD = """
def run(place, dtype=None):
    moved = [x.to(place, dtype if x.is_floating_point() else None) for x in ({names})]
    result = call(*map(laid_out, moved, strides))
    return [x for x in (result if isinstance(result, (tuple, list)) else [result]) if torch.is_tensor(x)]

"""
BACKWARD = """
def run(place, dtype=None):
    moved = [x.to(place, dtype if x.is_floating_point() else None) for x in ({names})]
    inputs = [x.requires_grad_() for x in moved if x.is_floating_point()]
    result = call(*map(laid_out, moved, strides))
    outputs = [x for x in (result if isinstance(result, (tuple, list)) else [result]) if x.requires_grad]
    seeds = [seed.to(outputs[0]) for seed in ({seeds})]
    return [g for g in torch.autograd.grad(outputs[: len(seeds)], inputs, seeds, allow_unused=True) if g is not None]

"""
LAYOUT = """
def laid_out(x, how):
    strides, offset = how
    if strides is None or 0 in strides:
        return x if strides is None else x[:1].expand(x.shape)
    reach = offset + 1 + sum((size - 1) * step for size, step in zip(x.shape, strides))
    between = float("nan") if x.is_floating_point() else 0
    storage = torch.full((max(reach, 1),), between, dtype=x.dtype, device=x.device)
    return storage.as_strided(x.shape, strides, offset).copy_(x)

"""
TAIL = """for actual, expected in zip({found}, run("cpu", torch.float64)):
    actual = actual.detach().cpu().to(expected.dtype)
    error = (actual - expected.detach()).abs() if expected.is_floating_point() else actual != expected
    print("actual", actual, "expected", expected.detach(), "error", error, sep="\\n")
"""


def literal_script(found: LiteralCall) -> str:
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
        lines = [f"{name} = {tensor_text(leaf.array)}" for name, leaf in tensors.items()]
        seeds = "".join(f"{tensor_text(array)}, " for array in found.seeds.values())
    except Unsupported:
        return ""
    names = ", ".join(tensors)
    values = {"names": f"{names},", "seeds": seeds}
    call = f"{found.path}({', '.join(texts)})"
    head = HEAD.format(title=_title(found.title), device=found.device, tensors="\n".join(lines), names=names, call=call)
    given = f"found = [{', '.join(map(tensor_text, found.actual))}]\n\n" if found.actual else ""
    tail = given + TAIL.format(found="found" if found.actual else "run(device)")
    body = BACKWARD.format(**values) if found.wanted else FORWARD.format(**values)
    plain = all(leaf.strides is None and not leaf.offset for leaf in tensors.values())
    if plain:
        return head + body.replace("call(*map(laid_out, moved, strides))", "call(*moved)") + tail
    strides = ", ".join(repr(_layout(leaf)) for leaf in tensors.values())
    return head + f"strides = [{strides}]\n" + LAYOUT + body + tail


def _title(text: str) -> str:
    # It was made of what a dump says.
    return "".join(letter for letter in text if letter.isprintable() and letter not in "\\\"'{}")


def _layout(leaf: Leaf) -> tuple[tuple[int, ...] | None, int]:
    if leaf.strides is None and leaf.offset:
        order = tuple(stride // leaf.array.itemsize for stride in np.empty(leaf.array.shape, leaf.array.dtype).strides)
        return order, leaf.offset
    return leaf.strides, leaf.offset


def tensor_text(array: AnyArray) -> str:
    """An expression that makes the tensor; of many elements, most of them one number, that number and the others.
    Raises Unsupported for a tensor that is too long to be read."""
    dtype = f"dtype=torch.{array.dtype.name}"
    flat = widen(array).reshape(-1) if is_floating(array.dtype) else array.reshape(-1)
    if array.size <= 8:
        return f"torch.tensor({_listed(widen(array) if is_floating(array.dtype) else array)}, {dtype})"
    shape = list(array.shape)
    common, others = _common(flat)
    if not others.size:
        return f"torch.full({shape}, {_number(common)}, {dtype})"
    if others.size <= min(FEW, array.size // 2):
        values = f"torch.tensor({_listed(flat[others])}, {dtype})"
        places = f"torch.tensor({others.tolist()})"
        return (
            f"torch.full([{array.size}], {_number(common)}, {dtype}).index_copy(0, {places}, {values}).reshape({shape})"
        )
    if array.size > LONGEST:
        raise Unsupported(f"{array.size:,} different numbers", "no literal")
    return f"torch.tensor({_listed(flat)}, {dtype}).reshape({shape})"


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
