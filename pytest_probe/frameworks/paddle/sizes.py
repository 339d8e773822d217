"""PaddlePaddle: how much memory a call would take, found before it takes any.

Paddle has no tensors of a shape alone: what follows from the shapes and numbers of a call is reckoned here. What that
does not tell, Paddle's own allocator refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pytest_probe.frameworks.paddle.signatures import bind
from pytest_probe.frameworks.python.binding import by_name
from pytest_probe.model.run import BoundCall, Leaf

_Shape = tuple[int, ...]
# Of float64, in which references run.
_ITEM = 8
# Of canonical names that Paddle has not, those that bind their arguments.
_OWN_NAMES = {"affine": "nn.functional.linear"}


def bytes_inside(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], limit: int) -> int:
    """Bytes of what a call gives; see Framework.bytes_inside."""
    call = bind(f"paddle.{_OWN_NAMES.get(name, name)}", args, kwargs)
    try:
        elements = max(_SIZES.get(call.name, _broadcast)(call), 0)
    except (LookupError, TypeError, ValueError):
        return 0  # not called as the table has it: then the call itself says so
    return _ITEM * elements if _ITEM * elements >= limit else 0


def _shape(call: BoundCall, name: str) -> _Shape:
    """Raises TypeError for what is no tensor."""
    value = call.argument(name)
    if not isinstance(value, Leaf):
        raise TypeError("no tensor")
    return value.array.shape


def _broadcast(call: BoundCall) -> int:
    """Of a call that works element by element: its tensors in one shape."""
    shapes = [value.array.shape for value in call.given.values() if isinstance(value, Leaf)]
    return math.prod(np.broadcast_shapes(*shapes)) if len(shapes) > 1 else 0


def _numbers(value: Any) -> list[int]:
    """Raises TypeError for what are no sizes."""
    if isinstance(value, Leaf):
        value = value.array.tolist()
    return [int(each.array) if isinstance(each, Leaf) else int(each) for each in np.atleast_1d(value)]


def _product(call: BoundCall) -> int:
    left, right = _shape(call, "input"), _shape(call, "other")
    if len(left) < 2 or len(right) < 2:
        return 0
    return math.prod(np.broadcast_shapes(left[:-2], right[:-2])) * left[-2] * right[-1]


def _square(call: BoundCall) -> int:
    rows, columns = call.argument("rows"), call.argument("columns")
    return int(rows) * int(rows if columns is None else columns)


def _steps(call: BoundCall) -> int:
    start, end, step = call.argument("start"), call.argument("end"), call.argument("step")
    start, end = (0, start) if end is None else (start, end)
    return int(abs((end - start) / (step or 1)))


# By canonical name: how many elements a call gives.
_SIZES: Mapping[str, Callable[[BoundCall], int]] = by_name({
    # As the call says.
    "full zeros ones empty rand randn normal uniform randint randperm log_normal":
        lambda call: math.prod(_numbers(call.argument("size"))),
    # -1 means the tensor's own extent.
    "expand broadcast_to": lambda call: math.prod(abs(extent) for extent in _numbers(call.argument("size"))),
    "tile": lambda call: math.prod(_shape(call, "input")) * math.prod(_numbers(call.argument("size"))),
    "matmul bmm": _product,
    "affine linear": lambda call: math.prod(_shape(call, "input")[:-1]) * _shape(call, "weight")[-1],
    # Each element with each.
    "outer kron": lambda call: math.prod(_shape(call, "input")) * math.prod(_shape(call, "input.1")),
    "one_hot": lambda call: math.prod(_shape(call, "input")) * max(int(call.argument("num_classes")), 1),
    "eye": _square,
    "arange": _steps,
})  # fmt: skip
