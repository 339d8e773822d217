"""--probe-against: recorded programs beside each other, without a fault and with one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.features.against.conftest import Compare, in_order, statuses
from tests.support.running import refusal


@pytest.mark.parametrize(
    ("a", "b", "alone"),
    [
        ("gpt", "again", []),
        ("recompute", "gpt", []),
        ("compiled", "modules", []),
        ("extra", "gpt", ["Torch.exp.0.forward"]),
    ],
)
def test_two_recordings_of_one_program_are_equal(compare: Compare, a: str, b: str, alone: list[str]) -> None:
    """Though one calls more, computes parts again, or has wrappers around its modules."""
    result, found = compare(a, b)
    assert [found.pop(name)["kind"] for name in alone] == ["no such call on the other side"] * len(alone)
    assert set(statuses(found)) == {"equal"}
    result.assert_outcomes(passed=len(found), skipped=len(alone))
    result.stdout.fnmatch_lines(["A against B, * cases: * equal*", *["*all pairs are equal*"] * (a == "gpt")])
    notes = [note for each in found.values() for note in each["notes"]]
    assert any(note.endswith(" again") for note in notes) or a != "recompute"
    others = [each["answers"][0]["pair"].get("other", "") for each in found.values()]
    assert ("Module.blocks.0.up.Linear.0.forward" in others) == (a == "compiled")


def test_a_wrong_softmax_is_the_first_own_error(compare: Compare) -> None:
    result, found = compare("softmax", "gpt")
    order = in_order(found)
    own = [name for name, status in order if status == "own"]
    # Its backward uses what the forward gave.
    assert own == ["Functional.softmax.1.forward", "Functional.softmax.1.backward"]
    wrong = found[own[0]]["answers"][0]["pair"]
    assert (wrong["suspect"], wrong["nearer"]) == ("A", "B")
    place = [name for name, _ in order].index(own[0])
    assert {status for _, status in order[:place]} == {"equal"}
    assert {status for _, status in order[place + 1 :]} == {"equal", "inherited", "recovers", "own"}
    result.assert_outcomes(failed=2, passed=len(found) - 2)
    result.stdout.fnmatch_lines(["first own error: Functional.softmax.1.forward: own error of A: *"])
    # A long path moves the rest to another line.
    assert re.search(r"two_sides\.py:\d+ in blocks\.1; input\.0 of Tensor", " ".join(result.stdout.str().split()))


def test_the_wrong_side_may_be_the_other_and_its_tensors_are_saved(compare: Compare, pytester: pytest.Pytester) -> None:
    result, found = compare("gpt", "softmax", "--probe-save=failing")
    wrong = found["Functional.softmax.1.forward"]
    assert (wrong["verdict"], wrong["answers"][0]["pair"]["suspect"]) == ("error", "B")
    file = next(pytester.path.rglob("Functional.softmax.1.forward.pt"))
    saved = torch.load(file)
    error = (saved["actual.output.0"] / saved["expected.output.0"] - 1).abs().max()
    assert error == pytest.approx(1e-3, rel=1e-3)
    result.stdout.fnmatch_lines(["*saved in *Functional.softmax.1.forward.pt*"])


@pytest.mark.parametrize(
    ("a", "b", "wrong"),
    [
        ("gelu_backward", "gpt", "Functional.gelu.1.backward"),  # it is the only one
        ("lstm_wrong", "lstm", "VF.lstm.0.forward"),
    ],
)
def test_a_wrong_gradient_and_a_wrong_lstm_are_found(compare: Compare, a: str, b: str, wrong: str) -> None:
    order = in_order(compare(a, b)[1])
    own = [name for name, status in order if status == "own"]
    assert own[0] == wrong
    assert order[0][1] == "equal"
    if "gelu" in wrong:
        assert len(own) == 1
        assert {status for name, status in order if name.endswith("forward")} == {"equal"}


def test_micro_batches_are_joined(compare: Compare) -> None:
    _, found = compare("micro_batches", "gpt")
    assert not any(each["verdict"] in ("error", "warning") for each in found.values())
    assert found["Functional.softmax.0.forward"]["answers"][0]["pair"]["status"] == "equal"
    weight = next(o for o in found["Functional.linear.0.backward"]["outputs"] if o["name"] == "grad.input.1")
    assert weight["metrics"]["relative_rmse"] < 1e-6


def test_a_fused_side_is_compared_at_the_joint(compare: Compare) -> None:
    Path("map.yaml").write_text("concat:\n  - {from: [q_proj, k_proj, v_proj], to: qkv_proj}\n")
    _, found = compare("apart", "modules", "--probe-against-map=map.yaml")
    joined = {name for name, each in found.items() if any("joined by the map" in note for note in each["notes"])}
    assert {"Functional.linear.0.forward", "Functional.linear.0.backward"} <= joined
    assert all(found[name]["answers"][0]["pair"]["status"] in ("equal", "rounding", "inherited") for name in joined)
    assert not any(each["verdict"] in ("error", "warning") for each in found.values())


def test_two_attentions_have_no_own_error(compare: Compare) -> None:
    result, found = compare("eager", "sdpa")
    wrong = {name: each["reason"] for name, each in found.items() if each["verdict"] in ("error", "warning")}
    assert wrong == {"Functional.linear.1.forward": "behind a call that A alone has: Torch.matmul.1.forward"}
    assert {"Functional.softmax.3.forward", "Functional.scaled_dot_product_attention.3.forward (only in B)"} <= {*found}
    result.stdout.fnmatch_lines(["no own error; sides first differ in Functional.linear.1.forward, behind *"])


def test_a_call_that_one_side_has_alone_may_be_wrong(compare: Compare) -> None:
    _, found = compare("eager", "wrong_sdpa")
    wrong = [name for name, each in found.items() if each["verdict"] == "error"]
    assert "Functional.scaled_dot_product_attention.1.forward (only in B)" in wrong
    assert all("attention.1" in name for name in wrong)


def test_statistics_alone_give_a_suspect(compare: Compare) -> None:
    result, found = compare("softmax_statistics", "statistics")
    warned = [name for name, each in found.items() if each["verdict"] == "warning"]
    assert "Functional.softmax.1.forward" in warned
    assert found["Functional.softmax.1.forward"]["reason"].startswith("suspect: output.0: inputs agree, and statistics")
    before = in_order(found)[: [name for name, _ in in_order(found)].index("Functional.softmax.1.forward")]
    assert {status for _, status in before} == {"equal"}
    result.assert_outcomes(passed=len(found) - len(warned))


@pytest.mark.parametrize("side", ["two_ranks", "one_rank"])
def test_ranks_hold_parts_of_what_one_holds(compare: Compare, side: str) -> None:
    Path("map.yaml").write_text('dims:\n  "Functional.linear.1.*": partial\n  "*": auto\n')
    other = "one_rank" if side == "two_ranks" else "two_ranks"
    _, found = compare(side, other, "--probe-against-map=map.yaml")
    assert not any(each["verdict"] in ("error", "warning") for each in found.values())
    summed = found["Functional.linear.1.forward"]
    assert summed["outputs"][0]["metrics"]["relative_rmse"] < 1e-6
    assert found["Functional.linear.0.forward"]["outputs"][0]["metrics"]["relative_rmse"] < 1e-6


def test_a_replica_with_a_flipped_bit_is_an_error_of_its_own(compare: Compare) -> None:
    Path("map.yaml").write_text('dims: {"*": auto}\n')
    result, found = compare("flipped", "one_rank", "--probe-against-map=map.yaml")
    wrong = {name for name, each in found.items() if each["verdict"] == "error"}
    assert wrong == {"Functional.layer_norm.0.forward"}
    assert "replicas differ: kwargs.weight of ranks 1 and 0" in found["Functional.layer_norm.0.forward"]["reason"]
    assert result.ret == 1


def test_another_number_of_ranks_needs_a_map(pytester: pytest.Pytester, recorded: Callable[[str], Path]) -> None:
    sides = f"--probe-dump={recorded('two_ranks')}", f"--probe-against={recorded('one_rank')}"
    refusal(pytester, *sides).fnmatch_lines(["--probe-against: *dims*rank0*rank1*B: *"])
