"""PaddlePaddle: calls whose kernels do not check what they are given, and end the process or read memory that is not
theirs where it is wrong.

A dump is untrusted, so it is checked here. Many of these calls do not die but return what they found in memory, so a
process of their own would not show them; and an accelerator may not notice what a CPU's kernel refuses. Which calls
these are, benchmarks/crashing_calls.py finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.errors import UnsafeArguments
from pytest_probe.frameworks.python.binding import by_name
from pytest_probe.model.dump import leaves
from pytest_probe.model.run import BoundCall, Leaf


def check_arguments(bound: BoundCall) -> None:
    """Raises UnsafeArguments where a call may end the process."""
    problem = next(_problems(bound), None) if bound.native else None
    if problem is not None:
        raise UnsafeArguments(f"{bound.api}: found {problem}; its kernel would not check that, and may end the process")


def _problems(bound: BoundCall) -> Iterator[str]:
    # Methods in C++ read the other operand, whether there is one or not.
    two = bound.api.rpartition(".")[2] in _OPERATORS or bound.name == "is_same_shape"
    if two and len(bound.given.keys() & {"input", "other", "input.1", "y"}) < 2:
        yield "one operand, expected two"
    # One in C++ reads the value in a dtype's place as one; of any other value it ends the process.
    places = _DTYPES.get("sparse.cast" if bound.api.endswith("sparse.cast") else bound.name, {})
    for name, value in bound.given.items():
        flag = isinstance(value, bool) and places.get(name) == "keepdim"
        if name in places and isinstance(value, _NO_DTYPE) and not flag:
            kind = "a tensor" if isinstance(value, Leaf) else type(value).__name__
            yield f"{kind} in the place of {places[name]}"
    if bound.name in _CHECKS:
        yield from _CHECKS[bound.name](bound)


_NO_DTYPE = (Leaf, list, tuple, dict, int, float, complex)
# Tensor methods of two operands.
_ARITHMETIC = "add sub mul div truediv floordiv mod pow matmul".split()
_OPERATORS = frozenset(
    [f"__{prefix}{name}__" for name in _ARITHMETIC for prefix in ("", "r")]
    + [f"__{name}__" for name in "and or xor eq ne lt le gt ge lshift rshift rlshift rrshift".split()]
)
# By canonical name: which arguments are a dtype, or a flag that is passed on before one, and what those are called.
_DTYPES: Mapping[str, Mapping[str, str]] = {
    **{name: {"input.2": "dtype", "dtype": "dtype"} for name in ("sum", "nansum")},
    "sparse.cast": {"input.1": "dtype", "input.2": "dtype", "index_dtype": "dtype", "value_dtype": "dtype"},
    **{name: {"input.3": "dtype", "dtype": "dtype"} for name in ("argmax", "argmin")},
    **{name: {"input.2": "keepdim", "keepdim": "keepdim"} for name in ("count_nonzero", "nanmean")},
}


def _arrays(bound: BoundCall, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Those of these arguments that are tensors, by name."""
    for name in names:
        array = bound.array(name)
        if array is not None:
            yield name, array


def _value_at(bound: BoundCall, name: str, place: int) -> Any:
    """An argument of a call without a signature here: by its keyword, or by its place."""
    return bound.given.get(name, bound.given.get(f"input.{place}"))


def _are_sizes(value: Any) -> bool:
    """Is it a list of numbers, none below 0?"""
    return isinstance(value, (list, tuple)) and all(isinstance(size, int) and size >= 0 for size in value)


def _shape(value: object) -> tuple[int, ...] | None:
    """Of a tensor, None for anything else."""
    return value.array.shape if isinstance(value, Leaf) else None


def _listed(bound: BoundCall, name: str) -> list[Any] | tuple[Any, ...] | None:
    """The list that an argument is, None for anything else."""
    value = bound.argument(name)
    return value if isinstance(value, (list, tuple)) else None


def _outside(name: str, array: np.ndarray | None, low: int, high: int, kind: str = "numbers") -> Iterator[str]:
    """low and high are the first and the last that are right."""
    if array is not None and array.size and not low <= array.min() <= array.max() <= high:
        yield f"{name} from {array.min()} to {array.max()}, expected {kind} from {low} to {high}"


# Calls whose kernels do not check the places, classes and lengths that they are given.


