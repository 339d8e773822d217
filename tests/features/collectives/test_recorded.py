"""--probe-device=recorded: the collectives of a dump of several ranks, right and wrong ones."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Struct

from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype, round_to
from tests.features.collectives.dumps import Call, op, write
from tests.features.collectives.programs import record
from tests.support.other_plugins import Ran
from tests.support.running import ran, rows

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


def gathered(given: list[AnyArray], order: Sequence[int]) -> list[list[Call]]:
    whole = np.concatenate([given[rank] for rank in order])
    return [[("all_gather_into_tensor", [np.zeros_like(whole), one], {}, [whole])] for one in given]


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


def without_what_our_capture_knows(folder: Path) -> Path:
    """As msprobe writes it: the group among the arguments, and no order."""
    for path in folder.rglob("dump.json"):
        content = json.loads(path.read_text())
        del content["probe"]
        for entry in content["data"].values():
            del entry["probe"]
        path.write_text(json.dumps(content))
    return folder


RECEIVERS = {"gather": 1, "reduce": 1, "send": 1}


class Scenario(Struct, frozen=True):
    """A dump of several ranks, how many of its items fail, pass and are skipped, and what one says."""

    write: Callable[[Path], object]
    failed: int = 0
    passed: int = 0
    skipped: int = 0
    words: str = ""


SCENARIOS: dict[str, Scenario] = {}


def made(
    name: str, calls: Any, failed: int = 0, passed: int = 0, skipped: int = 0, words: str = "", **known: Any
) -> None:
    SCENARIOS[name] = Scenario(partial(write, ranks=calls, **known), failed, passed, skipped, words)


def faults() -> None:
    """A fault is an error that says which."""
    given, two = inputs(), inputs(ranks=2)
    words = "results differ: rank 3 of 4 has other bits than ranks 0 to 2 in 1 of 64 elements, the first is 5:*"
    for fault, failed, told in (
        (missing, 4, "the contribution of rank 2 is missing; noise ratio *"),
        (twice, 4, "the contribution of rank 1 counts twice; noise ratio *"),
        (stale, 1, "it is what rank 2 sent: the result has not come*"),
        (flipped, 1, words),
        (narrow, 4, "as if it was reduced in bfloat16, and not in float32; noise ratio *"),
        (divided, 4, "divided by 4, and not by 1; noise ratio *"),
    ):
        made(fault.__name__, all_reduce(given, fault(given)), failed, RANKS - failed, words=told)
    wrong = all_reduce(given, [ring(given) / np.float32(8)] * RANKS, "AVG")
    made("a mean divided by another number", wrong, RANKS, words="divided by 8, and not by 4; noise ratio*")
    one = ring(two).copy()
    one.view(np.uint32)[3] ^= 1
    words = "results differ: rank 0 of 2 has other bits than rank 1 in 1 of 64*"
    made("a flipped bit of two ranks", all_reduce(two, [one, ring(two)]), 1, 1, words=words)
    words = "in the place of rank 1 is what rank 2 sent; in the place of rank 2 is what rank 1 sent*"
    made("an all-gather in another order", gathered(given, [0, 2, 1, 3]), RANKS, words=words)
    short, other = [two[0], two[1][:32]], [two[0], two[1].astype(np.float64)]
    made("other sizes", all_reduce(short, short), 2, words="ranks disagree on sizes: rank 0 has 64, rank 1 32*")
    words = "ranks disagree on dtype: rank 0 has float32, rank 1 float64*"
    made("other dtypes", all_reduce(other, other), 2, words=words)


def right() -> None:
    """A ring, a tree, float32 inside, an order of its own, nothing at all."""
    for dtype in ("float32", "bfloat16"):
        given = inputs(dtype)
        exact = round_to(ring([each.astype(np.float32) for each in given]), numpy_dtype(dtype))
        tree = np.add(np.add(given[0], given[1]), np.add(given[2], given[3]))
        for name, one in (("a ring", ring(given)), ("a tree", tree), ("float32 inside", exact)):
            made(f"{name} in {dtype}", all_reduce(given, [one] * RANKS), passed=RANKS)
    none = [np.empty(0, np.float32)] * 2
    made("nothing", all_reduce(none, none), passed=2)
    made("an all-gather", gathered(inputs(), range(RANKS)), passed=RANKS)
    given, calls = inputs(), []
    for rank, one in enumerate(given):  # ranks 0 and 2 reduce among themselves, and so do 1 and 3
        ranks = [rank % 2, rank % 2 + 2]
        group = {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": ""}
        calls.append([("all_reduce", [one], {"group": group}, [np.add(given[ranks[0]], given[ranks[1]])])])
    SCENARIOS["groups of their own"] = Scenario(
        lambda folder: without_what_our_capture_knows(write(folder, calls)), passed=RANKS
    )


def earlier() -> None:
    """The result of an earlier call is named, and one of an earlier step; zeros that come again are none."""
    given = (inputs(), [each[::-1].copy() for each in inputs()])
    for kind, options in (("all_reduce", {"op": op("SUM")}), ("broadcast", {"src": 0})):
        was = [ring(each) if kind == "all_reduce" else each[0] for each in given]
        calls: list[list[Call]] = [
            [(kind, [given[call][rank]], options, [was[0 if rank == 2 else call]]) for call in (0, 1)]
            for rank in range(RANKS)
        ]
        named = f"it is the result of Distributed.{kind}.0, an earlier call; *"
        made(f"an earlier {kind}", calls, 1, 2 * RANKS - 1, words=named)
    zeros = [np.zeros(64, np.float32)] * RANKS
    both = [[*before, *now] for before, now in zip(all_reduce(zeros, zeros), all_reduce(given[0], zeros), strict=True)]
    made("zeros again", both, RANKS, RANKS)

    def steps(folder: Path) -> None:
        sums = [ring(each) for each in given]
        write(folder, all_reduce(given[0], [sums[0]] * RANKS))
        late = write(folder / "late", all_reduce(given[1], [sums[0], *[sums[1]] * (RANKS - 1)]))
        shutil.move(late / "step0", folder / "step1")

    named = "it is the result of Distributed.all_reduce.0 of step 0, an earlier call; *"
    SCENARIOS["an earlier step"] = Scenario(steps, 1, 2 * RANKS - 1, words=named)


def incomplete() -> None:
    """What is not in the dump is a skip that says so; a call that was never waited for is an error."""
    calls: list[list[Call]] = [[("all_reduce", [one], {"op": op("SUM")}, None)] for one in inputs()]
    made("never waited for", calls, RANKS, words="all_reduce was never waited for*", waited=False)
    made("perhaps waited for", calls, skipped=RANKS, waited=None)
    given, two = inputs(), inputs(ranks=2)
    whole, pair = all_reduce(given, [ring(given)] * RANKS), all_reduce(two, [ring(two)] * 2)

    def without(*names: str, calls: Sequence[Sequence[Call]]) -> Callable[[Path], None]:
        def make(folder: Path) -> None:
            write(folder, calls)
            for path in (folder / "step0" / name for name in names):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

        return make

    words = "of the group of ranks 0 to 3 the dump of 1, 2 is missing; give the dumps of all*"
    SCENARIOS["two of four ranks"] = Scenario(without("rank1", "rank2", calls=whole), skipped=2, words=words)
    file = "rank1/dump_tensor_data/tensor0.npy"
    SCENARIOS["no file"] = Scenario(without(file, calls=pair), skipped=2, words="found no file 'tensor0.npy'*")
    made("another group", pair, skipped=2, group=[6, 7])
    calls = [pair[0], pair[1] * 2]
    calls = [[*one, *more] for one, more in zip(calls, moved()["broadcast"], strict=True)]
    words = "other numbers of calls of all_reduce: rank 0 1, rank 1 2*"
    made("other numbers of calls", calls, passed=2, skipped=3, words=words)


def ways() -> None:
    """Each way of moving data passes, and one wrong bit fails."""
    for name, calls in moved().items():
        receivers = RECEIVERS.get(name, 2)
        made(name, calls, passed=receivers, skipped=2 - receivers)
        wrong = [list(each) for each in calls]
        rank = next(rank for rank in (1, 0) if calls[rank][0][3] is not None)
        outputs = [each.copy() for each in calls[rank][0][3] or ()]
        outputs[-1].view(np.uint32)[-1] ^= 1 << 30
        wrong[rank][0] = (*calls[rank][0][:3], outputs)
        made(f"{name} with a wrong bit", wrong, 1, receivers - 1, 2 - receivers)


def of_msprobe() -> None:
    """A dump of msprobe's is judged, with the group among its arguments and without it."""
    given = inputs()
    group = {"group": {"type": "torch.ProcessGroup", "group_ranks": list(range(RANKS)), "group_id": "d1e3ae3e"}}
    for name, results, failed in (("right", [ring(given)] * RANKS, 0), ("wrong", missing(given), RANKS)):
        for among, more in (("with", group), ("without", {})):
            calls: list[list[Call]] = [
                [("all_reduce", [one], {"op": op("SUM"), **more}, [got])]
                for one, got in zip(given, results, strict=True)
            ]
            SCENARIOS[f"of msprobe, {name}, {among} its group"] = Scenario(
                partial(lambda folder, calls: without_what_our_capture_knows(write(folder, calls)), calls=calls),
                failed,
                RANKS - failed,
            )


