"""A script that makes a call with its values written out: Paddle is all that it needs."""

from __future__ import annotations

from pytest_probe.frameworks.python.literals import LiteralScript

MOVE = """    paddle.set_device(place)
    moved = [x.clone().to(place, dtype if x.is_floating_point() else None) for x in ({names})]
"""
BACKWARD = """    inputs = [x for x in moved if x.is_floating_point()]
    for x in inputs:
        x.stop_gradient = False
    result = call(*map(laid_out, moved, strides))
    outputs = [x for x in (result if isinstance(result, (tuple, list)) else [result]) if not x.stop_gradient]
    seeds = [seed.to(place, outputs[0].dtype) for seed in ({seeds})]
    return [g for g in paddle.grad(outputs[: len(seeds)], inputs, seeds, allow_unused=True) if g is not None]

"""
LAYOUT = """
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
TAIL = """for actual, expected in zip({found}, run("cpu", "float64")):
    actual = actual.detach().to("cpu", expected.dtype)
    expected = expected.detach()
    error = (actual - expected).abs() if expected.is_floating_point() else actual != expected
    print("actual", actual, "expected", expected, "error", error, sep="\\n")
"""

LITERAL = LiteralScript(
    "paddle",
    'paddle.set_device("cpu")\n',
    MOVE,
    BACKWARD,
    LAYOUT,
    TAIL,
    tensor="paddle.to_tensor({values}, dtype='{dtype}')",
    full="paddle.full({shape}, {value}, dtype='{dtype}')",
    changed="{full}.scatter({places}, {values})",
)
