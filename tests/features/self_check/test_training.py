"""PrecisionDebugger(task="free_benchmark") in a training: the program is the same with it, and faults are found."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

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


def said(text: str, words: str) -> int:
    """The number before these words in what is said at the end."""
    return int(text.split(words)[0].split()[-1].replace(",", ""))


def test_a_sample_of_calls_is_asked_in_a_sample_of_steps(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=tmp_path, sample=50)
    x = torch.randn(4, 4).bfloat16()
    for _ in range(2000):
        debugger.start()
        torch.tanh(x)
        debugger.stop()
        debugger.step()
    debugger.close()
    # Of 2,000 calls one of 50 is 40, and of 2,000 steps one of 5 is 400: six standard deviations.
    assert 3 < said(caplog.text, " of ") < 77
    assert 293 < said(caplog.text, " of 2,000 steps") < 507


def test_an_interval_opens_where_its_first_call_is_not_drawn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    scope = ["Torch.tanh.0", "Torch.exp.0"]
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=tmp_path, sample=5, scope=scope)
    x = torch.randn(4).bfloat16()
    for _ in range(40):
        debugger.start()
        torch.tanh(x)
        for _ in range(10):
            torch.sin(x)
        torch.exp(x)
        torch.cos(x)
        debugger.step()
    debugger.close()
    # A fifth of 40 * 12 calls; not of those 40 alone whose first call is drawn.
    assert 50 < said(caplog.text, " of ") < 150


def test_a_thread_that_lives_longer_is_asked_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=tmp_path)
    go_on = threading.Event()

    def work() -> None:
        go_on.wait(10)
        torch.tanh(torch.ones(2).bfloat16())

    debugger.start()
    thread = threading.Thread(target=work)
    thread.start()
    debugger.stop()
    go_on.set()
    thread.join()
    debugger.close()
    assert "of 0 calls" in caplog.text


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


class Strange(torch.nn.Module):
    """Results that are wider than their arguments, views that are written to, buffers that are, drawn numbers, and what
    a checkpoint computes twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(16, 48), torch.nn.BatchNorm1d(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.first(x).chunk(3, -1)
        x = F.scaled_dot_product_attention(query, key, value, dropout_p=0.2)
        x = x.clone()
        x[:, 0] = 0
        x[:, 1].add_(1)
        x = self.norm(x.reshape(-1, 16)).view_as(x)
        x = F.softmax(x, -1, dtype=torch.float32).to(x.dtype) + x.float().to(x.dtype)
        x = checkpoint(F.gelu, x, use_reentrant=False)
        return x.float().square().mean() + torch.fft.rfft(x.float()).abs().mean()


def strange(dtype: torch.dtype, folder: Path | None = None, **options: Any) -> tuple[list[float], list[torch.Tensor]]:
    """The losses of three steps, and what the model then holds."""
    torch.manual_seed(0)
    model, losses = Strange().to(dtype), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    debugger = None if folder is None else PrecisionDebugger(task="free_benchmark", dump_path=folder, **options)
    for _ in range(3):
        x = torch.randn(2, 8, 16, dtype=dtype)
        if debugger is not None:
            debugger.start()
        loss = model(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if debugger is not None:
            debugger.stop()
            debugger.step()
    if debugger is not None:
        debugger.close()
    return losses, [torch.get_rng_state(), *model.state_dict().values()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("options", [{}, {"fuzz_stage": "backward", "list": ["linear", "gelu", "attention"]}])
def test_a_program_that_is_strange_is_the_same(tmp_path: Path, dtype: torch.dtype, options: dict[str, Any]) -> None:
    losses, state = strange(dtype, tmp_path / "found", **options)
    plain, wanted = strange(dtype)
    assert losses == plain
    assert all(map(torch.equal, state, wanted))
    assert not (tmp_path / "found" / "free_benchmark.csv").exists()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fix_leaves_what_a_program_means(tmp_path: Path, dtype: torch.dtype) -> None:
    """Without a fault results move by roundoffs, and nothing else changes."""
    losses, state = strange(dtype, tmp_path, handler_type="fix")
    plain, wanted = strange(dtype)
    assert losses == pytest.approx(plain, rel=8 * torch.finfo(dtype).eps)
    assert torch.equal(state[0], wanted[0])
    for one, other in zip(state[1:], wanted[1:], strict=True):
        torch.testing.assert_close(one, other, rtol=64 * torch.finfo(dtype).eps, atol=8 * torch.finfo(dtype).eps)


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
