"""Calls whose kernels do not check the sizes, dimensions and views, or the indices, classes and lengths, that they are
given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from pytest_probe.model.run import BoundCall, Leaf


def array_at(bound: BoundCall, name: str) -> np.ndarray | None:
    """The tensor that an argument is, None where it is none."""
    value = bound.argument(name)
    return value.array if isinstance(value, Leaf) else None


def arrays_at(bound: BoundCall, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Those of these arguments that are tensors, by name."""
    for name in names:
        array = array_at(bound, name)
        if array is not None:
            yield name, array


def _value_at(bound: BoundCall, name: str, place: int) -> Any:
    """An argument of a call without a signature here: by its keyword, or by its place."""
    return bound.given.get(name, bound.given.get(f"input.{place}"))


def are_sizes(value: Any) -> bool:
    """Is it a list of numbers, none below 0?"""
    return isinstance(value, (list, tuple)) and all(isinstance(size, int) and size >= 0 for size in value)


def shape_of(value: object) -> tuple[int, ...] | None:
    """Of a tensor, None for anything else."""
    return value.array.shape if isinstance(value, Leaf) else None


def listed(bound: BoundCall, name: str) -> list[Any] | tuple[Any, ...] | None:
    """The list that an argument is, None where it is none."""
    value = bound.argument(name)
    return value if isinstance(value, (list, tuple)) else None


# Calls whose kernels do not check the places, classes and lengths that they are given.


def _regions(bound: BoundCall) -> Iterator[str]:
    data, boxes, counts = (array_at(bound, name) for name in ("input", "boxes", "boxes_num"))
    if data is None or boxes is None or counts is None or not data.ndim:
        return
    if counts.shape != data.shape[:1]:
        yield f"boxes_num of shape {list(counts.shape)} for {data.shape[0]} images, expected a number for each"
    elif boxes.ndim == 2 and boxes.shape[1] == 4 and (boxes[:, 2:] < boxes[:, :2]).any():
        yield "boxes whose second corner lies before the first"
    elif boxes.ndim != 2 or (counts < 0).any() or int(counts.sum()) != boxes.shape[0]:
        yield f"boxes of shape {list(boxes.shape)} and numbers of them that add up to {int(counts.sum())}"


def _segments(bound: BoundCall) -> Iterator[str]:
    rows, segments = array_at(bound, "input"), array_at(bound, "segment_ids")
    if rows is None or segments is None:
        return
    if segments.ndim != 1 or segments.shape != rows.shape[:1]:
        yield f"segment_ids of shape {list(segments.shape)} for data of {list(rows.shape)}, expected one for each row"
    elif segments.size and (segments[0] < 0 or (np.diff(segments) < 0).any()):
        yield "segment_ids that do not rise from 0"


def _nodes(bound: BoundCall) -> Iterator[str]:
    rows = array_at(bound, "input")
    for name in ("src_index", "dst_index"):
        index = array_at(bound, name)
        if rows is not None and index is not None and index.size and not 0 <= index.min() <= index.max() < len(rows):
            yield f"{name} from {index.min()} to {index.max()}, expected rows from 0 to {len(rows) - 1}"


def _tree(bound: BoundCall) -> Iterator[str]:
    """hsigmoid_loss(input, label, num_classes, weight, bias, path_table, path_code)."""
    rows, labels = array_at(bound, "weight"), array_at(bound, "target")
    classes, paths = bound.argument("num_classes"), array_at(bound, "path_table")
    if bound.argument("is_sparse"):
        yield "is_sparse, whose gradient reads rows that are not there, expected False"
    if (
        labels is not None
        and labels.size
        and isinstance(classes, int)
        and not 0 <= labels.min() <= labels.max() < classes
    ):
        yield f"labels from {labels.min()} to {labels.max()}, expected classes from 0 to {classes - 1}"
    if rows is not None and paths is not None and paths.size and not -1 <= paths.min() <= paths.max() < len(rows):
        yield f"path_table from {paths.min()} to {paths.max()}, expected rows from 0 to {len(rows) - 1}, or -1"


def _lengths(bound: BoundCall) -> Iterator[str]:
    scores, labels = array_at(bound, "log_probs"), array_at(bound, "targets")
    lengths, steps = array_at(bound, "target_lengths"), array_at(bound, "input_lengths")
    if scores is None or labels is None or lengths is None or steps is None or scores.ndim < 2 or not labels.ndim:
        return
    batch = scores.shape[1]
    if any(array.shape[:1] != (batch,) for array in (labels, lengths, steps)):
        shapes = [list(array.shape) for array in (labels, steps, lengths)]
        yield f"labels and lengths of shapes {shapes} for {batch} sequences, expected one for each"
    elif not lengths.size or lengths.min() < 0 or not 1 <= lengths.max() <= labels.shape[-1]:
        yield f"label_lengths {lengths.tolist()}, expected numbers up to {labels.shape[-1]}, and one above 0"
    elif steps.size and not 0 <= steps.min() <= steps.max() <= scores.shape[0]:
        yield f"input_lengths from {steps.min()} to {steps.max()}, expected numbers up to {scores.shape[0]}"
    elif labels.size and not 0 <= labels.min() <= labels.max() < scores.shape[-1]:
        yield f"labels from {labels.min()} to {labels.max()}, expected classes from 0 to {scores.shape[-1] - 1}"


