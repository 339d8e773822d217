"""Wrong values in one of two dumps that are equal otherwise: none passes. And differences that are no errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe import capture
from tests.features.against.conftest import Compare
from tests.support.running import by_case
from tests.support.two_sides import Fault, record


def program(value: float = 0.0, *, training: bool = True, eps: float = 1e-6) -> None:
    x = torch.linspace(-1, 1, 24).reshape(4, 6) + value
    torch.manual_seed(0)
    y = F.layer_norm(torch.exp(x), [6], eps=eps)
    F.dropout(y, 0.5, training)
    torch.relu(y)


def recording(folder: str, **options: Any) -> Path:
    with capture(folder, task="tensor"):
        program(**options)
    return Path(folder)


def change(folder: Path, file: str, changed: Callable[[torch.Tensor], torch.Tensor]) -> None:
    (path,) = folder.rglob(f"{file}.pt")
    torch.save(changed(torch.load(path)), path)


def run(pytester: pytest.Pytester, *options: str, a: str = "A", b: str = "B") -> dict[str, dict[str, Any]]:
    pytester.runpytest(f"--probe-dump={a}", f"--probe-against={b}", "--probe-out=out", *options)
    return by_case()


def status(found: dict[str, dict[str, Any]], name: str) -> tuple[str, str]:
    return found[name]["verdict"], found[name]["answers"][0]["pair"]["status"]


def test_a_stale_output_that_equals_the_other_sides_is_wrong(pytester: pytest.Pytester) -> None:
    a = recording("A", value=0.5)
    recording("B")
    (source,) = Path("B").rglob("Torch.exp.0.forward.output.0.pt")
    change(a, "Torch.exp.0.forward.output.0", lambda _: torch.load(source))
    assert status(run(pytester), "Torch.exp.0.forward") == ("error", "own")


@pytest.mark.parametrize("training", [True, False])
def test_a_wrong_dropout_is_no_chance(pytester: pytest.Pytester, training: bool) -> None:
    a = recording("A", training=training)
    recording("B", training=training)
    change(a, "Functional.dropout.0.forward.output.0", lambda y: y * 3)
    assert status(run(pytester), "Functional.dropout.0.forward") == ("error", "own")


def test_a_wrong_loss_of_one_micro_batch_is_found(pytester: pytest.Pytester) -> None:
    record(Path("A"), parts=2, fault=Fault("nll_loss_forward", 1, lambda y: (y[0] * 1.5, *y[1:])))
    record(Path("B"))
    assert status(run(pytester), "Functional.cross_entropy.0.forward") == ("error", "own")


def test_each_rank_of_the_other_side_is_judged(compare: Compare, recorded: Callable[[str], Path]) -> None:
    file = next(recorded("two_ranks_wrong").rglob("rank1")) / "dump_tensor_data"
    change(file, "Functional.gelu.0.forward.output.0", lambda y: y * 2)
    Path("map.yaml").write_text('dims: {"Functional.linear.1.*": partial, "*": auto}')
    _, found = compare("one_rank", "two_ranks_wrong", "--probe-against-map=map.yaml")
    assert status(found, "Functional.gelu.0.forward") == ("error", "own")


def test_a_file_that_is_empty_on_both_sides_is_not_equal(pytester: pytest.Pytester) -> None:
    for folder in (recording("A"), recording("B")):
        (path,) = folder.rglob("Torch.exp.0.forward.output.0.pt")
        path.write_bytes(b"")
    assert run(pytester)["Torch.exp.0.forward"]["verdict"] == "skip"


@pytest.mark.parametrize("standard", ["close", "ptdbg"])
def test_a_rule_that_needs_tensors_says_so(compare: Compare, standard: str) -> None:
    _, found = compare("softmax_statistics", "statistics", f"--probe-standard={standard}")
    assert found["Functional.softmax.1.forward"]["verdict"] == "skip"
    assert "needs tensors" in found["Functional.softmax.1.forward"]["reason"]


def test_settings_that_differ_are_named_behind_the_first_difference(pytester: pytest.Pytester) -> None:
    recording("A", value=2.0**-20, eps=1e-3)
    recording("B")
    found = run(pytester)
    assert status(found, "Functional.layer_norm.0.forward") == ("warning", "arguments")
    assert "kwargs.eps is 0.001 and 1e-06" in found["Functional.layer_norm.0.forward"]["reason"]
    assert status(found, "Torch.exp.0.forward") == ("pass", "inherited")


def test_a_setting_that_changes_no_output_and_a_permuted_input_are_none_to_warn_about(
    pytester: pytest.Pytester,
) -> None:
    for name in ("A", "B"):
        with capture(name, task="tensor"):
            x = torch.linspace(-1, 1, 24)
            torch.exp(x)
            F.relu(x.reshape(4, 6), inplace=name == "A")
            if name == "A":
                torch.exp(torch.linspace(-1, 1, 24).flip(0))
    assert {each["verdict"] for each in run(pytester).values()} <= {"pass", "skip"}


def test_inputs_that_no_call_made_are_named(pytester: pytest.Pytester) -> None:
    record(Path("A"))
    record(Path("B"))
    (dump,) = Path("A").rglob("dump_tensor_data")
    change(
        dump, "Functional.linear.2.forward.input.1", lambda w: w * torch.ones_like(w).index_fill_(0, torch.tensor(3), 2)
    )
    result = pytester.runpytest("--probe-dump=A", "--probe-against=B")
    result.stdout.fnmatch_lines(["inputs that no recorded call made, and that differ: input.1 of*"])


def test_steps_are_paired_by_their_numbers(pytester: pytest.Pytester) -> None:
    for name, steps in (("A", (0, 1)), ("B", (1, 2))):
        Path(name).mkdir()
        for step in steps:
            recording(f"{name}{step}", value=float(step)).joinpath("step0").rename(Path(name, f"step{step}"))
    assert {each["answers"][0]["pair"]["status"] for each in run(pytester).values()} == {"equal"}


def test_rules_that_match_nothing_are_listed(pytester: pytest.Pytester) -> None:
    recording("A")
    Path("map.yaml").write_text(
        "names: {layers: blocks}\nsplit: [{from: gate_up, to: [gate, up]}]\nignore: ['*.nothing']"
    )
    result = pytester.runpytest("--probe-dump=A", "--probe-against=A", "--probe-against-map=map.yaml")
    result.stdout.fnmatch_lines(
        [
            "*map.yaml: names: layers matches nothing",
            "*split: gate_up matches nothing",
            "*ignore: [*].nothing matches nothing",
        ]
    )
