"""Records or times the calls of a program: the functions that users import, and what they use.

`profiling/` times, `cli.py` has the commands, `plugin.py` is --probe-capture. It imports no framework: the folder of
a framework, `torch/`, `paddle/` or `mindspore/`, adds what only it knows.

`pytest_probe.capture(...)` is a function of `debugger`, and Python binds that name to this package as soon as one of
its modules is imported. So the package can be called, and calls the function.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from pytest_probe.capture.debugger import capture

        return capture(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
