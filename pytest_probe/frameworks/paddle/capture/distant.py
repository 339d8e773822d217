"""Statistics of tensors that lie on another device than the CPU: computed there, and fetched many at once.

Paddle's own operators compute them, taken before any capture replaces what modules hold. In float64, which autocast
leaves as it is.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any, TypeAlias

import numpy as np
import paddle

from pytest_probe.capture.frequent_values import Places, fill_from_samples, layout_of, places
from pytest_probe.capture.snapshot import Seen
from pytest_probe.capture.statistics import unpack

_abs, _assign, _cast, _concat, _max, _mean, _min, _sum = (
    getattr(paddle._C_ops, name) for name in "abs assign cast concat max mean min sum".split()
)
_as_strided, _flatten, _isinf, _isnan, _not_equal, _square, _stack, _zeros_like = (
    getattr(paddle._C_ops, name) for name in "as_strided flatten isinf isnan not_equal square stack zeros_like".split()
)
_WIDE: Any = paddle.float64

# Statistics and a sample, where there is one, as tensors of their device.
_Waiting: TypeAlias = tuple[Any, Any, Places | None, Seen]


class DistantStatistics:
    """Statistics that devices compute, until they are fetched."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        # What a device has no kernels for, by device and dtype.
        self._unable: set[tuple[str, str]] = set()

    def __bool__(self) -> bool:
        """Do any wait?"""
        return bool(self._waiting)

    def count(self, tensor: Any, seen: Seen, sampled: bool) -> bool:
        """Begin to compute the statistics of a dense tensor with elements; sampled: and take a sample. False where the
        device cannot."""
        where = (str(tensor.place), seen.dtype)
        if where in self._unable:
            return False
        try:
            alone = tensor.detach()
            found = places(seen.shape, layout_of(seen.shape, tuple(tensor.strides)), tensor.is_contiguous())
            sample = _sample(alone, found) if sampled else None
            self._waiting.append((_vector(alone, seen.dtype), sample, found if sampled else None, seen))
        except RuntimeError:
            self._unable.add(where)
            return False
        return True

    def settle(self) -> None:
        """Fetch what waits, in one copy for each device."""
        devices: defaultdict[str, list[_Waiting]] = defaultdict(list)
        for _ in range(len(self._waiting)):
            one = self._waiting.popleft()
            devices[str(one[0].place)].append(one)
        for ones in devices.values():
            _fill(ones)


def _vector(tensor: Any, dtype: str) -> Any:
    """Max, min, mean, sum of squares, NaN, inf and non-zero elements, shape (7,): of complex numbers' absolute values,
    as they would be in float64."""
    wide = _cast(_abs(tensor) if dtype.startswith("complex") else tensor, _WIDE)
    flags = (_isnan(wide), _isinf(wide), _not_equal(wide, _zeros_like(wide, _WIDE, tensor.place)))
    counts = [_sum(_cast(flag, _WIDE), [], None, False) for flag in flags]
    extremes = [reduced(wide, [], False) for reduced in (_max, _min, _mean)]
    return _stack([*extremes, _sum(_square(wide), [], None, False), *counts], 0)


def _sample(tensor: Any, where: Places) -> Any:
    # The offset counts bytes, from where the memory begins.
    return _assign(_as_strided(tensor, list(where.shape), list(where.strides), tensor.offset))


def _fill(ones: list[_Waiting]) -> None:
    """Fill in what one device has computed, or what it says of a fault."""
    try:
        _fetch(ones)
    except Exception as error:
        for *_, seen in ones:
            seen.failed = f"{type(error).__name__}: {error}"


def _fetch(ones: list[_Waiting]) -> None:
    rows = _stack([numbers for numbers, *_ in ones], 0)
    looked = [(sample, where, seen) for _, sample, where, seen in ones if where is not None]
    samples = [_flatten(_cast(sample, _WIDE), 0, -1) for sample, _, _ in looked]
    found: np.ndarray = _concat([_flatten(rows, 0, -1), *samples], 0).numpy()
    count = 7 * len(ones)
    for (high, low, mean, squares, *counts), one in zip(found[:count].reshape(-1, 7).tolist(), ones, strict=True):
        unpack([high, low, mean, squares**0.5, *counts], one[-1])
    if looked:
        fill_from_samples(found[count:], [where for _, where, _ in looked], [seen for *_, seen in looked])
