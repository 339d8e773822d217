"""The compiled kernel, where one was built for this Python and platform; kernel/ has its source.

Its statistics take an address, a count and a dtype's number; its entries of calls are made by Python's limited API. So
it follows no framework's ABI, and one build serves all CPythons of a platform. What it does not know (what is not
finite, float8, complex, calls that are rare) is done as it is without it.
"""

from __future__ import annotations

from types import ModuleType

from pytest_probe.system.process import load_extension

_NAME = "pytest_probe.capture._kernel"
# Revision of the kernel's source that this code needs; another revision takes or gives something else.
REVISION = 5
# By their numbers.
DTYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
)


def load(name: str = _NAME) -> tuple[ModuleType | None, str]:
    """The kernel, and the instructions that it uses on this CPU; or None and the reason."""
    return load_extension(name, REVISION)


# measure(address, count, dtype) gives maximum, minimum, sum and sum of squares of so many elements, 1 at least, that
# lie one behind the other, of a dtype by its number; summary gives, of floats, also how many are 0 and how many equal
# the one before. sample(address, extents, strides, dtype) gives these two of floats that lie apart, 1,024 at most.
# stack(frame) gives a key of bytes for the frame and its callers. Values takes snapshots and Calls makes calls of
# torch's and their entries; each is made of an object whose attributes are what it works with.
compiled, _said = load()


def numbers() -> dict[str, int]:
    """The dtypes that the kernel knows, by their names; none where there is no kernel."""
    return {} if compiled is None else {name: number for number, name in enumerate(DTYPES)}


def kernel_line() -> str:
    """How captures count, in one line."""
    return f"captures count {'without' if compiled is None else 'with'} the compiled kernel ({_said})"
