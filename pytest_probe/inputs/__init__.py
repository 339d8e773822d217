"""The arguments of a case: stored tensors where a dump has them, generated ones of the same statistics elsewhere.

In: a recorded call. Out: its arguments as NumPy arrays, the same for the same seed.
"""

from pytest_probe.inputs.build import StoredTensors, build
from pytest_probe.inputs.memory import (
    arguments_on_device,
    bytes_of_run,
    bytes_on_device,
    bytes_to_judge,
    check_run,
    check_size,
    memory_needed,
)
from pytest_probe.system.machine import available_memory

__all__ = [
    "StoredTensors",
    "arguments_on_device",
    "available_memory",
    "build",
    "bytes_of_run",
    "bytes_on_device",
    "bytes_to_judge",
    "check_run",
    "check_size",
    "memory_needed",
]
