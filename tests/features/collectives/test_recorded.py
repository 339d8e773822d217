"""--probe-device=recorded: the collectives of a dump of several ranks, right and wrong ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype, round_to
from tests.features.collectives.dumps import Call, op, write
from tests.features.collectives.programs import record

RANKS = 4


def inputs(dtype: str = "float32", size: int = 64, ranks: int = RANKS) -> list[AnyArray]:
    rng = np.random.default_rng(7)
    return [round_to(rng.standard_normal(size), numpy_dtype(dtype)) for _ in range(ranks)]


def ring(given: Sequence[AnyArray]) -> AnyArray:
    found = given[0]
    for each in given[1:]:
        found = np.add(found, each)
    return found


def all_reduce(given: Sequence[AnyArray], results: Sequence[AnyArray], name: str = "SUM") -> list[list[Call]]:
    return [[("all_reduce", [one], {"op": op(name)}, [got])] for one, got in zip(given, results, strict=True)]


Run = Callable[[Path], pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    return lambda folder: pytester.runpytest_inprocess(f"--probe-dump={folder}", "--probe-device=recorded", "-rs")


def said(result: pytest.RunResult) -> str:
    """All that pytest printed, in one line."""
    return " ".join(" ".join(result.outlines).split())


def missing(given: list[AnyArray]) -> list[AnyArray]:
    return [ring([*given[:2], given[3]])] * RANKS


def twice(given: list[AnyArray]) -> list[AnyArray]:
    return [ring([*given, given[1]])] * RANKS


def stale(given: list[AnyArray]) -> list[AnyArray]:
    return [ring(given), ring(given), given[2], ring(given)]


def flipped(given: list[AnyArray]) -> list[AnyArray]:
    one = ring(given).copy()
    one.view(np.uint32)[5] ^= 1
    return [ring(given), ring(given), ring(given), one]


def narrow(given: list[AnyArray]) -> list[AnyArray]:
    bfloat16 = numpy_dtype("bfloat16")
    return [ring([each.astype(bfloat16) for each in given]).astype(np.float32)] * RANKS


def divided(given: list[AnyArray]) -> list[AnyArray]:
    return [ring(given) / np.float32(4)] * RANKS


@pytest.mark.parametrize(
    ("fault", "failed", "words"),
    [
        (missing, 4, "the contribution of rank 2 is missing; noise ratio *"),
        (twice, 4, "the contribution of rank 1 counts twice; noise ratio *"),
        (stale, 1, "it is what rank 2 sent: the result has not come*"),
        (
            flipped,
            1,
            "results differ: rank 3 of 4 has other bits than ranks 0 to 2 in 1 of 64 elements, the first is 5:*",
        ),
        (narrow, 4, "as if it was reduced in bfloat16, and not in float32; noise ratio *"),
        (divided, 4, "divided by 4, and not by 1; noise ratio *"),
    ],
)
def test_a_fault_is_an_error_that_says_which(
    run: Run, tmp_path: Path, fault: Callable[[Any], list[AnyArray]], failed: int, words: str
) -> None:
    given = inputs()
    result = run(write(tmp_path / "dump", all_reduce(given, fault(given))))
    result.assert_outcomes(failed=failed, passed=RANKS - failed)
    assert fnmatchcase(said(result), f"*{words}*")


@pytest.mark.parametrize("kind", ["all_reduce", "broadcast"])
def test_the_result_of_an_earlier_call_is_named(run: Run, tmp_path: Path, kind: str) -> None:
    given, words = (inputs(), [each[::-1].copy() for each in inputs()]), {"op": op("SUM")}
    if kind == "all_reduce":
        right = [ring(each) for each in given]
    else:
        right, words = [each[0] for each in given], {"src": 0}  # type: ignore[dict-item]
    got = [[right[0], right[0 if rank == 2 else 1]] for rank in range(RANKS)]
    calls: list[list[Call]] = [
        [(kind, [given[call][rank]], words, [got[rank][call]]) for call in (0, 1)] for rank in range(RANKS)
    ]
    result = run(write(tmp_path / "dump", calls))
    result.assert_outcomes(failed=1, passed=2 * RANKS - 1)
    assert fnmatchcase(said(result), f"*it is the result of Distributed.{kind}.0, an earlier call; *")


def test_zeros_that_come_again_are_no_stale_result(run: Run, tmp_path: Path) -> None:
    zeros = [np.zeros(64, np.float32)] * RANKS
    right, given = all_reduce(zeros, zeros), inputs()
    calls = [[*before, *now] for before, now in zip(right, all_reduce(given, zeros), strict=True)]
    result = run(write(tmp_path / "dump", calls))
    result.assert_outcomes(failed=RANKS, passed=RANKS)
    assert "an earlier call" not in said(result)


def test_a_mean_that_is_divided_by_another_number_is_an_error(run: Run, tmp_path: Path) -> None:
    given = inputs()
    wrong = [ring(given) / np.float32(8)] * RANKS
    result = run(write(tmp_path / "dump", all_reduce(given, wrong, "AVG")))
    result.assert_outcomes(failed=RANKS)
    assert fnmatchcase(said(result), "*divided by 8, and not by 4; noise ratio*")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_ring_a_tree_and_float32_inside_pass(run: Run, tmp_path: Path, dtype: str) -> None:
    given = inputs(dtype)
    exact = round_to(ring([each.astype(np.float32) for each in given]), numpy_dtype(dtype))
    tree = np.add(np.add(given[0], given[1]), np.add(given[2], given[3]))
    for number, right in enumerate((ring(given), tree, exact)):
        run(write(tmp_path / f"dump{number}", all_reduce(given, [right] * RANKS))).assert_outcomes(passed=RANKS)


def test_of_two_ranks_the_one_with_the_flipped_bit_is_found(run: Run, tmp_path: Path) -> None:
    given = inputs(ranks=2)
    wrong = ring(given).copy()
    wrong.view(np.uint32)[3] ^= 1
    result = run(write(tmp_path / "dump", all_reduce(given, [wrong, ring(given)])))
    result.assert_outcomes(failed=1, passed=1)
    assert fnmatchcase(said(result), "*results differ: rank 0 of 2 has other bits than rank 1 in 1 of 64*")


def test_a_call_that_was_never_waited_for_is_an_error(run: Run, tmp_path: Path) -> None:
    given = inputs()
    calls: list[list[Call]] = [[("all_reduce", [one], {"op": op("SUM")}, None)] for one in given]
    result = run(write(tmp_path / "dump", calls, waited=False))
    result.assert_outcomes(failed=RANKS)
    assert fnmatchcase(said(result), "*all_reduce was never waited for*")
    run(write(tmp_path / "unknown", calls, waited=None)).assert_outcomes(skipped=RANKS)


def gathered(given: list[AnyArray], order: Sequence[int]) -> list[list[Call]]:
    whole = np.concatenate([given[rank] for rank in order])
    return [[("all_gather_into_tensor", [np.zeros_like(whole), one], {}, [whole])] for one in given]


def test_an_all_gather_in_another_order_is_an_error(run: Run, tmp_path: Path) -> None:
    given = inputs()
    run(write(tmp_path / "right", gathered(given, range(RANKS)))).assert_outcomes(passed=RANKS)
    result = run(write(tmp_path / "wrong", gathered(given, [0, 2, 1, 3])))
    result.assert_outcomes(failed=RANKS)
    assert fnmatchcase(
        said(result), "*in the place of rank 1 is what rank 2 sent; in the place of rank 2 is what rank 1 sent*"
    )


def moved() -> dict[str, list[list[Call]]]:
    """Each way in which data moves, right."""
    a, b = inputs(ranks=2)
    top, low = np.split(a, 2)
    up, down = np.split(b, 2)
    zero, half = np.zeros_like(a), np.zeros_like(top)
    total = ring([a, b])
    first, second = np.split(total, 2)
    return {
        "broadcast": [[("broadcast", [a], {"src": 1}, [b])], [("broadcast", [b], {"src": 1}, [b])]],
        "scatter": [
            [("scatter", [half, [top, low]], {"src": 0}, [top])],
            [("scatter", [half, None], {"src": 0}, [low])],
        ],
        "gather": [
            [("gather", [a, [zero, zero]], {"dst": 0}, [a, b])],
            [("gather", [b, None], {"dst": 0}, None)],
        ],
        "reduce": [[("reduce", [a, 1], {}, [zero])], [("reduce", [b, 1], {}, [total])]],
        "reduce_scatter": [
            [("reduce_scatter", [half, [top, low]], {}, [first])],
            [("reduce_scatter", [half, [up, down]], {}, [second])],
        ],
        "all_to_all": [
            [("all_to_all", [[half, half], [top, low]], {}, [top, up])],
            [("all_to_all", [[half, half], [up, down]], {}, [low, down])],
        ],
        "all_to_all_single": [
            [("all_to_all_single", [a, a, [48, 16], [48, 16]], {}, [np.concatenate([a[:48], b[:16]])])],
            [("all_to_all_single", [b, b, [16, 48], [16, 48]], {}, [np.concatenate([a[48:], b[16:]])])],
        ],
        "send": [[("send", [a, 1], {}, None)], [("recv", [zero, 0], {}, [a])]],
        "all_gather": [[("all_gather", [[zero, zero], one], {}, [a, b])] for one in (a, b)],
    }


RECEIVERS = {"gather": 1, "reduce": 1, "send": 1}


@pytest.mark.parametrize("name", moved())
def test_each_way_of_moving_data_passes_and_one_wrong_bit_fails(run: Run, tmp_path: Path, name: str) -> None:
    calls, receivers = moved()[name], RECEIVERS.get(name, 2)
    run(write(tmp_path / "right", calls)).assert_outcomes(passed=receivers, skipped=2 - receivers)
    rank = next(rank for rank in (1, 0) if calls[rank][0][3] is not None)
    outputs = [each.copy() for each in calls[rank][0][3] or ()]
    outputs[-1].view(np.uint32)[-1] ^= 1 << 30
    calls[rank][0] = (*calls[rank][0][:3], outputs)
    result = run(write(tmp_path / "wrong", calls))
    result.assert_outcomes(failed=1, passed=receivers - 1, skipped=2 - receivers)


def test_a_dump_of_one_rank_says_which_are_missing(run: Run, tmp_path: Path) -> None:
    given = inputs()
    folder = write(tmp_path / "dump", all_reduce(given, [ring(given)] * RANKS))
    for rank in (1, 2):
        shutil.rmtree(folder / "step0" / f"rank{rank}")
    result = run(folder)
    result.assert_outcomes(skipped=2)
    assert fnmatchcase(
        said(result), "*of the group of ranks 0 to 3 the dump of 1, 2 is missing; give the dumps of all*"
    )


def test_a_group_that_is_not_in_the_dump_is_a_skip(run: Run, tmp_path: Path) -> None:
    given = inputs(ranks=2)
    folder = write(tmp_path / "dump", all_reduce(given, [ring(given)] * 2), group=[6, 7])
    run(folder).assert_outcomes(skipped=2)


def test_other_numbers_of_calls_are_a_skip_of_these_alone(run: Run, tmp_path: Path) -> None:
    given = inputs(ranks=2)
    calls = all_reduce(given, [ring(given)] * 2)
    calls[1] *= 2
    for rank, more in enumerate(moved()["broadcast"]):
        calls[rank] += more
    result = run(write(tmp_path / "dump", calls))
    result.assert_outcomes(skipped=3, passed=2)
    assert fnmatchcase(said(result), "*other numbers of calls of all_reduce: rank 0 1, rank 1 2*")


def test_other_sizes_and_dtypes_are_errors(run: Run, tmp_path: Path) -> None:
    given = inputs(ranks=2)
    short = [given[0], given[1][:32]]
    result = run(write(tmp_path / "sizes", all_reduce(short, [given[0], short[1]])))
    result.assert_outcomes(failed=2)
    assert fnmatchcase(said(result), "*ranks disagree on sizes: rank 0 has 64, rank 1 32*")
    other = [given[0], given[1].astype(np.float64)]
    result = run(write(tmp_path / "dtypes", all_reduce(other, other)))
    result.assert_outcomes(failed=2)
    assert fnmatchcase(said(result), "*ranks disagree on dtype: rank 0 has float32, rank 1 float64*")


def test_a_file_that_is_missing_is_a_skip_of_its_call(run: Run, tmp_path: Path) -> None:
    given = inputs(ranks=2)
    folder = write(tmp_path / "dump", all_reduce(given, [ring(given)] * 2))
    (folder / "step0" / "rank1" / "dump_tensor_data" / "tensor0.npy").unlink()
    result = run(folder)
    result.assert_outcomes(skipped=2)
    assert fnmatchcase(said(result), "*found no file 'tensor0.npy'*")


def without_what_our_capture_knows(folder: Path) -> Path:
    """As msprobe writes it: the group among the arguments, and no order."""
    for path in folder.rglob("dump.json"):
        content = json.loads(path.read_text())
        del content["probe"]
        for entry in content["data"].values():
            del entry["probe"]
        path.write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("given_group", [True, False])
def test_a_dump_of_msprobes_is_judged(run: Run, tmp_path: Path, given_group: bool) -> None:
    given = inputs()
    group = {"group": {"type": "torch.ProcessGroup", "group_ranks": list(range(RANKS)), "group_id": "d1e3ae3e"}}
    kwargs: dict[str, Any] = {"op": op("SUM"), **(group if given_group else {})}
    for name, results in (("right", [ring(given)] * RANKS), ("wrong", missing(given))):
        calls: list[list[Call]] = [
            [("all_reduce", [one], kwargs, [got])] for one, got in zip(given, results, strict=True)
        ]
        result = run(without_what_our_capture_knows(write(tmp_path / name, calls)))
        result.assert_outcomes(**{"passed" if name == "right" else "failed": RANKS})


def test_groups_of_their_own_do_not_meet(run: Run, tmp_path: Path) -> None:
    """Ranks 0 and 2 reduce among themselves, and so do 1 and 3."""
    given = inputs()
    calls: list[list[Call]] = []
    for rank, one in enumerate(given):
        ranks = [rank % 2, rank % 2 + 2]
        group = {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": ""}
        calls.append([("all_reduce", [one], {"group": group}, [np.add(given[ranks[0]], given[ranks[1]])])])
    folder = without_what_our_capture_knows(write(tmp_path / "dump", calls))
    run(folder).assert_outcomes(passed=RANKS)


def test_empty_tensors_pass(run: Run, tmp_path: Path) -> None:
    none = np.empty(0, np.float32)
    run(write(tmp_path / "dump", all_reduce([none] * 2, [none] * 2))).assert_outcomes(passed=2)


@pytest.mark.evidence
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ranks", "dtype"),
    [
        *[(kind, ranks, "float32") for kind in ("data", "sharded", "tensor") for ranks in (2, 4)],
        ("data", 4, "bfloat16"),
        ("sharded", 4, "bfloat16"),
    ],
)
def test_a_small_gpt_on_several_ranks_has_no_error(
    pytester: pytest.Pytester, tmp_path: Path, kind: str, ranks: int, dtype: str
) -> None:
    """Every collective is judged, and so are the replicas; made again they are right as well."""
    dump = record(kind, ranks, tmp_path, dtype)
    out = tmp_path / "out"
    for option in ("--probe-device=recorded", f"--probe-ranks={ranks}"):
        chosen = ("-k", "Distributed or replicas", f"--probe-out={out / option[8:14]}")
        result = pytester.runpytest_inprocess(f"--probe-dump={dump}", option, *chosen)
        lines = (out / option[8:14] / "results.jsonl").read_text().splitlines()
        verdicts = [json.loads(line)["verdict"] for line in lines]
        assert (set(verdicts), len(verdicts) > 4 * ranks) == ({"pass"}, True), result.stdout.str()


@pytest.mark.slow
def test_four_ranks_share_out_one_run_among_workers(pytester: pytest.Pytester, tmp_path: Path) -> None:
    given = inputs()
    folder = write(tmp_path / "dump", all_reduce(given, flipped(given)))
    result = pytester.runpytest(f"--probe-dump={folder}", "--probe-device=recorded", "-n2")
    result.assert_outcomes(failed=1, passed=3)


def test_the_result_of_an_earlier_step_is_named(run: Run, tmp_path: Path) -> None:
    given = (inputs(), [each[::-1].copy() for each in inputs()])
    right = [ring(each) for each in given]
    write(tmp_path / "dump", all_reduce(given[0], [right[0]] * RANKS))
    late = write(tmp_path / "late", all_reduce(given[1], [right[0], *[right[1]] * (RANKS - 1)]))
    shutil.move(late / "step0", tmp_path / "dump" / "step1")
    result = run(tmp_path / "dump")
    result.assert_outcomes(failed=1, passed=2 * RANKS - 1)
    assert fnmatchcase(said(result), "*it is the result of Distributed.all_reduce.0 of step 0, an earlier call; *")
