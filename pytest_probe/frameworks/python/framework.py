"""What frameworks with a Python API do alike, and neutral answers to what makes sense for one of them only."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.base import API, Widened, Widening
from pytest_probe.frameworks.python.calls import PythonCalls
from pytest_probe.model.comparison import Comparison, KnownFinding
from pytest_probe.model.dump import Argument
from pytest_probe.model.run import Kernel
from pytest_probe.system.decoding import suggestion
from pytest_probe.user_errors import first_line


class PythonDevice:
    """A device of a framework's own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return function(*args, **kwargs)


class PythonFramework(PythonCalls):
    """A framework with a Python API. kinds are the devices that people name, for a name that is none; refusals are the
    framework's errors for such a name."""

    kinds: ClassVar[tuple[str, ...]]
    refusals: ClassVar[tuple[type[Exception], ...]]
    widening: Widening

    @abstractmethod
    def opened(self, name: str) -> Any:
        """The framework's own device of that name. Raises one of its refusals where there is none."""

    @abstractmethod
    def count(self, kind: str) -> int:
        """How many devices of this kind, which is not the CPU, the framework sees."""

    @abstractmethod
    def default_device(self) -> str:
        """See Devices.default_device."""

    def device(self, name: str, option: str = "--probe-device") -> Any:
        try:
            return self.opened(name)
        except self.refusals as error:
            known = ", ".join(sorted({"cpu", self.default_device()}))
            near = suggestion(self.kinds, name.partition(":")[0])
            wanted = f"{self.title} says: {first_line(error)}; found here: {known}{near}"
            raise SettingsError(option, name, wanted) from error

    def all_devices(self, name: str) -> tuple[str, ...]:
        count = 1 if name == "cpu" or ":" in name else self.count(name)
        return tuple(f"{name}:{number}" for number in range(count)) if count > 1 else (name,)

    def plain_convolutions(self, dtype: str) -> bool:
        return False

    def computes_narrow(self, dtype: str) -> bool:
        return False

    def completions(self, api: API, args: Sequence[Argument], dtype: str | None) -> Iterable[tuple[str, Any]]:
        return ()

    def solved(self, api: API, args: Sequence[Any], output: np.ndarray) -> Iterable[Mapping[str, Any]]:
        return ()

    def known_findings(self, comparison: Comparison) -> Iterable[KnownFinding]:
        return ()

    def casts(self, path: str) -> bool:
        return False

    def kernels(self, run: Callable[[], object]) -> tuple[Kernel, ...]:
        return ()

    def widened(self, reference: Callable[..., Any]) -> Widened:
        return Widened(reference, self.widening)
