"""A function as a compiler makes it, once for all calls that differ in the values of tensors alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, TypeAlias

from pytest_probe.model.run import map_tree

# A user's own compiler: a function of a function.
Compile: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
# Makes a call on the device: of a function, its arguments and keywords.
Make: TypeAlias = Callable[[Callable[..., Any], Sequence[Any], Mapping[str, Any]], Any]


class CompiledFunction:
    """A function as a compiler made it, for arguments of some shapes and dtypes. runs: how often something compiled
    ran, in place of the function itself. function is kept: another one may not get its number. A user's compiler, which
    nobody looks into, has compiled whatever it gives."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.call: Callable[..., Any] = function
        self.runs = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises what the call raises, and what the compiler raises."""
        return self.call(list(args), kwargs)

    def counting(self, made: Callable[..., Any]) -> Callable[..., Any]:
        """What was compiled, whose runs count."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self.runs += 1
            return made(*args, **kwargs)

        return run


class PythonCompiler(ABC):
    """A compiler of calls. Calls of one function on arguments that differ in the values of tensors alone share what it
    made. tensor is the framework's type of tensors; compile is a user's own compiler."""

    tensor: ClassVar[type]

    def __init__(self, compile: Compile | None) -> None:
        self._compile = compile
        self._made: dict[object, CompiledFunction] = {}

    def of(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> CompiledFunction:
        """The function, compiled for such arguments when it is first called."""
        key = id(function), self._kind(args), self._kind(kwargs), self.state()
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = CompiledFunction(function)
            call = self.call_of(function)
            found.call = self.compiled(found, call) if self._compile is None else found.counting(self._compile(call))
            self.first(found, args, kwargs)
        return found

    def _kind(self, value: Any) -> object:
        """What a compiled function depends on: of a tensor all but its values, and anything else."""
        if isinstance(value, self.tensor):
            return self.tensor_kind(value)
        if isinstance(value, Mapping):
            return tuple((key, self._kind(item)) for key, item in value.items())
        if isinstance(value, (list, tuple)):
            return type(value), tuple(map(self._kind, value))
        return type(value), repr(value)

    def call_of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What is compiled: it takes the arguments as a list, and the keywords."""

        def call(args: list[Any], kwargs: dict[str, Any]) -> Any:
            return function(*args, **kwargs)

        return call

    @abstractmethod
    def compiled(self, found: CompiledFunction, call: Callable[..., Any]) -> Callable[..., Any]:
        """What makes the call, to be compiled when it is called. Raises SettingsError."""

    @abstractmethod
    def counted(self) -> Mapping[str, float]:
        """How many "graphs" it has traced in this process, "kernels" it has generated and "external calls" it has left
        to libraries, each where somebody counts them, and the "seconds" that it took."""

    @abstractmethod
    def tensor_kind(self, value: Any) -> object:
        """Its shape, dtype and layout, and whether it requires grad."""

    @abstractmethod
    def copy(self, tensor: Any) -> Any:
        """A tensor of its own, which wants a gradient where the other one does."""

    @abstractmethod
    def write(self, target: Any, source: Any, other: bool) -> None:
        """Write another tensor's values into one; other: floats in the reverse order, so that none leaves its range."""

    @abstractmethod
    def bits(self, tensor: Any) -> bytes:
        """Those of its values."""

    @abstractmethod
    def apart(self) -> AbstractContextManager[object]:
        """In here no random number is the process's."""

    def state(self) -> object:
        """What else of a process a compiled function depends on."""
        return None

    def quiet(self) -> AbstractContextManager[None]:
        """A case runs in here, and nothing of what is compiled for it is logged."""
        return nullcontext()

    def first(self, compiled: CompiledFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Prepare what was made for a kind of call, before it is called."""
        return

    def stale(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], make: Make) -> str:
        """How what it made of a function keeps something of an earlier call. The call is made on copies of the
        arguments, on other values at the same addresses, and on the first ones again. make makes each call on
        the device. "" where it keeps nothing, or the call does not take such values."""
        given = [*self._tensors(args), *self._tensors(kwargs)]
        own = [map_tree(tree, "", self._copied) for tree in (list(args), dict(kwargs))]
        copies = [tensor for tree in own for tensor in self._tensors(tree)]
        compiled = self.of(function, args, kwargs)

        def result(call: Callable[..., Any], *, other: bool) -> list[bytes]:
            for target, source in zip(copies, given, strict=True):
                self.write(target, source, other)
            with self.apart():
                return [self.bits(tensor) for tensor in self._tensors(make(call, own[0], own[1]))]

        try:
            first, other, again = (result(compiled, other=each) for each in (False, True, False))
            if first != other:
                # Bits may be others each time, as a sum's in the order of its threads: those of the call before tell.
                return "on the first values it gives the result of a call on others" if again == other else ""
            plain = [result(function, other=each) for each in (False, False, True)]
        except Exception:  # a call that writes to what wants a gradient, or does not take its values in another order
            return ""
        moves = plain[0] == plain[1] != plain[2]
        return "on other values at the same addresses it gives the result of the call before" if moves else ""

    def _copied(self, value: Any, _: str) -> Any:
        return self.copy(value) if isinstance(value, self.tensor) else value

    def _tensors(self, value: Any) -> Iterator[Any]:
        if isinstance(value, self.tensor):
            yield value
        elif isinstance(value, (list, tuple, Mapping)):
            for item in value.values() if isinstance(value, Mapping) else value:
                yield from self._tensors(item)
