"""--probe-ranks: collectives of a dump made again by processes, and collectives of the user's own."""

from __future__ import annotations

import shutil
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.features.collectives.dumps import write
from tests.features.collectives.test_recorded import all_reduce, inputs, moved, ring
from tests.support.running import rows

pytestmark = pytest.mark.slow


def said(result: pytest.RunResult) -> str:
    """All that pytest printed, in one line."""
    return " ".join(" ".join(result.outlines).split())


def all_ways() -> list[list[Any]]:
    """Every way of moving data, one after the other, for two ranks."""
    calls: list[list[Any]] = [[], []]
    given = inputs(ranks=2)
    for ways in (*moved().values(), all_reduce(given, [ring(given)] * 2)):
        for rank in (0, 1):
            calls[rank] += ways[rank]
    return calls


def test_every_collective_is_made_again_without_an_error(pytester: pytest.Pytester) -> None:
    """The dump of one rank tells what all do; a group is made by the first processes, and a larger one is a skip."""
    given, five = inputs(), inputs(ranks=5)
    write(Path("ways"), all_ways())
    write(Path("one"), all_reduce(given, [ring(given)] * 4))
    for rank in (1, 2, 3):
        shutil.rmtree(f"one/step0/rank{rank}")
    calls = all_reduce(given, [np.add(given[1], given[3])] * 4)
    calls[0] = calls[2] = []
    write(Path("two"), calls, group=[1, 3])
    write(Path("five"), all_reduce(five, [ring(five)] * 5))
    dumps = [f"--probe-dump={name}" for name in ("ways", "one", "two", "five")]
    result = pytester.runpytest_inprocess(*dumps, "--probe-ranks=4", "--probe-out=out", "-rs")
    result.stdout.fnmatch_lines(["probe: collectives are made again by 4 ranks of gloo"])
    assert fnmatchcase(said(result), "*its group has 5 ranks, and --probe-ranks=4 starts fewer*")
    assert {row["device"] for row in rows() if row["api"]} == {"4 ranks of gloo"}
    result.assert_outcomes(passed=20, skipped=10)
    passed = Counter(row["id"].partition("/")[0] for row in rows() if row["verdict"] == "pass")
    assert passed == {"ways": 17, "one": 1, "two": 2}


def test_they_are_made_again_with_generated_inputs(pytester: pytest.Pytester) -> None:
    write(Path("dump"), all_ways())
    result = pytester.runpytest_inprocess("--probe-dump=dump", "--probe-ranks=2", "--probe-inputs=generated")
    result.assert_outcomes(passed=17, skipped=3)


def test_a_backend_that_is_not_built_in_is_a_skip(pytester: pytest.Pytester, tmp_path: Path) -> None:
    given = inputs(ranks=2)
    folder = write(tmp_path / "dump", all_reduce(given, [ring(given)] * 2))
    result = pytester.runpytest_inprocess(f"--probe-dump={folder}", "--probe-ranks=2,backend=ucx", "-rs")
    result.assert_outcomes(skipped=2)
    assert fnmatchcase(said(result), "*ucx is not built into this torch; gloo*")


COLLECTIVES = """
    import os, time
    import torch
    import torch.distributed as dist

    def mine(x):
        dist.all_reduce(x)

    def by_hand(x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return sum(parts)

    def without_the_last(x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return sum(parts[:-1])

    def hangs(x):
        if dist.get_rank() == 1:
            time.sleep(600)
        dist.all_reduce(x)

    def dies(x):
        if dist.get_rank() == 1:
            os.kill(os.getpid(), 9)
        dist.all_reduce(x)

    def raises(x):
        if dist.get_rank() == 1:
            raise ValueError("no")
        dist.all_reduce(x)
"""
TESTS = """
    import pytest, torch
    import collectives

    def inputs(probe, ranks=3):
        return [probe.tensor((64,), "float32") for _ in range(ranks)]

    @pytest.mark.parametrize("function", [collectives.mine, collectives.by_hand])
    def test_right(probe, function):
        found = probe.check_collective(function, reference="sum", inputs=inputs(probe), ranks=3)
        assert len(found) == 3

    @pytest.mark.parametrize("name", ["without_the_last", "dies", "raises"])
    def test_wrong(probe, name):
        probe.check_collective(getattr(collectives, name), reference="sum", inputs=inputs(probe))

    def test_again(probe):
        probe.check_collective(collectives.mine, reference="sum", inputs=inputs(probe))

    def test_local(probe):
        probe.check_collective(lambda x: x, reference="sum", inputs=inputs(probe))

    def test_number(probe):
        probe.check_collective(collectives.mine, reference="sum", inputs=inputs(probe), ranks=4)
"""


@pytest.mark.usefixtures("forked")
def test_collectives_of_the_users_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(collectives=COLLECTIVES, test_mine=TESTS)
    result = pytester.runpytest_subprocess("--probe-timeout=600", "-rf", "-p", "no:randomly", "-vv")
    result.assert_outcomes(passed=3, failed=5)
    text = said(result)
    for words in (
        "the contribution of rank 2 is missing",
        "rank 1 of 3 died: signal 9 (SIGKILL)",
        "rank 1 of 3 raised ValueError: no",
        "in raises",
        "give a function that stands in a module by itself",
        "give one for each of 4 ranks",
    ):
        assert words in text
