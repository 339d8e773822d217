"""Which record of one dump is which of the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_probe.features.against.dump_map import DumpMap, Fusion
from pytest_probe.features.against.matching import Match, increasing, match, shortest_edits
from pytest_probe.features.against.sides import statistics_gap
from pytest_probe.model.dump import Call, Dump, Record, TensorSpec
from pytest_probe.numerics.scaled import BlockStatistics


def dump(*calls: tuple[str, float, tuple[int, ...]], modules: dict[str, str] | None = None) -> Dump:
    """Calls by API with the maximum of their input and its shape, numbered as captures number them."""
    counts: dict[str, int] = {}
    records, decoded = [], {}
    for api, largest, shape in calls:
        name = f"Torch.{api}.{counts.setdefault(api, 0)}"
        record = Record(name, "Torch", api, counts[api], b"{}")
        counts[api] += 1
        records.append(record)
        decoded[name] = Call((TensorSpec("float32", shape, max=largest, min=0.0, mean=0.5, norm=1.0),), {}, None, None)
    return Dump(
        Path("dump.json"),
        "pytorch",
        "",
        "",
        tuple(records),
        lambda record: decoded[record.name],
        lambda entry: (),
        modules=lambda entry: ((modules or {}).get(entry.removesuffix(".forward"), ""),),
    )


def names(found: Sequence[Match]) -> list[tuple[str, str]]:
    """Pairs of names, several joined by +; those of one side alone with ""."""
    return [tuple("+".join(r.name.removeprefix("Torch.") for r in side) for side in (m.a, m.b)) for m in found]  # type: ignore[misc]


def test_equal_counts_pair_by_name() -> None:
    one = dump(("exp", 1.0, (2,)), ("sin", 2.0, (2,)))
    other = dump(("sin", 9.0, (3,)), ("exp", 8.0, (2,)))
    assert names(match(one, other, DumpMap())) == [("exp.0", "exp.0"), ("sin.0", "sin.0")]


def test_an_extra_call_is_alone_and_moves_the_others() -> None:
    one = dump(("exp", 1.0, (2,)), ("exp", 5.0, (2,)), ("exp", 2.0, (2,)), ("exp", 3.0, (2,)))
    other = dump(("exp", 1.0, (2,)), ("exp", 2.0, (2,)), ("exp", 3.0, (2,)))
    found = match(one, other, DumpMap())
    assert names(found) == [("exp.0", "exp.0"), ("exp.1", ""), ("exp.2", "exp.1"), ("exp.3", "exp.2")]
    assert [each.note for each in found] == [
        "",
        "",
        "matched by the order of calls with Torch.exp.1",
        "matched by the order of calls with Torch.exp.2",
    ]


def test_calls_whose_inputs_differ_are_aligned_by_their_shapes() -> None:
    one = dump(("exp", 1.0, (2,)), ("exp", 2.0, (7,)), ("exp", 3.0, (4,)))
    other = dump(("exp", 1.0, (2,)), ("exp", 9.0, (4,)))
    assert names(match(one, other, DumpMap())) == [("exp.0", "exp.0"), ("exp.1", ""), ("exp.2", "exp.1")]


def test_what_is_made_again_is_known() -> None:
    one = dump(("exp", 1.0, (2,)), ("sin", 2.0, (2,)), ("exp", 1.0, (2,)))
    other = dump(("exp", 1.0, (2,)), ("sin", 2.0, (2,)))
    again = match(one, other, DumpMap())[2]
    assert again.repeats is not None
    assert (again.repeats.name, again.directions) == ("Torch.exp.0", ("forward",))


def test_micro_batches_are_one_call() -> None:
    head = ("ones", 1.0, (8, 3))
    parts = [(api, 10.0 * part + number, (4, 3)) for part in range(2) for number, api in enumerate(("exp", "sin"))]
    one, other = dump(head, *parts), dump(head, ("exp", 1.0, (8, 3)), ("sin", 2.0, (8, 3)))
    pairs = [("ones.0", "ones.0"), ("exp.0+exp.1", "exp.0"), ("sin.0+sin.1", "sin.0")]
    assert names(match(one, other, DumpMap())) == pairs
    assert names(match(other, one, DumpMap())) == [(b, a) for a, b in pairs]


def test_the_last_micro_batch_may_be_smaller() -> None:
    one = dump(*[(api, 1.0, (rows, 3)) for rows in (3, 3, 2) for api in ("exp", "sin")])
    other = dump(("exp", 1.0, (8, 3)), ("sin", 2.0, (8, 3)))
    assert names(match(one, other, DumpMap())) == [("exp.0+exp.1+exp.2", "exp.0"), ("sin.0+sin.1+sin.2", "sin.0")]


def test_a_map_joins_fused_modules() -> None:
    shape = (2, 2)
    modules = {f"Torch.mm.{n}": f"Module.layer.{part}_proj.Linear.forward.0" for n, part in enumerate("qkv")}
    one = dump(*[("mm", float(n), shape) for n in range(3)], modules=modules)
    other = dump(("mm", 7.0, (2, 6)), modules={"Torch.mm.0": "Module.layer.qkv_proj.Linear.forward.0"})
    rule = Fusion(("q_proj", "k_proj", "v_proj"), "qkv_proj", of_a=True)
    assert names(match(one, other, DumpMap(fusions=(rule,)))) == [("mm.0+mm.1+mm.2", "mm.0")]
    rule = Fusion(("q_proj", "k_proj", "v_proj"), "qkv_proj", of_a=False)
    assert names(match(other, one, DumpMap(fusions=(rule,)))) == [("mm.0", "mm.0+mm.1+mm.2")]


def test_ignored_records_are_left_out() -> None:
    one = dump(("exp", 1.0, (2,)), ("sin", 2.0, (2,)))
    assert names(match(one, one, DumpMap(ignored=("*.sin.*",)))) == [("exp.0", "exp.0")]


def common(a: str, b: str) -> int:
    """The length of the longest common subsequence, by the table."""
    row = [0] * (len(b) + 1)
    for one in a:
        row = _row(row, one, b)
    return row[-1]


def _row(before: list[int], one: str, b: str) -> list[int]:
    row = [0]
    for place, other in enumerate(b):
        row.append(before[place] + 1 if one == other else max(before[place + 1], row[-1]))
    return row


@given(st.text("abc", max_size=24), st.text("abc", max_size=24))
def test_edit_scripts_are_shortest(a: str, b: str) -> None:
    found = shortest_edits(a, b)
    assert all(a[one] == b[other] for one, other in found)
    assert found == sorted(set(found))
    assert all(x < y and v < w for (x, v), (y, w) in pairwise(found))
    assert len(found) == common(a, b)


@given(st.permutations(range(12)))
def test_the_longest_rising_part(order: list[int]) -> None:
    found = increasing(list(enumerate(order)))
    assert all(x < y and v < w for (x, v), (y, w) in pairwise(found))
    best = [1] * 12
    for place in range(12):
        best[place] = max([best[n] + 1 for n in range(place) if order[n] < order[place]], default=1)
    assert len(found) == max(best)


BLOCKS = BlockStatistics(48, 6.0, 0, 0.25, 0.5, 0.0, 0.0)
OPERAND = TensorSpec("float8_e4m3fn", (16, 96), max=448.0, min=-448.0, mean=0.0, norm=900.0, blocks=BLOCKS)


def test_operands_are_equal_where_their_blocks_are() -> None:
    assert statistics_gap(OPERAND, OPERAND) == 0
    assert statistics_gap(OPERAND, replace(OPERAND, blocks=None)) == 0
    # 16 roundoffs of the dtype are 1.
    assert statistics_gap(OPERAND, replace(OPERAND, blocks=replace(BLOCKS, binades=3.0))) == 0.5
    assert statistics_gap(OPERAND, replace(OPERAND, blocks=replace(BLOCKS, clipped=0.125))) == 0.125
    assert statistics_gap(OPERAND, replace(OPERAND, blocks=replace(BLOCKS, not_finite=1))) == math.inf
