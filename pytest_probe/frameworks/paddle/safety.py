"""PaddlePaddle: calls whose kernels do not check what they are given, and end the process where it is wrong.

A dump is untrusted, so it is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from pytest_probe.core.arguments import BoundCall, Leaf
from pytest_probe.errors import UnsafeArguments


def check_arguments(bound: BoundCall) -> None:
    """Raises UnsafeArguments where a call may end the process."""
    problem = next(_problems(bound), None) if bound.native else None
    if problem is not None:
        raise UnsafeArguments(f"{bound.api}: found {problem}; its kernel would not check that, and may end the process")


def _problems(bound: BoundCall) -> Iterator[str]:
    yield from _operands(bound)
    yield from _misplaced(bound)
    if bound.name in CHECKS:
        yield from CHECKS[bound.name](bound)


def _operands(bound: BoundCall) -> Iterator[str]:
    """Methods in C++ read the other operand, whether there is one or not."""
    two = bound.api.rpartition(".")[2] in OPERATORS or bound.name == "is_same_shape"
    if two and len(bound.given.keys() & {"input", "other", "input.1", "y"}) < 2:
        yield "one operand, expected two"


def _misplaced(bound: BoundCall) -> Iterator[str]:
    """A method in C++ reads the value in a dtype's place as one; of what is none it ends the process."""
    places = DTYPES.get("sparse.cast" if bound.api.endswith("sparse.cast") else bound.name, {})
    for name, value in bound.given.items():
        flag = isinstance(value, bool) and places.get(name) == "keepdim"
        if name in places and isinstance(value, NO_DTYPE) and not flag:
            yield f"{_described(value)} in the place of {places[name]}"


def _described(value: object) -> str:
    return "a tensor" if isinstance(value, Leaf) else type(value).__name__


def _strided(bound: BoundCall) -> Iterator[str]:
    """as_strided(x, shape, stride, offset=0), whose view is not checked against the memory of x."""
    data = _array(bound, "input")
    shape, stride, offset = (_value(bound, name, at) for at, name in enumerate(("shape", "stride", "offset"), 1))
    offset = offset or 0
    if data is None or not (_sizes(shape) and _sizes(stride) and len(shape) == len(stride) and _sizes([offset])):
        yield f"sizes {shape}, strides {stride} and offset {offset}, expected lists of as many numbers, none below 0"
        return
    # Paddle's offset counts bytes.
    last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + offset // data.itemsize
    if all(shape) and last >= data.size:
        yield f"a view that ends at element {last}, expected one of the {data.size:,} of its tensor"


def _value(bound: BoundCall, name: str, place: int) -> Any:
    """An argument of a call without a signature here: by its keyword, or by its place."""
    return bound.given.get(name, bound.given.get(f"input.{place}"))


def _sizes(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(size, int) and size >= 0 for size in value)


def _identity(bound: BoundCall) -> Iterator[str]:
    """eye(num_rows, num_columns)."""
    if any(isinstance(bound.given.get(name), Leaf) for name in ("rows", "columns")):
        yield "a tensor in the place of a number of rows or columns"


def _windows(bound: BoundCall) -> Iterator[str]:
    """Tensor.unfold(axis, size, step), whose view is not checked against its memory."""
    data, axis, size, step = (
        _array(bound, "input"),
        _value(bound, "axis", 1),
        _value(bound, "size", 2),
        _value(bound, "step", 3),
    )
    if data is None or bound.api.endswith("functional.unfold"):
        return
    known = isinstance(axis, int) and -data.ndim <= axis < data.ndim
    if not known or not _sizes([size, step]) or size > data.shape[axis] or step == 0:
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
    data = _array(bound, "input")
    if data is not None and data.ndim < 2:
        yield f"a tensor of {list(data.shape)}, expected one of two dimensions or more"


def _expanded(bound: BoundCall) -> Iterator[str]:
    data = _array(bound, "input")
    if data is not None and not data.size:
        yield f"a tensor of {list(data.shape)}, expected one with elements"


