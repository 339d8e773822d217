"""Which cases are shown in detail."""

from __future__ import annotations

from heapq import nlargest

import numpy as np
import pytest

from pytest_probe.features.html.plugin import MAX_DETAILED_PASSES, ShownInDetail
from pytest_probe.model.verdict import OutputVerdict, Verdict


def passed(ratio: float) -> Verdict:
    metrics = {"noise_ratio": ratio, "noise_ratio_limit": 64.0}
    return Verdict("pass", "auto", outputs=(OutputVerdict("output.0", (2,), "float32", "pass", "noise", "", metrics),))


@pytest.mark.parametrize(("verdict", "shown"), [("error", True), ("warning", True), ("skip", False)])
def test_errors_and_warnings_are_shown_in_detail_and_skips_are_not(verdict: str, shown: bool) -> None:
    chosen = ShownInDetail()
    for number in range(3 * MAX_DETAILED_PASSES):
        chosen.takes(passed(float(number)))
    assert chosen.takes(Verdict(verdict, "auto")) is shown  # type: ignore[arg-type]


def test_the_worst_of_all_are_among_those_that_are_taken() -> None:
    ratios = np.random.default_rng(0).lognormal(size=20_000).tolist()
    chosen = ShownInDetail()
    taken = [ratio for ratio in ratios if chosen.takes(passed(ratio))]
    assert set(nlargest(MAX_DETAILED_PASSES, ratios)) <= set(taken)
    # 200 + 200 ln(20,000 / 200)
    assert len(taken) == pytest.approx(1121, rel=0.1)


def test_a_case_without_a_limit_is_the_least() -> None:
    chosen = ShownInDetail()
    for _ in range(MAX_DETAILED_PASSES):
        assert chosen.takes(Verdict("pass", "auto"))
    assert not chosen.takes(Verdict("pass", "auto"))
    assert chosen.takes(passed(0.5))