def _regions(bound: BoundCall) -> Iterator[str]:
    data, boxes, counts = (bound.array(name) for name in ("input", "boxes", "boxes_num"))
    if data is None or boxes is None or counts is None or not data.ndim:
        return
    total = counts.sum()
    if counts.shape != data.shape[:1] or (counts < 0).any() or boxes.ndim != 2 or total != len(boxes):
        found = (
            f"boxes of shape {list(boxes.shape)} and boxes_num of shape {list(counts.shape)} that adds up to {total}"
        )
        yield f"{found} for {len(data)} images"
    elif boxes.shape[1] == 4 and (boxes[:, 2:] < boxes[:, :2]).any():
        yield "boxes whose second corner lies before the first"


def _segments(bound: BoundCall) -> Iterator[str]:
    rows, ids = bound.array("input"), bound.array("segment_ids")
    if rows is None or ids is None:
        return
    if ids.ndim != 1 or ids.shape != rows.shape[:1] or not ids.size:
        yield f"segment_ids of shape {list(ids.shape)} for data of {list(rows.shape)}, expected one for each row"
    elif ids[0] < 0 or (np.diff(ids) < 0).any():
        yield "segment_ids that do not rise from 0"


def _nodes(bound: BoundCall) -> Iterator[str]:
    rows = bound.array("input")
    for name, index in _arrays(bound, ("src_index", "dst_index")):
        if rows is not None and rows.ndim:
            yield from _outside(name, index, 0, len(rows) - 1, "rows")


def _tree(bound: BoundCall) -> Iterator[str]:
    """hsigmoid_loss(input, label, num_classes, weight, bias, path_table, path_code)."""
    if bound.argument("is_sparse"):
        yield "is_sparse, whose gradient reads rows that are not there, expected False"
    rows, classes = bound.array("weight"), bound.argument("num_classes")
    if isinstance(classes, int):
        yield from _outside("labels", bound.array("target"), 0, classes - 1, "classes")
    if rows is not None and rows.ndim:
        yield from _outside("path_table", bound.array("path_table"), -1, len(rows) - 1, "rows")


def _lengths(bound: BoundCall) -> Iterator[str]:
    scores, labels = bound.array("log_probs"), bound.array("targets")
    lengths, steps = bound.array("target_lengths"), bound.array("input_lengths")
    if scores is None or labels is None or lengths is None or steps is None or scores.ndim < 2 or not labels.ndim:
        return
    if any(array.shape[:1] != scores.shape[1:2] for array in (labels, lengths, steps)):
        shapes = [list(array.shape) for array in (labels, steps, lengths)]
        yield f"labels and lengths of shapes {shapes} for {scores.shape[1]} sequences, expected one for each"
    elif not lengths.any():
        yield f"label_lengths {lengths.tolist()}, expected one above 0"
    yield from _outside("label_lengths", lengths, 0, labels.shape[-1])
    yield from _outside("input_lengths", steps, 0, scores.shape[0])
    yield from _outside("labels", labels, 0, scores.shape[-1] - 1, "classes")


def _grid(bound: BoundCall) -> Iterator[str]:
    size = bound.array("size")
    if size is not None and (size.shape not in ((4,), (5,)) or (size < 1).any()):
        yield f"out_shape of {size.tolist()}, expected 4 or 5 sizes"


def _alignments(bound: BoundCall) -> Iterator[str]:
    """rnnt_loss(input, label, input_lengths, label_lengths): scores of (batch, steps, labels and a blank, classes)."""
    scores, labels = bound.array("input"), bound.array("target")
    steps, lengths = bound.array("input_lengths"), bound.array("target_lengths")
    if scores is None or labels is None or steps is None or lengths is None or scores.ndim != 4:
        return
    batch, most, rows, classes = scores.shape
    if labels.shape != (batch, rows - 1) or steps.shape != (batch,) or lengths.shape != (batch,):
        shapes = [list(array.shape) for array in (labels, steps, lengths)]
        yield f"labels and lengths of shapes {shapes} for scores of {list(scores.shape)}"
    yield from _outside("labels", labels, 0, classes - 1)
    yield from _outside("input_lengths", steps, 1, most)
    yield from _outside("label_lengths", lengths, 0, rows - 1)