def _transformed(bound: BoundCall) -> Iterator[str]:
    """fftn(x, s, axes) over no dimension."""
    data = _array(bound, "input")
    if (data is not None and not data.ndim) or [] in (_value(bound, "s", 1), _value(bound, "axes", 2)):
        yield "a transform over no dimension"


def _pieces(bound: BoundCall) -> Iterator[str]:
    """split(x, num_or_sections, axis)."""
    count = bound.argument("size")
    if isinstance(count, int) and count < 1:
        yield f"{count} pieces, expected 1 or more"


def _padded(bound: BoundCall) -> Iterator[str]:
    """zeropad2d(x, padding); pad itself checks what it is given."""
    padding = _value(bound, "padding", 1)
    if bound.api.endswith("zeropad2d") and isinstance(padding, (list, tuple)) and len(padding) != 4:
        yield f"{len(padding)} sizes of padding, expected 4"


def _new_dimensions(bound: BoundCall) -> Iterator[str]:
    """unsqueeze(x, axis)."""
    data, dims = _array(bound, "input"), _value(bound, "axis", 1)
    chosen = dims if isinstance(dims, (list, tuple)) else [dims]
    if data is None:
        return
    rank = data.ndim + len(chosen)
    if any(isinstance(dim, int) and not -rank <= dim < rank for dim in chosen):
        yield f"dimensions {list(chosen)}, expected numbers from {-rank} to {rank - 1}"


def _elements(bound: BoundCall) -> Iterator[str]:
    """x[index] with indices in tensors or lists, which select along the first dimensions, one each."""
    data, index = _array(bound, "input"), bound.argument("index")
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
    indices = _array(bound, "indices")
    if indices is not None and indices.dtype.kind not in "iu":
        yield f"indices of {indices.dtype.name}, expected int32 or int64"


def _array(bound: BoundCall, name: str) -> np.ndarray | None:
    value = bound.argument(name)
    return value.array if isinstance(value, Leaf) else None


def _half_of_qr(bound: BoundCall) -> Iterator[str]:
    """The backward asks the kernel of a QR for the gradient of one factor, and it reads that of both."""
    yield "a call whose gradient needs both factors of a QR, of which it has one, expected another API"


def _regions(bound: BoundCall) -> Iterator[str]:
    data, boxes, counts = (_array(bound, name) for name in ("input", "boxes", "boxes_num"))
    if data is None or boxes is None or counts is None or not data.ndim:
        return
    if counts.shape != data.shape[:1]:
        yield f"boxes_num of shape {list(counts.shape)} for {data.shape[0]} images, expected a number for each"
    elif boxes.ndim == 2 and boxes.shape[1] == 4 and (boxes[:, 2:] < boxes[:, :2]).any():
        yield "boxes whose second corner lies before the first"
    elif boxes.ndim != 2 or (counts < 0).any() or int(counts.sum()) != boxes.shape[0]:
        yield f"boxes of shape {list(boxes.shape)} and numbers of them that add up to {int(counts.sum())}"


def _segments(bound: BoundCall) -> Iterator[str]:
    rows, segments = _array(bound, "input"), _array(bound, "segment_ids")
    if rows is None or segments is None:
        return
    if segments.ndim != 1 or segments.shape != rows.shape[:1]:
        yield f"segment_ids of shape {list(segments.shape)} for data of {list(rows.shape)}, expected one for each row"
    elif segments.size and (segments[0] < 0 or (np.diff(segments) < 0).any()):
        yield "segment_ids that do not rise from 0"


def _nodes(bound: BoundCall) -> Iterator[str]:
    rows = _array(bound, "input")
    for name in ("src_index", "dst_index"):
        index = _array(bound, name)
        if rows is not None and index is not None and index.size and not 0 <= index.min() <= index.max() < len(rows):
            yield f"{name} from {index.min()} to {index.max()}, expected rows from 0 to {len(rows) - 1}"


