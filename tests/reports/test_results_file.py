from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.features.html.collected import Collected
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import Element, Metric, Outcome, OutputVerdict, Verdict
from pytest_probe.plugin import junit
from pytest_probe.reports.answers import Answers
from pytest_probe.reports.case_metrics import metrics_of
from pytest_probe.reports.results_file import (
    UNWRITTEN,
    ResultsWriter,
    lines_of,
    read_results,
    results_in,
    written,
)
from pytest_probe.reports.tally import Tally
from tests.support.structs import FLOATS, filled, values, written_plainly


def output(verdict: Outcome = "pass", **metrics: Metric) -> OutputVerdict:
    return OutputVerdict("output.0", (2,), "float32", verdict, "noise", metrics=metrics)


def outcome(verdict: Outcome = "pass", *outputs: OutputVerdict, api: str = "Torch.add", kind: str = "") -> Result:
    judged = Verdict(verdict, "auto", "why", kind, "float32", outputs)
    named = PortableId("dump.json", f"{api}.0.forward")
    return Result.of(judged, named, api=api, direction="forward", dtype="", device="cpu", duration=0.25)


@pytest.mark.parametrize(
    ("label", "name", "call", "direction", "dtype", "compiler"),
    [
        ("dump.json", "Torch.add.0.forward", "Torch.add.0", "forward", "", ""),
        ("a/dump.json", "Torch.add.0.forward[bfloat16]", "Torch.add.0", "forward", "bfloat16", ""),
        ("dump.json", "add.0.forward[bfloat16][npu-jit]", "add.0", "forward", "bfloat16", "npu-jit"),
        ("test_x.py", "test_gelu[64]::gelu.0.backward", "test_gelu[64]::gelu.0", "backward", "", ""),
        ("test_x.py", "test_gelu[64]::gelu.0.forward[inductor]", "test_gelu[64]::gelu.0", "forward", "", "inductor"),
        ("dump.json", "(damaged)", "", "(damaged)", "", ""),
    ],
)
def test_portable_ids(label: str, name: str, call: str, direction: str, dtype: str, compiler: str) -> None:
    found = PortableId.parse(f"{label}::{name}")
    assert str(found) == f"{label}::{name}"
    assert (found.label, found.name, found.call, found.direction) == (label, name, call, direction)
    assert (found.dtype, found.compiler) == (dtype, compiler)


def test_a_result_is_builtins_only() -> None:
    element = Element((np.int64(1),), np.float32(0.5), "1+2j", math.inf, math.nan)  # type: ignore[arg-type]
    metrics: dict[str, Any] = {"noise_ratio": math.nan, "right": np.bool_(True)}
    judged = OutputVerdict("grad.input.0", (2,), "float32", "error", "noise", "far off", metrics, (element,))
    kept = outcome("error", judged)
    found = msgspec.to_builtins(kept)
    assert msgspec.convert(json.loads(json.dumps(found, allow_nan=False)), Result) == kept
    assert json.loads(msgspec.json.encode(kept))["outputs"] == [
        {
            "name": "grad.input.0",
            "shape": [2],
            "dtype": "float32",
            "verdict": "error",
            "standard": "noise",
            "reason": "far off",
            "metrics": {"noise_ratio": "nan", "right": True},
            "worst": [{"index": [1], "actual": 0.5, "expected": "1+2j", "ulp": "inf", "ratio": "nan"}],
        }
    ]


def test_properties_hold_the_worst_of_all_outputs() -> None:
    found = dict(junit.properties(outcome("pass", output(max_ulp=1.0, noise_ratio=2.0), output(max_ulp=3.0), output())))
    assert (found["probe.max_ulp"], found["probe.noise_ratio"]) == (3.0, 2.0)
    assert "probe.max_abs" not in found
    worst = dict(junit.properties(outcome("error", output(max_ulp=5.0), output(max_ulp=math.nan))))
    assert worst["probe.max_ulp"] == "nan"


