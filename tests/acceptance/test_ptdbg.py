"""Dumps of ptdbg and of the api_accuracy_checker of 2023 in a run: items, skips, and what is damaged."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.support.other_plugins import Ran
from tests.support.ptdbg_dumps import stack, unpack, unpack_checker, values, write

X = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32)


def run(pytester: pytest.Pytester, path: Path, *args: str) -> Ran:
    result = pytester.runpytest(f"--probe-dump={path}", "--probe-out=out", "--probe-device=cpu", *args)
    for line in (*result.outlines, *result.errlines):
        assert not line.startswith(("E   ", "INTERNALERROR", "Traceback"))
    return Ran(result, pytester.path)


def test_dumps_of_ptdbg_pass(pytester: pytest.Pytester) -> None:
    unpack("v2.3-all", pytester.path / "old")
    unpack("v4-all", pytester.path / "new")
    unpack_checker(pytester.path / "checker")
    found = run(pytester, pytester.path, "-n1")
    found.result.assert_outcomes(passed=28 + 26 + 2 * 29, skipped=2)
    assert Counter(row["kind"] for row in found.rows) == {"": 112, "in-place input stored after the call": 2}
    lines = found.result.outlines
    assert any("29 forward, 19 backward; 151 lines of values, 0 of stacks" in line for line in lines)


def test_what_a_dump_of_ptdbg_lacks_costs_no_other_record(pytester: pytest.Pytester) -> None:
    """A damaged line, lines without tensors, a pickle; gradients alone are no items. A wrong device fails, and what was
    supposed is said."""
    pytester.makeconftest(
        """
        import torch

        def pytest_probe_register(registry):
            registry.calls["Torch.sum"] = lambda *args, **kwargs: torch.sum(*args, **kwargs) * 1.001
        """
    )
    summed = stack("Torch_sum_0_forward", ("/me.py", 7, "f", "s"))
    write(pytester.path / "summed", values("Torch_sum_0", [X], X.sum(1)), summed)
    calls = {key: value for n in range(3) for key, value in values(f"Torch_neg_{n}", [X], -X).items()}
    path = write(pytester.path / "damaged", calls, "oops", '["Torch_neg_1_forward_input.1", 2]')
    write(pytester.path / "stacks", {}, stack("Torch_neg_0_forward"), stack("Torch_neg_1_forward"), stored=False)
    (pytester.path / "dump.pkl").write_bytes(pickle.dumps({"a": print}))
    unpack("v2.3-backward", pytester.path / "gradients")
    dumps = [f"--probe-dump={name}" for name in ("stacks", "dump.pkl", "gradients", "summed")]
    found = run(pytester, path, *dumps)
    found.result.assert_outcomes(passed=2, skipped=3, failed=3)
    told = {row["id"]: row for row in found.rows}
    assert told["damaged/dump.pkl::(damaged)"]["reason"].startswith(
        f"{path}: line 7: found 'oops', expected a JSON array of 6 elements"
    )
    reason = told["damaged/dump.pkl::Torch.neg.1.forward"]["reason"]
    assert reason.startswith(f"{path}: Torch.neg.1.forward: line 8: found 2 elements")
    assert {row["kind"] for name, row in told.items() if name.startswith("stacks")} == {"no tensors"}
    assert "probe: stacks/dump.pkl: holds no tensors: all its lines are stacks" in found.result.outlines
    (pickled,) = (row["reason"] for row in found.rows if "is a pickle" in row["reason"])
    assert "is a pickle, which is never unpickled" in pickled
    text = " ".join(" ".join(line.split()) for line in found.result.outlines)
    assert "note: only positional arguments were recorded: run with dim=1, which was not recorded and gives" in text
    assert "called at /me.py:7 in f: s" in text
    line = next(line for line in found.result.outlines if "no items: " in line)
    assert line.endswith("no items: 19 backward entries, of the last autograd node: compared and not replayed")


def test_other_ways_to_look_at_a_dump(pytester: pytest.Pytester) -> None:
    """Time alone, --probe-unique, shards and another dtype go the same way."""
    path = unpack("v4-all", pytester.path)
    ways = ("--probe-unique", "--probe-shard=1/1", "--probe-dtype=recorded,bfloat16", "--probe-inputs=generated")
    result = pytester.runpytest(f"--probe-dump={path}", "--probe-device=cpu", *ways)
    # torch's own batch_norm rounds inside in 16 bit.
    assert result.parseoutcomes() == {"passed": 51, "warned": 1, "skipped": 1}
    result = pytester.runpytest(
        f"--probe-dump={path}", "--probe-device=cpu", "--probe-mode=time", "--probe-api=Torch.*"
    )
    assert result.parseoutcomes().keys() == {"passed"}
