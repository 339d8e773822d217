"""What the outputs of two calls are by rules that compare outputs alone (equal bits, the tolerances of torch.testing,
ptdbg; statistics), and the rows of such a call in other tools' tables, which its result carries (export/two_dumps.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.errors import RecordError
from pytest_probe.export.dump_metrics import Columns, accuracy, msprobe, newer, not_found, older
from pytest_probe.features.against.sides import STATISTICS_ROUNDOFFS, TENSORS, Side, Tensor, TensorPair
from pytest_probe.model.pairing import TableRow, TableTensor
from pytest_probe.model.result import plain
from pytest_probe.model.verdict import Outcome
from pytest_probe.numerics.arrays import not_close
from pytest_probe.numerics.dtypes import AnyArray


class Closeness(Struct, frozen=True):
    """refused gives the reason why unequal outputs are not close, "" where they are; outcome is what that is. sees: do
    the dumps hold what it looks at? asks_inputs: outputs are close whose inputs are not."""

    help: str
    refused: Callable[[TensorPair], str]
    sees: Callable[[TensorPair], bool] = lambda pair: pair.equal or pair.found is not None
    outcome: Outcome = "error"
    asks_inputs: bool = False


def _other_bits(pair: TensorPair) -> str:
    if pair.found is None:
        return f"{pair.basis} differ"
    return f"{1 - pair.found.equal_bits:.3g} of the elements have other bits"


def _inaccurate(found: Columns, *, is_older: bool = False) -> str:
    """What ptdbg_ascend's tables call not accurate: cosine below 0.99 and an error above 0.001; in 4.0 also cosine
    below 0.9 or an error above 1 alone, and NaN or inf at other places."""
    if accuracy(found, is_older=is_older) != "No":
        return ""
    return found[-1] if found[0] == "N/A" else f"cosine {found[0]}, largest error {float(found[1]):.6g}"


def _other_statistics(pair: TensorPair) -> str:
    gap = pair.statistics
    return (
        ""
        if gap is None or gap <= 1
        else f"statistics differ by {gap:.3g} times what roundings explain ({pair.describe()})"
    )


CLOSENESS: Mapping[str, Closeness] = {
    # Equal checksums as well.
    "exact": Closeness("the other side, bit for bit", _other_bits, lambda pair: pair.basis != "nothing"),
    "close": Closeness(
        "torch.testing's tolerances",
        lambda pair: not_close(pair.a.array(), pair.b.array(), (pair.a.dtype, pair.b.dtype)),
    ),
    "ptdbg": Closeness(
        "the limits of ptdbg_ascend 4.0", lambda pair: _inaccurate(newer(pair.a.array(), pair.b.array()))
    ),
    "ptdbg-2.3": Closeness(
        "the limits of ptdbg_ascend 2.3",
        lambda pair: _inaccurate(older(pair.a.array(), pair.b.array()), is_older=True),
    ),
    "statistics": Closeness(
        f"Max, Min, Mean and Norm within {STATISTICS_ROUNDOFFS} roundoffs of the dtype",
        _other_statistics,
        lambda pair: pair.statistics is not None or pair.equal,
        outcome="warning",
        asks_inputs=True,
    ),
}


_LINE = re.compile(r"line (\d+)")
# What dtypes begin with, by the name of a framework.
_PREFIXES = {"pytorch": "torch"}


def line_of(side: Side) -> int:
    """Where a dump tells of a call; 0 where its format has no lines."""
    places = (value.spec.place for _, value in _inputs_and_outputs(side) if isinstance(value, Tensor))
    found = _LINE.fullmatch(next(places, ""))
    return int(found[1]) if found else 0


def rows_of(a: Side, b: Side | None, equal: Set[str] = frozenset()) -> Iterator[TableRow]:
    """Of each tensor and number of A: what came in, and what went out. b: None where B has no such call; equal: the
    names of tensors whose values are known to be equal."""
    other = {} if b is None else dict(_inputs_and_outputs(b))
    for name, value in _inputs_and_outputs(a):
        one = _described(a, name, value)
        if b is None or name not in other:
            yield TableRow(one)
            continue
        row = TableRow(one, _described(b, name, other[name]))
        is_known = [not isinstance(each, TENSORS) or each.has_values for each in (value, other[name])]
        yield _measured(row, (a, value), (b, value if name in equal else other[name])) if any(is_known) else row


def _inputs_and_outputs(side: Side) -> Iterator[tuple[str, Any]]:
    """The values of one direction alone: a backward has the inputs of its forward as well."""
    for name, value in (*side.inputs.items(), *side.outputs.items()):
        forward = not name.startswith(("incoming.", "grad."))
        if forward == (side.direction == "forward") and isinstance(value, (*TENSORS, bool, int, float)):
            yield name, value


def _described(side: Side, name: str, value: Any) -> TableTensor:
    is_tensor = isinstance(value, TENSORS)
    if side.direction == "forward":
        # msprobe counts the values of a keyword argument from 0.
        place = re.sub(r"^kwargs\.(\w+)$", r"input.\1.0", name).replace("kwargs.", "input.", 1)
    else:
        place = value.field if isinstance(value, Tensor) else name.replace("incoming.", "input.", 1)
    entry = side.entry.replace(".", "_")
    alone = place == "output.0" and sum(each.startswith("output") for each in side.outputs) == 1
    known = f"{entry}_{'output' if alone else place}"
    if not is_tensor:
        return TableTensor(known, f"{side.entry}.{place}", str(type(value)), (), (plain(value),) * 4)
    spec = value.spec
    file = spec.data_name or ""
    if file.startswith(f"{entry}_"):
        known = file.removesuffix(".npy")
    dtype = f"{_PREFIXES.get(side.dump.framework, side.dump.framework)}.{spec.dtype}"
    statistics = tuple(map(plain, (spec.max, spec.min, spec.mean, spec.norm)))
    return TableTensor(known, f"{side.entry}.{place}", dtype, spec.shape, statistics, file)


def _measured(row: TableRow, a: tuple[Side, Any], b: tuple[Side, Any]) -> TableRow:
    one = _array(a[1])
    other = one if b[1] is a[1] else _array(b[1])
    if one is None or other is None:
        (side, _), tensor = (a, row.a) if one is None else (b, row.b)
        file = "" if tensor is None else tensor.values_file
        return replace(row, **not_found(str(next(iter(side.dump.data_dirs), side.dump.path.parent) / file)))
    renamed = row.b is not None and row.a.name != row.b.name
    found = replace(row, ptdbg_23=older(one, other), ptdbg_40=newer(one, other, renamed=renamed))
    # msprobe keeps no files of numbers, and compares none.
    return found if row.a.is_number else replace(found, msprobe=msprobe(one, other, renamed=renamed))


def _array(value: Any) -> AnyArray | None:
    """None where it cannot be read."""
    try:
        if isinstance(value, TENSORS):
            return value.array()
        return np.asarray(float(value) if abs(value) >= 2**63 else value)
    except RecordError:
        return None
