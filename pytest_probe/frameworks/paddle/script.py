"""Scripts that make a call again: on saved tensors, or with its values written out."""

from __future__ import annotations

from pytest_probe.frameworks.python.script import LiteralScript, Script

_HEAD = '''"""{title} again, on the tensors saved next to this file: python {name} [gpu]"""
import sys
from pathlib import Path

import numpy as np
import paddle

paddle.set_device(sys.argv[1] if len(sys.argv) > 1 else "cpu")
saved = paddle.load(str(Path(__file__).with_suffix(".pt")))
'''
_TAIL = """for name, actual in found.items():
    wide = "complex128" if actual.is_complex() else "float64"
    actual, expected = (side.astype(wide).numpy() for side in (actual, saved["expected." + name]))
    error = np.abs(actual - expected)
    worst = np.unravel_index(np.argmax(np.nan_to_num(error, nan=np.inf)), error.shape) if error.size else ()
    here, wanted, off = (side[worst] for side in (actual, expected, error))
    print(f"{name}: actual {here}, expected {wanted}, error {off}; the worst of {error.size:,}")
"""
_FORWARD = """result = {call}
outputs = result if isinstance(result, (tuple, list)) else [result]
found = {{f"output.{{i}}": value for i, value in enumerate(outputs) if f"expected.output.{{i}}" in saved}}
found |= {{name: saved[name] for name in saved if "expected." + name in saved}}
"""
_BACKWARD = """inputs = {{name: saved[name] for name in {wanted}}}
for value in inputs.values():
    value.stop_gradient = False
result = {call}
outputs = result if isinstance(result, (tuple, list)) else [result]
seeds = {{i: saved[f"seed.output.{{i}}"] for i in range(len(outputs)) if f"seed.output.{{i}}" in saved}}
gradients = paddle.grad([outputs[i] for i in seeds], list(inputs.values()), list(seeds.values()))
found = {{f"grad.{{name}}": gradient for name, gradient in zip(inputs, gradients)}}
"""

SCRIPT = Script("paddle", "saved", _HEAD, _FORWARD, _BACKWARD, _TAIL)


_LITERAL_MOVE = """    paddle.set_device(place)
    moved = [x.clone().to(place, dtype if x.is_floating_point() else None) for x in ({names})]
"""
_LITERAL_BACKWARD = """    inputs = [x for x in moved if x.is_floating_point()]
    for x in inputs:
        x.stop_gradient = False
    result = call(*map(laid_out, moved, strides))
    outputs = [x for x in (result if isinstance(result, (tuple, list)) else [result]) if not x.stop_gradient]
    seeds = [seed.to(place, outputs[0].dtype) for seed in ({seeds})]
    return [g for g in paddle.grad(outputs[: len(seeds)], inputs, seeds, allow_unused=True) if g is not None]

"""
_LITERAL_LAYOUT = """
def laid_out(x, how):
    strides, _ = how
    if strides is None or 0 in strides:
        return x if strides is None else x[:1].expand(x.shape)
    reach = 1 + sum((size - 1) * step for size, step in zip(x.shape, strides))
    places = sum((paddle.arange(size).reshape([-1] + [1] * (x.ndim - dim - 1)) * step
                  for dim, (size, step) in enumerate(zip(x.shape, strides))), paddle.zeros([1], "int64"))
    storage = paddle.zeros([reach], x.dtype).scatter(places.flatten(), x.flatten())
    return storage.as_strided(x.shape, list(strides))

"""
_LITERAL_TAIL = """for actual, expected in zip({found}, run("cpu", "float64")):
    actual = actual.detach().to("cpu", expected.dtype)
    expected = expected.detach()
    error = (actual - expected).abs() if expected.is_floating_point() else actual != expected
    print("actual", actual, "expected", expected, "error", error, sep="\\n")
"""

LITERAL = LiteralScript(
    "paddle",
    'paddle.set_device("cpu")\n',
    _LITERAL_MOVE,
    _LITERAL_BACKWARD,
    _LITERAL_LAYOUT,
    _LITERAL_TAIL,
    tensor="paddle.to_tensor({values}, dtype='{dtype}')",
    full="paddle.full({shape}, {value}, dtype='{dtype}')",
    changed="{full}.scatter({places}, {values})",
)
