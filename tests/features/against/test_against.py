"""--probe-against: recorded programs beside each other, without a fault and with one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.features.against.conftest import Compare, Pairs
from tests.support.other_plugins import Ran
from tests.support.running import refusal


def test_two_recordings_of_one_program_are_equal(compare: Compare) -> None:
    result, found = compare("gpt", "again", "--probe-strict")
    assert result.ret == 0
    assert {row["answers"][0]["pair"]["status"] for row in found.values()} == {"equal"}
    result.assert_outcomes(passed=len(found))
    result.stdout.fnmatch_lines(["A against B, * cases: * equal*", "*all pairs are equal*"])


@pytest.mark.parametrize(
    ("a", "b", "alone"),
    [("recompute", "gpt", []), ("compiled", "modules", []), ("extra", "gpt", ["Torch.exp.0.forward"])],
)
def test_more_calls_parts_computed_again_and_wrappers_of_modules_change_nothing(
    pair: Pairs, a: str, b: str, alone: list[str]
) -> None:
    found = pair(a, b).rows
    assert [found.pop(name)["kind"] for name in alone] == ["no such call on the other side"] * len(alone)
    assert {row["answers"][0]["pair"]["status"] for row in found.values()} == {"equal"}
    notes = [note for row in found.values() for note in row["notes"]]
    assert any(note.endswith(" again") for note in notes) or a != "recompute"
    others = [row["answers"][0]["pair"].get("other", "") for row in found.values()]
    assert ("Module.blocks.0.up.Linear.0.forward" in others) == (a == "compiled")


def test_errors_fail_and_warnings_pass_and_a_dump_without_a_counterpart_is_named(compared: Ran) -> None:
    verdicts = Counter(row["verdict"] for row in compared.rows)
    wanted = {"failed": "error", "warned": "warning", "passed": "pass", "skipped": "skip"}
    assert compared.summary == {outcome: verdicts[verdict] for outcome, verdict in wanted.items()}
    compared.result.stdout.fnmatch_lines(["probe: 1 dump without a counterpart: *A/step0/*dump.json"])


def test_a_wrong_softmax_is_the_first_own_error(pair: Pairs) -> None:
    found = pair("softmax", "gpt")
    order = found.in_order
    # Its backward uses what the forward gave.
    own = [name for name, status in order if status == "own"]
    assert own == ["Functional.softmax.1.forward", "Functional.softmax.1.backward"]
    wrong = found.rows[own[0]]["answers"][0]["pair"]
    assert (wrong["suspect"], wrong["nearer"]) == ("A", "B")
    place = [name for name, _ in order].index(own[0])
    assert {status for _, status in order[:place]} == {"equal"}
    assert {status for _, status in order[place + 1 :]} == {"equal", "inherited", "recovers", "own"}
    assert list(found.wrong) == own
    words = f"{found.label}: first own error: Functional.softmax.1.forward: own error of A: "
    assert words in found.text
    assert re.search(r"two_sides\.py:\d+ in blocks\.1; input\.0 of Tensor", found.text.partition(words)[2][:600])


def test_the_wrong_side_may_be_the_other_and_its_tensors_are_saved(pair: Pairs, compared: Ran) -> None:
    found = pair("gpt", "softmax")
    wrong = found.rows["Functional.softmax.1.forward"]
    assert (wrong["verdict"], wrong["answers"][0]["pair"]["suspect"]) == ("error", "B")
    files = compared.folder.glob("out/saved/**/Functional.softmax.1.forward.pt")
    saved = torch.load(next(file for file in files if found.label.partition("/")[0] in file.parts))
    error = (saved["actual.output.0"] / saved["expected.output.0"] - 1).abs().max()
    assert error == pytest.approx(1e-3, rel=1e-3)
    assert re.search(r"saved in \S*Functional\.softmax\.1\.forward\.pt", found.text)


@pytest.mark.parametrize(
    ("a", "b", "wrong"),
    [
        ("gelu_backward", "gpt", "Functional.gelu.1.backward"),  # it is the only one
        ("lstm_wrong", "lstm", "VF.lstm.0.forward"),
    ],
)
def test_a_wrong_gradient_and_a_wrong_lstm_are_found(pair: Pairs, a: str, b: str, wrong: str) -> None:
    order = pair(a, b).in_order
    own = [name for name, status in order if status == "own"]
    assert own[0] == wrong
    assert order[0][1] == "equal"
    if "gelu" in wrong:
        assert len(own) == 1
        assert {status for name, status in order if name.endswith("forward")} == {"equal"}


def test_micro_batches_are_joined(pair: Pairs) -> None:
    found = pair("micro_batches", "gpt")
    assert found.wrong == {}
    assert found.status("Functional.softmax.0.forward") == ("pass", "equal")
    outputs = found.rows["Functional.linear.0.backward"]["outputs"]
    weight = next(output for output in outputs if output["name"] == "grad.input.1")
    assert weight["metrics"]["relative_rmse"] < 1e-6


def test_two_attentions_have_no_own_error(pair: Pairs) -> None:
    found = pair("eager", "sdpa")
    assert found.wrong == {"Functional.linear.1.forward": "behind a call that A alone has: Torch.matmul.1.forward"}
    alone = "Functional.scaled_dot_product_attention.3.forward (only in B)"
    assert {"Functional.softmax.3.forward", alone} <= found.rows.keys()
    assert f"{found.label}: no own error; sides first differ in Functional.linear.1.forward, behind " in found.text


def test_a_call_that_one_side_has_alone_may_be_wrong(pair: Pairs) -> None:
    rows = pair("eager", "wrong_sdpa").rows
    wrong = [name for name, row in rows.items() if row["verdict"] == "error"]
    assert "Functional.scaled_dot_product_attention.1.forward (only in B)" in wrong
    assert all("attention.1" in name for name in wrong)


def test_statistics_alone_give_a_suspect(pair: Pairs) -> None:
    found = pair("softmax_statistics", "statistics")
    assert found.rows["Functional.softmax.1.forward"]["verdict"] == "warning"
    reason = found.wrong["Functional.softmax.1.forward"]
    assert reason.startswith("suspect: output.0: inputs agree, and statistics")
    before = found.in_order[: [name for name, _ in found.in_order].index("Functional.softmax.1.forward")]
    assert {status for _, status in before} == {"equal"}
    assert "error" not in {row["verdict"] for row in found.rows.values()}


def test_a_fused_side_is_compared_at_the_joint(pair: Pairs) -> None:
    found = pair("apart", "modules")
    joined = {name for name, each in found.rows.items() if any("joined by the map" in note for note in each["notes"])}
    assert {"Functional.linear.0.forward", "Functional.linear.0.backward"} <= joined
    assert all(found.status(name)[1] in ("equal", "rounding", "inherited") for name in joined)
    assert found.wrong == {}


@pytest.mark.parametrize(("a", "b"), [("two_ranks", "one_rank"), ("one_rank", "two_ranks")])
def test_ranks_hold_parts_of_what_one_holds(pair: Pairs, a: str, b: str) -> None:
    found = pair(a, b)
    assert found.wrong == {}
    for name in ("Functional.linear.1.forward", "Functional.linear.0.forward"):
        assert found.rows[name]["outputs"][0]["metrics"]["relative_rmse"] < 1e-6


def test_a_replica_with_a_flipped_bit_is_an_error_of_its_own(pair: Pairs) -> None:
    found = pair("flipped", "one_rank")
    wrong = {name for name, each in found.rows.items() if each["verdict"] == "error"}
    assert wrong == {"Functional.layer_norm.0.forward"}
    assert "replicas differ: kwargs.weight of ranks 1 and 0" in found.wrong["Functional.layer_norm.0.forward"]


def test_each_rank_of_the_other_side_is_judged(pair: Pairs) -> None:
    assert pair("one_rank", "two_ranks_wrong").status("Functional.gelu.0.forward") == ("error", "own")


def test_rules_that_match_nothing_are_listed(mapped: Ran) -> None:
    """Of each pair."""
    mapped.result.stdout.fnmatch_lines(
        [
            "*map.yaml: names: nothing matches nothing",
            "*split: gate_up matches nothing",
            "*ignore: [*].nothing matches nothing",
        ]
    )


def test_another_number_of_ranks_needs_a_map(pytester: pytest.Pytester, recorded: Callable[[str], Path]) -> None:
    sides = f"--probe-dump={recorded('two_ranks')}", f"--probe-against={recorded('one_rank')}"
    refusal(pytester, *sides).fnmatch_lines(["--probe-against: *dims*rank0*rank1*B: *"])
