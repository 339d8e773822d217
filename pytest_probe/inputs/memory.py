"""How tensors lie in memory, and how much of it a case takes, asked before any is taken."""

from __future__ import annotations

import functools
from collections.abc import Callable

from msgspec.structs import replace

from pytest_probe.errors import TooLarge
from pytest_probe.model.dump import Call, TensorSpec, named_tensors
from pytest_probe.numerics.arrays import are_apart
from pytest_probe.numerics.dtypes import is_complex, is_floating, numpy_dtype

# Bytes: no kernel needs a tensor's first element aligned to more, and torch's allocations are.
ALIGNED = 64


def is_layout(spec: TensorSpec) -> bool:
    """Has the tensor strides by which no two elements share a place, except along expanded dimensions?"""
    if spec.stride is None or not spec.size:
        return False
    own = [extent if stride else 1 for extent, stride in zip(spec.shape, spec.stride, strict=True)]
    return are_apart(own, spec.stride)


def offset(spec: TensorSpec) -> int:
    """Elements that lay between an aligned address and the tensor's first one, as a view of other memory has them: some
    kernels are for aligned tensors only."""
    if not spec.address or not spec.size or spec.ndarray:
        return 0
    count, rest = divmod(spec.address % ALIGNED, numpy_dtype(spec.dtype).itemsize)
    return 0 if rest else count


def recorded_layouts(call: Call) -> list[str] | None:
    """The arguments and incoming gradients that did not lie in order at an aligned address, each with how it lay; None
    where the record does not say."""
    specs = dict((*call.tensors(), *named_tensors(call.gradients, "grad")))
    if all(spec.stride is None and spec.address is None for spec in specs.values()):
        return None
    return [f"{name} {how}" for name, spec in specs.items() if (how := _how_it_lay(spec))]


def _how_it_lay(spec: TensorSpec) -> str:
    """In words; "" in order at an aligned address."""
    beyond = (spec.address or 0) % ALIGNED
    stride = "" if spec.stride is None else f"of stride {list(spec.stride)}"
    begin = f"{beyond} bytes after a multiple of {ALIGNED}" if beyond else ""
    return " ".join(filter(None, (stride, begin)))


def without_repeats(spec: TensorSpec) -> TensorSpec:
    """The tensor that was expanded to this one: each of its elements is in memory once. The same tensor if it is not
    expanded."""
    expanded = [not stride and extent > 1 for stride, extent in zip(spec.stride or (), spec.shape, strict=False)]
    if not any(expanded) or not spec.size:
        return spec
    shape = tuple(1 if repeats else extent for repeats, extent in zip(expanded, spec.shape, strict=True))
    copies = spec.size // replace(spec, shape=shape).size
    nan, inf, negative, true = (
        None if count is None else count // copies for count in (spec.nan, spec.inf, spec.negative_inf, spec.true)
    )
    # Statistics were of all elements, with each repetition.
    norm = None if spec.norm is None else spec.norm / copies**0.5
    # An expanded last dimension makes every row constant; the row of the original is not.
    rows = None if expanded[-1] else spec.constant_rows
    own = replace(spec, shape=shape, stride=None, norm=norm, nan=nan, inf=inf, negative_inf=negative, true=true)
    return replace(own, constant_rows=rows)


LAYOUTS = ("contiguous", "transposed", "channels_last", "sliced", "expanded")


def layout_strides(layout: str, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of a layout: the last two dimensions swapped in memory, the second one last, a slice of a tensor with
    longer rows (of one dimension: every second element), the first dimension expanded. None: in order. Raises
    ValueError, which says how many dimensions it needs, where the shape has fewer."""
    rank, least = len(shape), {"transposed": 2, "channels_last": 3, "contiguous": 0}.get(layout, 1)
    if rank < least:
        raise ValueError(f"a shape of {least} dimensions or more")
    if layout == "transposed":
        return _strides_in_order(shape, (*range(rank - 2), rank - 1, rank - 2))
    if layout == "channels_last":
        return _strides_in_order(shape, (0, *range(2, rank), 1))
    if layout == "sliced":
        return (2,) if rank == 1 else contiguous_strides((*shape[:-1], shape[-1] + 1))
    if layout == "expanded":
        return (0, *contiguous_strides(shape)[1:])
    return None


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor whose elements lie in memory in their order."""
    return _strides_in_order(shape, tuple(range(len(shape))))


def _strides_in_order(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Strides by which dimensions lie in memory in this order, the last one innermost."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


# Device, float64 reference and one perturbed run, twice: for what the calls themselves hold on to.
_HELD_TWICE = 2
# Bytes an element: the reference and one perturbed run, float64 each.
_WIDE_COPIES = 16
# Of a call whose reference runs in pieces, what is there in full: arguments and results, and the framework's copies of
# both.
_OWN_COPIES = 3
# Bytes an element of arguments and results, where an output in full is judged by all further runs and a cause is looked
# for: 86 to 184 were measured, of gelu, softmax, layer_norm and cumsum.
_JUDGED = 190
# Runs whose tensors are there at a time: the reference, a perturbed one, the device's.
_RUNS = 3


def memory_needed(call: Call, dtype: str | None, *, in_pieces: bool = False) -> int:
    """Bytes that checking the call in a dtype (None: as recorded) will take, roughly, all of its tensors together.
    in_pieces: with a reference that runs in pieces."""
    if in_pieces:
        return _total(call, lambda own: _OWN_COPIES * _bytes_on_device(own, dtype))
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


def check_size(call: Call, dtype: str | None, available: int, *, in_pieces: bool = False) -> None:
    """Refuse a call that needs more than the available bytes. Raises TooLarge."""
    needed = memory_needed(call, dtype, in_pieces=in_pieces)
    if needed <= available:
        return
    # Every tensor, with its path as dumps write it.
    trees = (
        ("input_args", call.args),
        ("input_kwargs", call.kwargs),
        ("output", call.outputs),
        ("input", call.gradients),
    )
    tensors = (each for root, tree in trees for each in named_tensors(tree, root))
    field, spec = max(tensors, key=lambda item: _extent(item[1]))
    found = f"{spec.dtype} of shape {list(spec.shape)}"
    found += f" and stride {list(spec.stride)}" if spec.stride is not None else ""
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


def bytes_to_judge(count: int, *, all_runs: bool) -> int:
    """Bytes that a judge of a whole call takes with so many elements of arguments and results: with the reference
    alone, or with all further runs."""
    return count * (_JUDGED if all_runs else _HELD_TWICE * _WIDE_COPIES)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"


def _extent(spec: TensorSpec) -> int:
    """Elements in memory: an expanded tensor is also had in full."""
    return spec.size if spec.stride is None else max(spec.size, spec.span)


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
