"""What a framework and a device must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from pytest_probe.frameworks.modes import Mode


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor argument on its way to the framework: its values, already in the case's dtype.

    strides, in elements, lay it out as a test's own tensor was, or a recorded one; None: in order.
    """

    array: np.ndarray
    requires_grad: bool = False
    strides: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Array:
    """An argument that is an array of NumPy's, and stays one: each run gets a copy, on the host, with floats as wide as
    those of the reference's tensors."""

    array: np.ndarray


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
    """A call that the allow-list admits, by the path it was found under ("torch.linalg.svd").

    `lookup` finds the function anew at every call, so that what a user patches is what runs.
    """

    path: str
    lookup: Callable[[], Callable[..., Any]]
    inplace: bool = False


# Its name, and whether it computes in float32 what is 16 bit.
Kernel: TypeAlias = tuple[str, bool]


@dataclass(frozen=True, slots=True)
class Steps:
    """Round what passes from step to step inside a call to dtype; fine splits kernels into their decompositions, whose
    library functions are off by what seed draws. wide names the arguments that are wider than dtype themselves. own:
    the call runs in its own dtypes, as under an autocast inside it, each kernel's results being float64's, rounded
    once. kernels are those that run in the call's own dtypes; what they compute in float32 is not rounded to dtype."""

    dtype: str
    fine: bool
    seed: int = 0
    wide: frozenset[str] = frozenset()
    own: bool = False
    kernels: tuple[Kernel, ...] = ()


@dataclass(frozen=True, slots=True)
class Jitter:
    """Move the results of kernels, and the operands of products after their rounding, by `size` of themselves; before
    it by `unsure` of themselves and their row, all the same way, where they come from steps that rounded."""

    size: float
    seed: int = 0
    unsure: float = 0.0


@dataclass(frozen=True, slots=True)
class Way:
    """How a run is made: on `device` in the arguments' own dtypes, or as a reference with all floats as `dtype`, there
    as under a device mode, with jitter where runs shall tell what rounding does under it; `place` is a reference's
    device. default is the framework's default dtype on a device, "" as it is."""

    device: Device | None = None
    dtype: str = ""
    autocast: str = ""
    default: str = ""
    steps: Steps | None = None
    mode: Mode | None = None
    jitter: Jitter | None = None
    place: str = "cpu"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which arguments a run shall be able to give gradients of, by name; `copies` where the call works in place."""

    names: frozenset[str] = frozenset()
    copies: bool = False


@dataclass(slots=True)
class Run:
    """What a run left.

    outputs holds every return value by name ("output.0", "output.1.0"): an array, or a Python scalar as itself.
    changed names the arguments that the call wrote to; after(name) gives an argument's value after the call.
    returned maps an output to the argument that it is ("output.0": "input.0" of an in-place call).
    """

    outputs: dict[str, Any]
    changed: frozenset[str]
    after: Callable[[str], np.ndarray]
    returned: dict[str, str] = field(default_factory=dict)
    differentiable: tuple[str, ...] = ()
    handle: Any = None


class Bound(Protocol):
    """Arguments as the framework takes them: new tensors, on the device."""

    args: list[Any]
    kwargs: dict[str, Any]


class Framework(Protocol):
    """One framework, as the execution needs it."""

    name: str

    def describe(self) -> dict[str, str]:
        """Version and flags that change numerics."""

    def plain_convolutions(self, dtype: str) -> bool:
        """Are the CPU's convolutions of a 16-bit dtype the framework's own, and no library's?"""

    def share_threads(self, workers: int) -> None:
        """Leave the other workers of this machine their cores."""

    def default_device(self) -> str:
        """The accelerator that the framework finds, else "cpu"."""

    def device(self, name: str, option: str = "--probe-device") -> Device:
        """The framework's own device of that name. Raises SettingsError, of the option that named it, where there is
        none."""

    def allowed(self, device: str) -> tuple[str, ...]:
        """The device modes that the framework's flags allow on a device: "tf32", "tf32 in convolution"."""

    def candidates(self, namespace: str, api: str, namespaces: Mapping[str, str]) -> tuple[API, ...]:
        """What the recorded name may stand for, likeliest first. Raises UnknownAPI where the allow-list has nothing."""

    def run(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        way: Way,
        wanted: Wanted | None = None,
    ) -> Run:
        """Make a call. Raises whatever the call raises."""

    def as_single(self, function: Callable[..., Any], largest: float) -> Callable[..., Any]:
        """The function with defaults that its API takes from the dtype of its tensors: an eps as for float32, in the
        place of inf the largest number."""

    def rounded(self, tensor: Any, dtype: str) -> Any:
        """A tensor of the framework's with the values that a dtype has, in its own; gradients pass as they
        are."""

    def casts(self, path: str) -> bool:
        """Does an autocast cast the arguments of this function itself, rather than those of calls inside it?"""

    def take(self, value: Any, device: Device) -> Any:
        """An argument tree of the framework's own values with a Leaf for each tensor, and specs, as `run` takes it.
        Raises Unsupported for a tensor that has no place in NumPy."""

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], way: Way, wanted: Wanted | None) -> Bound:
        """The arguments of a call that somebody else makes; what it returns goes to `left`."""

    def left(self, bound: Bound, result: Any) -> Run:
        """What such a call left. Raises Unsupported for a tensor that has no place in NumPy."""

    def gradients(self, run: Run, seeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Gradients of the wanted arguments, given those of the outputs. Arguments without one are left out."""

    def kernels(self, run: Callable[[], object]) -> tuple[Kernel, ...]:
        """The kernels that run, in their order."""

    def has_no_kernel(self, error: BaseException) -> bool:
        """Does this error of a device say that it has no kernel for the call?"""

    def load(self, path: Path) -> np.ndarray:
        """Read one stored tensor without running anything in it. Raises OSError or ValueError."""

    def save(self, path: Path, arrays: Mapping[str, np.ndarray]) -> None:
        """Write named arrays as the framework's own tensors."""
