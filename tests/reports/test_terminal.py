from __future__ import annotations

import math
from pathlib import Path

import pytest
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion

from pytest_probe.model.dump import Dump, Frame, Record
from pytest_probe.model.verdict import ArgumentRow, Diagnosis, Element, Metric, OutputVerdict, Verdict
from pytest_probe.reports.tally import Tally
from pytest_probe.reports.terminal import WIDTH, failure, header, sampled_line, summary_lines
from tests.reports.test_results_file import outcome, output


def dump(**skipped: int) -> Dump:
    record = Record("Torch.add.0", "Torch", "add", 0, b"")
    return Dump(
        Path("dump.json"), "pytorch", "statistics", "mix", (record,), decode=lambda record: NotImplemented,
        stack=lambda entry: (), notes=("unknown top-level key 'x'",), skipped=skipped,
    )  # fmt: skip


def test_header() -> None:
    held = dump(**{"Module entries": 2, "Cell entries": 1})
    found = header(["cpu", "seed 0"], "standard noise", [("rank0/dump.json", held)])
    assert found == [
        "probe: cpu, seed 0",
        "probe: standard noise",
        "probe: rank0/dump.json: 1 record (pytorch, statistics, mix); no items: 2 Module entries, 1 Cell entry",
        "probe: rank0/dump.json: unknown top-level key 'x'",
    ]


def test_what_is_sampled() -> None:
    assert sampled_line(1, 2e10) == (
        "probe: 1 case takes more than 2e+10 float64 operations (--probe-flops): judged by samples"
    )
    assert sampled_line(1200, 4e5).startswith("probe: 1,200 cases take more than 4e+05 ")


def test_failure() -> None:
    worst = (Element((1, 2), 0.75, 0.25, 4096.0, 512.0), Element((0, 0), "1+2j", math.inf, math.inf, math.nan))
    limit: dict[str, Metric] = {"noise_ratio_limit": 64.0}
    outputs = (
        OutputVerdict("output.0", (2, 3), "float32", "error", "noise", "noise ratio 512 (limit 64)", limit, worst),
        OutputVerdict("output.1", (), "int64", "pass", "exact"),
    )
    arguments = (ArgumentRow("input.0", (2, 3), "float32", "-1 .. 1"), ArgumentRow("p", None, "float", "0.5"))
    text = failure(
        Verdict("error", "auto", dtype="float32", outputs=outputs, arguments=arguments, notes=("fan-in assumed",)),
        name="Torch.add.0.forward",
        device="cuda:0",
        frame=Frame("train.py", 12, "step", "y = x + 1"),
        saved="out/saved/x.pt",
        command="pytest 'dump.json::Torch.add.0.forward'",
    )
    assert text.splitlines() == [
        "Torch.add.0.forward in float32 on cuda:0: error",
        "",
        "output.0 [2, 3] float32: error (noise): off by 0.5, allowed 0.063; noise ratio",
        "  512 (limit 64)",
        "  (noise ratio: the error less the output's own rounding, divided by what",
        "    rounding inside explains)",
        "  index                         actual          expected      ratio        ULP",
        "  [1, 2]                          0.75              0.25        512       4096",
        "  [0, 0]                          1+2j               inf        nan        inf",
        "",
        "  input.0  [2, 3]  float32  -1 .. 1",
        "  p                float    0.5",
        "note: fan-in assumed",
        "",
        "called at train.py:12 in step: y = x + 1",
        "saved in out/saved/x.pt; the .py next to it makes the call with the framework alone",
        "to reproduce: pytest 'dump.json::Torch.add.0.forward'",
    ]


def test_wide_terminals_have_wide_lines_and_a_cause_ends_the_search() -> None:
    found = Diagnosis(8, 8, {}, "", "everywhere", "all times 2", "factor", quick=True)
    failed = OutputVerdict("output.0", (8,), "float32", "error", "noise", "word " * 40, diagnosis=found)
    verdict = Verdict("error", "auto", outputs=(failed,))
    text = failure(verdict, name="x", device="cpu", frame=None, saved="", command="", width=200)
    assert max(map(len, text.splitlines())) > 190
    assert "further runs" not in text
    nothing = replace(verdict, outputs=(replace(failed, diagnosis=replace(found, cause="")),))
    assert "further runs" in failure(nothing, name="x", device="cpu", frame=None, saved="", command="")