def _tree(bound: BoundCall) -> Iterator[str]:
    """hsigmoid_loss(input, label, num_classes, weight, bias, path_table, path_code)."""
    rows, labels = _array(bound, "weight"), _array(bound, "target")
    classes, paths = bound.argument("num_classes"), _array(bound, "path_table")
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
    scores, labels = _array(bound, "log_probs"), _array(bound, "targets")
    lengths, steps = _array(bound, "target_lengths"), _array(bound, "input_lengths")
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
    size = _array(bound, "size")
    if size is not None and (size.shape not in ((4,), (5,)) or (size < 1).any()):
        yield f"out_shape of {size.tolist()}, expected 4 or 5 sizes"


def _alignments(bound: BoundCall) -> Iterator[str]:
    """rnnt_loss(input, label, input_lengths, label_lengths): scores of (batch, steps, labels and a blank, classes)."""
    scores, labels = _array(bound, "input"), _array(bound, "target")
    steps, lengths = _array(bound, "input_lengths"), _array(bound, "target_lengths")
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
    rows, starts, nodes = (_array(bound, name) for name in ("input", "colptr", "input_nodes"))
    if rows is None or starts is None or nodes is None:
        return
    if not starts.size or starts.ravel()[0] != 0 or (np.diff(starts.ravel()) < 0).any() or starts.max() > rows.size:
        yield f"colptr that does not rise from 0 to the {rows.size} neighbours in row"
    elif nodes.size and not 0 <= nodes.min() <= nodes.max() < starts.size - 1:
        yield f"input_nodes from {nodes.min()} to {nodes.max()}, expected nodes from 0 to {starts.size - 2}"


def _of_nothing(bound: BoundCall) -> Iterator[str]:
    """The largest of no values is memory as it was found."""
    data, dims = _array(bound, "input"), bound.argument("dim")
    if data is None or data.size:
        return
    chosen = range(data.ndim) if dims is None or dims == [] else dims if isinstance(dims, (list, tuple)) else [dims]
    gone = {dim % data.ndim for dim in chosen if isinstance(dim, int)}
    if data.ndim and all(extent for place, extent in enumerate(data.shape) if place not in gone):
        yield f"a tensor of {list(data.shape)}, which has no largest or smallest number along {sorted(gone)}"


def _kernel_of_nothing(bound: BoundCall) -> Iterator[str]:
    """The gradient of a convolution with no channels is memory as it was found."""
    data, weight = _array(bound, "input"), _array(bound, "weight")
    if data is not None and weight is not None and data.size and not weight.size:
        yield f"a weight of {list(weight.shape)} for an input of {list(data.shape)}"


def _row(bound: BoundCall) -> Iterator[str]:
    """select_scatter(x, values, axis, index)."""
    data, dim, index = _array(bound, "input"), bound.argument("dim"), bound.argument("index")
    if data is None or not isinstance(dim, int) or not isinstance(index, int) or not -data.ndim <= dim < data.ndim:
        return
    if not -data.shape[dim] <= index < data.shape[dim]:
        yield f"index {index} in a dimension of {data.shape[dim]}"


def _stepped(bound: BoundCall) -> Iterator[str]:
    """A step of an optimizer's: moments are as the parameter, rates single numbers, and what a flag asks for is
    there."""
    whole = _array(bound, "param")
    if whole is None:
        yield "no parameter"
        return
    for name in ("grad", "moment1", "moment2", "moment2_max", "velocity", "master_param"):
        array = _array(bound, name)
        if array is not None and array.shape != whole.shape:
            yield f"{name} of {list(array.shape)} for a parameter of {list(whole.shape)}"
    for name in ("lr", "beta1_pow", "beta2_pow", "skip_update"):
        array = _array(bound, name)
        if array is not None and array.size != 1:
            yield f"{name} of {list(array.shape)}, expected one number"
    for flag, name in (("multi_precision", "master_param"), ("amsgrad", "moment2_max")):
        if bound.argument(flag) and _array(bound, name) is None:
            yield f"{flag} without {name}"


