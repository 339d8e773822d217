"""PyTorch: arrays that stay on a device, and the first pass over them there, in float64."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch

from pytest_probe.frameworks.torch.arrays import FLOAT4, memory_errors, to_array, to_tensor
from pytest_probe.model.device_arrays import Bounds, DeviceArray, FirstPass
from pytest_probe.numerics.dtypes import FloatFormat

# The exponent of a float64.
_EXPONENT = 0x7FF0000000000000
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_METRICS = ("max_abs", "max_rel", "max_ulp")


def stays(tensor: torch.Tensor) -> bool:
    """Can a tensor be left where it is?"""
    known = tensor.layout is torch.strided and not tensor.is_quantized
    return known and tensor.dtype not in (torch.complex32, FLOAT4) and not tensor._is_zerotensor()


@functools.cache
def _dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return to_array(torch.empty(0, dtype=dtype)).dtype


class TorchArray(DeviceArray):
    """A tensor of torch's where it lies."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.detach()
        self.shape, self.dtype = tuple(tensor.shape), _dtype(tensor.dtype)

    @property
    def size(self) -> int:
        return self.tensor.numel()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        with memory_errors:
            return np.asarray(to_array(self.tensor.cpu()), dtype)

    def __getitem__(self, key: Any) -> TorchArray:
        place = self.tensor.device
        with memory_errors:
            keys = (
                torch.from_numpy(each.astype(np.int64)).to(place) if isinstance(each, np.ndarray) else each
                for each in (key if isinstance(key, tuple) else (key,))
            )
            return TorchArray(self.tensor[tuple(keys)])

    def __add__(self, other: TorchArray) -> TorchArray:
        with memory_errors:
            return TorchArray(self.tensor + other.tensor)

    def __mul__(self, factor: float) -> TorchArray:
        with memory_errors:
            return TorchArray(self.tensor * factor)

    def reshape(self, *shape: int) -> TorchArray:
        with memory_errors:
            if not self.tensor.is_contiguous():  # once, since each part asks for it
                self.tensor = self.tensor.contiguous()
            return TorchArray(self.tensor.reshape(shape))

    def has_bytes_of(self, array: np.ndarray | DeviceArray) -> bool:
        if array.dtype != self.dtype or array.shape != self.shape:
            return False
        with memory_errors:
            own, other = self.tensor, _tensor_of(array).to(self.tensor.device)
            if own.is_complex():
                own, other = (torch.view_as_real(side.resolve_conj()) for side in (own, other))
            sides = (side.resolve_neg().contiguous() for side in (own, other))
            return torch.equal(*(side.view(_WORDS[side.element_size()]) for side in sides))

    def is_near(self, array: np.ndarray, share: float, least: float) -> bool:
        with memory_errors:
            wanted = to_tensor(array).to(self.tensor.device)
            # What is not finite compares as false, but for an infinite share.
            off = (self.tensor - wanted).abs()
            return bool(((off <= wanted.abs() * share + least) & off.isfinite()).all())

    def first_pass(self, actual: Any, form: FloatFormat, bounds: Bounds | None) -> FirstPass | None:
        expected, given = self.tensor.reshape(-1), _tensor_of(actual).reshape(-1)
        if expected.dtype is not torch.float64 or not given.is_floating_point():
            return None
        with memory_errors:
            return _first_pass(given.to(expected.device).to(torch.float64), expected, form, bounds)


def _tensor_of(array: Any) -> torch.Tensor:
    return array.tensor if isinstance(array, TorchArray) else to_tensor(array)


def _first_pass(
    actual: torch.Tensor, expected: torch.Tensor, form: FloatFormat, bounds: Bounds | None
) -> FirstPass | None:
    gap, size, spacing = (actual - expected).abs(), expected.abs(), _spacing(expected, form)
    rounded = torch.round(expected / spacing) * spacing
    none = size == 0
    metrics = gap, torch.where(none, 0.0, gap / size), gap / spacing
    known = gap.isfinite().all()
    if bounds is None:
        # Other zeros are those of another sign.
        open_ = (actual != rounded) | ((actual == 0) & (actual.signbit() != expected.signbit()))
    else:
        half = (spacing if bounds.form == form else _spacing(expected, bounds.form)) / 2
        ratio = (gap - half).clamp_min(0.0) / (size * bounds.roundoff).clamp_min(bounds.least)
        open_ = ~(ratio <= bounds.limit) | (none & (ratio > 0))
        known = known & ((size <= bounds.form.max) & (actual.abs() <= bounds.form.beyond_max)).all()
    # All numbers come in one copy; places are exact in float64.
    numbers = torch.stack([
        known.to(torch.float64), metrics[2].sum(), (actual != rounded).sum().to(torch.float64),
        open_.sum().to(torch.float64), *(metric.max() for metric in metrics),
        *(metric.argmax().to(torch.float64) for metric in metrics),
    ]).cpu().tolist()  # fmt: skip
    is_known, sum_ulp, differing, count = numbers[:4]
    if not is_known or not math.isfinite(sum_ulp):
        return None
    places = open_.nonzero().reshape(-1).to(torch.int32).cpu().numpy() if count else np.empty(0, np.int32)
    largest, farthest = dict(zip(_METRICS, numbers[4:7], strict=True)), dict(zip(_METRICS, numbers[7:], strict=True))
    return FirstPass(largest, {name: int(place) for name, place in farthest.items()}, sum_ulp, int(differing), places)


def _spacing(values: torch.Tensor, form: FloatFormat) -> torch.Tensor:
    """See FloatFormat.spacing."""
    binades = values.contiguous().view(torch.int64).bitwise_and(_EXPONENT).view(torch.float64)
    return binades.clamp(2.0**form.min_exponent, form.top_binade) * 2.0 ** (1 - form.precision)
