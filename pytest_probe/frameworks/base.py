"""What a framework and a device must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor argument on its way to the framework: its values, already in the case's dtype.

    spread tells apart what the record marked as needing a gradient.
    """

    array: np.ndarray
    requires_grad: bool = False


class Device(Protocol):
    """A device under test: how tensors get there, how a call is made there, how they come back.

    Tensors are the framework's own, on the CPU on either side of put and get.
    """

    name: str

    def put(self, tensor: Any) -> Any:
        """Copy a CPU tensor to the device."""

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Make the call on the device."""

    def get(self, tensor: Any) -> Any:
        """Bring a tensor back to the CPU; waits for the device."""


@dataclass(frozen=True, slots=True)
class API:
    """A call that the allow-list admits: the path it was found under ("torch.linalg.svd") and how to look it up.

    The function is looked up at every call, so that what a user patches is what runs.
    """

    path: str
    lookup: Callable[[], Callable[..., Any]]
    inplace: bool = False


class Framework(Protocol):
    """One framework, as the execution needs it."""

    name: str

    def describe(self) -> dict[str, str]:
        """Version and flags that change numerics."""

    def default_device(self) -> str:
        """The accelerator that the framework finds, else "cpu"."""

    def device(self, name: str) -> Device:
        """The framework's own device of that name. Raises SettingsError where there is none."""

    def candidates(self, namespace: str, api: str, namespaces: Mapping[str, str]) -> tuple[API, ...]:
        """What the recorded name may stand for, likeliest first. Raises UnknownAPI where the allow-list has nothing."""

    def load(self, path: Path) -> np.ndarray:
        """Read one stored tensor without running anything in it. Raises OSError or ValueError."""

    def save(self, path: Path, arrays: Mapping[str, np.ndarray]) -> None:
        """Write named arrays as the framework's own tensors."""
