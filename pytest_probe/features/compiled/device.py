"""A device under test whose calls go through a compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_probe.errors import CompilerFailed, NotCompilable
from pytest_probe.frameworks.base import CompiledFunction, Compiler
from pytest_probe.model.run import Device


class CompiledDevice:
    """last is what the compiler made of the last call; looks_for_stale: the first call of each kind is made on other
    values as well, to see whether what was made keeps something."""

    def __init__(self, device: Device, compiler: Compiler, *, looks_for_stale: bool) -> None:
        self.name = device.name
        self.put, self.get = device.put, device.get
        self.compiler = compiler
        self.last: CompiledFunction | None = None
        self._device, self._looks = device, looks_for_stale
        self._looked: set[int] = set()

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Raises NotCompilable where nothing compiled ran, CompilerFailed where it keeps something of another call, and
        what the call and the compiler raise."""
        self.last = compiled = self.compiler.of(function, args, kwargs)
        before = compiled.runs
        result = self._device.call(compiled, args, kwargs)
        if compiled.runs == before:
            raise NotCompilable("nothing of the call was compiled, it ran as without a compiler")
        self._look(function, args, kwargs)
        return result

    def _look(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if not self._looks or id(self.last) in self._looked:
            return
        self._looked.add(id(self.last))
        if stale := self.compiler.stale(function, args, kwargs, self._device.call):
            raise CompilerFailed(f"what was compiled keeps something of an earlier call: {stale}")
