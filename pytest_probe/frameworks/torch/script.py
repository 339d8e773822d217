"""Scripts that make a call again: on saved tensors, or with its values written out."""

from __future__ import annotations

from pytest_probe.frameworks.python.script import LiteralScript, Script

_HEAD = '''"""{title} again, on the tensors saved next to this file: python {name} [cuda]"""
import sys
from pathlib import Path

import torch

saved = torch.load(Path(__file__).with_suffix(".pt"), weights_only=True)
device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
given = {{name: value.to(device) for name, value in saved.items() if not name.startswith(("actual.", "expected."))}}
'''
_TAIL = """for name, actual in found.items():
    wide = torch.complex128 if actual.is_complex() else torch.float64
    actual, expected = (side.detach().cpu().to(wide) for side in (actual, saved["expected." + name]))
    error = (actual - expected).abs()
    worst = error.nan_to_num(torch.inf).argmax() if error.numel() else []
    here, wanted, off = (side.flatten()[worst] for side in (actual, expected, error))
    print(f"{name}: actual {here}, expected {wanted}, error {off}; the worst of {error.numel():,}")
"""
_FORWARD = """result = {call}
outputs = result if isinstance(result, (tuple, list)) else [result]
found = {{f"output.{{i}}": value for i, value in enumerate(outputs) if f"expected.output.{{i}}" in saved}}
found |= {{name: value for name, value in given.items() if "expected." + name in saved}}
"""
_BACKWARD = """inputs = {{name: given[name].requires_grad_() for name in {wanted}}}
result = {call}
outputs = result if isinstance(result, (tuple, list)) else [result]
seeds = {{i: given[f"seed.output.{{i}}"] for i in range(len(outputs)) if f"seed.output.{{i}}" in saved}}
gradients = torch.autograd.grad([outputs[i] for i in seeds], list(inputs.values()), list(seeds.values()))
found = {{f"grad.{{name}}": gradient for name, gradient in zip(inputs, gradients)}}
"""

SCRIPT = Script("torch", "given", _HEAD, _FORWARD, _BACKWARD, _TAIL)


_LITERAL_MOVE = """    moved = [x.to(place, dtype if x.is_floating_point() else None) for x in ({names})]
"""
_LITERAL_BACKWARD = """    inputs = [x.requires_grad_() for x in moved if x.is_floating_point()]
    result = call(*map(laid_out, moved, strides))
    outputs = [x for x in (result if isinstance(result, (tuple, list)) else [result]) if x.requires_grad]
    seeds = [seed.to(outputs[0]) for seed in ({seeds})]
    return [g for g in torch.autograd.grad(outputs[: len(seeds)], inputs, seeds, allow_unused=True) if g is not None]

"""
_LITERAL_LAYOUT = """
def laid_out(x, how):
    strides, offset = how
    if strides is None or 0 in strides:
        return x if strides is None else x[:1].expand(x.shape)
    reach = offset + 1 + sum((size - 1) * step for size, step in zip(x.shape, strides))
    between = float("nan") if x.is_floating_point() else 0
    storage = torch.full((max(reach, 1),), between, dtype=x.dtype, device=x.device)
    return storage.as_strided(x.shape, strides, offset).copy_(x)

"""
_LITERAL_TAIL = """for actual, expected in zip({found}, run("cpu", torch.float64)):
    actual = actual.detach().cpu().to(expected.dtype)
    error = (actual - expected.detach()).abs() if expected.is_floating_point() else actual != expected
    print("actual", actual, "expected", expected.detach(), "error", error, sep="\\n")
"""

LITERAL = LiteralScript(
    "torch",
    "",
    _LITERAL_MOVE,
    _LITERAL_BACKWARD,
    _LITERAL_LAYOUT,
    _LITERAL_TAIL,
    tensor="torch.tensor({values}, dtype=torch.{dtype})",
    full="torch.full({shape}, {value}, dtype=torch.{dtype})",
    changed="{full}.index_copy(0, {places}, {values})",
)