def _graph(bound: BoundCall) -> Iterator[str]:
    """Neighbours of nodes in a graph of which colptr says where each node's begin in row."""
    rows, starts, nodes = (bound.array(name) for name in ("input", "colptr", "input_nodes"))
    if rows is None or starts is None or nodes is None:
        return
    if not starts.size or starts.ravel()[0] != 0 or (np.diff(starts.ravel()) < 0).any() or starts.max() > rows.size:
        yield f"colptr that does not rise from 0 to the {rows.size} neighbours in row"
    yield from _outside("input_nodes", nodes, 0, starts.size - 2, "nodes")


def _strided(bound: BoundCall) -> Iterator[str]:
    """as_strided(x, shape, stride, offset=0), whose view is not checked against the memory of x."""
    data = bound.array("input")
    shape, stride, offset = (_value_at(bound, name, at) for at, name in enumerate(("shape", "stride", "offset"), 1))
    offset = offset or 0
    if data is None or not (
        _are_sizes(shape) and _are_sizes(stride) and len(shape) == len(stride) and _are_sizes([offset])
    ):
        yield f"sizes {shape}, strides {stride} and offset {offset}, expected lists of as many numbers, none below 0"
        return
    # Paddle's offset counts bytes.
    last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + offset // data.itemsize
    if all(shape) and last >= data.size:
        yield f"a view that ends at element {last}, expected one of the {data.size:,} of its tensor"


def _numbers(bound: BoundCall) -> Iterator[str]:
    """eye(num_rows, num_columns), flatten(x, start_axis, stop_axis)."""
    if any(isinstance(value, Leaf) for name, value in bound.given.items() if name != "input"):
        yield "a tensor in the place of a number"


def _windows(bound: BoundCall) -> Iterator[str]:
    """Tensor.unfold(axis, size, step), whose view is not checked against its memory."""
    data = bound.array("input")
    axis, size, step = (_value_at(bound, name, at) for at, name in enumerate(("axis", "size", "step"), 1))
    if data is None or bound.api.endswith("functional.unfold"):
        return
    extents = data.shape or (1,)
    known = isinstance(axis, int) and -len(extents) <= axis < len(extents)
    if not known or not _are_sizes([size, step]) or size > extents[axis] or step == 0:
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
    data = bound.array("input")
    if data is not None and data.ndim < 2:
        yield f"a tensor of {list(data.shape)}, expected one of two dimensions or more"


def _parts(bound: BoundCall) -> Iterator[str]:
    """unbind(x, axis), unstack(x, axis)."""
    data, axis = bound.array("input"), _value_at(bound, "axis", 1) or 0
    if data is not None and not (isinstance(axis, int) and -data.ndim <= axis < data.ndim):
        yield f"dimension {axis} of a tensor of {list(data.shape)}"


def _rest(bound: BoundCall) -> Iterator[str]:
    """remainder(x, y) of integers: a divisor of 0 ends an accelerator's context, and the processor refuses a division
    whose quotient has no place."""
    data, divisor = bound.array("input"), bound.argument("other")
    divisors = divisor.array if isinstance(divisor, Leaf) else np.asarray(divisor if isinstance(divisor, int) else 0.0)
    if data is None or data.dtype.kind not in "iu" or divisors.dtype.kind not in "iu":
        return
    if data.size and (divisors == 0).any():
        yield "a divisor of 0"
    elif data.size and data.min() == np.iinfo(data.dtype).min and (divisors == -1).any():
        yield f"a divisor of -1 for {data.min()}"


def _expanded(bound: BoundCall) -> Iterator[str]:
    data = bound.array("input")
    if data is not None and not data.size:
        yield f"a tensor of {list(data.shape)}, expected one with elements"


def _transformed(bound: BoundCall) -> Iterator[str]:
    """fftn(x, s, axes) over no dimension."""
    data = bound.array("input")
    if (data is not None and not data.ndim) or [] in (_value_at(bound, "s", 1), _value_at(bound, "axes", 2)):
        yield "a transform over no dimension"


def _pieces(bound: BoundCall) -> Iterator[str]:
    """split(x, num_or_sections, axis)."""
    count = bound.argument("size")
    if isinstance(count, int) and count < 1:
        yield f"{count} pieces, expected 1 or more"


def _new_dimensions(bound: BoundCall) -> Iterator[str]:
    """unsqueeze(x, axis)."""
    data, dims = bound.array("input"), _value_at(bound, "axis", 1)
    chosen = list(dims) if isinstance(dims, (list, tuple)) else [dims]
    if data is not None:
        rank = data.ndim + len(chosen)
        whole = np.array([dim for dim in chosen if isinstance(dim, int)], object)
        yield from _outside("axis", whole, -rank, rank - 1)


