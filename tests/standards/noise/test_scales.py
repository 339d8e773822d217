from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.model.comparison import Allowance, Evidence, RunKind
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.noise import scales
from pytest_probe.standards.noise.scales import FAR, FAR_ALONE, MANY
from pytest_probe.standards.noise.standard import NoiseStandard
from tests.support.asking import ONES, ULP, comparison

EXACT = {"perturbed": [ONES] * 4, "float32": [ONES] * 4, "float32_steps": [ONES] * 4}
FAULTY = ONES * 1.001
# The same function under a name that no list has.
UNLISTED = "Torch.kernel_of_mine"


class Counting(Evidence, Struct, frozen=True):
    """Evidence that notes how many runs of each kind were asked for."""

    source: Evidence
    asked: dict[RunKind, int] = field(default_factory=dict)

    def runs(self, kind: RunKind, count: int) -> list[AnyArray]:
        self.asked[kind] = max(count, self.asked.get(kind, 0))
        return self.source.runs(kind, count)

    def cpu_result(self) -> AnyArray | None:
        return self.source.cpu_result()


def judged(actual: Any, expected: Any = ONES, **more: Any) -> tuple[OutputVerdict, Mapping[RunKind, int]]:
    """The verdict on another device's output, and how many runs it took."""
    asked = comparison(actual, expected, **{"dtype": "float32", "on_cpu": False, "runs": EXACT, **more})
    counting = Counting(asked.evidence)
    return NoiseStandard().judge(replace(asked, evidence=counting)), counting.asked


def seen_late(kind: str, index: int) -> Mapping[str, Sequence[AnyArray]]:
    """Runs of which one alone moves as far as the fault."""
    found = {name: list(runs) for name, runs in EXACT.items()}
    found[kind][index] = FAULTY
    return found


def test_an_error_far_beyond_the_limits_is_told_by_one_run_of_each_kind() -> None:
    found, asked = judged(FAULTY)
    assert (found.verdict, found.metrics["k"], found.metrics["scale_from"]) == ("error", 1, "steps")
    assert found.reason.startswith("noise ratio 1.678e+04 (limit 64)")
    assert asked == {"perturbed": 1, "float32": 1, "float32_steps": 1}


def test_zeros_in_the_last_eighth_are_told_by_one_run_of_each_kind() -> None:
    found, asked = judged(np.where(np.arange(100) < 88, ONES, 0.0))
    assert (found.verdict, asked) == ("error", {"perturbed": 1, "float32": 1, "float32_steps": 1})


@pytest.mark.parametrize("kind", ["perturbed", "float32", "float32_steps"])
def test_an_error_that_a_first_run_explains_passes(kind: str) -> None:
    assert judged(FAULTY, runs=seen_late(kind, 0))[0].verdict == "pass"


@pytest.mark.parametrize("kind", ["perturbed", "float32", "float32_steps"])
def test_all_runs_are_made_of_a_function_that_may_jump(kind: str) -> None:
    found, asked = judged(FAULTY, runs=seen_late(kind, 3), api=UNLISTED)
    assert (found.verdict, asked[kind]) == ("pass", 4)  # type: ignore[index]
    found, asked = judged(FAULTY, api=UNLISTED)
    assert (found.verdict, found.metrics["k"]) == ("error", 4)
    assert {kind: asked[kind] for kind in ("perturbed", "float32", "float32_steps")} == dict.fromkeys(EXACT, 4)


def test_one_element_is_told_by_one_run_of_each_kind_where_it_is_much_farther_off() -> None:
    for by, runs in ((1.1 * FAR_ALONE, 1), (0.9 * FAR_ALONE, 4)):
        found, asked = judged(np.where(np.arange(100) == 7, 1 + by * 64 * 2.0**-24, ONES))
        assert (found.verdict, asked["float32_steps"]) == ("error", runs)


def test_all_runs_are_made_where_few_elements_are_wrong() -> None:
    few = np.where(np.arange(100) < MANY - 1, FAULTY, ONES)
    assert judged(few, runs=seen_late("perturbed", 3))[0].verdict == "pass"
    found, asked = judged(few)
    assert (found.verdict, found.metrics["k"], asked["float32_steps"]) == ("error", 4, 4)


