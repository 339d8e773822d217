from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_probe.features.shard.cli import names, run_of


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("dump.json::Torch.add.0.forward", ("dump.json", "Torch.add.0.forward")),
        ("runs/a/dump.json::Torch.add.0.forward[float16]", ("runs.a.dump.json", "Torch.add.0.forward[float16]")),
        ("tests/test_own.py::Group::test_gelu[a::b/c]", ("tests.test_own.Group", "test_gelu[a::b/c]")),
        ("run.zip::step0/dump.json::Torch.add.0.forward", ("run.zip.step0/dump.json", "Torch.add.0.forward")),
    ],
)
def test_names_are_pytests(node: str, expected: tuple[str, str]) -> None:
    assert names(node) == expected


@pytest.mark.parametrize(("statuses", "merged"), [([5, 5], 5), ([5, 0], 0), ([5, 1], 1), ([None, 5], 5), ([None], 0)])
def test_shards_of_which_none_had_an_item_are_no_success(statuses: list[int | None], merged: int) -> None:
    facts: dict[str, Any] = {"devices": [], "without_result": [], "settings": {}, "identity": {}}
    facts |= {"started": "", "not_run": 0}
    shards: Any = [
        SimpleNamespace(run=SimpleNamespace(exit_status=status, finished="", **facts), whole={}, name=str(place))
        for place, status in enumerate(statuses)
    ]
    assert run_of(shards, [])["exit_status"] == merged