_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _recurrent(bound: BoundCall) -> Iterator[str]:
    """rnn(x, states, weights, lengths, ...): of each layer and direction the weights of input and state, then of each
    the biases."""
    data, mode, layers, hidden = (_array(bound, "input"), *map(bound.argument, ("mode", "num_layers", "hidden_size")))
    if data is None or data.ndim != 3 or not data.size or mode not in _GATES or not _sizes([layers, hidden]):
        yield "arguments that are none of a recurrent layer"
        return
    if not layers or not hidden:
        yield f"{layers} layers of {hidden} numbers"
        return
    ways = 2 if bound.argument("is_bidirec") else 1
    states = [_shape(state) for state in bound.argument("states") or ()]
    if states != [(layers * ways, data.shape[1], hidden)] * (2 if mode == "LSTM" else 1):
        yield f"states of {states}"
    rows = _GATES[mode] * hidden
    inputs = [data.shape[2] if layer < ways else ways * hidden for layer in range(layers * ways)]
    wanted = [shape for width in inputs for shape in ((rows, width), (rows, hidden))]
    found = [_shape(weight) for weight in bound.argument("weights") or ()]
    if found != wanted + [(rows,)] * len(wanted) or bound.argument("input_size") != data.shape[2]:
        yield f"weights of {found}"
    lengths = _array(bound, "lengths")
    if lengths is not None and (
        lengths.dtype != np.int32
        or lengths.shape != data.shape[1:2]
        or not ((lengths > 0) & (lengths <= len(data))).all()
    ):
        yield f"lengths {lengths.tolist()}, expected int32, one for each of {data.shape[1]} sequences"


def _shape(value: object) -> tuple[int, ...] | None:
    return value.array.shape if isinstance(value, Leaf) else None


CONVOLUTIONS = [f"{name}{rank}d" for name in ("conv", "conv_transpose") for rank in (1, 2, 3)]
NO_DTYPE = (Leaf, list, tuple, dict, int, float, complex)
# Tensor methods of two operands.
_ARITHMETIC = "add sub mul div truediv floordiv mod pow matmul".split()
OPERATORS = frozenset(
    [f"__{prefix}{name}__" for name in _ARITHMETIC for prefix in ("", "r")]
    + [f"__{name}__" for name in "and or xor eq ne lt le gt ge lshift rshift rlshift rrshift".split()]
)
# By canonical name: which arguments are a dtype, or a flag that is handed on before one, and what those are called.
DTYPES: Mapping[str, Mapping[str, str]] = {
    **{name: {"input.2": "dtype", "dtype": "dtype"} for name in ("sum", "nansum")},
    "sparse.cast": {"input.1": "dtype", "input.2": "dtype", "index_dtype": "dtype", "value_dtype": "dtype"},
    **{name: {"input.3": "dtype", "dtype": "dtype"} for name in ("argmax", "argmin")},
    **{name: {"input.2": "keepdim", "keepdim": "keepdim"} for name in ("count_nonzero", "nanmean")},
}
# By canonical name: what is wrong with the arguments of a call.
CHECKS: Mapping[str, Callable[[BoundCall], Iterator[str]]] = {
    "hsigmoid_loss": _tree,
    "affine_grid": _grid,
    "warpctc": _lengths,
    "rnnt_loss": _alignments,
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
    "getitem": _elements,
    "take_along_dim": _whole_indices,
    **dict.fromkeys(("fftn", "ifftn", "hfftn", "ihfftn", "rfftn", "irfftn"), _transformed),
    **{f"{name}{end}": _kernel_of_nothing for name in CONVOLUTIONS for end in ("", "_channels_last")},
    **dict.fromkeys(("amax", "amin", "argmax", "argmin"), _of_nothing),
    **dict.fromkeys(
        ("sample_neighbors", "weighted_sample_neighbors", "graph_sample_neighbors", "graph_khop_sampler"), _graph
    ),
    **dict.fromkeys(("pca_lowrank", "svd_lowrank"), _half_of_qr),
    **dict.fromkeys(("adam", "adamw", "momentum", "sgd"), _stepped),
    "rnn": _recurrent,
    **dict.fromkeys(("roi_align", "roi_pool", "psroi_pool"), _regions),
    **dict.fromkeys(("segment_sum", "segment_mean", "segment_max", "segment_min"), _segments),
    **dict.fromkeys(("send_u_recv", "send_ue_recv", "send_uv"), _nodes),
}