def _elements(bound: BoundCall) -> Iterator[str]:
    """x[index] with indices in tensors or lists, which select along the first dimensions, one each."""
    data, index = bound.array("input"), bound.argument("index")
    if data is None:
        return
    for extent, part in zip(data.shape, index if isinstance(index, tuple) else (index,), strict=False):
        if part is None or part is Ellipsis:
            return
        if isinstance(part, Leaf):
            places = part.array if part.array.dtype.kind in "iu" else None
        else:  # a list, and no mask
            places = np.array([place for _, place in leaves({"": part}) if type(place) is int], object)
        yield from _outside("indices", places, -extent, extent - 1)


def _whole_indices(bound: BoundCall) -> Iterator[str]:
    """take_along_axis(x, indices, axis), whose kernel writes nothing for indices of another dtype."""
    indices = bound.array("indices")
    if indices is not None and indices.dtype.kind not in "iu":
        yield f"indices of {indices.dtype.name}, expected int32 or int64"


def _half_of_qr(bound: BoundCall) -> Iterator[str]:
    """The backward asks the kernel of a QR for the gradient of one factor, and it reads that of both."""
    yield "a call whose gradient needs both factors of a QR, of which it has one, expected another API"


def _of_nothing(bound: BoundCall) -> Iterator[str]:
    """The largest of no values is memory as it was found, and of the most frequent one the process ends."""
    data, dims = bound.array("input"), bound.argument("dim")
    if data is None or data.size:
        return
    chosen = range(data.ndim) if dims is None or dims == [] else dims if isinstance(dims, (list, tuple)) else [dims]
    gone = {dim % data.ndim for dim in chosen if isinstance(dim, int)}
    if data.ndim and all(extent for place, extent in enumerate(data.shape) if place not in gone):
        yield f"a tensor of {list(data.shape)}, which has no number along {sorted(gone)}"


def _kernel_of_nothing(bound: BoundCall) -> Iterator[str]:
    """The gradient of a convolution with no channels is memory as it was found."""
    data, weight = bound.array("input"), bound.array("weight")
    if data is not None and weight is not None and data.size and not weight.size:
        yield f"a weight of {list(weight.shape)} for an input of {list(data.shape)}"


def _row(bound: BoundCall) -> Iterator[str]:
    """select_scatter(x, values, axis, index)."""
    data, dim, index = bound.array("input"), bound.argument("dim"), bound.argument("index")
    if data is not None and isinstance(dim, int) and isinstance(index, int) and -data.ndim <= dim < data.ndim:
        yield from _outside("index", np.asarray(index), -data.shape[dim], data.shape[dim] - 1)


# Arguments of optimizers' steps that have the parameter's shape, and such as are single numbers.
_AS_PARAMETER = (
    "grad moment1 moment2 moment2_max velocity moment inf_norm avg_squared_grad avg_squared_update mean_square "
    "mean_grad previous rates average oldest master_param"
).split()
_SINGLE = "lr count skip_update".split()
# Products over the steps: single numbers, or as the parameter.
_PRODUCTS = "beta1_pow beta2_pow momentum_decay_pow mu_product rho".split()
_WIDE_PRODUCTS = ("nadam", "radam")
_FLAGS = {"multi_precision": "master_param", "amsgrad": "moment2_max", "centered": "mean_grad"}


def _stepped(bound: BoundCall) -> Iterator[str]:
    """A step of an optimizer's: moments are as the parameter, rates single numbers, and what a flag asks for is
    there."""
    whole = bound.array("param")
    if whole is None:
        yield "no parameter"
        return
    products = bound.name in _WIDE_PRODUCTS
    for name, array in _arrays(bound, [*_AS_PARAMETER, *(_PRODUCTS if products else ())]):
        if array.shape != whole.shape:
            yield f"{name} of {list(array.shape)} for a parameter of {list(whole.shape)}"
    for name, array in _arrays(bound, [*_SINGLE, *(() if products else _PRODUCTS)]):
        if array.size != 1:
            yield f"{name} of {list(array.shape)}, expected one number"
    for name, array in _arrays(bound, ("range", "etas")):
        if array.size != 2:
            yield f"{name} of {list(array.shape)}, expected two numbers"
    for flag, name in _FLAGS.items():
        if bound.argument(flag) and bound.array(name) is None:
            yield f"{flag} without {name}"


