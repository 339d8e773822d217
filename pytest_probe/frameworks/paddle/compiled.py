"""Paddle's static graphs: what paddle.jit.to_static makes of a call, and what its errors mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paddle

from pytest_probe.errors import NotCompilable, ProbeError, SettingsError
from pytest_probe.frameworks.compilers import Compile, CompiledFunction, PythonCompiler
from pytest_probe.frameworks.paddle.arrays import to_array
from pytest_probe.system.text import suggestion
from pytest_probe.user_errors import message_of

TO_STATIC, CINN = "to_static", "cinn"
# How Paddle begins what it says of an error in a call that it makes a graph of.
_IN_GRAPH = "In transformed code"


def names() -> tuple[str, ...]:
    """to_static, and cinn where Paddle was built with that compiler."""
    return (TO_STATIC, CINN) if paddle.is_compiled_with_cinn() else (TO_STATIC,)


def environment(folder: Path, workers: int) -> dict[str, str]:
    """None: a static graph is kept in memory."""
    return {}


class PaddleCompiler(PythonCompiler):
    """paddle.jit.to_static, or a user's own compiler. A static graph serves any size: dynamic changes
    nothing."""

    tensor = paddle.Tensor

    def __init__(self, name: str, compile: Compile | None, *, dynamic: bool) -> None:
        """Raises SettingsError."""
        super().__init__(compile)
        known = names()
        if compile is None and name not in known:
            wanted = f"Paddle has {', '.join(known)}{suggestion(known, name)}"
            raise SettingsError("--probe-compile", name, wanted)
        self._name = name
        self._graphs, self._seconds = 0, 0.0

    def compiled(self, found: CompiledFunction, call: Callable[..., Any]) -> Callable[..., Any]:
        backend = "CINN" if self._name == CINN else None
        static = paddle.jit.to_static(call, full_graph=True, backend=backend)

        def run(args: list[Any], kwargs: dict[str, Any]) -> Any:
            known, start = len(static.program_cache), time.perf_counter()
            result = static(args, kwargs)
            made = len(static.program_cache) - known
            if made:
                self._graphs += made
                self._seconds += time.perf_counter() - start
            found.runs += len(static.program_cache) > 0 and any(True for _ in self._tensors(result))
            return result

        return run

    def tensor_kind(self, value: Any) -> object:
        return tuple(value.shape), str(value.dtype), tuple(value.strides), value.stop_gradient, str(value.place)

    def counted(self) -> Mapping[str, float]:
        return {**({} if self._compile else {"graphs": self._graphs}), "seconds": self._seconds}

    def copy(self, tensor: Any) -> Any:
        found = tensor.detach().clone()
        found.stop_gradient = tensor.stop_gradient
        return found

    def write(self, target: Any, source: Any, other: bool) -> None:
        values = source.detach()
        moved = values.reshape([-1]).flip(0).reshape(values.shape) if other and source.is_floating_point() else values
        with paddle.no_grad():
            paddle.assign(moved, target)

    def bits(self, tensor: Any) -> bytes:
        return to_array(tensor.detach()).tobytes()

    @contextmanager
    def apart(self) -> Iterator[None]:
        drawn = paddle.get_rng_state()
        try:
            paddle.seed(0)
            yield
        finally:
            paddle.set_rng_state(drawn)


def compiler_error(error: BaseException) -> ProbeError | None:
    """See base.CompilerRun. Paddle tells no refusal from another error in a graph."""
    text = message_of(error)
    if _IN_GRAPH not in text:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return NotCompilable(f"{type(error).__name__}: {lines[-1]}")