def test_tally_ranks_apis_by_noise_ratio() -> None:
    tally = Tally()
    tally.add(outcome("pass", output(noise_ratio=3.0, noise_ratio_limit=64.0, max_ulp=7.0), api="Torch.add"))
    tally.add(outcome("error", output(noise_ratio=2.0, noise_ratio_limit=16.0, max_ulp=9.0), api="Torch.add"))
    tally.add(outcome("error", output(noise_ratio=math.nan), api="Torch.mul"))
    tally.add(outcome("pass", output(noise_ratio=0.0), api="Torch.neg"))
    tally.add(outcome("skip", api="Torch.load", kind="outside the allow-list"))
    assert dict(tally.verdicts) == {"pass": 2, "error": 2, "skip": 1}
    assert dict(tally.skips) == {"outside the allow-list": 1}
    first, second = tally.ranking(10)  # what has no ratio takes no place
    assert first.api == "Torch.mul"
    found = (second.api, second.ratio, second.limit, second.ulp, second.verdict)
    assert found == ("Torch.add", 3.0, 64.0, 9.0, "error")


def test_writer_flushes_every_line_and_completes_the_run(tmp_path: Path) -> None:
    writer = ResultsWriter(tmp_path / "deep/out", {"seed": 3})
    writer.write(lines_of([outcome()]))
    lines = (tmp_path / "deep/out/results.jsonl").read_text().splitlines()
    assert [msgspec.json.decode(line, type=Result) for line in lines] == [outcome()]
    assert json.loads((tmp_path / "deep/out/run.json").read_text()) == {"schema": 2, "seed": 3}
    writer.close(finished="now")
    assert json.loads((tmp_path / "deep/out/run.json").read_text()) == {"schema": 2, "seed": 3, "finished": "now"}


@pytest.mark.parametrize("number", FLOATS)
def test_any_number_in_each_field_is_written_and_read(number: float) -> None:
    """JSON has no numbers for what is not finite; what reads another file of the run reads the same."""
    given = filled(Result, number)
    line, kept = written(given)
    assert kept is given
    json.loads(line, parse_constant=pytest.fail)
    (found,) = results_in(line)
    assert written_plainly(found) == written_plainly(given)
    assert repr(found.duration) == repr(number)
    assert found.time is not None
    assert repr(found.time.median_us) == repr(number)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
@given(values(Result))
def test_any_result_is_written_read_and_counted(given: Result) -> None:
    line, kept = written(given)
    (found,) = results_in(line)
    assert kept is given
    assert written_plainly(found) == written_plainly(given)
    tally, page, answers = Tally(), Collected(), Answers()
    tally.add(found)
    page.add(found)
    answers.add(found)
    assert bool([*answers.lines(80)]) == bool(found.answers)
    assert sum(tally.verdicts.values()) == len(page.rows) == 1
    assert "probe.verdict" in dict(junit.properties(found))
    assert "duration" in dict(metrics_of(found))


@pytest.mark.parametrize(
    ("field", "value"),
    [("reason", "\ud800"), ("duration", np.float32(1)), ("duration", "soon"), ("verdict", "maybe"), ("notes", [{1}])],
)
def test_what_cannot_be_written_is_an_error_of_that_case(field: str, value: Any) -> None:
    good = outcome()
    first, second = results_in(lines_of([replace(good, **{field: value}), good]))
    assert second == good
    assert (first.id, first.api, first.verdict, first.kind) == (good.id, good.api, "error", UNWRITTEN)
    assert first.reason.startswith("the result cannot be written: ")


def test_writer_takes_a_folder_without_results_only(tmp_path: Path) -> None:
    ResultsWriter(tmp_path, {}).close()
    writer = ResultsWriter(tmp_path, {})
    writer.write(lines_of([outcome()]))
    writer.close()
    with pytest.raises(SettingsError, match=r"it holds results\.jsonl of another run; give a new folder"):
        ResultsWriter(tmp_path, {})


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("verdict", "fine", "Invalid enum value 'fine' - at `$.verdict`"),
        ("outputs", [{"name": 3}], "Expected `str`, got `int` - at `$.outputs[0].name`"),
        ("notes", None, "Expected `array`, got `null` - at `$.notes`"),
    ],
)
def test_a_line_that_is_no_result_is_named(tmp_path: Path, field: str, value: object, problem: str) -> None:
    good = msgspec.json.encode(outcome())
    bad = msgspec.json.encode({**json.loads(good), field: value})
    (tmp_path / "results.jsonl").write_bytes(good + b"\n" + bad + b"\n" + b"cut off")
    with pytest.raises(ResultsError, match=re.escape(f"results.jsonl:2: pytest-probe does not write this: {problem}")):
        list(read_results(tmp_path / "results.jsonl"))