def _stepped_together(bound: BoundCall) -> Iterator[str]:
    """A step for several parameters: each list has one for each, and each of these is a step."""
    count = len(_listed(bound, "param") or ())
    lists = {name: _listed(bound, name) for name in ("param", *_AS_PARAMETER, *_SINGLE, *_PRODUCTS)}
    for name, found in lists.items():
        if found is not None and len(found) != count:
            yield f"{len(found)} of {name} for {count} parameters"
            return
    for number in range(count):
        own = {name: found[number] for name, found in lists.items() if found is not None}
        yield from _stepped(replace(bound, given={**bound.given, **own}))


_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _recurrent(bound: BoundCall) -> Iterator[str]:
    """rnn(x, states, weights, lengths, ...): of each layer and direction the weights of input and state, then of each
    the biases."""
    data, mode, layers, hidden = (bound.array("input"), *map(bound.argument, ("mode", "num_layers", "hidden_size")))
    if data is None or data.ndim != 3 or not data.size or mode not in [*_GATES] or not _are_sizes([layers, hidden]):
        yield "arguments that are none of a recurrent layer"
        return
    if not layers or not hidden:
        yield f"{layers} layers of {hidden} numbers"
        return
    ways = 2 if bound.argument("is_bidirec") else 1
    states = [_shape(state) for state in _listed(bound, "states") or ()]
    if states != [(layers * ways, data.shape[1], hidden)] * (2 if mode == "LSTM" else 1):
        yield f"states of {states}"
    rows = _GATES[mode] * hidden
    inputs = [data.shape[2] if layer < ways else ways * hidden for layer in range(layers * ways)]
    wanted = [shape for width in inputs for shape in ((rows, width), (rows, hidden))]
    found = [_shape(weight) for weight in _listed(bound, "weights") or ()]
    if found != wanted + [(rows,)] * len(wanted) or bound.argument("input_size") != data.shape[2]:
        yield f"weights of {found}"
    lengths = bound.array("lengths")
    if lengths is not None and (
        lengths.dtype not in (np.int32, np.int64)
        or lengths.shape != data.shape[1:2]
        or not ((lengths > 0) & (lengths <= len(data))).all()
    ):
        yield f"lengths {lengths.tolist()}, expected int32 or int64, one for each of {data.shape[1]} sequences"


_CONVOLUTIONS = [f"{name}{rank}d" for name in ("conv", "conv_transpose") for rank in (1, 2, 3)]
# By canonical name: what is wrong with the arguments of a call.
_CHECKS: Mapping[str, Callable[[BoundCall], Iterator[str]]] = by_name({
    # Places, classes and lengths.
    "hsigmoid_loss": _tree,
    "affine_grid": _grid,
    "warpctc": _lengths,
    "rnnt_loss": _alignments,
    "sample_neighbors weighted_sample_neighbors graph_sample_neighbors graph_khop_sampler": _graph,
    "roi_align roi_pool psroi_pool": _regions,
    "segment_sum segment_mean segment_max segment_min": _segments,
    "send_u_recv send_ue_recv send_uv": _nodes,
    "getitem": _elements,
    "take_along_dim": _whole_indices,
    "select_scatter": _row,
    # Sizes, dimensions and views.
    "as_strided": _strided,
    "eye flatten": _numbers,
    "unfold": _windows,
    "label_smooth": _smoothed,
    "rand": _drawn,
    "fill_diagonal": _diagonal,
    "expand_as": _expanded,
    "split": _pieces,
    "unsqueeze": _new_dimensions,
    "unbind": _parts,
    "remainder": _rest,
    "fftn ifftn hfftn ihfftn rfftn irfftn": _transformed,
    " ".join(f"{name}{end}" for name in _CONVOLUTIONS for end in ("", "_channels_last")): _kernel_of_nothing,
    "amax amin argmax argmin mode": _of_nothing,
    "pca_lowrank svd_lowrank": _half_of_qr,
    # Steps of optimizers, and recurrent layers.
    "adadelta adagrad adam adamax adamw asgd lamb momentum nadam radam rmsprop rprop sgd": _stepped,
    "merged_adam merged_momentum": _stepped_together,
    "rnn": _recurrent,
})  # fmt: skip
