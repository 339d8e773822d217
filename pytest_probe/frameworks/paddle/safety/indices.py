"""Calls whose kernels do not check the places, classes and lengths that they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from pytest_probe.frameworks.paddle.safety.arguments import array_at
from pytest_probe.model.arguments import BoundCall


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
CHECKS: Mapping[str, Callable[[BoundCall], Iterator[str]]] = {
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
