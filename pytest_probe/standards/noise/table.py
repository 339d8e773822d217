"""The table of the noise rule: what may explain an error, in the order in which it is asked.

`SCALES` grow the allowed scale A until an output is within its limits. `ROUNDING` is asked where none of them is
enough, or where the output is biased. `OTHERWISE` is asked of errors alone. docs/standards.md prints all rows, written
by `python benchmarks/explanations.py --write`; to take a row out, remove it here. Three rows give others something:
"unstable elements" says what is wrong with such an output, "steps" makes the runs of the rows behind it, and "float32"
leaves out the elements beside poles.
"""

from __future__ import annotations

from functools import partial

from pytest_probe.model.verdict import UNDECIDED
from pytest_probe.standards.noise import last_resorts, scales, steps
from pytest_probe.standards.noise.explanation import (
    OWN_KERNEL,
    STAGES,
    Explanation,
    Trouble,
    by_framework,
    elsewhere,
    gives_wide,
    is_narrow_or_of_narrow,
    may_choose,
    may_round_between,
    narrow,
    of_large_call,
    of_real_numbers,
    on_cpu,
    own_kernels,
    with_narrower_argument,
)
from pytest_probe.standards.noise.stages import EACH_STEP, rounds_in_known_steps, rounds_inside

CUT_SUMS_WORDS = "sums of products are cut towards zero, as by tensor cores"
USUAL, SIGNATURE = "usual", "signature"
OPEN: tuple[Trouble, ...] = ("open",)
WRONG: tuple[Trouble, ...] = ("above", "biased")
ANY: tuple[Trouble, ...] = (*WRONG, "unstable", "far", "edge")
BY_RULE = "those of the rows above"

