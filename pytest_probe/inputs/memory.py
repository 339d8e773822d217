"""How much memory a case takes, asked before any is taken."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from pytest_probe.errors import TooLarge
from pytest_probe.model.dump import Call, TensorSpec, named_tensors
from pytest_probe.numerics.dtypes import is_complex, is_floating, numpy_dtype

# Device, float64 reference and one perturbed run, twice: for what the calls themselves hold on to.
_HELD_TWICE = 2
# Bytes an element: the reference and one perturbed run, float64 each.
_WIDE_COPIES = 16
# Runs whose tensors are there at a time: the reference, a perturbed one, the device's.
_RUNS = 3


def memory_needed(call: Call, dtype: str | None) -> int:
    """Bytes that checking the call in a dtype (None: as recorded) will take, roughly, all of its tensors together."""
    return _total(call, lambda own: _bytes_per_element(own, dtype))


def _total(call: Call, each: Callable[[str], int]) -> int:
    """Bytes of all tensors; each: bytes an element of a recorded dtype."""
    needed = 0
    for value in (*call.args, *call.kwargs.values(), *(call.outputs or ()), *(call.gradients or ())):
        # Most arguments are in no list: computing their places would cost more than their sizes.
        if isinstance(value, TensorSpec):
            needed += _extent(value) * each(value.dtype)
        elif isinstance(value, (list, tuple, dict)):
            needed += sum(_extent(spec) * each(spec.dtype) for _, spec in named_tensors(value))
    return needed


def check_size(call: Call, dtype: str | None, available: int) -> None:
    """Refuse a call that needs more than the available bytes. Raises TooLarge."""
    needed = memory_needed(call, dtype)
    if needed <= available:
        return
    field, spec = max(_all_tensors(call), key=lambda item: _extent(item[1]))
    found = f"{spec.dtype} of shape {list(spec.shape)}{_strided(spec)}"
    raise TooLarge(
        f"{field}: found {found}; checking the call takes about {_gigabytes(needed)}, more than the "
        f"{_gigabytes(available)} of memory that may be taken here"
    )


def bytes_on_device(call: Call, dtype: str | None) -> int:
    """Bytes of a call's arguments and outputs in a dtype (None: as recorded)."""
    return _total(Call(call.args, call.kwargs, call.outputs, None), lambda own: _bytes_on_device(own, dtype))


def arguments_on_device(call: Call, dtype: str | None) -> int:
    """Bytes of its arguments alone, which no call can do without."""
    return bytes_on_device(Call(call.args, call.kwargs, None, None), dtype)


def bytes_of_run(available: int) -> int:
    """How many bytes one run in float64 may hold at a time where so many are available."""
    return available // _RUNS


def check_run(inside: int, available: int) -> None:
    """Refuse a call that holds so many bytes at a time in float64. Raises TooLarge."""
    needed = _RUNS * inside
    if needed > available:
        raise TooLarge(
            f"the call makes {_gigabytes(inside)} of tensors in float64; checking it takes about {_gigabytes(needed)}, "
            f"more than the {_gigabytes(available)} of memory that may be taken here"
        )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"


def _all_tensors(call: Call) -> Iterator[tuple[str, TensorSpec]]:
    """Every tensor of a call, with its path as dumps write it."""
    yield from named_tensors(call.args, "input_args")
    yield from named_tensors(call.kwargs, "input_kwargs")
    yield from named_tensors(call.outputs, "output")
    yield from named_tensors(call.gradients, "input")


def _extent(spec: TensorSpec) -> int:
    """Elements in memory: an expanded tensor is also had in full."""
    return spec.size if spec.stride is None else max(spec.size, spec.span)


def _strided(spec: TensorSpec) -> str:
    return f" and stride {list(spec.stride)}" if spec.stride is not None else ""


@functools.cache
def _bytes_per_element(own: str, dtype: str | None) -> int:
    try:
        target = numpy_dtype(dtype) if dtype is not None and is_floating(own) else numpy_dtype(own)
    except ValueError:
        return _HELD_TWICE * 2 * _WIDE_COPIES
    wide = 2 * _WIDE_COPIES if is_complex(target) else _WIDE_COPIES
    return _HELD_TWICE * (wide + target.itemsize)


def _bytes_on_device(own: str, dtype: str | None) -> int:
    try:
        return numpy_dtype(dtype if dtype is not None and is_floating(own) else own).itemsize
    except ValueError:
        return _WIDE_COPIES
