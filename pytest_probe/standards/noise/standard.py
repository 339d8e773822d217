"""The noise standard: is the error what the precision explains? The rule is in docs/standards.md.

`table` has its rows, in the order in which they are asked; here they are asked. Right outputs need no evidence: the
correctly rounded reference leaves no error after half an ulp, so no run can change its verdict.
tests/standards/test_right_results.py holds the judges to that.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import Basis, Metric, OutputVerdict
from pytest_probe.numerics import metrics, noise_ratio
from pytest_probe.numerics.dtypes import dtype_name
from pytest_probe.numerics.error_plots import histogram
from pytest_probe.standards.exact import Exact, elements
from pytest_probe.standards.noise import hidden_faults, scales, stages
from pytest_probe.standards.noise.detects import detects_of, with_grant
from pytest_probe.standards.noise.explanation import Examined, Ruling, Stage, first
from pytest_probe.standards.noise.stages import AMONG_THEMSELVES, EQUAL_TERMS
from pytest_probe.standards.noise.summed_terms import of_few_terms, summed_terms
from pytest_probe.standards.noise.table import OTHERWISE, ROUNDING, SCALES


class NoiseStandard:
    """Floats by the noise rule; integers, booleans and empty outputs exact."""

    name = "noise"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        if comparison.actual.dtype.kind in "iub" or not comparison.actual.size:
            return Exact().judge(comparison)
        measured = metrics.describe(comparison.actual, comparison.expected)
        if _is_right(comparison, measured):
            return _verdict(Ruling(comparison, stages.stage_of_correct_output(comparison), "pass"), measured)
        ruling = ruled(comparison)
        if ruling.comparison.expected is not comparison.expected:
            measured = metrics.describe(comparison.actual, ruling.comparison.expected)
        return with_grant(comparison, _verdict(ruling, measured))


def ruled(comparison: Comparison) -> Ruling:
    """What the first row of the table says that explains the output; an error where none does."""
    output = _examined(comparison)
    ruling = _by_rounding(output)
    if ruling.outcome != "error" and summed_terms(comparison).assumed:
        # May the output pass only since it is assumed to be a sum of many terms? Attention always is one of some.
        few = of_few_terms(comparison)
        if not stages.noise_of(few, ruling.stage.spread).within(stages.limits_of(few)):
            # Of one term an element has no share of the others' scatter: what was measured counts no more.
            output = _examined(replace(comparison, terms=comparison.evidence.terms()))
            ruling = _by_rounding(output)
    if ruling.outcome == "error":
        return first(output, OTHERWISE) or ruling
    return ruling


def _examined(comparison: Comparison) -> Examined:
    return Examined(comparison, _again, stages.limits_of(comparison))


def _again(comparison: Comparison) -> Ruling:
    return _by_rounding(_examined(comparison))


def _by_rounding(output: Examined) -> Ruling:
    """What the rows say that grow the scale, and then what rounding explains; an error where nothing does."""
    far = scales.far_by_one_run(output)
    ruling = _by_scales(output) if far is None else Ruling(output.comparison, far, "error")
    stage = output.stage = ruling.stage
    if far is not None:
        output.trouble, output.trouble_words = "far", far.reason
    elif stage.unstable is not None:
        output.trouble, output.trouble_words = "unstable", stage.reason
    elif not stage.within_limits:
        output.trouble, output.trouble_words = "above", stage.reason
    elif biased := hidden_faults.bias_beside_steps(output.comparison, stage):
        output.trouble, output.trouble_words = "biased", biased
    elif edge := hidden_faults.crossed(output.comparison, stage) or hidden_faults.unbalanced(output.comparison, stage):
        output.trouble, output.trouble_words = "edge", edge
    elif 2 * (judged := (size := stage.noise.ratios.size) - stage.noise.undecided) < size:
        words = f"{judged:,} of {size:,} elements could be judged; perturbed runs overflow in the others"
        output.trouble, output.trouble_words = "overflowing", words
    else:
        return ruling
    found = first(output, ROUNDING)
    return found or Ruling(output.comparison, stage, "error", output.reason)


def _by_scales(output: Examined) -> Ruling:
    """The first stage within its limits, else the first that unstable elements brought there, else the last with the
    limits of the rule."""
    last = scales.far_by_all_runs(output)
    ruling = first(output, SCALES) if last is None else None
    if ruling is not None:
        return ruling
    # The limits of some are others than the rule's, which a report would show.
    usual = (stage for stage in reversed(output.stages) if stage.source not in (AMONG_THEMSELVES, EQUAL_TERMS))
    stage = last or (output.by_unstable[0] if output.by_unstable else next(usual))
    return Ruling(output.comparison, stage, "error")


def decide(comparison: Comparison) -> Stage:
    """The stage that an output is judged by, of those that grow its allowed scale."""
    return _by_scales(_examined(comparison)).stage


def decided(comparison: Comparison, verdict: OutputVerdict) -> Stage:
    """What `decide` gives, which a verdict on this very comparison has already."""
    if verdict.basis is None or verdict.basis.comparison is not comparison:
        return decide(comparison)
    found: Stage = verdict.basis.measured
    return found


def _is_right(comparison: Comparison, measured: Mapping[str, Metric]) -> bool:
    """Is each element the reference correctly rounded? Nothing then is left of any error after half an ulp, so that no
    run can change the verdict. A factory is measured beside a spread of its own."""
    own = comparison.precision == comparison.actual.dtype
    return own and measured["mismatch"] == 0.0 and "factory" not in comparison.classes


def _verdict(ruling: Ruling, measured: Mapping[str, Metric]) -> OutputVerdict:
    """measured describes the output beside its reference."""
    comparison, stage, outcome = ruling.comparison, ruling.stage, ruling.outcome
    actual, noise = comparison.actual, stage.noise
    found: dict[str, Metric] = dict(measured)
    found |= {
        "noise_ratio": noise.largest,
        "noise_ratio_limit": stage.limits.largest,
        "noise_rms": noise.rms,
        "noise_rms_limit": stage.limits.rms,
        "k": stage.k,
        "scale_from": stage.source,
    }
    if noise.undecided:
        found["undecided"] = noise.undecided
    terms = summed_terms(comparison)
    if terms.count > noise_ratio.FAN_IN_START:
        found["fan_in"] = terms.count
        if terms.assumed:
            found["fan_in_assumed"] = True
    worst = elements(comparison, noise.ratios, noise.ratios) if outcome not in ("pass", "skip") else ()
    return OutputVerdict(
        comparison.name,
        actual.shape,
        dtype_name(actual.dtype),
        outcome,
        "noise",
        ruling.reason,
        found,
        worst,
        noise_ratios=histogram(noise.ratios) if comparison.plotted else None,
        basis=Basis(comparison, stage) if outcome == "error" or comparison.sampled else None,
        detects=detects_of(comparison, stage, terms) if outcome == "pass" else None,
    )
