"""torch's calls, timed: the mode and the names are those of a capture."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch.overrides
from torch.overrides import TorchFunctionMode

from pytest_probe.capture.bindings import Function, patched
from pytest_probe.capture.frames import Args, Kwargs
from pytest_probe.capture.hooks import Rule
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.profiling.track import Api, DeviceClock, ShapeRows, Track, WaitingClock
from pytest_probe.capture.torch.modes import Watcher
from pytest_probe.capture.torch.names import (
    ALIASING,
    Inside,
    RecordedFunctions,
    by_operator,
)
from pytest_probe.capture.torch.nodes import Hooks, Nodes, number

# Calls inside calls: torch's functions that are written in Python begin with the question whether a mode wants them. A
# mode that is on inside such a function would get the function itself again. So the question that comes first is
# answered without the mode, which then sees what the function calls. torch hands each such call to the mode through a
# function in Python that takes longer than the mode does: a shorter one replaces it while a program is timed.

_push = torch._C._push_on_torch_function_stack
_pop = torch._C._pop_torch_function_stack
_count = torch._C._len_torch_function_stack
_at = torch._C._get_function_stack_at

_QUESTIONS = (torch._C._has_torch_function, torch._C._has_torch_function_unary, torch._C._has_torch_function_variadic)


def _modules() -> Iterator[ModuleType]:
    """torch's modules that are loaded."""
    for place, module in list(sys.modules.items()):
        if place.startswith("torch.") and isinstance(module, ModuleType) and module is not torch._C:
            yield module


class _Thread(threading.local):
    # Does a function begin, which has not asked yet?
    begins = False
    # The innermost one that is under way.
    function: Callable[..., Any] | None = None


class _Entering:
    """Puts a mode on inside functions that are written in Python."""

    def __init__(self, mode: TorchFunctionMode) -> None:
        self._mode = mode
        self._thread = _Thread()

    def inside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with the mode on inside."""
        mode, thread = self._mode, self._thread

        def entered(*args: Any, **kwargs: Any) -> Any:
            outer, thread.function = thread.function, function
            thread.begins = True
            _push(mode)
            try:
                return function(*args, **kwargs)
            finally:
                thread.begins = False
                thread.function = outer
                self._leave()

        return entered

    def again(self, function: Callable[..., Any]) -> bool:
        """Does the innermost function call itself? Methods do, which call their like in C++: torch has one for both."""
        return self._thread.function is function

    @contextmanager
    def patched(self) -> Iterator[None]:
        """While it lasts torch's modules ask here."""
        with ExitStack() as stack:
            for module in _modules():
                for name, value in list(vars(module).items()):
                    if any(value is question for question in _QUESTIONS):
                        stack.enter_context(patched(module, name, self._ask))
            yield

    def _ask(self, original: Callable[..., bool], *args: Any) -> bool:
        if not self._thread.begins:
            return original(*args)
        self._thread.begins = False
        self._leave()
        wanted = original(*args)
        # Where another mode or a subclass wants the call, the function is called once more by it.
        if not wanted:
            _push(self._mode)
        return wanted

    def _leave(self) -> None:
        """Take the mode off, if it is on top."""
        count = _count()
        if count and _at(count - 1) is self._mode:
            _pop()


_HANDLER = "handle_torch_function"


@contextmanager
def _handing_over_to(mode: TorchFunctionMode) -> Iterator[None]:
    """While it lasts the mode gets its calls from here, as torch hands them over: off, and without types."""
    original = torch.overrides.handle_torch_function
    shorter = _shorter(mode, original)
    places = [module for module in _modules() if vars(module).get(_HANDLER) is original]
    for module in places:
        setattr(module, _HANDLER, shorter)
    try:
        yield
    finally:
        for module in places:
            if vars(module).get(_HANDLER) is shorter:
                setattr(module, _HANDLER, original)


