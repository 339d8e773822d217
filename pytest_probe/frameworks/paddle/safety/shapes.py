"""Calls whose kernels do not check the sizes, dimensions and views that they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from pytest_probe.frameworks.paddle.safety.arguments import are_sizes, array_at, value_at
from pytest_probe.model.arguments import BoundCall, Leaf


def _strided(bound: BoundCall) -> Iterator[str]:
    """as_strided(x, shape, stride, offset=0), whose view is not checked against the memory of x."""
    data = array_at(bound, "input")
    shape, stride, offset = (value_at(bound, name, at) for at, name in enumerate(("shape", "stride", "offset"), 1))
    offset = offset or 0
    if data is None or not (
        are_sizes(shape) and are_sizes(stride) and len(shape) == len(stride) and are_sizes([offset])
    ):
        yield f"sizes {shape}, strides {stride} and offset {offset}, expected lists of as many numbers, none below 0"
        return
    # Paddle's offset counts bytes.
    last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + offset // data.itemsize
    if all(shape) and last >= data.size:
        yield f"a view that ends at element {last}, expected one of the {data.size:,} of its tensor"


def _identity(bound: BoundCall) -> Iterator[str]:
    """eye(num_rows, num_columns)."""
    if any(isinstance(bound.given.get(name), Leaf) for name in ("rows", "columns")):
        yield "a tensor in the place of a number of rows or columns"


def _windows(bound: BoundCall) -> Iterator[str]:
    """Tensor.unfold(axis, size, step), whose view is not checked against its memory."""
    data, axis, size, step = (
        array_at(bound, "input"),
        value_at(bound, "axis", 1),
        value_at(bound, "size", 2),
        value_at(bound, "step", 3),
    )
    if data is None or bound.api.endswith("functional.unfold"):
        return
    known = isinstance(axis, int) and -data.ndim <= axis < data.ndim
    if not known or not are_sizes([size, step]) or size > data.shape[axis] or step == 0:
        yield f"windows of {size} along dimension {axis}, {step} apart, of a tensor of {list(data.shape)}"


def _smoothed(bound: BoundCall) -> Iterator[str]:
    """label_smooth(label, prior_dist)."""
    if any(isinstance(value, Leaf) and not (value.array.size and value.array.ndim) for value in bound.given.values()):
        yield "a tensor without elements or dimensions"


def _drawn(bound: BoundCall) -> Iterator[str]:
    """rand(shape)."""
    shape = bound.argument("size")
    if any(isinstance(size, int) and size < 0 for size in (shape if isinstance(shape, (list, tuple)) else [shape])):
        yield f"a shape of {shape}, expected no size below 0"


def _diagonal(bound: BoundCall) -> Iterator[str]:
    data = array_at(bound, "input")
    if data is not None and data.ndim < 2:
        yield f"a tensor of {list(data.shape)}, expected one of two dimensions or more"


def _parts(bound: BoundCall) -> Iterator[str]:
    """unbind(x, axis), unstack(x, axis)."""
    data, axis = array_at(bound, "input"), value_at(bound, "axis", 1) or 0
    if data is not None and not (isinstance(axis, int) and -data.ndim <= axis < data.ndim):
        yield f"dimension {axis} of a tensor of {list(data.shape)}"


def _rest(bound: BoundCall) -> Iterator[str]:
    """remainder(x, y) of integers: the processor refuses a division by zero, and one whose quotient has no place."""
    data, divisor = array_at(bound, "input"), bound.argument("other")
    divisors = np.asarray(divisor.array if isinstance(divisor, Leaf) else divisor)
    if data is None or data.dtype.kind not in "iu" or divisors.dtype.kind not in "iu":
        return
    if (divisors == 0).any():
        yield "a divisor of 0"
    elif data.size and data.min() == np.iinfo(data.dtype).min and (divisors == -1).any():
        yield f"a divisor of -1 for {data.min()}"


def _range_of_dimensions(bound: BoundCall) -> Iterator[str]:
    """flatten(x, start_axis, stop_axis)."""
    if any(isinstance(value, Leaf) for name, value in bound.given.items() if name != "input"):
        yield "a tensor in the place of a dimension"


def _expanded(bound: BoundCall) -> Iterator[str]:
    data = array_at(bound, "input")
    if data is not None and not data.size:
        yield f"a tensor of {list(data.shape)}, expected one with elements"


def _transformed(bound: BoundCall) -> Iterator[str]:
    """fftn(x, s, axes) over no dimension."""
    data = array_at(bound, "input")
    if (data is not None and not data.ndim) or [] in (value_at(bound, "s", 1), value_at(bound, "axes", 2)):
        yield "a transform over no dimension"


def _pieces(bound: BoundCall) -> Iterator[str]:
    """split(x, num_or_sections, axis)."""
    count = bound.argument("size")
    if isinstance(count, int) and count < 1:
        yield f"{count} pieces, expected 1 or more"


def _padded(bound: BoundCall) -> Iterator[str]:
    """zeropad2d(x, padding); pad itself checks what it is given."""
    padding = value_at(bound, "padding", 1)
    if bound.api.endswith("zeropad2d") and isinstance(padding, (list, tuple)) and len(padding) != 4:
        yield f"{len(padding)} sizes of padding, expected 4"


def _new_dimensions(bound: BoundCall) -> Iterator[str]:
    """unsqueeze(x, axis)."""
    data, dims = array_at(bound, "input"), value_at(bound, "axis", 1)
    chosen = dims if isinstance(dims, (list, tuple)) else [dims]
    if data is None:
        return
    rank = data.ndim + len(chosen)
    if any(isinstance(dim, int) and not -rank <= dim < rank for dim in chosen):
        yield f"dimensions {list(chosen)}, expected numbers from {-rank} to {rank - 1}"


def _elements(bound: BoundCall) -> Iterator[str]:
    """x[index] with indices in tensors or lists, which select along the first dimensions, one each."""
    data, index = array_at(bound, "input"), bound.argument("index")
    if data is None:
        return
    for dim, part in enumerate(index if isinstance(index, tuple) else (index,)):
        if part is None or part is Ellipsis or dim >= data.ndim:
            return
        places = np.asarray(part.array if isinstance(part, Leaf) else part if isinstance(part, list) else ())
        extent = data.shape[dim]
        if places.dtype.kind in "iu" and places.size and not -extent <= places.min() <= places.max() < extent:
            yield f"indices from {places.min()} to {places.max()} in a dimension of {extent}"


def _whole_indices(bound: BoundCall) -> Iterator[str]:
    """take_along_axis(x, indices, axis), whose kernel writes nothing for indices of another dtype."""
    indices = array_at(bound, "indices")
    if indices is not None and indices.dtype.kind not in "iu":
        yield f"indices of {indices.dtype.name}, expected int32 or int64"


def _half_of_qr(bound: BoundCall) -> Iterator[str]:
    """The backward asks the kernel of a QR for the gradient of one factor, and it reads that of both."""
    yield "a call whose gradient needs both factors of a QR, of which it has one, expected another API"


def _of_nothing(bound: BoundCall) -> Iterator[str]:
    """The largest of no values is memory as it was found, and of the most frequent one the process ends."""
    data, dims = array_at(bound, "input"), bound.argument("dim")
    if data is None or data.size:
        return
    chosen = range(data.ndim) if dims is None or dims == [] else dims if isinstance(dims, (list, tuple)) else [dims]
    gone = {dim % data.ndim for dim in chosen if isinstance(dim, int)}
    if data.ndim and all(extent for place, extent in enumerate(data.shape) if place not in gone):
        yield f"a tensor of {list(data.shape)}, which has no number along {sorted(gone)}"


def _kernel_of_nothing(bound: BoundCall) -> Iterator[str]:
    """The gradient of a convolution with no channels is memory as it was found."""
    data, weight = array_at(bound, "input"), array_at(bound, "weight")
    if data is not None and weight is not None and data.size and not weight.size:
        yield f"a weight of {list(weight.shape)} for an input of {list(data.shape)}"


def _row(bound: BoundCall) -> Iterator[str]:
    """select_scatter(x, values, axis, index)."""
    data, dim, index = array_at(bound, "input"), bound.argument("dim"), bound.argument("index")
    if data is None or not isinstance(dim, int) or not isinstance(index, int) or not -data.ndim <= dim < data.ndim:
        return
    if not -data.shape[dim] <= index < data.shape[dim]:
        yield f"index {index} in a dimension of {data.shape[dim]}"


CONVOLUTIONS = [f"{name}{rank}d" for name in ("conv", "conv_transpose") for rank in (1, 2, 3)]
# By canonical name: what is wrong with the arguments of a call.
CHECKS: Mapping[str, Callable[[BoundCall], Iterator[str]]] = {
    "select_scatter": _row,
    "as_strided": _strided,
    "eye": _identity,
    "unfold": _windows,
    "label_smooth": _smoothed,
    "rand": _drawn,
    "fill_diagonal": _diagonal,
    "expand_as": _expanded,
    "split": _pieces,
    "pad": _padded,
    "unsqueeze": _new_dimensions,
    "unbind": _parts,
    "flatten": _range_of_dimensions,
    "remainder": _rest,
    "getitem": _elements,
    "take_along_dim": _whole_indices,
    **dict.fromkeys(("fftn", "ifftn", "hfftn", "ihfftn", "rfftn", "irfftn"), _transformed),
    **{f"{name}{end}": _kernel_of_nothing for name in CONVOLUTIONS for end in ("", "_channels_last")},
    **dict.fromkeys(("amax", "amin", "argmax", "argmin", "mode"), _of_nothing),
    **dict.fromkeys(("pca_lowrank", "svd_lowrank"), _half_of_qr),
}
