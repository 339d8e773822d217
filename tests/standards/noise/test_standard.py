from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_probe.model.comparison import Evidence, RunKind
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, round_to, widen
from pytest_probe.standards.noise.standard import NoiseStandard
from tests.support.asking import ONES, ULP, Given, by_noise, comparison, normal, off

FIRST = (np.arange(100) == 0) * 1.0


def test_half_an_ulp_passes_without_a_run() -> None:
    made: list[int] = []

    class Counting(Evidence):
        def runs(self, kind: RunKind, count: int) -> list[AnyArray]:
            made.append(count)
            return []

    asked = replace(comparison(ONES, ONES + ULP / 4, dtype="float32"), evidence=Counting())
    found = NoiseStandard().judge(asked)
    assert (found.verdict, found.metrics["k"], found.metrics["noise_ratio"]) == ("pass", 0, 0.0)
    assert made == []


def test_what_no_run_explains_is_an_error() -> None:
    found = by_noise(
        off(1000), ONES, runs={kind: [ONES + ULP] * 4 for kind in ("perturbed", "float32", "float32_steps")}
    )
    assert found.verdict == "error"
    assert found.reason == "noise ratio 999.5 (limit 64), RMS noise ratio 99.95 (limit 13.6)"
    assert found.metrics["noise_ratio"] == 999.5
    assert found.metrics["noise_ratio_limit"] == 64.0
    assert (found.worst[0].index, found.worst[0].ratio) == ((0,), 999.5)


def at(place: int, value: float, others: Any = ONES) -> AnyArray:
    """The others, with a value in one place."""
    return np.where(np.arange(100) == place, value, others)