for kind in (faults, right, earlier, incomplete, ways, of_msprobe):
    kind()


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One run of all dumps: each folder is a run of its own."""
    folder = tmp_path_factory.mktemp("collectives")
    for name, scenario in SCENARIOS.items():
        scenario.write(folder / name)
    dumps = (f"--probe-dump={name}" for name in SCENARIOS)
    return ran(folder, *dumps, "--probe-device=recorded", "--probe-out=out", "-rs")


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_collectives_of_a_dump_are_judged(judged: Ran, name: str) -> None:
    scenario = SCENARIOS[name]
    # The one dump of two steps is known by its second.
    labels = (f"{name}/", "step1/") if name == "an earlier step" else (f"{name}/",)
    found = [row for row in judged.rows if row["id"].startswith(labels)]
    counted = Counter(row["verdict"] for row in found)
    assert counted == Counter(error=scenario.failed, **{"pass": scenario.passed}, skip=scenario.skipped)
    if scenario.words:
        assert any(fnmatchcase(" ".join(row["reason"].split()), f"*{scenario.words}") for row in found)
    assert ("an earlier call" in str(found)) == ("an earlier call" in scenario.words)


def test_the_text_of_a_run_says_which(judged: Ran) -> None:
    text = " ".join(" ".join(judged.result.outlines).split())
    for name in ("missing", "stale", "flipped", "two of four ranks", "other sizes"):
        assert fnmatchcase(text, f"*{SCENARIOS[name].words}*")


TRAINED = [
    *(f"{kind},float32,{ranks}" for ranks in (2, 4) for kind in ("data", "sharded", "tensor")),
    "data,bfloat16,4",
    "sharded,bfloat16,4",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    for ranks in (2, 4):
        record(folder / "dumps", ranks, [model for model in TRAINED if model.endswith(str(ranks))])
    return folder


@pytest.mark.evidence
@pytest.mark.slow
@pytest.mark.parametrize("option", ["--probe-device=recorded", "--probe-ranks=4"])
def test_a_small_gpt_on_several_ranks_has_no_error(trained: Path, option: str) -> None:
    """The collectives of two ranks are made again by the first two of four."""
    out = option.partition("=")[2]
    result = ran(trained, "--probe-dump=dumps", option, "-k", "Distributed or replicas", f"--probe-out={out}").result
    found = [(row["id"].partition("/")[0], row["verdict"]) for row in rows(trained / out)]
    for model in TRAINED:
        verdicts = [verdict for name, verdict in found if name == model]
        assert (set(verdicts), len(verdicts) > 4 * int(model[-1])) == ({"pass"}, True), result.stdout.str()


@pytest.mark.slow
def test_four_ranks_share_out_one_run_among_workers(pytester: pytest.Pytester, tmp_path: Path) -> None:
    given = inputs()
    folder = write(tmp_path / "dump", all_reduce(given, flipped(given)))
    result = pytester.runpytest(f"--probe-dump={folder}", "--probe-device=recorded", "-n2")
    result.assert_outcomes(failed=1, passed=3)
