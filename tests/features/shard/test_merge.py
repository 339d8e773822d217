from __future__ import annotations

import pytest

from pytest_probe.features.shard.merge import names


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
