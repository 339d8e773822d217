"""A script that makes a saved call again: Paddle and the saved tensors are all that it needs."""

from __future__ import annotations

from pytest_probe.frameworks.python.script import Script

HEAD = '''"""{title} again, on the tensors saved beside this file: python {name} [gpu]"""
import sys
from pathlib import Path

import numpy as np
import paddle

paddle.set_device(sys.argv[1] if len(sys.argv) > 1 else "cpu")
saved = paddle.load(str(Path(__file__).with_suffix(".pt")))
'''
TAIL = """for name, actual in found.items():
    wide = "complex128" if actual.is_complex() else "float64"
    actual, expected = (side.astype(wide).numpy() for side in (actual, saved["expected." + name]))
    error = np.abs(actual - expected)
    worst = np.unravel_index(np.argmax(np.nan_to_num(error, nan=np.inf)), error.shape) if error.size else ()
    here, wanted, off = (side[worst] for side in (actual, expected, error))
    print(f"{name}: actual {here}, expected {wanted}, error {off}; the worst of {error.size:,}")
"""
FORWARD = """result = {call}
outputs = result if isinstance(result, (tuple, list)) else [result]
found = {{f"output.{{i}}": value for i, value in enumerate(outputs) if f"expected.output.{{i}}" in saved}}
found |= {{name: saved[name] for name in saved if "expected." + name in saved}}
"""
BACKWARD = """inputs = {{name: saved[name] for name in {wanted}}}
for value in inputs.values():
    value.stop_gradient = False
result = {call}
outputs = result if isinstance(result, (tuple, list)) else [result]
seeds = {{i: saved[f"seed.output.{{i}}"] for i in range(len(outputs)) if f"seed.output.{{i}}" in saved}}
gradients = paddle.grad([outputs[i] for i in seeds], list(inputs.values()), list(seeds.values()))
found = {{f"grad.{{name}}": gradient for name, gradient in zip(inputs, gradients)}}
"""

SCRIPT = Script("paddle", "saved", HEAD, FORWARD, BACKWARD, TAIL)
