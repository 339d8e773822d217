"""PaddlePaddle: errors that say that memory ran out."""

from __future__ import annotations

from pytest_probe.user_errors import MemoryErrors, causes, said

# What Paddle's allocators and C++ say, in lower case; on the CPU they raise MemoryError themselves.
EXHAUSTED, DEVICE_RAN_OUT, HOST_RAN_OUT = "resourceexhausted", "out of memory", "fail to alloc memory"
RAN_OUT = (EXHAUSTED, DEVICE_RAN_OUT, HOST_RAN_OUT, "bad_alloc")


def is_device_memory(error: BaseException) -> bool:
    """Paddle's error of that name, whose words are other ones where the host's allocator raises it."""
    return any(
        DEVICE_RAN_OUT in words or (EXHAUSTED in words and HOST_RAN_OUT not in words)
        for words in (said(each).lower() for each in causes(error))
    )


def _ran_out(error: BaseException) -> bool:
    """Does Paddle, or code that it ran, say so in words of its own?"""
    return any(words in said(each).lower() for each in causes(error) for words in RAN_OUT)


memory_errors = MemoryErrors(_ran_out)
