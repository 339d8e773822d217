"""A device's own kernels in the place of float64 on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check.device_memory import noting_device_memory
from pytest_probe.errors import NoKernel
from pytest_probe.model.dump import DtypeSpec
from pytest_probe.model.run import Arguments, BoundCall, Device, Leaf, Returned, Run, Wanted, Way, mapped, on_device
from pytest_probe.numerics.arrays import reference_array
from pytest_probe.numerics.dtypes import AnyArray, is_complex, is_floating, numpy_dtype

if TYPE_CHECKING:
    from pytest_probe.check.engines import ReferenceBy
    from pytest_probe.frameworks.base import API, Framework, Widened

Function = Callable[..., Any]
# By the dtype of real numbers.
_COMPLEX: Mapping[str, type] = {"float32": np.complex64, "float64": np.complex128}


def kernels_as_reference(dtype: str, calls: Mapping[str, Function], *, on_host: bool = False) -> ReferenceBy:
    """References are what the device's kernels give in this dtype ("float32", "float64"; "": as the call has it), with
    every product in full precision. calls are what the project put in the place of APIs; on_host: the kernels are the
    CPU's."""

    def made(framework: Framework, device: Device) -> tuple[Framework, Way]:
        where = framework.host() if on_host else device
        kernels: Any = DeviceKernels(framework, where, dtype, calls)
        return kernels, Way(dtype=dtype, place=where.name)

    return made


class DeviceKernels:
    """A framework whose plain reference runs are calls on the device, given as float64. All other runs are evidence,
    and stay the framework's own: by its functions, and none that are under test, which would excuse themselves."""

    translates = False

    def __init__(self, framework: Framework, device: Device, dtype: str, calls: Mapping[str, Function]) -> None:
        self._framework, self._device, self._dtype, self._calls = framework, device, dtype, calls
        self._plain = Way(dtype=dtype, place=device.name)
        # What runs: the kernel, the steps of a function in float64, or what must be another kernel than the device's.
        self._running: Literal["kernel", "steps", "another"] = "steps"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._framework, name)

    def reference(self, api: str, bound: BoundCall) -> None:
        """No formula: the kernel itself."""

    def candidates(self, namespace: str, api: str, namespaces: Mapping[str, str]) -> tuple[API, ...]:
        call = self._calls.get(f"{namespace}.{api}")
        found = self._framework.candidates(namespace, api, namespaces)
        return tuple(replace(each, lookup=functools.partial(self._chosen, call, each)) for each in found)

    def _chosen(self, call: Function | None, api: API) -> Function:
        if self._running == "kernel":
            return (api.on_device or api.lookup)() if call is None else call
        return self._checked(api.lookup())

    def widened(self, reference: Function) -> Widened:
        """Of a call that the framework has no function of."""
        return self._framework.widened(lambda *args, **kwargs: self._checked(reference)(*args, **kwargs))

    def _checked(self, function: Function) -> Function:
        if self._running == "another" and not frameworks.belongs_to(function, self._framework.package):
            raise NoKernel("the function under test is the only one there is")
        return function

    def run(self, function: Function, arguments: Arguments, way: Way, wanted: Wanted | None = None) -> Run:
        if way != self._plain:
            in_steps = way.dtype == "float64" and not (way.steps is not None and way.steps.own)
            with self._in("steps" if in_steps else "another"):
                return self._framework.run(function, arguments, way, wanted)
        kernel = Way(device=self._device, default=self._dtype)
        with self._in("kernel"):
            found = self._framework.run(function, mapped(arguments, self._cast), kernel, wanted)
        after = found.after
        return Run(
            {
                name: reference_array(value) if isinstance(value, np.ndarray) else value
                for name, value in found.outputs.items()
            },
            found.changed,
            lambda name: reference_array(after(name)),
            found.returned,
            found.differentiable,
            found,
        )

    def gradients(self, run: Run, seeds: Mapping[str, AnyArray]) -> Mapping[str, AnyArray]:
        if not isinstance(run.handle, Run):
            return self._framework.gradients(run, seeds)
        with self._in("kernel"):
            found = self._framework.gradients(run.handle, seeds)
        return {name: reference_array(gradient) for name, gradient in found.items()}

    def returned(self, run: Run) -> Returned:
        return self._framework.returned(run.handle if isinstance(run.handle, Run) else run)

    @contextmanager
    def _in(self, running: Literal["kernel", "steps", "another"]) -> Iterator[None]:
        before, self._running = self._running, running
        try:
            if running != "kernel":
                yield
                return
            all_bits = self._framework.all_bits() if self._dtype else nullcontext()
            with on_device(), noting_device_memory(self._framework), all_bits:
                yield
        finally:
            self._running = before

    def _cast(self, value: Any, name: str) -> Any:
        if isinstance(value, Leaf):
            return replace(value, array=value.array.astype(self._cast_dtype(value.array.dtype), copy=False))
        if isinstance(value, DtypeSpec):
            return DtypeSpec(self._cast_dtype(numpy_dtype(value.name)).name)
        return value

    def _cast_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        if self._dtype and is_complex(dtype):
            return np.dtype(_COMPLEX[self._dtype])
        return numpy_dtype(self._dtype) if self._dtype and is_floating(dtype) else dtype
