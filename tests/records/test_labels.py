from __future__ import annotations

from pathlib import Path

import pytest

from pytest_probe.records import labels


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["/a/b/dump.json"], ["dump.json"]),
        (["/a/one.json", "/a/two.json"], ["one.json", "two.json"]),
        (["/a/dump.json", "/b/dump.json"], ["a/dump.json", "b/dump.json"]),
        (
            ["/a/step0/dump.json", "/b/step0/dump.json", "/b/x.json"],
            ["a/step0/dump.json", "b/step0/dump.json", "x.json"],
        ),
        (["/x/dump.json", "/y/x/dump.json"], ["x/dump.json", "y/x/dump.json"]),
        (
            ["/a/step0/proc77/dump.json", "/a/step1/proc77/dump.json"],
            ["step0/rank0/dump.json", "step1/rank0/dump.json"],
        ),
        (["/a/proc77/dump.json"], ["dump.json"]),
        (["/a/proc100/dump.json", "/a/proc9/dump.json"], ["proc1/dump.json", "proc0/dump.json"]),
        (["/a/rank0/dump.json", "/a/rank1/dump.json"], ["rank0/dump.json", "rank1/dump.json"]),
        ([], []),
    ],
)
def test_a_label_is_the_shortest_tail_that_no_other_has(paths: list[str], expected: list[str]) -> None:
    assert labels([Path(path) for path in paths]) == dict(zip(map(Path, paths), expected, strict=True))


def test_two_ways_to_one_file_have_one_label() -> None:
    assert labels([Path("a/dump.json"), Path("a/../a/dump.json")]) == {
        Path("a/dump.json"): "dump.json",
        Path("a/../a/dump.json"): "dump.json",
    }
