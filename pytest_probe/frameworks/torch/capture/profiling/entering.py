"""Calls inside calls: torch's functions that are written in Python begin with the question whether a mode wants them.

A mode that is on inside such a function would get the function itself again. So the question that comes first is
answered without the mode, which then sees what the function calls. torch hands each such call to the mode through a
function in Python that takes longer than the mode does: a shorter one replaces it while a program is timed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import torch
import torch.overrides
from torch.overrides import TorchFunctionMode

from pytest_probe.frameworks.torch.capture.modes import patched

_push = torch._C._push_on_torch_function_stack
_pop = torch._C._pop_torch_function_stack
_count = torch._C._len_torch_function_stack
_at = torch._C._get_function_stack_at

_QUESTIONS = (
    torch._C._has_torch_function,
    torch._C._has_torch_function_unary,
    torch._C._has_torch_function_variadic,
)


class _Thread(threading.local):
    # Does a function begin, which has not asked yet?
    begins = False
    # The innermost one that is under way.
    function: Callable[..., Any] | None = None


class Entering:
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
            for module, name in _asking():
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


def _asking() -> Iterator[tuple[ModuleType, str]]:
    """Where torch's modules hold a question."""
    for place, module in list(sys.modules.items()):
        if place.startswith("torch.") and isinstance(module, ModuleType) and module is not torch._C:
            for name, value in list(vars(module).items()):
                if any(value is question for question in _QUESTIONS):
                    yield module, name


_HANDLER = "handle_torch_function"


@contextmanager
def handing_over_to(mode: TorchFunctionMode) -> Iterator[None]:
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


def _modules() -> Iterator[ModuleType]:
    for place, module in list(sys.modules.items()):
        if place.startswith("torch.") and isinstance(module, ModuleType):
            yield module
