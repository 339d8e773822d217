"""probe.check(..., against=...): a test's two functions."""

from __future__ import annotations

import pytest

TEST = """
from tests.support import two_calls

def test_it(probe):
    inputs = [probe.tensor((32, 128), "{dtype}"), [128], probe.tensor(128, "{dtype}"), 1e-6]
    verdicts = probe.check(
        two_calls.{a}, reference=two_calls.rms_norm, inputs=inputs, against=two_calls.{b}, backward=True
    )
    for output in verdicts[0].outputs:
        print(sorted(output.metrics))
    print(*(note for verdict in verdicts for note in verdict.notes), sep="\\n")
"""


def run(pytester: pytest.Pytester, a: str, b: str, dtype: str = "bfloat16") -> pytest.RunResult:
    pytester.makepyfile(TEST.format(a=a, b=b, dtype=dtype))
    return pytester.runpytest("-s")


def test_both_are_judged_and_their_difference_has_a_name(pytester: pytest.Pytester) -> None:
    result = run(pytester, "cast_last", "cast_before_weight")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "*'cosine'*'difference'*'equal_bits'*",
            "rounding, against cast_before_weight; *; as by one rounding more in bfloat16 (B)",
            "rounding, against *grad.input.2 as by two roundings more in bfloat16 (B)",
        ]
    )


def test_equal_functions_are_equal(pytester: pytest.Pytester) -> None:
    result = run(pytester, "cast_last", "cast_last")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["equal, against cast_last*"])


@pytest.mark.parametrize(("side", "dtype"), [("B", "bfloat16"), ("A", "float32")])
def test_the_wrong_side_is_named(pytester: pytest.Pytester, side: str, dtype: str) -> None:
    a, b = ("cast_last", "wrong_eps")[:: 1 if side == "B" else -1]
    result = run(pytester, a, b, dtype)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*output.0*error (noise): * {side}:*", f"*note: own error of {side}, against {b}; *"])