def moved(*runs: Any) -> dict[str, Any]:
    return {"runs": {"perturbed": [*runs] * (4 // len(runs))}}


def beside(witness: AnyArray | None) -> dict[str, Any]:
    """Another device, and what the CPU's own kernel gives."""
    return {"on_cpu": False, "cpu_result": lambda: witness}


SIGNS = np.where(np.arange(100) % 2, 1.0, -1.0)
HALF = np.arange(100) < 50
LOST = (ONES + 5000 * ULP * SIGNS).astype(np.float32)
OVERFLOWN = at(3, np.inf, off(90)).astype(np.float32)
COMPLEX = ONES + 1j * ONES
ZEROS = np.where(HALF, 0.0, 1.0)
SQUARES = {"on_cpu": False, "runs": {"perturbed": [ONES * (1 + ULP)] * 4, "float32": [0 * ONES] * 4}}
AS_CPU = "as-cpu: the CPU's own kernel has as large an error"
# Actual, expected, what is known beside, and what an error or an explanation begins with.
WRONG: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "NaN": (at(3, np.nan), ONES, {}, "noise ratio inf (limit 64)"),
    "NaN where runs give NaN too": (at(3, np.nan), ONES, moved(at(3, np.nan)), ""),
    "a wrong number where runs give NaN": (off(1e6), ONES, moved(at(0, np.nan)), ""),
    "a number for NaN": (ONES, at(3, np.nan), moved(at(3, np.nan)), ""),
    "an infinity of the other sign than that of the runs": (at(3, -np.inf), ONES, moved(at(3, np.inf)), ""),
    "an integer": (np.array([1, 3]), np.array([1, 2]), {"dtype": "int64"}, ""),
    "one part of a complex number": (COMPLEX + 1e3j * ULP * FIRST, COMPLEX, {"dtype": "complex64"}, ""),
    "a number where no run moves zero": (np.where(HALF, 4.5e-5, ZEROS), ZEROS, moved(ZEROS * (1 + 2.0**-10)), ""),
    # Squares overflow in float32, and the norm of a row is 0: the distance of such a run is all of the reference.
    "what a run that vanished has": (0 * ONES, ONES, SQUARES, ""),
    "more than twice the witness's error": (off(181), ONES, beside(off(90).astype(np.float32)), ""),
    "the CPU itself": (off(100), ONES, {**beside(off(90).astype(np.float32)), "on_cpu": True}, ""),
    "other elements than those that the witness lost": (
        np.where(HALF, ONES, LOST), ONES, beside(np.where(HALF, LOST, ONES).astype(np.float32)), ""
    ),
    "one element beside a witness without digits": (off(5000), ONES, beside(LOST), ""),
    "a witness of another dtype": (off(100), ONES, beside(off(90).astype(np.float16)), ""),
    "a witness of NaN": (off(100), ONES, beside(np.full(100, np.nan, np.float32)), ""),
    "another element than the overflow": (at(3, np.inf, off(400)), ONES, beside(OVERFLOWN), ""),
    "a number for the overflow": (at(3, 1.01), ONES, beside(OVERFLOWN), ""),
    "NaN for the overflow": (at(3, np.nan), ONES, beside(OVERFLOWN), ""),
    "no witness": (off(1000), ONES, beside(None), ""),
}  # fmt: skip
RIGHT: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "an integer": (np.array([1, 2]), np.array([1, 2]), {"dtype": "int64"}, ""),
    "nothing": ([], [], {}, ""),
    "one part of a complex number": (COMPLEX + 2j * ULP * FIRST, COMPLEX, {"dtype": "complex64"}, ""),
    "the infinity of the runs": (at(3, np.inf), ONES, moved(at(3, np.inf)), ""),
    "zeros": (ZEROS, ZEROS, moved(ZEROS * (1 + 2.0**-10)), ""),
    "the rounding of an FFT where no run moves zero": (
        np.where(HALF, 1e-7, ZEROS), ZEROS, moved(ZEROS * (1 + 2.0**-10)), ""
    ),
    "what a run that vanished has not": (ONES, ONES, SQUARES, ""),
    "the witness's error": (off(100), ONES, beside(off(90).astype(np.float32)), f"{AS_CPU} (179)"),
    "in the same elements by twice as much": (ONES - 6000 * ULP * SIGNS, ONES, beside(LOST), AS_CPU),
    "the witness's overflow": (
        at(3, np.inf), ONES, beside(OVERFLOWN), "as-cpu: the CPU's own kernel overflows as well"
    ),
    "the witness's error beside its overflow": (at(3, np.inf, off(100)), ONES, beside(OVERFLOWN), "as-cpu"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_nothing_explains_is_an_error(name: str) -> None:
    actual, expected, known, reason = WRONG[name]
    found = by_noise(actual, expected, **known)
    assert (found.verdict, found.reason.startswith(reason)) == ("error", True), found.reason


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_explained_passes(name: str) -> None:
    actual, expected, known, reason = RIGHT[name]
    found = by_noise(actual, expected, **known)
    assert (found.verdict, found.reason.startswith(reason)) == ("pass", True), found.reason


def test_an_overflow_that_runs_have_is_counted_as_undecided_and_the_worst_element_is_shown() -> None:
    assert by_noise(at(3, np.inf), ONES, **moved(at(3, np.inf))).metrics["undecided"] == 1
    assert by_noise(at(3, np.nan), ONES).worst[0].index == (3,)


# Narrow dtypes


def test_a_shift_that_no_element_shows_is_an_error_in_16_bit() -> None:
    wanted = np.exp(normal(20_000))
    runs = {"perturbed": [wanted * (1 + 2.0**-17)]}
    assert by_noise(wanted * (1 + 2.0**-18), wanted, dtype="bfloat16", runs=runs).verdict == "pass"
    found = by_noise(wanted * (1 + 2.0**-13), wanted, dtype="bfloat16", runs=runs)
    assert float(found.metrics["noise_ratio"]) < 64
    assert found.verdict == "error"
    assert re.fullmatch(r"shifted on average by 13\.\d+ noise scales \(limit 8\), t = 19\.\d+", found.reason)


def test_a_scale_error_of_zero_mean_data_is_an_error_in_16_bit() -> None:
    wanted = normal(20_000)
    runs = {"perturbed": [wanted * (1 + 2.0**-17)]}
    found = by_noise(wanted * (1 + 2.0**-13), wanted, dtype="bfloat16", runs=runs)
    assert found.verdict == "error"
    assert found.reason.startswith("scaled on average by ")


def test_ties_that_a_kernel_rounds_twice_are_no_bias() -> None:
    """Quotients by 0.3 lie on ties of float16 by the hundred: float32 rounds to the tie, float64 does not."""
    x = np.arange(1, 4000) / 64
    wanted = x / float(np.float32(0.3))
    twice = widen(round_to(wanted, "float32"))
    assert np.count_nonzero(round_to(twice, "float16") != round_to(wanted, "float16")) > 50
    assert by_noise(twice, wanted, api="Torch.div", dtype="float16").verdict == "pass"


# Another device than the CPU


def test_nan_of_a_witness_excuses_nan_where_no_step_of_its_kernel_is_known() -> None:
    """And where its factors are so large that a product may overflow on the way."""
    actual = np.where(np.arange(100) == 3, np.nan, ONES).astype(np.float16)
    asked: Any = {"dtype": "float16", "on_cpu": False, "runs": {"narrow_steps": [ONES] * 4}}
    asked["args"] = (np.full((100, 10), 4.0, np.float16),)
    as_cpu = {**asked, "cpu_result": lambda: actual}
    assert by_noise(actual, ONES, api="Torch.prod", **as_cpu).reason.startswith("as-cpu")
    assert by_noise(actual, ONES, api="Torch.sum", **as_cpu).verdict == "error"
    assert by_noise(np.roll(actual, 1), ONES, api="Torch.prod", **as_cpu).verdict == "error"
    assert by_noise(actual, ONES, api="Torch.prod", **asked).verdict == "error"
    as_cpu["args"] = (np.ones((100, 10), np.float16),)
    assert by_noise(actual, ONES, api="Torch.prod", **as_cpu).verdict == "error"


WANTED = 1 + np.arange(200) / 256


def rounding(size: float, seed: int) -> AnyArray:
    """Errors of so many ulps, up and down alike, as rounding between kernels makes them."""
    return np.asarray(WANTED + size * 2.0**-7 * np.random.default_rng(seed).integers(-1, 2, 200))


def on_another(actual: Any, seeds: range = range(2, 7), size: float = 1.0) -> OutputVerdict:
    """A bfloat16 output of another device, where the call rounds between its kernels."""
    made = [rounding(size, seed) for seed in seeds]
    runs = {"composed_steps": made[:1], "composed_steps_moved": made[1:], "neighbours": [WANTED] * 4}
    return by_noise(actual, WANTED, dtype="bfloat16", on_cpu=False, narrow="bfloat16", runs=runs)


def test_a_device_that_rounds_between_its_kernels_passes() -> None:
    found = on_another(rounding(1.0, 1))
    assert (found.verdict, found.reason) == ("pass", "rounds between its kernels")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (rounding(1.0, 1) + 2.0**-7, "shifted on average by"),
        (rounding(4.0, 1), "RMS "),
        (rounding(1.0, 1) + 16 * 2.0**-7 * (np.arange(200) == 5), "an element is off by"),
        (WANTED + (rounding(1.0, 1) - WANTED) * np.where(np.arange(200) < 12, 3.0, 0.01), "is off "),
        (WANTED + 1.5 * 2.0**-7 * (np.arange(200) == 5), "1 of 200 elements are off by more than one rounding"),
        (np.where(np.arange(200) == 5, np.nan, WANTED), "not finite where the reference is"),
        (np.zeros(200), "RMS "),
    ],
    ids=["shifted", "too large", "one element", "one part", "one of a kernel that rounds once", "NaN", "zeros"],
)
def test_what_rounding_between_kernels_does_not_do_is_an_error(wrong: AnyArray, why: str) -> None:
    found = on_another(wrong)
    assert found.verdict == "error"
    assert why in found.reason.partition("no rounding between kernels: ")[2]


def test_a_call_that_rounds_once_is_granted_nothing() -> None:
    assert on_another(rounding(1.0, 1), size=0.0).verdict == "error"


def test_truncation_is_named() -> None:
    wanted = np.exp(normal(2000))
    cut = (wanted.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    found = by_noise(cut, wanted, dtype="bfloat16", on_cpu=False, narrow="bfloat16")
    assert found.verdict == "error"
    assert found.reason.startswith("truncates to bfloat16 where it should round: noise ratio ")
    assert by_noise(wanted, wanted, dtype="bfloat16", on_cpu=False, narrow="bfloat16").verdict == "pass"


def test_an_output_that_nobody_can_judge_is_no_pass() -> None:
    def overflown(count: int) -> OutputVerdict:
        lost = np.where(np.arange(100) < count, np.inf, ONES)
        return by_noise(lost, ONES, runs={"perturbed": [lost] * 4})

    assert overflown(50).verdict == "pass"
    found = overflown(51)
    assert found.verdict == "warning"
    assert found.reason == "undecided: 49 of 100 elements could be judged; perturbed runs overflow in the others"


def test_a_bias_that_the_steps_explain() -> None:
    """A constant rounded between two steps moves all elements alike: on the CPU, whose steps are known, all is told."""
    wanted = 1 + np.arange(100) / 128
    steps = wanted + 2.0**-7
    asked = {"dtype": "bfloat16", "narrow": True}
    runs = {"float32_steps": [wanted + 2.0**-7 / 12] * 2}
    assert by_noise(steps, wanted, runs=runs, **asked).reason.startswith("shifted on average by ")
    known = runs | {"narrow_steps": [steps]}
    assert by_noise(steps, wanted, runs=known, **asked).verdict == "pass"
    assert by_noise(steps, wanted, runs=known, on_cpu=False, **asked).verdict == "error"
    assert by_noise(steps + 2.0**-7, wanted, runs=known, **asked).verdict == "error"


class Counted(Given, frozen=True):
    """Elements are sums of so many terms, where that is asked."""

    def terms(self) -> int:
        return int(self.made["terms"][0])


@pytest.mark.parametrize(
    ("error", "moved", "terms", "outcome"),
    [(40, 0, 4096, "pass"), (70, 2, 4096, "pass"), (90, 2, 4096, "pass"), (40, 0, 1, "error"), (90, 2, 1, "error")],
)
def test_where_terms_are_counted_later_the_output_is_judged_as_with_these(
    error: int, moved: int, terms: int, outcome: str
) -> None:
    """An output that passes since it is assumed to be a sum of 16,384 terms is judged once more, with those that it
    has, as if nothing had been measured."""
    runs = [ONES + moved * ULP * (np.arange(100) == place) for place in range(4)]
    asked = replace(
        comparison(off(error), ONES, dtype="float32", terms=16_384),
        evidence=Counted({"perturbed": runs, "terms": [terms]}),
    )
    found = NoiseStandard().judge(asked)
    assert (found.verdict, found) == (outcome, NoiseStandard().judge(replace(asked, terms=terms)))


@pytest.mark.parametrize(
    ("api", "error", "asked"),
    [
        ("Functional.scaled_dot_product_attention", 20, False),
        ("Functional.scaled_dot_product_attention", 40, True),
        ("Torch.made_up", 20, True),
    ],
)
def test_terms_of_attention_are_counted_where_they_matter(api: str, error: int, asked: bool) -> None:
    """Its elements are sums of some terms at least. Any other unknown function may work element by element."""
    counted: list[bool] = []

    class Asked(Given, frozen=True):
        def terms(self) -> int:
            counted.append(True)
            return 4096

    given = comparison(off(error), ONES, api=api, dtype="float32", terms=16_384)
    assert NoiseStandard().judge(replace(given, evidence=Asked())).verdict == "pass"
    assert counted == [True] * asked