def _grid(bound: BoundCall) -> Iterator[str]:
    size = array_at(bound, "size")
    if size is not None and (size.shape not in ((4,), (5,)) or (size < 1).any()):
        yield f"out_shape of {size.tolist()}, expected 4 or 5 sizes"


def _alignments(bound: BoundCall) -> Iterator[str]:
    """rnnt_loss(input, label, input_lengths, label_lengths): scores of (batch, steps, labels and a blank, classes)."""
    scores, labels = array_at(bound, "input"), array_at(bound, "target")
    steps, lengths = array_at(bound, "input_lengths"), array_at(bound, "target_lengths")
    if scores is None or labels is None or steps is None or lengths is None or scores.ndim != 4:
        return
    batch, most, rows, classes = scores.shape
    if labels.shape != (batch, rows - 1) or steps.shape != (batch,) or lengths.shape != (batch,):
        shapes = [list(array.shape) for array in (labels, steps, lengths)]
        yield f"labels and lengths of shapes {shapes} for scores of {list(scores.shape)}"
    for name, array, low, high in (
        ("labels", labels, 0, classes - 1),
        ("input_lengths", steps, 1, most),
        ("label_lengths", lengths, 0, rows - 1),
    ):
        if array.size and not low <= array.min() <= array.max() <= high:
            yield f"{name} from {array.min()} to {array.max()}, expected numbers from {low} to {high}"


def _graph(bound: BoundCall) -> Iterator[str]:
    """Neighbours of nodes in a graph of which colptr says where each node's begin in row."""
    rows, starts, nodes = (array_at(bound, name) for name in ("input", "colptr", "input_nodes"))
    if rows is None or starts is None or nodes is None:
        return
    if not starts.size or starts.ravel()[0] != 0 or (np.diff(starts.ravel()) < 0).any() or starts.max() > rows.size:
        yield f"colptr that does not rise from 0 to the {rows.size} neighbours in row"
    elif nodes.size and not 0 <= nodes.min() <= nodes.max() < starts.size - 1:
        yield f"input_nodes from {nodes.min()} to {nodes.max()}, expected nodes from 0 to {starts.size - 2}"


# By canonical name: what is wrong with the arguments of a call.
INDEX_CHECKS: Mapping[str, Callable[[BoundCall], Iterator[str]]] = {
    "hsigmoid_loss": _tree,
    "affine_grid": _grid,
    "warpctc": _lengths,
    "rnnt_loss": _alignments,
    **dict.fromkeys(
        ("sample_neighbors", "weighted_sample_neighbors", "graph_sample_neighbors", "graph_khop_sampler"), _graph
    ),
    **dict.fromkeys(("roi_align", "roi_pool", "psroi_pool"), _regions),
    **dict.fromkeys(("segment_sum", "segment_mean", "segment_max", "segment_min"), _segments),
    **dict.fromkeys(("send_u_recv", "send_ue_recv", "send_uv"), _nodes),
}


def _strided(bound: BoundCall) -> Iterator[str]:
    """as_strided(x, shape, stride, offset=0), whose view is not checked against the memory of x."""
    data = array_at(bound, "input")
    shape, stride, offset = (_value_at(bound, name, at) for at, name in enumerate(("shape", "stride", "offset"), 1))
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
    data = array_at(bound, "input")
    axis, size, step = (_value_at(bound, name, at) for at, name in enumerate(("axis", "size", "step"), 1))
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
    data, axis = array_at(bound, "input"), _value_at(bound, "axis", 1) or 0
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
    if (data is not None and not data.ndim) or [] in (_value_at(bound, "s", 1), _value_at(bound, "axes", 2)):
        yield "a transform over no dimension"


def _pieces(bound: BoundCall) -> Iterator[str]:
    """split(x, num_or_sections, axis)."""
    count = bound.argument("size")
    if isinstance(count, int) and count < 1:
        yield f"{count} pieces, expected 1 or more"


def _padded(bound: BoundCall) -> Iterator[str]:
    """zeropad2d(x, padding); pad itself checks what it is given."""
    padding = _value_at(bound, "padding", 1)
    if bound.api.endswith("zeropad2d") and isinstance(padding, (list, tuple)) and len(padding) != 4:
        yield f"{len(padding)} sizes of padding, expected 4"


def _new_dimensions(bound: BoundCall) -> Iterator[str]:
    """unsqueeze(x, axis)."""
    data, dims = array_at(bound, "input"), _value_at(bound, "axis", 1)
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


_CONVOLUTIONS = [f"{name}{rank}d" for name in ("conv", "conv_transpose") for rank in (1, 2, 3)]
# By canonical name: what is wrong with the arguments of a call.
SHAPE_CHECKS: Mapping[str, Callable[[BoundCall], Iterator[str]]] = {
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
    **{f"{name}{end}": _kernel_of_nothing for name in _CONVOLUTIONS for end in ("", "_channels_last")},
    **dict.fromkeys(("amax", "amin", "argmax", "argmin", "mode"), _of_nothing),
    **dict.fromkeys(("pca_lowrank", "svd_lowrank"), _half_of_qr),
}
