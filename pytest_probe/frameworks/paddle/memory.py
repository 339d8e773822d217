"""PaddlePaddle: errors that say that memory ran out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pytest_probe.user_errors import causes, first_line, said

# What Paddle's allocators and C++ say, in lower case; on the CPU they raise MemoryError themselves.
EXHAUSTED, DEVICE_RAN_OUT, HOST_RAN_OUT = "resourceexhausted", "out of memory", "fail to alloc memory"
Given = ParamSpec("Given")
Found = TypeVar("Found")
RAN_OUT = (EXHAUSTED, DEVICE_RAN_OUT, HOST_RAN_OUT, "bad_alloc")


def is_device_memory(error: BaseException) -> bool:
    """Paddle's error of that name, whose words are other ones where the host's allocator raises it."""
    return any(
        DEVICE_RAN_OUT in words or (EXHAUSTED in words and HOST_RAN_OUT not in words)
        for words in (said(each).lower() for each in causes(error))
    )


def memory_errors(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """The function, which raises MemoryError where Paddle, or code that it ran, says in words of its own that memory
    ran out."""

    @functools.wraps(function)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Found:
        try:
            return function(*args, **kwargs)
        except MemoryError:
            raise
        except Exception as error:
            if not any(words in said(each).lower() for each in causes(error) for words in RAN_OUT):
                raise
            raise MemoryError(first_line(error)) from error

    return called
