"""The mode that sees torch's calls, for who records, times or asks them: it is on on this thread and the threads that
it starts, and never inside a compiled region, unless such regions run eagerly meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.overrides
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from pytest_probe.capture.bindings import Function, patched
from pytest_probe.capture.frames import Args, Kwargs, remove_our_frames
from pytest_probe.capture.hooks import Rule
from pytest_probe.capture.torch.names import Inside, RecordedFunctions
from pytest_probe.capture.writer import THREAD

# Untyped in torch.
_stack: Callable[[], list[TorchFunctionMode]] = torch.overrides._get_current_function_mode_stack
_push: Callable[[TorchFunctionMode], None] = torch.overrides._push_mode
_pop: Callable[[], TorchFunctionMode] = torch.overrides._pop_mode

# Looked up among the modules that are loaded: importing it takes seconds.
_DYNAMO = "torch._dynamo.eval_frame"
# Methods without arguments name torch's own class among the classes that may see a call.
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
# Asked at every call.
_level = torch._C._functorch.maybe_current_level
_tracing = torch._C._get_tracing_state
_dispatching = torch._C._len_torch_dispatch_stack
# Modes of torch's own that trace.
_TRACING = tuple(torch._C._TorchDispatchModeKey.__members__.values())


class Watcher(TorchFunctionMode):
    """Sees the program's calls, once it has begun, wherever it is on the stack of modes. eager: what was compiled runs
    without its compilation meanwhile."""

    def __init__(self, rules: RecordedFunctions, *, eager: bool = False) -> None:
        super().__init__()
        self.rules = rules
        self._table = rules.table
        self._eager = eager
        self._patches = ExitStack()
        self._regions = threading.local()
        self._threads = threading.local()

    def call(
        self, rule: Rule | None, function: Function, args: Args, kwargs: Kwargs, *, overridden: bool = False
    ) -> Any:
        """Make a call of the program's; rule None: of what nobody records. overridden: a class of the program's sees
        what torch is asked of its tensors. Raises what the call raises."""
        raise NotImplementedError

    def entered_compiled(self) -> None:
        """A compiled region begins, in which no call is seen."""

    def left_compiled(self) -> None:
        """It ends."""

    def learn(self, function: Any) -> Rule | Inside | None:
        """The rule of a function that was not met before, or that is none of torch's."""
        frame = sys._getframe().f_back  # None where no Python code calls
        return self.rules.learn(function, frame.f_back if frame is not None and frame.f_code is _SEEING else frame)

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        rule: Rule | Inside | None
        try:
            rule = self._table[function]
        except (KeyError, TypeError):
            rule = self.learn(function)
        if isinstance(rule, Inside):
            function, rule = rule
        try:
            return self.call(rule, function, args, kwargs or {}, overridden=not _PLAIN.issuperset(types))
        except BaseException as error:
            remove_our_frames(error)
            raise

    def begin(self) -> None:
        """Turn the mode on, here and in threads to come."""
        self._patches.enter_context(patched(threading.Thread, "start", self._start_thread))
        self._patches.enter_context(patched(torch.overrides, "has_torch_function", self._has_torch_function))
        self._patches.enter_context(patched(torch, "compile", self._compile))
        self._patches.enter_context(patched(torch.autograd, "_engine_run_backward", self._run_backward))
        self._leave_compiled_alone()
        self._threads.began = True
        if not self._is_on():
            _push(self)

    def end(self) -> None:
        """Turn it off here. A thread that is still running keeps it, idle, until the thread ends."""
        self._patches.close()
        self._threads.began = False
        self.take_off_all()

    def take_off_all(self) -> None:
        """A signal's handler that raises while the mode is put on, or taken off, may leave it there once more."""
        while self._is_on():
            self._take_off()

    def absent(self) -> bool:
        """Has this thread run since before `begin`, so that the mode is not on here?"""
        # Where it was put on it may be off for a moment, inside a call that is recorded or that is compiled.
        return not (getattr(self._threads, "began", False) or self._is_on())

    def _is_on(self) -> bool:
        return any(mode is self for mode in _stack())

    @contextmanager
    def present(self) -> Iterator[None]:
        """Turn the mode on for a while, on a thread where it is absent."""
        self._threads.began = True
        try:
            with self:
                yield
        finally:
            self._threads.began = False

    @contextmanager
    def away(self) -> Iterator[bool]:
        """Take the mode off for a while. Was it on?"""
        place = self._take_off()
        try:
            yield place >= 0
        finally:
            if place >= 0:
                self._put_back(place)

    def _take_off(self) -> int:
        """Take the mode off this thread's stack; its place there, -1 where it is on none."""
        stack = _stack()
        place = next((index for index, mode in enumerate(stack) if mode is self), -1)
        if place >= 0:
            above = [_pop() for _ in stack[place:]][:-1]
            for mode in reversed(above):
                _push(mode)
        return place

    def _put_back(self, place: int) -> None:
        above = [_pop() for _ in _stack()[place:]]
        for mode in (self, *reversed(above)):
            _push(mode)

    def _start_thread(self, original: Callable[..., Any], thread: threading.Thread) -> None:
        if thread.name == THREAD:
            original(thread)
            return
        own, run = vars(thread).get("run"), thread.run

        def recorded() -> None:
            # The thread would hold itself, and all that it was given.
            if own is None:
                del thread.run
            else:
                thread.run = own  # type: ignore[method-assign]
            self._threads.began = True
            try:
                with self:
                    run()
            except BaseException as error:
                remove_our_frames(error)
                raise

        thread.run = recorded  # type: ignore[method-assign]
        original(thread)

    def _run_backward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The backward is one call of torch's, inside which the mode is off; but checkpoints and users' own functions
        call torch from there."""
        # Does this thread run, or trace, what was compiled?
        if self._is_on() or getattr(self._regions, "value", None) is not None:
            return original(*args, **kwargs)
        with self:
            return original(*args, **kwargs)

    def _has_torch_function(self, original: Callable[..., bool], arguments: Any) -> bool:
        """Modules ask this before they take a faster path, which they shall take as they do without us."""
        with self.away():
            return original(arguments)

    def _compile(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        compiled = original(*args, **kwargs)
        self._leave_compiled_alone()
        return compiled

    def _leave_compiled_alone(self) -> None:
        """Follow dynamo: while a compiled region runs on a thread, the mode is off there."""
        dynamo = sys.modules.get(_DYNAMO)
        setter = getattr(dynamo, "_maybe_set_eval_frame", None)
        if setter is not None and not hasattr(setter, "__wrapped__"):
            self._patches.enter_context(patched(dynamo, "_maybe_set_eval_frame", self._follow_dynamo))
            if self._eager:
                self._patches.enter_context(_eager(dynamo))

    def _follow_dynamo(self, original: Callable[[Any], Any], callback: Any) -> Any:
        """The wrapper of a compiled function calls this when it begins and when it ends; so do others in between."""
        wrapper = id(sys._getframe(2))
        region: tuple[int, int] | None = getattr(self._regions, "value", None)
        if region is None and callable(callback):
            place = self._take_off()
            if place >= 0:
                self._regions.value = (wrapper, place)
                self.entered_compiled()
        before = original(callback)
        if region is not None and region[0] == wrapper:
            self._regions.value = None
            self.left_compiled()
            self._put_back(region[1])
        return before


_SEEING = Watcher.__torch_function__.__code__


def transforming() -> bool:
    """Inside vmap, grad or jvp, and among fake tensors, where tensors have no values of their own; while a trace is
    made, which would hold our steps as well."""
    if _level() is not None or _tracing() is not None:
        return True
    return _dispatching() > 0 and any(torch._C._get_dispatch_mode(key) is not None for key in _TRACING)


@contextmanager
def _eager(dynamo: Any) -> Iterator[None]:
    """Compiled functions run eagerly, and nothing is compiled; a stance that the program takes meanwhile stays."""
    forced = torch.compiler.set_stance("force_eager")
    try:
        yield
    finally:
        if dynamo._stance is forced.stance:
            forced.__exit__(None, None, None)


@contextmanager
def unseen() -> Iterator[None]:
    """No mode sees what torch is asked for in here."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        yield


@contextmanager
def aside() -> Iterator[None]:
    """As `unseen`, and without gradients."""
    with unseen(), torch.no_grad():
        yield


@contextmanager
def without_modes() -> Iterator[None]:
    """As `unseen`, but modes that are entered in here see what they should."""
    modes = _stack()
    for _ in modes:
        _pop()
    try:
        with _disable_current_modes():
            yield
    finally:
        for mode in modes:
            _push(mode)
