from __future__ import annotations

import json
from pathlib import Path

import msgspec

from pytest_probe.features.against_call.report import Bits, FrameworkReport
from pytest_probe.model.pairing import Paired
from pytest_probe.model.result import OutputResult, Plain, Result


def result(direction: str, *, equal: float = 1.0, ulp: float = 0.0, nearer: str = "", verdict: str = "pass") -> Result:
    metrics: dict[str, Plain] = {"equal_bits": equal, "ulp_max": ulp, "ulp_mean": ulp * (1 - equal)}
    output = OutputResult("output.0", (10,), "float32", "pass", "noise", "", metrics, ())
    against = Paired("equal" if equal == 1 else "rounding", nearer=nearer, difference="as by one rounding more (B)")
    return Result(
        "d::F.softmax.0.x", "F.softmax", direction, "float32", "cpu", verdict, "noise", "", "", 0.1, (output,), (),  # type: ignore[arg-type]
        against=against,
    )  # fmt: skip


def test_a_line_an_api_says_how_many_elements_have_equal_bits() -> None:
    report = FrameworkReport()
    report.add(result("backward", equal=0.5, ulp=2.0, nearer="B"))
    report.add(result("forward"))
    report.add(result("backward", equal=0.9, ulp=1.0, nearer="B"))
    assert list(report.lines(200)) == [
        "A against B, elements with equal bits:",
        "  F.softmax float32: forward 100 %, gradient 70 %, else 2 ulp, B nearer to float64, "
        "as by one rounding more (B)",
    ]


def test_almost_all_is_not_all() -> None:
    bits = Bits()
    bits.add(result("forward", equal=0.99999, ulp=1.0))
    assert bits.words("forward").startswith("forward 99.9 %, else 1 ulp")


def test_the_mean_is_of_those_that_differ() -> None:
    bits = Bits()
    bits.add(result("forward", equal=0.5, ulp=4.0))
    bits.add(result("forward", equal=1.0))
    assert bits.share == 0.75
    assert bits.ulp_mean == 4.0


def test_what_was_not_compared_counts_apart() -> None:
    bits = Bits()
    bits.add(result("forward", verdict="skip"))
    assert (bits.cases, bits.skipped, bits.elements) == (1, 1, 0)
    assert bits.words("forward") == "forward not compared"


def test_what_is_drawn_has_no_bits_to_compare() -> None:
    bits, found = Bits(), result("forward", equal=0.5)
    assert found.against is not None
    bits.add(msgspec.structs.replace(found, against=msgspec.structs.replace(found.against, status="random")))
    assert (bits.cases, bits.skipped, bits.elements) == (1, 1, 0)


def test_the_table_is_a_csv_and_a_json_file(tmp_path: Path) -> None:
    report = FrameworkReport()
    report.add(result("forward", equal=0.5, ulp=2.0, nearer="A"))
    csv, js = report.write(tmp_path)
    names = "api,dtype,direction,cases,skipped,elements,equal_bits,ulp_max,ulp_mean,nearer,difference"
    row = "F.softmax,float32,forward,1,0,10,0.5,2.0,2.0,A,as by one rounding more (B)"
    assert csv.read_text(encoding="utf-8-sig").splitlines() == [names, row]
    content = json.loads(js.read_text())
    assert content["schema"] == 1
    assert content["apis"][0]["equal_bits"] == 0.5
    assert ",".join(content["apis"][0]) == names


def test_what_is_wrong_with_a_dump_is_no_case() -> None:
    report = FrameworkReport()
    report.add(result("", verdict="error"))
    assert (list(report.lines(200)), list(report.table())) == ([], [])