def test_all_runs_are_made_of_an_error_that_some_may_explain() -> None:
    near = ONES + 0.9 * FAR * 64 * 2.0**-24
    assert judged(near, runs={**EXACT, "float32_steps": [ONES] * 3 + [near]})[0].verdict == "pass"
    assert judged(near)[1]["float32_steps"] == 4


def test_zeros_that_a_run_moves_late_are_granted_what_it_moves_them_by() -> None:
    """A mask hides them in the reference; another share of the others' scatter is granted where no run moves them."""
    wanted = np.where(np.arange(100) < 50, 0.0, 1.0)
    leaked = np.where(wanted == 0, 1e-3, 1.0)
    runs = {name: [wanted] * 3 + [leaked] for name in EXACT}
    assert judged(leaked, wanted, runs=runs)[0].verdict == "pass"


def test_what_the_cpus_own_kernel_errs_by_as_well_passes() -> None:
    theirs = FAULTY.astype(np.float32)
    found, _ = judged(FAULTY, cpu_result=lambda: theirs)
    assert (found.verdict, found.reason[:6]) == ("pass", "as-cpu")
    right = ONES.astype(np.float32)
    found, asked = judged(FAULTY, cpu_result=lambda: right)
    assert (found.verdict, asked["float32_steps"]) == ("error", 1)


@pytest.mark.parametrize(
    "more",
    [
        {"on_cpu": True},
        {"dtype": "bfloat16", "narrow": True},
        {"allowance": Allowance(emulated=True)},
        {"runs": {**EXACT, "float32": []}},
    ],
)
def test_error_far_off_still_makes_all_runs_where_they_count(more: Mapping[str, Any]) -> None:
    """The CPU, 16 bit, a device mode's reference, a call without a kernel of float32."""
    found, asked = judged(ONES * 1.25, **more)
    assert (found.verdict, asked["perturbed"], asked["float32_steps"]) == ("error", 4, 4)


@settings(max_examples=60)
@given(st.data())
def test_all_runs_at_once_say_what_stages_in_turn_say(data: st.DataObject) -> None:
    """Whatever the runs are: zeros, infinities and NaN among them."""
    values = st.sampled_from([0.0, 1.0, -1.0, 1.0, 2.0, 1e-30, 1e39, np.inf, np.nan])
    moves = st.sampled_from([0.0, 1.0, -2.0, 5e3, 1e6])
    expected = np.array(data.draw(st.lists(values, min_size=12, max_size=12)))
    with np.errstate(all="ignore"):
        runs = {
            kind: [
                expected * (1 + ULP * np.array(data.draw(st.lists(moves, min_size=12, max_size=12)))) for _ in range(4)
            ]
            for kind in EXACT
        }
        actual = expected * (1 + ULP * np.array(data.draw(st.lists(moves, min_size=12, max_size=12))))
    api = data.draw(st.sampled_from([UNLISTED, "Torch.exp", "Torch.sum"]))
    asked = comparison(actual, expected, dtype="float32", on_cpu=False, runs=runs, api=api)
    unlisted = replace(asked, case=replace(asked.case, classes=asked.classes - {"smooth"}))
    at_once = NoiseStandard().judge(unlisted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scales, "FAR", np.inf)
        in_turn = NoiseStandard().judge(unlisted)
    assert _told(at_once) == _told(in_turn)


def _told(verdict: OutputVerdict) -> str:
    return str((verdict.verdict, verdict.reason, dict(verdict.metrics), verdict.worst))


def test_an_output_that_one_run_explains_takes_no_other_kind() -> None:
    """Numbers next to zero are far off beside no run."""
    found, asked = judged(FAULTY, runs=seen_late("perturbed", 0))
    assert (found.verdict, found.metrics["k"]) == ("pass", 1)
    assert not asked.get("float32_steps")
    assert not asked.get("float32")
