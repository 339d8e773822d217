"""A script that makes a saved call again: torch and the saved tensors are all that it needs."""

from __future__ import annotations

from pytest_probe.frameworks.python.script import Script

HEAD = '''"""{title} again, on the tensors saved beside this file: python {name} [cuda]"""
import sys
from pathlib import Path

import torch

saved = torch.load(Path(__file__).with_suffix(".pt"), weights_only=True)
device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
given = {{name: value.to(device) for name, value in saved.items() if not name.startswith(("actual.", "expected."))}}
'''
TAIL = """for name, actual in found.items():
    wide = torch.complex128 if actual.is_complex() else torch.float64
    actual, expected = (side.detach().cpu().to(wide) for side in (actual, saved["expected." + name]))
    error = (actual - expected).abs()
    worst = error.nan_to_num(torch.inf).argmax() if error.numel() else []
    here, wanted, off = (side.flatten()[worst] for side in (actual, expected, error))
    print(f"{name}: actual {here}, expected {wanted}, error {off}; the worst of {error.numel():,}")
"""
FORWARD = """result = {call}
outputs = result if isinstance(result, (tuple, list)) else [result]
found = {{f"output.{{i}}": value for i, value in enumerate(outputs) if f"expected.output.{{i}}" in saved}}
found |= {{name: value for name, value in given.items() if "expected." + name in saved}}
"""
BACKWARD = """inputs = {{name: given[name].requires_grad_() for name in {wanted}}}
result = {call}
outputs = result if isinstance(result, (tuple, list)) else [result]
seeds = {{i: given[f"seed.output.{{i}}"] for i in range(len(outputs)) if f"seed.output.{{i}}" in saved}}
gradients = torch.autograd.grad([outputs[i] for i in seeds], list(inputs.values()), list(seeds.values()))
found = {{f"grad.{{name}}": gradient for name, gradient in zip(inputs, gradients)}}
"""

SCRIPT = Script("torch", "given", HEAD, FORWARD, BACKWARD, TAIL)