def test_more_than_ten_arguments_are_folded() -> None:
    arguments = tuple(ArgumentRow(f"input.0.{place}", (2,), "float32", "-1 .. 1") for place in range(12))
    verdict = Verdict("error", "auto", "why", arguments=arguments)
    shown = [
        failure(verdict, name="x", device="cpu", frame=None, saved="", command="", whole=whole)
        for whole in (False, True)
    ]
    assert shown[0].splitlines()[-2:] == ["  input.0.9  [2]  float32  -1 .. 1", "  and 2 more arguments, with -vv"]
    assert shown[1].splitlines()[-1] == "  input.0.11  [2]  float32  -1 .. 1"
    ten = failure(
        replace(verdict, arguments=arguments[:10]),
        name="x", device="cpu", frame=None, saved="", command="",
    )  # fmt: skip
    assert ten.splitlines()[-1] == "  input.0.9  [2]  float32  -1 .. 1"


def test_a_diagnosis(snapshot: SnapshotAssertion) -> None:
    worst = tuple(Element((31, place), 1.5 + place, 0.25, 4096.0, 512.0) for place in range(5))
    found = Diagnosis(
        wrong=64,
        size=2048,
        not_finite={"NaN": (3, 0), "inf": (0, 2)},
        errors="<= 0.5 █▂▁        ▁▁▁▁▂ not finite ULP",
        where="last row 31 of dim 0",
        cause="stale: index 31 of dim 0 equals index 30",
        family="moved",
    )
    reason = "noise ratio 1.407e+08 (limit 16), RMS noise ratio 5.941e+06 (limit 2.31)"
    failed = OutputVerdict("output.0", (32, 64), "float32", "error", "noise", reason, {}, worst, diagnosis=found)
    few = replace(found, wrong=1, size=1, not_finite={}, where="element []", cause="", errors="")
    small = replace(failed, name="output.1", shape=(), worst=worst[:1], diagnosis=few)
    large = replace(failed, name="output.2", metrics={"sampled": 0.1}, diagnosis=replace(found, where="", cause=""))
    verdict = Verdict("error", "auto", dtype="float32", outputs=(failed, small, large), replaced="kernels.gelu")
    text = failure(verdict, name="Functional.gelu.0.forward", device="cpu", frame=None, saved="", command="pytest x")
    assert text == snapshot
    assert max(map(len, text.splitlines())) <= WIDTH


def test_a_ratio_that_is_only_known_to_be_below_the_limit_is_no_number() -> None:
    tally = Tally()
    for name, ratio, k in (("far", 62.0, 1), ("near", 3.0, 4)):
        tally.add(outcome("pass", output("pass", noise_ratio=ratio, noise_ratio_limit=64.0, k=k), api=name))
    (*_, near, far) = summary_lines(tally, not_run=0)
    assert (near.split(), far.split()) == (["near", "3", "64", "pass"], ["far", "below", "64", "pass"])


def test_summary_fits_the_screen_and_shows_ten_apis() -> None:
    tally = Tally()
    for number in range(12):
        far = output("error", noise_ratio=1.5e6 + number, noise_ratio_limit=512.0, max_ulp=1.25e38)
        tally.add(outcome("error", far, api=f"Functional.{'very_' * 8}long_name_{number}"))
    tally.add(outcome("skip", kind="no reference"))
    lines = list(summary_lines(tally, not_run=3))
    assert lines[:5] == [
        "13 cases, 12 error, 1 skip",
        "3 items did not run",
        "skipped:",
        "       1  no reference",
        "worst APIs by noise ratio                     ratio    limit    max ULP",
    ]
    assert lines[5] == "Functional.very_very_very_very_very_v...    1.5e+06      512   1.25e+38   error"
    assert len(lines) == 15
    assert max(map(len, lines)) <= WIDTH


def test_undecided_cases_have_a_line_of_their_own() -> None:
    tally = Tally()
    for reason in ("undecided: 3 of 100 elements could be judged", "beyond msprobe's table"):
        tally.add(outcome("warning", replace(output("warning"), reason=reason)))
    lines = list(summary_lines(tally, not_run=0))
    assert lines[:2] == ["2 cases, 2 warning", "1 case undecided: elements of an output could not be judged"]


@pytest.mark.parametrize("width", [70, 80, 120])
def test_the_summary_keeps_to_the_width(width: int) -> None:
    tally = Tally()
    reason = "beyond msprobe's table: " + 30 * "many words "
    metrics: dict[str, Metric] = {"noise_ratio": 3.0, "noise_ratio_limit": 4.0, "max_ulp": 2.0}
    verdict = OutputVerdict("output.0", (100,), "float32", "warning", "noise", reason, metrics)
    tally.add(replace(outcome("warning", verdict), reason=reason))
    kind = "a kind of skip of many words that goes on behind the end of a narrow terminal"
    tally.add(replace(outcome("skip"), kind=kind))
    lines = list(summary_lines(tally, not_run=0, width=width))
    assert max(map(len, lines)) <= width
    # As much on a line as goes there.
    assert max(len(line) for line in lines if "many words many" in line) > width - 12
