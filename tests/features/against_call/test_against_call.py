"""--probe-against-call: recorded calls by two implementations, on the CPU and on a device of another name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import DumpMaker, forward, tensor
from tests.support.other_plugins import junit_of
from tests.support.running import by_case
from tests.support.two_calls import write_records

CONFTEST = """
from tests.support import devices, two_calls

def pytest_probe_register(registry):
    registry.devices["other"] = devices.Emulated
    registry.calls["Engine.swiglu"] = two_calls.fused_swiglu
    registry.references.update({
        "Engine.swiglu": two_calls.swiglu,
        "Functional.rms_norm": two_calls.rms_norm,
        "Functional.scaled_dot_product_attention": two_calls.attention,
    })
"""
ENGINE = """
from tests.support import two_calls

def pytest_probe_register(registry):
    registry.calls.update({
        "Engine.swiglu": two_calls.swiglu,
        "Functional.rms_norm": two_calls.RMS_NORM,
        "Functional.scaled_dot_product_attention": two_calls.attention,
    })
"""
RMS_NORM, ATTENTION = "Functional.rms_norm", "Functional.scaled_dot_product_attention"


def run(pytester: pytest.Pytester, *args: str, norm: str = "cast_before_weight") -> tuple[pytest.RunResult, Any]:
    """A run, and its results by the names of items."""
    pytester.makeconftest(CONFTEST)
    Path("engine.py").write_text(ENGINE.replace("RMS_NORM", norm))
    write_records(Path("dump"))
    result = pytester.runpytest("--probe-dump=dump", "--probe-against-call=engine.py", "--probe-out=out", *args)
    return result, by_case()


def differences(found: Any, name: str) -> dict[str, str]:
    """By the names of outputs."""
    return {output["name"]: output["metrics"].get("difference", "") for output in found[name]["outputs"]}


def test_the_difference_has_a_name_and_both_are_right(pytester: pytest.Pytester) -> None:
    result, found = run(pytester, "--probe-device=other", "--junitxml=junit.xml")
    result.assert_outcomes(passed=12)  # an API that the module does not have is not selected
    once, twice = "as by one rounding more in bfloat16 (B)", "as by two roundings more in bfloat16 (B)"
    assert differences(found, f"{RMS_NORM}.0.forward") == {"output.0": once}
    assert differences(found, f"{RMS_NORM}.0.backward") == {"grad.input.0": once, "grad.input.2": twice}
    assert differences(found, "Engine.swiglu.0.forward") == {"output.0": once}
    assert differences(found, "Engine.swiglu.0.backward") == {"grad.input.0": once, "grad.input.1": once}
    assert differences(found, f"{ATTENTION}.0.forward") == {"output.0": twice}
    of_attention = differences(found, f"{ATTENTION}.0.backward")
    assert of_attention["grad.input.2"] == twice
    assert set(of_attention.values()) <= {twice, "as by roundings between its steps in bfloat16 (B)"}
    for name in (f"{RMS_NORM}.1.forward", f"{RMS_NORM}.1.backward", "Engine.swiglu.1.forward"):
        assert found[name]["outputs"][0]["metrics"]["equal_bits"] == 1 or not any(differences(found, name).values())
    assert {each["answers"][0]["pair"]["status"] for each in found.values()} == {"equal", "rounding"}
    # The numbers of both sides.
    (output,) = found[f"{RMS_NORM}.0.forward"]["outputs"]
    names = {"equal_bits", "ulp_max", "ulp_mean", "ulp_p99", "relative_rmse", "snr_db", "cosine", "noise_ratio"}
    assert names <= output["metrics"].keys()
    assert output["metrics"]["ulp_max"] == 1
    paired = found[f"{RMS_NORM}.0.forward"]["answers"][0]["pair"]
    assert (paired["nearer"], paired["other"]) == ("A", "tests.support.two_calls.cast_before_weight")
    assert paired["noise_a"] < paired["noise_b"]
    properties = [pair for case in junit_of(Path("junit.xml")) for pair in case.properties.items()]
    assert ("probe.difference", once) in properties
    assert ("probe.against", "rounding") in properties
    words = "  Functional.rms_norm bfloat16 forward: rounding; equal bits 7* %; ulp max 1;*"
    result.stdout.fnmatch_lines(["A against B, 12 cases: * rounding; equal bits * %; ulp max *", words])


def test_a_wrong_side_is_named(pytester: pytest.Pytester) -> None:
    result, found = run(pytester, norm="wrong_eps")
    wrong = [name for name, each in found.items() if each["verdict"] == "error"]
    assert set(wrong) == {f"{RMS_NORM}.{call}.{way}" for call in (0, 1) for way in ("forward", "backward")}
    for name in wrong:
        assert found[name]["answers"][0]["pair"]["suspect"] == "B"
        assert found[name]["answers"][0]["pair"]["status"] == "own"
        assert found[name]["reason"].startswith("own error of B: ")
    result.assert_outcomes(passed=8, failed=4)
    result.stdout.fnmatch_lines(["A against B, 12 cases: * 4 own error of B, *"])


def test_a_side_without_a_kernel_leaves_nothing_to_compare(pytester: pytest.Pytester) -> None:
    result, found = run(pytester, "-k", "rms_norm.0.forward", norm="no_kernel")
    result.assert_outcomes(skipped=1)
    assert found[f"{RMS_NORM}.0.forward"]["reason"].startswith("B: ")


def test_records_that_are_alike_are_said(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(data={f"Functional.relu.{number}.forward": forward(tensor(4), output=tensor(4)) for number in (0, 1)})
    Path("engine.py").write_text(
        "import torch\ndef pytest_probe_register(registry):\n    registry.calls['Functional.relu'] = torch.relu\n"
    )
    options = ("--probe-dump=dump.json", "--probe-against-call=engine.py", "--probe-unique", "--probe-out=out")
    pytester.runpytest(*options).assert_outcomes(passed=1, deselected=1)
    (result,) = by_case().values()
    assert result["notes"][-1] == "+1 alike, with Max and Min of all of them"
