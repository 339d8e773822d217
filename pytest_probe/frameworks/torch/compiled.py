"""torch.compile: what it makes of a call, how that is counted, and what its errors mean.

Each kind of call has a code object of its own: dynamo keeps what it made by code, and gives up at the ninth kind.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as trees

from pytest_probe.errors import CompilerFailed, NotCompilable, ProbeError, SettingsError
from pytest_probe.frameworks.compilers import Compile, CompiledFunction, PythonCompiler
from pytest_probe.frameworks.torch.arrays import to_array
from pytest_probe.system.text import suggestion
from pytest_probe.user_errors import first_line

OPTION = "--probe-compile"
# They log a traceback of each call that fails, which is in the verdict, and each step of each compilation.
_LOGGERS = ("torch._subclasses.fake_tensor", "torch._dynamo.convert_frame", "torch.__trace")
# Errors by which torch.compile, or one of its backends, says that it does not take a call.
_REFUSALS = frozenset(
    "Unsupported UserError NotImplementedError DataDependentOutputException DynamicOutputShapeException "
    "UnsupportedOperatorException UnsupportedFakeTensorException MissingOperatorWithDecomp "
    "MissingOperatorWithoutDecomp".split()
)


def names() -> tuple[str, ...]:
    """The backends of torch.compile, registered ones included."""
    return tuple(torch.compiler.list_backends(exclude_tags=()))


def environment(folder: Path, workers: int) -> dict[str, str]:
    """Those of inductor, and through it of Triton."""
    found = {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}
    return {**found, "TORCHINDUCTOR_COMPILE_THREADS": "1"} if workers > 1 else found


class TorchCompiler(PythonCompiler):
    """torch.compile with one of its backends, or a user's own compiler."""

    tensor = torch.Tensor

    def __init__(self, name: str, compile: Compile | None, *, dynamic: bool) -> None:
        """Raises SettingsError."""
        super().__init__(compile)
        self._dynamic = dynamic
        self._backend = _backend(name) if compile is None else None

    def call_of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        call: Any = super().call_of(function)
        return types.FunctionType(call.__code__.replace(), call.__globals__, closure=call.__closure__)

    def compiled(self, found: CompiledFunction, call: Callable[..., Any]) -> Callable[..., Any]:
        def backend(graph: Any, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
            assert self._backend is not None
            return found.counting(self._backend(graph, inputs, **options))

        compiled: Callable[..., Any] = torch.compile(call, backend=backend, fullgraph=True, dynamic=self._dynamic)
        return compiled

    def tensor_kind(self, value: torch.Tensor) -> object:
        strides = value.stride() if value.layout is torch.strided else ()
        return value.shape, value.dtype, strides, value.requires_grad, value.device, type(value)

    def state(self) -> object:
        kinds = ("cpu", "cuda")
        return torch.is_grad_enabled(), *((torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in kinds)

    def first(self, compiled: CompiledFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """With sizes of their own, and then one larger each: what serves both was compiled for any."""
        if self._dynamic:
            # Where the call does not take such sizes it is compiled for its own.
            with contextlib.suppress(Exception):
                larger = trees.tree_map_only(torch.Tensor, _larger, (list(args), dict(kwargs)))
                compiled(*larger[0], **larger[1])

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        loggers = [logger for logger in map(logging.getLogger, _LOGGERS) if not logger.disabled]
        for logger in loggers:
            logger.disabled = True
        try:
            yield
        finally:
            for logger in loggers:
                logger.disabled = False

    def counted(self) -> Mapping[str, float]:
        from torch._dynamo.utils import calculate_time_spent, counters
        from torch._inductor import metrics

        seconds = calculate_time_spent().get("total_wall_time", 0.0)
        if self._compile is not None:  # into which nobody looks
            return {"seconds": seconds}
        return {
            "graphs": counters["stats"]["unique_graphs"],
            "kernels": metrics.generated_kernel_count,
            "external calls": counters["inductor"]["extern_calls"],
            "seconds": seconds,
        }

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    def write(self, target: torch.Tensor, source: torch.Tensor, other: bool) -> None:
        values, moves = source.detach(), source.is_floating_point() or source.is_complex()
        with torch.no_grad():
            target.copy_(values.reshape(-1).flip(0).reshape(values.shape) if other and moves else values)

    def bits(self, tensor: torch.Tensor) -> bytes:
        return to_array(tensor.detach().cpu().contiguous()).tobytes()

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            yield


def _larger(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with each dimension above 1 longer by one, which repeats its first place."""
    found = tensor.detach()
    for dim, size in enumerate(tensor.shape):
        if size > 1:
            found = found.index_select(dim, torch.arange(size + 1, device=tensor.device) % size)
    return found.requires_grad_(tensor.requires_grad)


def _backend(name: str) -> Callable[..., Any]:
    known = names()
    if name not in known:
        wanted = f"torch.compile has {', '.join(known)}{suggestion(known, name)}"
        raise SettingsError(OPTION, name, wanted)
    if name == "cudagraphs" and not torch.cuda.is_available():
        raise SettingsError(OPTION, name, "it needs CUDA, which is missing here; take another backend")
    if name == "inductor" and not torch.accelerator.is_available():
        # Raises SettingsError where inductor has no C++ compiler for a CPU.
        from torch._inductor import config
        from torch._inductor.cpp_builder import get_cpp_compiler

        try:
            get_cpp_compiler()
        except Exception as error:
            tried = ", ".join(each for each in config.cpp.cxx if each)
            wanted = f"on a CPU it needs a C++ compiler, and finds none (tried {tried}); install g++, or set CXX"
            raise SettingsError(OPTION, "inductor", wanted) from error
    from torch._dynamo.backends.registry import lookup_backend

    try:
        found: Callable[..., Any] = lookup_backend(name)
    except Exception as error:
        raise SettingsError(OPTION, name, f"it cannot be loaded: {first_line(error)}") from error
    return found


def compiler_error(error: BaseException) -> ProbeError | None:
    """See base.CompilerRun."""
    dynamo: Any = sys.modules.get("torch._dynamo.exc")
    if dynamo is None:
        return None
    chain = [error]
    while (inside := getattr(chain[-1], "inner_exception", None) or chain[-1].__cause__) is not None:
        chain.append(inside)
    inductor: Any = sys.modules.get("torch._inductor.exc")
    ours = (dynamo.TorchDynamoException, *(() if inductor is None else (inductor.InductorError,)))
    if not any(isinstance(each, ours) for each in chain):
        return None
    inner = next((each for each in reversed(chain) if first_line(each)), error)
    if any(type(each).__name__ in _REFUSALS for each in chain):
        return NotCompilable(first_line(inner))
    return CompilerFailed(f"the compiler raised {type(inner).__name__}: {first_line(inner)}")
