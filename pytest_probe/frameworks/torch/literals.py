"""A script that makes a call with its values written out: torch is all that it needs."""

from __future__ import annotations

from pytest_probe.frameworks.python.literals import LiteralScript

MOVE = """    moved = [x.to(place, dtype if x.is_floating_point() else None) for x in ({names})]
"""
BACKWARD = """    inputs = [x.requires_grad_() for x in moved if x.is_floating_point()]
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

LITERAL = LiteralScript(
    "torch",
    "",
    MOVE,
    BACKWARD,
    LAYOUT,
    TAIL,
    tensor="torch.tensor({values}, dtype=torch.{dtype})",
    full="torch.full({shape}, {value}, dtype=torch.{dtype})",
    changed="{full}.index_copy(0, {places}, {values})",
)
