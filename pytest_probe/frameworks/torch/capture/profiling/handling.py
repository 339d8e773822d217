"""torch's functions that are written in Python hand their calls to the mode through one function of torch's, in Python
as well, which takes longer than the mode does. While a program is timed, a shorter one stands in its place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
import torch.overrides
from torch.overrides import TorchFunctionMode

_push = torch._C._push_on_torch_function_stack
_pop = torch._C._pop_torch_function_stack
_count = torch._C._len_torch_function_stack
_NAME = "handle_torch_function"


@contextmanager
def handing_over_to(mode: TorchFunctionMode) -> Iterator[None]:
    """While it lasts the mode gets its calls from here, as torch hands them over: off, and without types."""
    original = torch.overrides.handle_torch_function
    shorter = _shorter(mode, original)
    places = [module for module in _modules() if vars(module).get(_NAME) is original]
    for module in places:
        setattr(module, _NAME, shorter)
    try:
        yield
    finally:
        for module in places:
            if vars(module).get(_NAME) is shorter:
                setattr(module, _NAME, original)


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
