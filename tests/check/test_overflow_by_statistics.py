"""The standard `finite` on records: planted faults are found, and what a dtype's range explains passes."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from pytest_probe.standards.finite import Finite
from tests.check.conftest import Make, normal
from tests.support.asking import comparison
from tests.support.checking import verdicts
from tests.support.devices import Emulated
from tests.support.dumps import DATA
from tests.support.ptdbg_dumps import values, write

Change = Callable[[torch.Tensor], torch.Tensor]
HALF = torch.float16
EXP80 = torch.full((4,), 80.0)
SCORES = normal(4, 16) * 500 + 900
COMPLEX = torch.full((4,), 1e15 + 0j)
BIG = torch.full((4, 8), 300.0, dtype=HALF)


def kept(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def judged(
    bench: Make, monkeypatch: pytest.MonkeyPatch, device: str, change: Change, owner: Any, api: str, *args: Any
) -> Verdict:
    """The verdict on a call of a device that changes its results: one by another name, or the CPU."""
    right, registry = getattr(owner, api), Registry.default()
    registry.devices["other"] = lambda name: Emulated(name, change)
    space = {torch: "Torch", F: "Functional", torch.linalg: "Torch.linalg"}[owner]
    request = {"device": device, "standard": "finite"}
    made = bench(f"{space}.{api}", right, *args, registry=registry, request=request)
    if device == "cpu":
        wide = (torch.float64, torch.complex128)

        def wrong(first: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
            found: torch.Tensor = right(first, *rest, **named)
            return found if first.dtype in wide else change(found)

        monkeypatch.setattr(owner, api, wrong)
    return made.check()


def kind(verdict: Verdict) -> Any:
    return {output.metrics.get("overflow") for output in verdict.outputs}


def with_value(value: float) -> Change:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        changed = tensor.clone()
        changed.view(-1)[1] = value
        return changed

    return change


def saturated(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clamp(max=torch.finfo(tensor.dtype).max)


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize(
    ("owner", "api", "args", "change", "outcome", "wanted"),
    [
        (torch, "exp", (EXP80,), with_value(torch.inf), "error", "abnormal"),
        (torch, "exp", (EXP80,), with_value(torch.nan), "error", "abnormal"),
        (F, "softmax", (SCORES, -1), with_value(torch.nan), "error", "abnormal"),
        (F, "softmax", (SCORES.to(HALF), -1), with_value(torch.nan), "error", "abnormal"),
        (torch, "mul", (BIG, BIG), saturated, "warning", "saturated"),
        (torch, "mul", (BIG, BIG), with_value(-torch.inf), "error", "abnormal"),
        (torch, "mul", (BIG, BIG), with_value(5.0), "error", "missed"),
        (torch, "log", (torch.full((4,), -1.0),), with_value(0.0), "error", "missed"),
        (torch, "matmul", (BIG, BIG.mT), saturated, "warning", "saturated"),
        (torch, "exp", (torch.full((4,), 200.0),), saturated, "warning", "saturated"),
    ],
)  # fmt: skip
def test_planted_overflows_are_classified(
    bench: Make,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    owner: Any,
    api: str,
    args: Any,
    change: Change,
    outcome: str,
    wanted: str,
) -> None:
    verdict = judged(bench, monkeypatch, device, change, owner, api, *args)
    output = verdict.outputs[-1]
    assert (output.name, output.verdict, output.metrics["overflow"]) == ("output.0", outcome, wanted)
    assert output.reason.startswith(f"{wanted}: ")
    assert verdict.verdict in (outcome, "error")


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize(
    ("owner", "api", "args", "wanted"),
    [
        (torch, "mul", (BIG, BIG), "normal"),
        (torch, "matmul", (BIG, BIG.mT), "normal"),
        (torch, "exp", (torch.full((4,), 200.0),), "normal"),
        (torch, "exp", (torch.full((4,), 12.0, dtype=HALF),), "normal"),
        (torch, "exp", (EXP80,), None),
        (F, "softmax", (SCORES,), None),
        (torch, "log", (torch.zeros(4),), "normal"),
        (torch, "log", (torch.full((4,), -1.0),), "normal"),
        (torch, "div", (torch.zeros(4), torch.zeros(4)), "normal"),
        (torch, "mul", (torch.full((4,), 1e30 + 0j), torch.full((4,), 1e30 + 0j)), "normal"),
        (torch, "argmax", (SCORES,), None),
        (torch, "mul", (torch.full((4,), 256.0, dtype=HALF), torch.full((4,), 255.9, dtype=HALF)), None),
        # Reference and device lie on either side of the largest number, or meet it.
        (torch, "mul", (torch.full((4,), 255.9375, dtype=HALF), torch.full((4,), 256.0, dtype=HALF)), "normal"),
        # Their squares overflow on the way, the result does not.
        (torch.linalg, "vector_norm", (torch.full((4,), 1e20),), None),
        (F, "mse_loss", (torch.full((400,), 0.0, dtype=HALF), torch.full((400,), 200.0, dtype=HALF)), None),
    ],
)  # fmt: skip
def test_overflows_of_healthy_devices_are_normal(
    bench: Make, monkeypatch: pytest.MonkeyPatch, device: str, owner: Any, api: str, args: Any, wanted: str | None
) -> None:
    verdict = judged(bench, monkeypatch, device, kept, owner, api, *args)
    assert verdict.verdict == "pass", verdict.reason
    assert kind(verdict) <= {wanted, "normal"}


def test_what_torchs_own_float16_kernel_loses_is_a_warning_where_its_steps_overflow() -> None:
    lost = np.array([1, np.nan, 2], np.float16)
    asked: Any = {"api": "Torch.exp", "runs": {"overflowing_steps": [[1, np.inf, 2]]}}

    def judged(actual: Any, own: Any, wanted: float = 3.0, **more: Any) -> str:
        return Finite().judge(comparison(actual, [1.0, wanted, 2.0], own_result=own, **{**asked, **more})).verdict

    assert judged(lost, lost) == "warning"
    assert judged(lost, None) == "error"
    assert judged(lost, lost, runs={"overflowing_steps": [[np.inf, 3, np.inf]]}) == "error"
    assert judged(lost, lost, runs={}) == "error"
    # A sum, or product, may where its terms are large enough, and gives no NaN.
    infinite, large = np.array([1, np.inf, 2], np.float16), (np.full(8, 100.0),)
    assert judged(infinite, infinite, runs={}, api="Torch.prod") == "error"
    assert judged(infinite, infinite, runs={}, api="Torch.prod", args=large) == "warning"
    assert judged(lost, lost, runs={}, api="Torch.prod", args=large) == "error"
    missed, turned = np.array([1, 5, 2], np.float16), np.array([1, -np.inf, 2], np.float16)
    assert judged(missed, missed, 1e6) == judged(turned, turned, 1e6) == "error"


@pytest.mark.parametrize("device", ["cpu", "other"])
def test_an_overflow_of_the_arguments_is_skipped_as_inherited(
    bench: Make, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    x = torch.tensor([1.0, torch.inf, -torch.inf, 2.0])
    verdict = judged(bench, monkeypatch, device, kept, F, "relu", x)
    assert (verdict.verdict, verdict.kind) == ("skip", "inherited overflow")
    assert "output.0 is not finite, and neither is an argument" in verdict.reason
    # What the reference has as a number is not inherited.
    verdict = judged(bench, monkeypatch, device, with_value(torch.nan), torch, "nan_to_num", x)
    assert (verdict.outputs[-1].verdict, verdict.outputs[-1].metrics["overflow"]) == ("error", "abnormal")


def test_a_planted_fault_in_complex_numbers(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judged(bench, monkeypatch, "cpu", with_value(torch.inf), torch, "mul", COMPLEX, COMPLEX)
    assert (verdict.verdict, kind(verdict)) == ("error", {"abnormal"})


def test_a_list_of_arguments_is_looked_into(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [torch.tensor([torch.nan, 1.0]), torch.tensor([1.0, 2.0])]
    verdict = judged(bench, monkeypatch, "other", kept, torch, "cat", rows)
    assert (verdict.verdict, verdict.kind) == ("skip", "inherited overflow")


def test_random_values_that_are_not_finite_are_none_to_judge(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judged(bench, monkeypatch, "other", kept, F, "dropout", torch.full((64,), 6e4, dtype=HALF), 0.5)
    assert (verdict.verdict, verdict.kind) == ("skip", "random values")


def test_an_overflow_of_the_gradient_alone_is_normal(bench: Make) -> None:
    made = bench("Torch.sqrt", torch.sqrt, torch.zeros(4), backward=True, request={"standard": "finite"})
    assert made.check().verdict == "pass"
    verdict = made.check("backward")
    assert (verdict.verdict, kind(verdict)) == ("pass", {"normal"})


def unpacked(folder: Path) -> Path:
    with tarfile.open(DATA / "msprobe-8.3.3/overflow.tgz") as archive:
        archive.extractall(folder)
    return folder / "step0/rank/dump.json"


@pytest.mark.parametrize("device", ["cpu", "recorded"])
@pytest.mark.parametrize("stored", [True, False])
def test_the_overflow_dump_of_msprobe_is_classified(tmp_path: Path, device: str, stored: bool) -> None:
    """With its tensors, and with their statistics alone."""
    path = unpacked(tmp_path)
    if not stored:
        text = "\n".join(line for line in path.read_text().splitlines() if '"data_name"' not in line)
        path.write_text(text.replace("true,\n", "true\n").replace("false,\n", "false\n"))
    told = verdicts(path, device=device, standard="finite")
    assert {case: (each.verdict, each.kind, kind(each)) for case, each in told.items()} == {
        "Torch.mul.0.forward": ("pass", "", {"normal"}),
        "Functional.relu.0.forward": ("skip", "inherited overflow", set()),
        "Torch.exp.0.forward": ("pass", "", {"normal"}),
    }


@pytest.mark.parametrize(
    ("top", "outcome", "wanted"),
    [(80.0, "skip", "overflow that needs a replay"), (200.0, "pass", ""), (-80.0, "pass", "")],
)
def test_statistics_alone_make_nothing_abnormal(bench: Make, top: float, outcome: str, wanted: str) -> None:
    """exp(80) is a number of float32, and inf was recorded: only a replay tells whether the device gives that."""
    x = torch.full((4,), top)

    def edit(data: dict[str, Any]) -> None:
        if top > 0:
            data["Torch.exp.0.forward"]["output"][0].update(Max=float("inf"), Min=1.0)

    made = bench("Torch.exp", torch.exp, x, edit=edit, request={"device": "recorded", "standard": "finite"})
    verdict = made.check()
    assert (verdict.verdict, verdict.kind) == (outcome, wanted)
    device = bench("Torch.exp", torch.exp, x, edit=edit, request={"standard": "finite"}).check()
    assert device.verdict == "pass"
    note = "recorded as not finite: output.0; this run has generated arguments of the same statistics"
    assert device.notes == ((note,) if top > 0 else ())


@pytest.mark.parametrize(("top", "wanted"), [(3.0, ""), (float("nan"), "overflow that needs a replay")])
def test_recorded_gradients_by_their_statistics(bench: Make, top: float, wanted: str) -> None:
    def edit(data: dict[str, Any]) -> None:
        entry = data["Torch.exp.0.backward"]
        entry["output"] = [{**entry["input"][0], "Max": top}]

    request = {"device": "recorded", "standard": "finite"}
    made = bench("Torch.exp", torch.exp, EXP80, backward=True, edit=edit, request=request)
    verdict = made.check("backward")
    assert (verdict.verdict, verdict.kind) == ("skip" if wanted else "pass", wanted)


def test_overflows_in_statistics_of_ptdbg_are_classified(tmp_path: Path) -> None:
    """Without tensors its records cannot run, and their statistics are judged."""
    found = {
        **values("Torch_exp_0", [EXP80.numpy()], EXP80.exp().numpy()),
        **values("Torch_exp_1", [EXP80.numpy()], (EXP80 * torch.inf).numpy()),
        **values("Torch_exp_2", [(EXP80 * torch.inf).numpy()], (EXP80 * torch.inf).numpy()),
    }
    told = verdicts(write(tmp_path, found, stored=False), device="recorded", standard="finite")
    assert [(each.verdict, each.kind) for each in told.values()] == [
        ("pass", ""),
        ("skip", "overflow that needs a replay"),
        ("skip", "inherited overflow"),
    ]
