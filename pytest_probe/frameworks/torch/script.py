"""A script that makes a saved call again: torch and the saved tensors are all that it needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_probe.core.arguments import Arguments, Leaf, mapped
from pytest_probe.errors import Unsupported

HEAD = '''"""{title} again, on the tensors saved beside this file: python {name} [cuda]"""
import sys
from pathlib import Path

import torch

saved = torch.load(Path(__file__).with_suffix(".pt"), weights_only=True)
device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
'''
TAIL = """for name, actual in found.items():
    actual, expected = actual.detach().cpu(), saved["expected." + name]
    error = (actual.to(expected.dtype) - expected).abs()
    worst = error.double().nan_to_num(torch.inf).argmax() if error.numel() else []
    here, wanted, off = (side.flatten()[worst] for side in (actual, expected, error))
    print(f"{name}: actual {here}, expected {wanted}, error {off}; the worst of {error.numel():,}")
"""
SAVED = 'found = {name[7:]: value for name, value in saved.items() if name.startswith("actual.")}\n'
FORWARD = """result = {call}
outputs = result if isinstance(result, (tuple, list)) else [result]
found = {{f"output.{{i}}": value for i, value in enumerate(outputs) if f"expected.output.{{i}}" in saved}}
"""
BACKWARD = """inputs = {{name: saved[name].to(device).requires_grad_() for name in {wanted}}}
result = {call}
outputs = result if isinstance(result, (tuple, list)) else [result]
seeds = {{i: saved[f"seed.output.{{i}}"].to(device) for i in range(len(outputs)) if f"seed.output.{{i}}" in saved}}
gradients = torch.autograd.grad([outputs[i] for i in seeds], list(inputs.values()), list(seeds.values()))
found = {{f"grad.{{name}}": gradient for name, gradient in zip(inputs, gradients)}}
"""


def script(title: str, name: str, path: str, arguments: Arguments, wanted: Sequence[str]) -> str:
    """The text of a script called `name` that makes the call of the function at `path` ("torch.nn.functional.linear").

    wanted are the arguments whose gradients are compared; none: the outputs are. "" for path, and arguments that cannot
    be written down: the script shows both sides as they were saved.
    """
    # Both were read from a dump.
    head = HEAD.format(title=plain_text(title), name=plain_text(name))
    try:
        call = _call(path, arguments, wanted) if path.startswith("torch.") else ""
    except Unsupported:
        call = ""
    if not call:
        return head + SAVED + TAIL
    body = BACKWARD.format(call=call, wanted=list(wanted)) if wanted else FORWARD.format(call=call)
    return head + body + TAIL


def plain_text(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-[]" else "_" for letter in text)


def _call(path: str, arguments: Arguments, wanted: Sequence[str]) -> str:
    def written(value: Any, place: str) -> Any:
        if not isinstance(value, Leaf):
            return Text(literal(value))
        # What takes part in the backward may be written to only in a copy.
        tensor = f"inputs[{place!r}].clone()" if place in wanted else f"saved[{place!r}].to(device)"
        return Text(tensor)

    if not all(name.isidentifier() for name in arguments.kwargs):
        raise Unsupported("a keyword that is no name", "no literal")
    found = mapped(arguments, written)
    texts = [tree_text(value) for value in found.args] + [
        f"{name}={tree_text(value)}" for name, value in found.kwargs.items()
    ]
    return f"{path}({', '.join(texts)})"


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