SCALES = (
    Explanation(
        "16-bit steps, bit for bit", OPEN, (on_cpu, of_large_call, may_round_between, rounds_in_known_steps),
        "narrow_steps 1", "equal bits", "pass", "", scales.bits_of_steps,
    ),
    *(
        Explanation(
            f"float64, K = {k}", OPEN, (), f"perturbed {k}" if k else "none", USUAL, "pass", "",
            partial(scales.float64, k=k),
        )
        for k in STAGES
    ),
    Explanation(
        "float32", OPEN, (elsewhere,), "float32 4", USUAL, "pass", "", scales.float32,
    ),
    Explanation(
        "steps", OPEN, (), "float32_steps 4", "usual; RMS wider where errors correlate", "pass", "",
        scales.float32_steps,
    ),
    Explanation(
        "steps, equal terms", OPEN, (scales.adds_equal_terms,), "sequence", "those of equal terms", "pass", "",
        scales.equal_terms,
    ),
    Explanation(
        "16-bit steps", OPEN, (on_cpu, may_round_between, rounds_in_known_steps),
        "narrow_steps 4; attention: narrow_steps_perturbed, perturbed_narrow 4", "16 and 0.6, from the nearest run",
        "pass", "", scales.between_steps,
    ),
    Explanation(
        "16-bit steps inside", OPEN, (on_cpu, may_round_between, rounds_inside),
        "narrow_steps, narrow_steps_inside, perturbed_narrow 4", "16 and 2", "pass", "", scales.inside_kernel,
    ),
    Explanation(
        "float32 among themselves", OPEN, (on_cpu,), "float32 4", "16 and 4", "pass", "", scales.among_themselves,
    ),
)  # fmt: skip
ROUNDING = (
    Explanation(
        "unstable elements", ("unstable",), (), "none", "no more wrong elements than unstable ones", "warning",
        f"{UNDECIDED}{{trouble}}", steps.unstable_elements,
    ),
    Explanation(
        "overflowing runs", ("overflowing",), (), "none", "less than half of the elements were judged", "warning",
        f"{UNDECIDED}{{trouble}}", steps.as_it_is,
    ),
    Explanation(
        "rounded constant", ("biased",), (on_cpu, narrow, rounds_in_known_steps),
        "narrow_steps 4", "16 and 0.6, from the nearest run, unbiased", "pass", "", steps.constant,
    ),
    Explanation(
        "as the CPU", ("above", "unstable"), (elsewhere,), "cpu_result; narrow_steps 4; single",
        "2 and 1.5 times its errors, signature", "pass", "as-cpu: {how}", steps.as_cpu,
    ),
    Explanation(
        "autocast inside", WRONG, (elsewhere, own_kernels, gives_wide), "cast_steps 1, moved 4",
        "signature, half of the errors are a run's", "warning",
        "under autocast the framework's own call computes {kernels} in {dtype} inside: {trouble}", steps.by_autocast,
    ),
    Explanation(
        "between kernels", (*WRONG, "unstable"), (elsewhere, may_round_between),
        "composed_steps, separate_steps 1, moved 4", SIGNATURE, "pass", "rounds between its kernels",
        steps.between_kernels,
    ),
    Explanation(
        "between own kernels", WRONG, (on_cpu, may_round_between, by_framework),
        "composed_steps, separate_steps 1, moved 4", SIGNATURE, "pass", "rounds between its kernels",
        steps.between_kernels,
    ),
    Explanation(
        "each step", WRONG, (may_round_between, by_framework), "stepwise_steps, moved 4",
        "signature, half of the errors are a run's", "pass", f"{EACH_STEP} {{dtype}}", steps.stepwise,
    ),
    Explanation(
        "named borders", (*WRONG, "unstable", "far"), (narrow,), "bordered 1, moved 4", SIGNATURE, "pass",
        "rounds at its borders", steps.at_borders,
    ),
    Explanation(
        "operands of products", (*WRONG, "unstable", "far"), (may_round_between, is_narrow_or_of_narrow),
        "rounded_operands 1, moved 4", SIGNATURE, "pass", "rounds the operands of its products to 16 bit",
        partial(steps.of_operands, carried=False),
    ),
    Explanation(
        "operands and recurrences", (*WRONG, "unstable", "far"), (may_round_between, is_narrow_or_of_narrow),
        "carried_operands 1, moved 4", SIGNATURE, "pass",
        "rounds the operands of its products, and what its recurrences hand on, to 16 bit",
        partial(steps.of_operands, carried=True),
    ),
)  # fmt: skip
OTHERWISE = (
    Explanation(
        "other zeros", ANY, (may_choose,), "the reference on other zeros, 2 times", BY_RULE, "pass", "",
        last_resorts.other_zeros,
    ),
    Explanation(
        "other choices", ANY, (may_choose,), "chosen_otherwise 64", BY_RULE, "pass", "", last_resorts.other_choices,
    ),
    Explanation(
        "undecided choices", ANY, (may_choose,), "chosen_otherwise 64", BY_RULE, "warning",
        f"{UNDECIDED}{{count:,}} elements depend on the choice among equal ones",
        last_resorts.undecided_choices,
    ),
    Explanation(
        "cut sums", ANY, (elsewhere, narrow, of_real_numbers), "the reference with cut sums", BY_RULE,
        "pass", CUT_SUMS_WORDS, last_resorts.cut_sums,
    ),
    Explanation(
        "in single", ANY, (on_cpu, with_narrower_argument), "those of the rows above with float32's roundoff",
        BY_RULE, "warning",
        f"{UNDECIDED}the roundoff of float32 explains the error and that of float64 does not; an argument is narrower "
        "than float64", last_resorts.in_single,
    ),
    Explanation(
        "one after another", ("above", "far"), (),
        "sequence, lanes of 2, 4, 8 or 32, threads, pairs, single", "a tenth of each error",
        "warning", "{added}", last_resorts.one_after_another,
    ),
    Explanation(
        "own kernel", ANY, (may_round_between, rounds_in_known_steps, by_framework),
        "own_result; narrow_steps, narrow_steps_inside, perturbed_narrow 4", "16 and 2, unbiased", "warning",
        f"{{whose}}'s {OWN_KERNEL}{{overflows}}: {{trouble}}", last_resorts.own_kernel,
    ),
    Explanation(
        "kernels inside", ANY, (may_round_between,), "kernels_inside", BY_RULE, "warning",
        f"{{whose}}'s {OWN_KERNEL}: {{trouble}}", last_resorts.kernels_inside,
    ),
    Explanation(
        "terms left out", ANY, (), "the reference with numbers for NaN, 2 times; cpu_result; float32 1",
        BY_RULE, "warning",
        f"{UNDECIDED}{{count:,}} elements are numbers where the reference is NaN: there zero meets NaN or an infinity "
        "of the arguments, and of the CPU's own kernels some leave such terms out", last_resorts.left_out,
    ),
    Explanation(
        "terms multiplied", ANY, (), "reference_on_cpu", BY_RULE, "warning",
        f"{UNDECIDED}{{count:,}} elements are NaN where the reference has numbers, as in the CPU's own kernel: zeros, "
        "such as those of padding, may have met NaN or an infinity of the arguments", last_resorts.multiplied,
    ),
)  # fmt: skip
EXPLANATIONS = (*SCALES, *ROUNDING, *OTHERWISE)
