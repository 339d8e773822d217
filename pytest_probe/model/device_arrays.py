"""Arrays that stay on a device: what is asked of them there comes back as numbers, and values where those are asked
for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any

import numpy as np
from msgspec import Struct

from pytest_probe.numerics.dtypes import FloatFormat


class Bounds(Struct, frozen=True):
    """What an element may be off by: half an ulp of a format, and limit times what it is granted, a roundoff of the
    reference, or least where that is more."""

    form: FloatFormat
    roundoff: float
    least: float
    limit: float


class FirstPass(Struct, frozen=True):
    """An output compared with its reference on a device: the largest of each metric, and where in its elements' order
    that is; the sum in ulps; how many elements are not the reference rounded, and which are beyond their bounds."""

    largest: Mapping[str, float]
    farthest: Mapping[str, int]
    sum_ulp: float
    differing: int
    open: np.ndarray


class DeviceArray(ABC):
    """An array on a device, as far as NumPy's are used: its parts stay there, and NumPy's functions get its values."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    @abstractmethod
    def size(self) -> int: ...

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @abstractmethod
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Its values: the one way in which they leave the device."""

    @abstractmethod
    def __getitem__(self, key: Any) -> DeviceArray: ...

    @abstractmethod
    def __add__(self, other: Any) -> DeviceArray: ...

    @abstractmethod
    def __mul__(self, factor: float) -> DeviceArray: ...

    @abstractmethod
    def reshape(self, *shape: int) -> DeviceArray: ...

    @abstractmethod
    def has_bytes_of(self, array: np.ndarray | DeviceArray) -> bool:
        """Has it the values of an array of the same dtype and shape, bit for bit?"""

    @abstractmethod
    def is_near(self, array: np.ndarray, share: float, least: float) -> bool:
        """Is each element finite, and off from an array by no more than a share of that and least?"""

    @abstractmethod
    def first_pass(self, actual: Any, form: FloatFormat, bounds: Bounds | None) -> FirstPass | None:
        """A reference's part compared with the output's, in ulps of its format; without bounds each element must be
        the reference rounded, zeros with their sign. None where the device does not tell: for anything but real
        floats, and where one is not finite or beyond the range of a format."""


class Placed:
    """Copies of arrays on a device, each made once: put makes one, or gives None where it cannot."""

    def __init__(self, put: Callable[[np.ndarray], DeviceArray | None]) -> None:
        self._put = put
        self._made: dict[int, tuple[np.ndarray, DeviceArray | None]] = {}
        self._lock = Lock()

    def of(self, array: np.ndarray) -> DeviceArray | None:
        """The copy of just this array, which nobody changes."""
        with self._lock:
            if id(array) not in self._made:
                self._made[id(array)] = array, self._put(array)
            return self._made[id(array)][1]


class Outputs(Mapping[str, Any]):
    """What a run gave, by name. What stays on a device comes from there when it is first asked for; lying has it as it
    lies."""

    def __init__(self, lying: Mapping[str, Any]) -> None:
        self.lying = lying
        self._fetched: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> Any:
        value = self.lying[name]
        if not isinstance(value, DeviceArray):
            return value
        if name not in self._fetched:
            self._fetched[name] = np.asarray(value)
        return self._fetched[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.lying)

    def __len__(self) -> int:
        return len(self.lying)


def lying(outputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Outputs as they lie."""
    return outputs.lying if isinstance(outputs, Outputs) else outputs
