"""probe.check(..., against=...): a test's two functions, all in one run."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.suites import Suite, suite

HEAD = "from tests.support import two_calls"
TEST = """
def test_it(probe):
    inputs = [probe.tensor((32, 128), "{dtype}"), [128], probe.tensor(128, "{dtype}"), 1e-6]
    probe.check(two_calls.{a}, reference=two_calls.rms_norm, inputs=inputs, against=two_calls.{b}, backward=True)
"""
RIGHT, WRONG = "cast_last", "wrong_eps"
CALLS: Mapping[str, tuple[str, str, str]] = {
    "unlike": (RIGHT, "cast_before_weight", "bfloat16"),
    "equal": (RIGHT, RIGHT, "bfloat16"),
    "wrong_b": (RIGHT, WRONG, "bfloat16"),
    "wrong_a": (WRONG, RIGHT, "float32"),
}


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    texts = {name: TEST.format(a=a, b=b, dtype=dtype) for name, (a, b, dtype) in CALLS.items()}
    return suite(tmp_path_factory.mktemp("checks"), HEAD, texts)


def test_both_are_judged_and_their_difference_has_a_name(checks: Suite) -> None:
    told = checks.of("unlike")
    assert told.outcomes == {"passed": 1}
    assert {"cosine", "difference", "equal_bits"} <= told.rows[0]["outputs"][0]["metrics"].keys()
    forward, backward = (row["notes"][0] for row in told.rows)
    assert forward.startswith("rounding, against cast_before_weight; ")
    assert forward.endswith("; as by one rounding more in bfloat16 (B)")
    assert "grad.input.2 as by two roundings more in bfloat16 (B)" in backward


def test_equal_functions_are_equal(checks: Suite) -> None:
    told = checks.of("equal")
    assert told.outcomes == {"passed": 1}
    assert told.rows[0]["notes"][0].startswith("equal, against cast_last")


@pytest.mark.parametrize("side", ["a", "b"])
def test_the_wrong_side_is_named(checks: Suite, side: str) -> None:
    told, name = checks.of(f"wrong_{side}"), side.upper()
    assert told.outcomes == {"failed": 1}
    told.shows(f"*output.0*error (noise): * {name}:*", f"*note: own error of {name}, against *; *")
