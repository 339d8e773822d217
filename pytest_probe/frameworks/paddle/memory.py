"""PaddlePaddle: where tensors lie, and what shows that a call touches memory that is not its own;
and how much a call would take, found before it takes any."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle

from pytest_probe.frameworks.paddle.arrays import COMPLEX, FLOATS, Tensor, to_array, to_tensor
from pytest_probe.frameworks.paddle.signatures import bind
from pytest_probe.frameworks.python.binding import by_name
from pytest_probe.model.run import BoundCall, Leaf
from pytest_probe.numerics.arrays import are_apart, span
from pytest_probe.numerics.dtypes import float_format
from pytest_probe.system.process import NEGATIVE, POSITIVE, filled_allocations

# What the start of a tensor's memory is a multiple of, in bytes.
_ALIGNMENT = 64
# Blocks that are filled and freed, of which an allocator gives one back.
_BLOCKS, _LARGE = 4, 1 << 20


def _full(size: int, like: Tensor, number: float) -> Tensor:
    """So many elements of a number as the dtype has it; of integers 0 or 1, which any index may be."""
    value = 0.0 if math.isnan(number) else 1.0
    if like.dtype in FLOATS or like.dtype in COMPLEX:
        value = number if math.isnan(number) else min(number, float_format(to_array(like.cpu()).real.dtype).max)
    return paddle.full([size], value, "float32").cast(like.dtype).to(like.place)


def fill(tensor: Tensor, number: float) -> None:
    """See base.Memory."""
    one = tensor.flatten()[:1]
    with paddle.no_grad():
        paddle.assign(_full(1, one, number).expand(tensor.shape), tensor)


def refilled(tensor: Tensor, values: Tensor) -> Tensor:
    """See base.Memory."""
    with paddle.no_grad():
        return paddle.assign(values, tensor.detach())


class PaddleZones:
    """See base.Zones."""

    def __init__(self, tensor: Tensor, elements: int) -> None:
        size = tensor.element_size()
        reach = span(tensor.shape, tensor.strides)
        zone = -(-elements * size // _ALIGNMENT) * _ALIGNMENT // size
        self._places = slice(0, zone), slice(zone + reach, 2 * zone + reach)
        self._memory = paddle.zeros([2 * zone + reach], tensor.dtype).to(tensor.place)
        self.tensor = paddle.assign(tensor, self._memory.as_strided(tensor.shape, list(tensor.strides), zone * size))
        self._written: list[np.ndarray] = []

    def fill(self, number: float) -> None:
        for places in self._places:
            count, first = places.stop - places.start, places.start
            zone = self._memory.as_strided([count], [1], first * self._memory.element_size())
            paddle.assign(_full(count, self._memory[:1], number), zone)
        self._written = self._bytes()

    def damage(self) -> str:
        for words, before, now in zip(("before", "behind"), self._written, self._bytes(), strict=True):
            places = np.flatnonzero((before != now).any(axis=1))
            if places.size:
                nearest = int(len(before) - 1 - places[-1] if words == "before" else places[0])
                return (
                    f"{nearest + 1} element{'s' * (nearest > 0)} {words} its {'first' if words == 'before' else 'last'}"
                )
        return ""

    def _bytes(self) -> list[np.ndarray]:
        whole = np.array(to_array(self._memory.cpu()))
        return [whole[places].view(np.uint8).reshape(-1, whole.itemsize) for places in self._places]


def zones(tensor: Tensor, elements: int) -> PaddleZones | None:
    """See base.Memory."""
    return PaddleZones(tensor, elements) if tensor.size and are_apart(tensor.shape, tensor.strides) else None


@contextmanager
def unwritten(place: str, like: Sequence[np.ndarray], number: float) -> Iterator[bool]:
    """See base.Memory."""
    if place != "cpu":
        yield all(_filled_freed(to_tensor(array.reshape(-1)[:1]).to(place), array.size, number) for array in like)
        return
    byte = NEGATIVE if math.isnan(number) else POSITIVE
    with filled_allocations(byte):
        yield all(int(paddle.empty([array.nbytes], "uint8")[-1]) == byte for array in like)


def _filled_freed(like: Tensor, size: int, number: float) -> bool:
    """Free memory that is full of the number: does the allocator give it back?"""
    blocks = [_full(size, like, number) for _ in range(_BLOCKS if size * like.element_size() <= _LARGE else 1)]
    wanted = to_array(blocks[0][-1:].cpu()).tobytes()
    del blocks
    return to_array(paddle.empty([size], like.dtype)[-1:].cpu()).tobytes() == wanted


_Shape = tuple[int, ...]
# Paddle has no tensors of a shape alone: what follows from the shapes and numbers of a call is reckoned here. What that
# does not tell, Paddle's own allocator refuses.
# Of float64, in which references run.
_ITEM = 8
# Canonical names that Paddle does not have, and that bind their arguments.
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
    """Raises TypeError for anything but a tensor."""
    value = call.argument(name)
    if not isinstance(value, Leaf):
        raise TypeError("no tensor")
    return value.array.shape


def _broadcast(call: BoundCall) -> int:
    """Of a call that works element by element: its tensors in one shape."""
    shapes = [value.array.shape for value in call.given.values() if isinstance(value, Leaf)]
    return math.prod(np.broadcast_shapes(*shapes)) if len(shapes) > 1 else 0


def _numbers(value: Any) -> list[int]:
    """Raises TypeError for anything but sizes."""
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
