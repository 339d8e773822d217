"""How much memory a case takes, asked before any is taken."""

from __future__ import annotations

import os
from collections.abc import Iterator

from pytest_probe.core.dump import Call, TensorSpec, named_tensors
from pytest_probe.errors import Unsupported
from pytest_probe.numerics.dtypes import is_complex, is_floating, numpy_dtype

# Device, float64 reference and one perturbed run, twice: for what the calls themselves hold on to.
_HELD_TWICE = 2
# Bytes an element: the reference and one perturbed run, float64 each.
_WIDE_COPIES = 16
# Bytes. Chosen: a usual machine for training; a larger one skips calls that it could run.
_UNKNOWN_MEMORY = 1 << 36


def available_memory() -> int:
    """Bytes of memory that this machine has; 64 GiB where the system does not say.

    The whole, not what is free now: what is skipped must not depend on the state of the page cache.
    """
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN_MEMORY


def memory_needed(call: Call, dtype: str | None) -> int:
    """Bytes that checking the call in a dtype (None: as recorded) will take, roughly, all of its tensors together."""
    return sum(_extent(spec) * _bytes_per_element(spec, dtype) for _, spec in _all_tensors(call))


def check_size(call: Call, dtype: str | None, available: int) -> None:
    """Refuse a call that needs more than the available bytes. Raises Unsupported, of the kind "too large"."""
    needed = memory_needed(call, dtype)
    if needed <= available:
        return
    field, spec = max(_all_tensors(call), key=lambda item: _extent(item[1]))
    found = f"{spec.dtype} of shape {list(spec.shape)}{_strided(spec)}"
    raise Unsupported(
        f"{field}: found {found}, expected what this machine's memory of "
        f"{available / 1e9:,.1f} GB is enough for; checking the call takes about {needed / 1e9:,.1f} GB",
        kind="too large",
    )


def _all_tensors(call: Call) -> Iterator[tuple[str, TensorSpec]]:
    """Every tensor of a call, with its path as dumps write it."""
    yield from named_tensors(call.args, "input_args")
    yield from named_tensors(call.kwargs, "input_kwargs")
    yield from named_tensors(call.outputs, "output")
    yield from named_tensors(call.gradients, "input")


def _extent(spec: TensorSpec) -> int:
    """Elements in memory: an expanded tensor is also had in full."""
    return max(spec.size, spec.span)


def _strided(spec: TensorSpec) -> str:
    return f" and stride {list(spec.stride)}" if spec.stride is not None else ""


def _bytes_per_element(spec: TensorSpec, dtype: str | None) -> int:
    try:
        target = numpy_dtype(dtype) if dtype is not None and is_floating(spec.dtype) else numpy_dtype(spec.dtype)
    except ValueError:
        return _HELD_TWICE * 2 * _WIDE_COPIES
    wide = 2 * _WIDE_COPIES if is_complex(target) else _WIDE_COPIES
    return _HELD_TWICE * (wide + target.itemsize)