def _shorter(mode: TorchFunctionMode, original: Callable[..., Any]) -> Callable[..., Any]:
    """What a module goes on with that took it meanwhile: without the mode it is the original."""

    def handle_torch_function(api: Any, arguments: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not _count():
            return original(api, arguments, *args, **kwargs)
        top = _pop()
        if top is not mode:
            _push(top)
            return original(api, arguments, *args, **kwargs)
        try:
            return mode.__torch_function__(api, (), args, kwargs)
        finally:
            _push(mode)

    return handle_torch_function


_FRAMEWORK = "pytorch"
_grads = torch.is_grad_enabled
_NONE: Mapping[str, Any] = {}


class _Timed:
    """A function that is timed: its row, and that of the operator for which torch has the same function."""

    __slots__ = ("api", "backward", "hooks", "operator", "python", "rows")

    def __init__(self, stopwatch: Stopwatch, function: Any, rule: Rule, device: DeviceClock | None) -> None:
        self.api = stopwatch.api(_FRAMEWORK, rule.name, clock=device)
        self.backward = stopwatch.api(_FRAMEWORK, rule.name, "backward")
        self.hooks: Hooks | None = None
        self.operator = None if rule.operator is None else _Timed(stopwatch, function, rule.operator, device)
        # What is written in Python asks torch first whether a mode wants the call.
        self.python = isinstance(function, FunctionType)
        self.rows = ShapeRows(self.api, torch.Tensor)


class TorchTiming(Watcher):
    """Times torch's calls between begin and end, on this thread and the threads that it starts: first-level ones, since
    torch takes the mode off while it runs, or all, where the mode is on again inside a call once torch has asked for
    it."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        super().__init__(RecordedFunctions(lambda name: True))
        self._stopwatch = stopwatch
        self._local = stopwatch.local
        self._track: Callable[[], Track] = stopwatch.track
        self._by_shape = stopwatch.by_shape
        self._nodes = Nodes(stopwatch) if stopwatch.backward else None
        self._entering = _Entering(self) if stopwatch.nested else None
        self._plain = self._nodes is None and not stopwatch.by_shape and not stopwatch.nested
        self._known: dict[Hashable, _Timed | None] = {}
        self._compiled = stopwatch.api(_FRAMEWORK, "torch.compile")
        self._clock = _clock(stopwatch)
        self._engine = stopwatch.api(_FRAMEWORK, "Torch.autograd.backward", clock=self._clock)
        stopwatch.versions["torch"] = str(torch.__version__)

    def begin(self) -> None:
        super().begin()
        self._patches.enter_context(_handing_over_to(self))
        if self._nodes is not None:
            self._patches.enter_context(self._nodes.registered_quickly())
        if self._entering is not None:
            self._patches.enter_context(self._entering.patched())

    def end(self) -> None:
        """A thread that is still running keeps the mode, idle."""
        super().end()
        self._known = _Untimed()
        self._stopwatch.wait(torch.accelerator.synchronize if torch.accelerator.is_available() else lambda: None)
        if self._nodes is not None:
            self._nodes.end()

    # All calls come through here: few steps, and no function that can be done without.
    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        try:
            timed = self._known[function]
        except (KeyError, TypeError):
            timed = self._timed(function)
        if timed is None:
            return function(*args, **kwargs) if kwargs else function(*args)
        if timed.operator is not None:
            frame = sys._getframe(1)
            if by_operator(frame.f_code, frame.f_lasti):
                timed = timed.operator
        if self._plain:
            return (self._local.track or self._track()).call(timed.api, function, args, kwargs)
        return self._call(timed, function, args, kwargs)

    def _call(self, timed: _Timed, function: Callable[..., Any], args: Args, kwargs: Kwargs | None) -> Any:
        if self._entering is not None:
            if self._entering.again(function):
                return function(*args, **(kwargs or _NONE))
            function = self._entering.inside(function) if timed.python else function
        api = timed.rows.of(args, kwargs or _NONE) if self._by_shape else timed.api
        track = self._local.track or self._track()
        if self._nodes is None or not _grads():
            return track.call(api, function, args, kwargs)
        start = number()
        result = track.call(api, function, args, kwargs)
        made = number() - start
        if made > 0:
            timed.hooks = timed.hooks or self._nodes.hooks(timed.backward)
            self._nodes.watch(timed.backward, timed.hooks, result, start, made)
        return result

    def _timed(self, function: Any) -> _Timed | None:
        try:
            rule = self.rules.table[function] if function in self.rules.table else self.rules.learn(function, None)
        except TypeError:  # not hashable
            return None
        rule = rule.rule if isinstance(rule, Inside) else rule
        timed = None if rule is None or rule is ALIASING else _Timed(self._stopwatch, function, rule, self._clock)
        self._known[function] = timed
        return timed

    def _run_backward(self, original: Function, *args: Any, **kwargs: Any) -> Any:
        return self._stopwatch.track().call(self._engine, super()._run_backward, (original, *args), kwargs)

    def entered_compiled(self) -> None:
        self._stopwatch.tell(
            "torch.compile",
            "pytest-probe: what runs inside torch.compile regions is one row, torch.compile; run the program without "
            "torch.compile to see the calls inside",
        )
        self._stopwatch.track().begin(self._compiled)

    def left_compiled(self) -> None:
        self._stopwatch.track().end_call(self._compiled)


class _Untimed(dict[Hashable, _Timed | None]):
    """Of a mode that is left on a thread. A defaultdict would keep each function that is called."""

    def __missing__(self, function: Hashable) -> None:
        return None


def _clock(stopwatch: Stopwatch) -> DeviceClock | None:
    """What each first-level call asks; None where there is no accelerator."""
    if not torch.accelerator.is_available():
        return None
    return _Issued(stopwatch) if stopwatch.asynchronous else WaitingClock(torch.accelerator.synchronize, _allocated())


def _allocated() -> Callable[[], int] | None:
    """What counts the bytes that the device's allocator has handed out; None where it does not."""
    try:
        torch.accelerator.memory_allocated()
    except (RuntimeError, NotImplementedError):
        return None
    return torch.accelerator.memory_allocated


class _Issued:
    """Waits at the end only. CUDA's events measure how long the device took, and are read then."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        allocated = _allocated()
        self._allocated = allocated or (lambda: 0)
        self.memory = allocated is not None
        self._stopwatch = stopwatch
        self._events = torch.cuda.is_available()

    def before(self, api: Api) -> tuple[int, Any]:
        return self._allocated(), self._event()

    def after(self, api: Api, token: tuple[int, Any]) -> int:
        before, begun = token
        ended = self._event()
        if ended is not None:
            self._stopwatch.later(api, lambda: _elapsed(begun, ended))
        return self._allocated() - before

    def _event(self) -> Any:
        if not self._events:
            return None
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


def _elapsed(begun: Any, ended: Any) -> float:
    ended.synchronize()
    milliseconds: float = begun.elapsed_time(ended)
    return milliseconds * 1e6
