"""PaddlePaddle: 16 bit where the CPU has no kernels of it: computed in float32, rounded at inputs and outputs.

The 16-bit kernels that Paddle's CPU does have round each step, and are judged as 16 bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from pytest_probe.frameworks.paddle.arrays import Tensor, name_of, to_array, to_tensor
from pytest_probe.numerics.closeness import same_bytes
from pytest_probe.numerics.dtypes import numpy_dtype

SIXTEEN_BIT = (paddle.float16, paddle.bfloat16)


class EmulatedDevice:
    """The CPU, with 16 bit in float32. A call without a tensor of 16 bit is made as it is."""

    name = "cpu"

    def put(self, tensor: Tensor) -> Tensor:
        return tensor

    def get(self, tensor: Tensor) -> Tensor:
        return tensor

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        narrow = next((leaf.dtype for leaf in _leaves((args, kwargs)) if _is_narrow_tensor(leaf)), None)
        if narrow is None:
            return function(*args, **kwargs)
        asked = [leaf for leaf in _leaves((args, kwargs)) if isinstance(leaf, paddle.dtype)]
        wide = _Widened()
        result = function(*wide.widened(list(args)), **wide.widened(dict(kwargs)))
        wide.write_back()
        # A dtype that the call names is that of its result.
        return wide.narrowed(result, asked[0] if asked else narrow)


class _Widened:
    """Tensors of 16 bit with what a call gets instead of them."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Tensor, Tensor]] = []

    def widened(self, tree: Any) -> Any:
        if isinstance(tree, (list, tuple)):
            return type(tree)([self.widened(item) for item in tree])
        if isinstance(tree, dict):
            return {key: self.widened(item) for key, item in tree.items()}
        if isinstance(tree, paddle.dtype):
            return paddle.float32 if tree in SIXTEEN_BIT else tree
        if not _is_narrow_tensor(tree):
            return tree
        known = next((wide for narrow, wide in self._pairs if narrow is tree), None)
        if known is not None:
            return known
        wide = _cast(tree, paddle.float32)
        self._pairs.append((tree, wide))
        return wide

    def write_back(self) -> None:
        """What the call wrote to in float32 becomes 16 bit where it came from."""
        for narrow, wide in self._pairs:
            # Not every kernel that writes says so.
            if not same_bytes(to_array(wide.detach()), to_array(narrow.detach().cast(paddle.float32))):
                paddle.assign(_cast(wide, narrow.dtype), narrow)

    def narrowed(self, tree: Any, dtype: Any) -> Any:
        if isinstance(tree, (list, tuple)) and not isinstance(tree, paddle.Size):
            return [self.narrowed(item, dtype) for item in tree]
        if not isinstance(tree, paddle.Tensor):
            return tree
        own = next((narrow for narrow, wide in self._pairs if wide is tree), None)
        if own is not None:
            return own
        return _cast(tree, dtype) if tree.dtype == paddle.float32 else tree


def _cast(tensor: Tensor, dtype: Any) -> Tensor:
    """Values and gradients by NumPy: Paddle's own cast makes some numbers near 2^-77 large ones of float16."""
    return _rounded(tensor, dtype) if tensor.stop_gradient else _Cast.apply(tensor, dtype)


def _rounded(tensor: Tensor, dtype: Any) -> Tensor:
    with np.errstate(all="ignore"):
        return to_tensor(to_array(tensor.detach()).astype(numpy_dtype(name_of(dtype))))


class _Cast(paddle.autograd.PyLayer):  # type: ignore[misc]
    """See `_cast`."""

    @staticmethod
    def forward(context: Any, tensor: Tensor, dtype: Any) -> Tensor:
        context.dtype = tensor.dtype
        return _rounded(tensor, dtype)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return _rounded(gradient, context.dtype)


def _is_narrow_tensor(leaf: Any) -> bool:
    return isinstance(leaf, paddle.Tensor) and leaf.dtype in SIXTEEN_BIT


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, (list, tuple)):
        for item in tree:
            yield from _leaves(item)
    elif isinstance(tree, dict):
        yield from _leaves(list(tree.values()))
    else:
        yield tree
