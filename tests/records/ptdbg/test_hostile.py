"""Whatever a line holds, the records of the other lines are read, and nothing raises but a RecordError."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_probe.errors import RecordError
from pytest_probe.model.dump import Dump
from pytest_probe.records import read_dump
from tests.support.ptdbg_dumps import line, values

GOOD = values("Torch_relu_0", [np.ones(3, np.float32), 2], np.ones(3, np.float32))
NAMES = [
    f"{stem}_{part}"
    for stem in ("Torch_relu_0_forward", "Torch_neg_1_forward", "Torch_neg_1_backward")
    for part in ("input.1", "input.0.1", "output", "output.7", "stack_info", "input..", "x")
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from([*NAMES, "torch.float32", "torch.bool", "torch.int64", "<class 'int'>", "[]", "Nan"]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
LINES = st.tuples(
    st.sampled_from(NAMES), VALUES, VALUES, st.sampled_from(["torch.float32", "<class 'int'>"]) | VALUES,
    st.just([3]) | VALUES, st.just([1.0, 2.0, 3.0]) | VALUES,
)  # fmt: skip
TRIES = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(folder: Path, *others: bytes) -> Dump:
    path = folder / "dump.pkl"
    lines = [line(name, value).encode() for name, value in GOOD.items()]
    path.write_bytes(b"\n".join([lines[0], *others, *lines[1:]]))
    dump = read_dump(path)
    for record in dump.records:
        for entry in ("forward", "backward"):
            dump.stack(f"{record.name}.{entry}")
        with suppress(RecordError):
            dump.gradients(record)
        if record.forward is not None:
            with suppress(RecordError):
                dump.decode(record)
    return dump


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dump").mkdir()
    return tmp_path


@TRIES
@given(st.lists(st.binary(max_size=60) | st.sampled_from([name.encode() for name in NAMES]), max_size=4))
def test_any_bytes(folder: Path, others: list[bytes]) -> None:
    dump = read(folder, *others)
    assert dump.records[0].name == "Torch.relu.0"
    assert len(dump.decode(dump.records[0]).args) == 2
    blank = all(not part.strip(b" \t\n\r\x0b\x0c") for other in others for part in other.split(b"\n"))
    assert bool(dump.damage) != blank


@TRIES
@given(st.lists(LINES, min_size=1, max_size=4), st.booleans())
def test_any_elements(folder: Path, others: list[tuple[Any, ...]], short: bool) -> None:
    lines = [json.dumps(list(other)[: 2 if short else 6]).encode("utf-8", "replace") for other in others]
    dump = read(folder, *lines)
    assert dump.records[0].name == "Torch.relu.0"
