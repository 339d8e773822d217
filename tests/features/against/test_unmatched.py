"""Two sides of which one has calls that the other has not: what these change is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe import capture
from tests.support.running import by_case, refusal
from tests.support.two_sides import Fault

MADE = "behind a call that A alone has: Tensor.__mul__.0.forward"


def program(inside: float | None = None, behind: float | None = None) -> None:
    """Three layers and a loss; factors are those of one more call inside, and behind them."""
    weights = [torch.linspace(-1, 1, 36).reshape(6, 6).roll(place).requires_grad_() for place in range(4)]
    x = torch.linspace(-1, 1, 24).reshape(4, 6)
    for place, weight in enumerate(weights):
        x = torch.tanh(F.linear(x, weight))
        x = x if inside is None or place != 1 else x * inside
    loss = F.mse_loss(x, torch.ones(4, 6))
    (loss if behind is None else loss * behind).backward()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "more": {"inside": 1.002},
        "same": {"inside": 1.0},
        "scaled": {"behind": 1024.0},
        "rounding_more": {"inside": 1.002},
        "rounding_same": {"inside": 1.0},
    }
    for name, options in kinds.items():
        rounded = Fault("tanh", 0 if "rounding" in name else 99, lambda y: y * (1 + 2**-22))
        with capture(folder / name, task="tensor"), rounded:
            program(**options)
    return folder


def run(pytester: pytest.Pytester, a: Path, b: Path, *options: str) -> tuple[pytest.RunResult, dict[str, str]]:
    """The reasons of all that warned or failed."""
    result = pytester.runpytest(f"--probe-dump={a}", f"--probe-against={b}", "--probe-out=out", *options)
    wrong = {name: row["reason"] for name, row in by_case().items() if row["verdict"] in ("warning", "error")}
    return result, wrong


def test_the_first_difference_behind_a_call_of_one_side_is_warned_about(
    pytester: pytest.Pytester, recorded: Path
) -> None:
    result, wrong = run(pytester, recorded / "more", recorded / "plain", "-q")
    assert wrong == {"Functional.linear.2.forward": MADE}
    assert result.ret == 0
    result.stdout.fnmatch_lines(["no own error; sides first differ in Functional.linear.2.forward, behind*"])


def test_that_call_may_be_the_other_sides(pytester: pytest.Pytester, recorded: Path) -> None:
    _, wrong = run(pytester, recorded / "plain", recorded / "more")
    assert wrong == {"Functional.linear.2.forward": MADE.replace("A alone", "B alone")}


def test_of_gradients_a_later_call_is_named(pytester: pytest.Pytester, recorded: Path) -> None:
    _, wrong = run(pytester, recorded / "scaled", recorded / "plain")
    assert wrong == {"Functional.mse_loss.0.backward": "behind a call that A alone has: Tensor.__mul__.0.backward"}


def test_a_call_that_changes_no_number_is_none_to_warn_about(pytester: pytest.Pytester, recorded: Path) -> None:
    result, wrong = run(pytester, recorded / "same", recorded / "plain")
    assert (wrong, result.ret) == ({}, 0)


@pytest.mark.parametrize(("a", "named"), [("more", {"Functional.linear.2.forward": MADE}), ("same", {})])
def test_what_differs_by_rounding_before(pytester: pytest.Pytester, recorded: Path, a: str, named: object) -> None:
    """All calls behind the first one differ; at the one that is wrong a thousand times as much."""
    assert run(pytester, recorded / f"rounding_{a}", recorded / "plain")[1] == named


def test_strict_wants_each_call_on_both_sides(pytester: pytest.Pytester, recorded: Path) -> None:
    result, wrong = run(pytester, recorded / "same", recorded / "plain", "--probe-strict")
    assert {*wrong} == {"Tensor.__mul__.0.forward", "Tensor.__mul__.0.backward"}
    result.assert_outcomes(failed=2, passed=33)
    plain = recorded / "plain"
    assert pytester.runpytest(f"--probe-dump={plain}", f"--probe-against={plain}", "--probe-strict").ret == 0


EMPTY: dict[str, Any] = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": {}}


@pytest.mark.parametrize(("a", "b"), [("plain", "empty"), ("empty", "plain"), ("empty", "empty")])
def test_an_empty_side_is_an_error(pytester: pytest.Pytester, recorded: Path, a: str, b: str) -> None:
    (empty := recorded / "empty" / "step0" / "rank0").mkdir(parents=True, exist_ok=True)
    (empty / "dump.json").write_text(json.dumps(EMPTY))
    said = refusal(pytester, f"--probe-dump={recorded / a}", f"--probe-against={recorded / b}")
    said.fnmatch_lines(["*--probe-against: *cannot be used; *record*"])


def test_a_dump_without_a_counterpart_is_named(pytester: pytest.Pytester, recorded: Path) -> None:
    for step, name in enumerate(("plain", "more")):
        (dump,) = (recorded / name).glob("step0/*")
        shutil.copytree(dump, Path("two", f"step{step}", "rank0"))
    result, _ = run(pytester, Path("two"), recorded / "plain")
    result.stdout.fnmatch_lines(["probe: 1 dump without a counterpart: *two/step1/rank0/dump.json"])
    assert result.ret == 0
    result = pytester.runpytest("--probe-dump=two", f"--probe-against={recorded / 'plain'}", "--probe-strict")
    assert result.ret == 1
