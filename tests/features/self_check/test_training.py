"""PrecisionDebugger(task="free_benchmark") in a training: the program is the same with it, and faults are found."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe import PrecisionDebugger
from pytest_probe.errors import SettingsError
from pytest_probe.records import read_dump
from tests.support import models

MODES = ("improve_precision", "add_noise", "no_change", "to_cpu")


def trained(model: str, folder: Path | None, **options: Any) -> tuple[list[float], bytes]:
    """The losses of two steps, and where the random numbers stand."""
    torch.manual_seed(0)
    step, losses = models.ALL[model](), []
    debugger = None if folder is None else PrecisionDebugger(task="free_benchmark", dump_path=folder, **options)
    for _ in range(2):
        if debugger is not None:
            debugger.start()
        losses.append(step().item())
        if debugger is not None:
            debugger.stop()
            debugger.step()
    if debugger is not None:
        debugger.close()
    return losses, torch.get_rng_state().numpy().tobytes()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", ["gpt", "cnn", "autocast"])
def test_a_healthy_training_is_the_same_and_nothing_is_suspicious(tmp_path: Path, model: str, mode: str) -> None:
    assert trained(model, tmp_path / "found", pert_mode=mode) == trained(model, None)
    assert not (tmp_path / "found" / "free_benchmark.csv").exists()


def test_a_sample_of_calls_is_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    trained("gpt", tmp_path, sample=1000)
    said = caplog.text
    asked, seen = (int(word.replace(",", "")) for word in said.split("asked ")[1].split(" calls")[0].split(" of "))
    assert asked < seen / 20


@pytest.fixture
def wrong_gelu() -> Iterator[None]:
    """The CPU's gelu is 1 % off in bfloat16."""
    library = torch.library.Library("aten", "IMPL")

    def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
        wide = x.double()
        found = wide * 0.5 * (1 + torch.erf(wide * 0.5**0.5))
        return (found * (1.01 if x.dtype is torch.bfloat16 else 1)).to(x.dtype)

    library.impl("gelu", gelu, "CPU")
    yield
    library._destroy()


def step(**options: Any) -> torch.Tensor:
    debugger = PrecisionDebugger(task="free_benchmark", **options)
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    debugger.start()
    found = F.gelu(F.linear(x, torch.eye(64).bfloat16()))
    debugger.stop()
    debugger.step()
    debugger.close()
    return found


@pytest.mark.usefixtures("wrong_gelu")
def test_a_fault_is_written_with_a_dump(tmp_path: Path) -> None:
    step(dump_path=tmp_path)
    (row,) = csv.DictReader((tmp_path / "free_benchmark.csv").open())
    assert (row["api_name"], row["pert_mode"], row["stage"]) == ("Functional.gelu.0", "improve_precision", "forward")
    assert float(row["max_rel"]) > 0.005
    (path,) = tmp_path.glob("suspicious/step0/*/dump.json")
    assert [record.name for record in read_dump(path).records] == ["Functional.gelu.0"]
    assert json.loads(path.read_text())["task"] == "tensor"


@pytest.mark.usefixtures("wrong_gelu")
def test_fix_takes_the_wider_result(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    fixed = step(dump_path=tmp_path, handler_type="fix", list=["gelu"])
    wide = x.float()
    right = (wide * 0.5 * (1 + torch.erf(wide * 0.5**0.5))).bfloat16()
    assert torch.equal(fixed, right)
    assert "replaced the results of 1 calls" in caplog.text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pert_mode": "improve_precison"}, "improve_precision"),
        ({"fuzz_stage": "backward"}, "name APIs in list"),
        ({"handler_type": "fix", "pert_mode": "no_change"}, "fix takes improve_precision or to_cpu"),
        ({"level": "L0"}, "L1"),
        ({"smaple": 3}, "sample"),
    ],
)
def test_a_configuration_that_cannot_be_used(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        PrecisionDebugger(task="free_benchmark", dump_path=tmp_path, **options)


def test_msprobes_file(tmp_path: Path) -> None:
    section = {"scope": [], "list": ["gelu"], "fuzz_stage": "backward", "pert_mode": "improve_precision"}
    file = tmp_path / "config.json"
    content = {"task": "free_benchmark", "dump_path": str(tmp_path / "out"), "level": "L1", "free_benchmark": section}
    file.write_text(json.dumps(content))
    debugger = PrecisionDebugger(str(file))
    debugger.start()
    F.gelu(torch.randn(4, 8, requires_grad=True))
    debugger.close()
    assert not (tmp_path / "out" / "free_benchmark.csv").exists()
