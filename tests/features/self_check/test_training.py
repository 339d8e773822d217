"""PrecisionDebugger(task="free_benchmark") in a training: the program is the same with it, and faults are found."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from pytest_probe import PrecisionDebugger
from pytest_probe.errors import SettingsError
from pytest_probe.features.self_check.training import Training
from pytest_probe.records import read_dump
from tests.support import models

MODES = ("improve_precision", "add_noise", "no_change", "to_cpu")


def trained(step: Callable[[], torch.Tensor], folder: Path | None, steps: int = 2, **options: Any) -> list[float]:
    """What each step gives, with a debugger that asks or without one."""
    found, debugger = [], None
    if folder is not None:
        debugger = PrecisionDebugger(task="free_benchmark", dump_path=folder, **options)
    for _ in range(steps):
        if debugger is not None:
            debugger.start()
        given = step()
        if debugger is not None:
            debugger.stop()
            debugger.step()
        found.append(given.mean().item())
    if debugger is not None:
        debugger.close()
    return found


@pytest.mark.evidence
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", ["gpt", "cnn", "autocast"])
def test_a_healthy_training_is_the_same_and_nothing_is_suspicious(tmp_path: Path, model: str, mode: str) -> None:
    found = []
    for folder in (tmp_path / "found", None):
        torch.manual_seed(0)
        losses = trained(models.ALL[model](), folder, pert_mode=mode)
        found.append((losses, torch.get_rng_state().numpy().tobytes()))
    assert found[0] == found[1]
    assert not (tmp_path / "found" / "free_benchmark.csv").exists()


def said(text: str, words: str) -> int:
    """The number before these words in what is said at the end."""
    return int(text.split(words)[0].split()[-1].replace(",", ""))


def test_a_sample_of_calls_is_asked_in_a_sample_of_steps(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    x = torch.randn(4, 4).bfloat16()
    trained(lambda: torch.tanh(x), tmp_path, 2000, sample=50)
    # Of 2,000 calls one of 50 is 40, and of 2,000 steps one of 5 is 400: six standard deviations.
    assert 3 < said(caplog.text, " of ") < 77
    assert 293 < said(caplog.text, " of 2,000 steps") < 507


def test_an_interval_opens_where_its_first_call_is_not_drawn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    x = torch.randn(4).bfloat16()

    def step() -> torch.Tensor:
        torch.tanh(x)
        for _ in range(10):
            torch.sin(x)
        torch.exp(x)
        return torch.cos(x)

    trained(step, tmp_path, 40, sample=5, scope=["Torch.tanh.0", "Torch.exp.0"])
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


def wrong_step() -> torch.Tensor:
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    return F.gelu(F.linear(x, torch.eye(64).bfloat16()))


@pytest.mark.usefixtures("wrong_gelu")
def test_a_fault_is_written_with_a_dump(tmp_path: Path) -> None:
    trained(wrong_step, tmp_path, 1)
    (row,) = csv.DictReader((tmp_path / "free_benchmark.csv").open())
    assert (row["api_name"], row["pert_mode"], row["stage"]) == ("Functional.gelu.0", "improve_precision", "forward")
    assert float(row["max_rel"]) > 0.005
    (path,) = tmp_path.glob("suspicious/step0/*/dump.json")
    assert [record.name for record in read_dump(path).records] == ["Functional.gelu.0"]
    assert json.loads(path.read_text())["task"] == "tensor"


@pytest.mark.usefixtures("wrong_gelu")
def test_fix_takes_the_wider_result(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    fixed: list[torch.Tensor] = []

    def step() -> torch.Tensor:
        fixed.append(wrong_step())
        return fixed[0]

    trained(step, tmp_path, 1, handler_type="fix", list=["gelu"])
    wide = torch.randn(16, 64, generator=torch.Generator().manual_seed(0)).bfloat16().float()
    right = (wide * 0.5 * (1 + torch.erf(wide * 0.5**0.5))).bfloat16()
    assert torch.equal(fixed[0], right)
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
    model = Strange().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(torch.randn(2, 8, 16, dtype=dtype))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    losses = trained(step, folder, 3, **options)
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
    losses, state = strange(dtype, tmp_path, handler_type="fix")
    plain, wanted = strange(dtype)
    assert losses == pytest.approx(plain, rel=8 * torch.finfo(dtype).eps)
    assert torch.equal(state[0], wanted[0])
    for one, other in zip(state[1:], wanted[1:], strict=True):
        torch.testing.assert_close(one, other, rtol=64 * torch.finfo(dtype).eps, atol=8 * torch.finfo(dtype).eps)


Asked = list[tuple[str, list[torch.Tensor | None]]]


@pytest.fixture
def gradients_asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The incoming gradients of the calls that are asked, by the call's name."""
    found: Asked = []

    def ask(self: Training, call: Any) -> bool:
        found.append((call.name, list(call.gradients)))
        return False

    monkeypatch.setattr(Training, "ask", ask)
    return found


def backward_of(folder: Path, function: Any, *args: Any, names: list[str]) -> None:
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=folder, fuzz_stage="backward", list=names)
    debugger.start()
    loss = function(*args)
    debugger.stop()
    loss.backward()
    debugger.step()
    debugger.close()


X = torch.arange(8.0).reshape(2, 4).requires_grad_()
W = torch.tensor([[3.0, -5.0], [7.0, 11.0]])


@pytest.mark.parametrize(
    ("name", "function", "wanted"),
    [
        ("Torch.exp.0", lambda x: (torch.exp(x)[:, :2] * W).sum(), [[[3, -5, 0, 0], [7, 11, 0, 0]]]),
        ("Torch.chunk.0", lambda x: (torch.chunk(x, 2, 1)[1] * W).sum(), [None, [[3, -5], [7, 11]]]),
        ("Torch.max.0", lambda x: (torch.max(x, 1)[0] * W[0]).sum(), [[3, -5], None]),
        ("Tensor.mul_.0", lambda x: (x.clone().mul_(2)[:, :2] * W).sum(), [[[3, -5, 0, 0], [7, 11, 0, 0]]]),
        # Written to afterwards: the gradient is that of what the call gave.
        ("Torch.sin.0", lambda x: torch.sin(x).mul_(2).sum(), [[[2] * 4] * 2]),
        ("Torch.aminmax.0", lambda x: torch.aminmax(x)[1] * 3, [None, 3]),
    ],
)  # fmt: skip
def test_gradients_are_the_programs_own(
    tmp_path: Path, gradients_asked: Asked, name: str, function: Any, wanted: list[Any]
) -> None:
    X.grad = None
    backward_of(tmp_path, function, X, names=[name.split(".")[1]])
    ((asked, gradients),) = gradients_asked
    assert asked == name
    assert [None if each is None else each.tolist() for each in gradients] == wanted


def test_outputs_of_several_kernels_are_asked_together(tmp_path: Path, gradients_asked: Asked) -> None:
    cell = torch.nn.LSTM(4, 4)

    def loss(x: torch.Tensor) -> torch.Tensor:
        output, (last, _) = cell(x)
        return output.sum() + 3 * last.sum()

    backward_of(tmp_path, loss, torch.randn(5, 2, 4), names=["lstm"])
    ((_, [output, last, state]),) = gradients_asked
    assert output is not None
    assert last is not None
    assert (output.unique().tolist(), last.unique().tolist(), state) == ([1.0], [3.0], None)


def test_what_gets_no_gradient_is_not_asked(tmp_path: Path, gradients_asked: Asked) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        torch.exp(x)
        # A dropout of nothing gives its argument, whose gradient is that of all its uses.
        return (F.dropout(x, 0.0) + torch.exp(x.detach()) + x).sum()

    backward_of(tmp_path, loss, X.sin(), names=["exp", "dropout"])
    assert [name for name, _ in gradients_asked if "exp" in name] == []


@pytest.fixture
def wrong_for_large_gradients() -> Iterator[None]:
    """The CPU's gradient of silu is 1 % off in bfloat16 where the incoming one is above 1,000."""
    library = torch.library.Library("aten", "IMPL")

    def silu_backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        share = 1 / (1 + (-x.double()).exp())
        wide = gradient.double() * share * (1 + x.double() * (1 - share))
        wrong = (gradient.abs() > 1000) & (gradient.dtype is torch.bfloat16)
        return (wide * torch.where(wrong, 1.01, 1.0)).to(gradient.dtype)

    library.impl("silu_backward", silu_backward, "CPU")
    yield
    library._destroy()


@pytest.mark.usefixtures("wrong_for_large_gradients")
@pytest.mark.parametrize(("scale", "found"), [(65536.0, ["Functional.silu.0"]), (1.0, [])])
def test_a_fault_of_large_gradients_is_found_with_a_dump(tmp_path: Path, scale: float, found: list[str]) -> None:
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    backward_of(tmp_path, lambda: F.silu(x).sum() * scale, names=["silu"])
    path = tmp_path / "free_benchmark.csv"
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    assert [row["api_name"] for row in rows] == found
    for dump in tmp_path.glob("suspicious/step0/*/dump.json"):
        # The wrong kernel is Python, whose calls are recorded as well.
        record = next(each for each in read_dump(dump).records if each.name == "Functional.silu.0")
        given = read_dump(dump).decode(record).gradients or ()
        assert [each and each.max for each in given] == [scale]


def test_the_steps_of_a_users_own_kernel_are_seen(tmp_path: Path) -> None:
    """They are made by modes of ours, in spite of the program's: the gradient comes of a result that was rounded."""
    library = torch.library.Library("aten", "IMPL")

    def tanh_backward(gradient: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        return (gradient.double() * (1 - output.double() ** 2)).to(gradient.dtype)

    library.impl("tanh_backward", tanh_backward, "CPU")
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    backward_of(tmp_path, lambda: torch.tanh(x).sum(), names=["tanh"])
    library._destroy()
    assert not (tmp_path / "free_benchmark.csv").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pert_mode": "improve_precison"}, "improve_precision"),
        ({"fuzz_stage": "backward"}, "name APIs in list"),
        ({"handler_type": "fix", "pert_mode": "no_change"}, "fix takes improve_precision or to_cpu"),
        ({"level": "L0"}, "L1"),
        ({"smaple": 3}, "sample"),
        *(({"sample": wrong}, "sample: .*from 1 to 9,007,199,254,740,992") for wrong in (0, -3, 2**53 + 1, 2**64, 1.5)),
        ({"max_sample": 0}, "max_sample: 0 cannot be used; give a whole number from 1"),
        ({"list": "gelu"}, "give a list of texts"),
        ({"if_preheat": "no"}, "give true or false"),
    ],
)
def test_a_configuration_that_cannot_be_used(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        PrecisionDebugger(task="free_benchmark", dump_path=tmp_path, **options)


def test_msprobes_file(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    section = {"scope": [], "list": ["gelu"], "fuzz_stage": "backward", "pert_mode": "improve_precision"}
    file = tmp_path / "config.json"
    content = {"task": "free_benchmark", "dump_path": str(tmp_path / "out"), "level": "L1", "free_benchmark": section,
               "rank": [], "step": [3], "seed": 5, "is_deterministic": False}  # fmt: skip
    file.write_text(json.dumps(content))
    debugger = PrecisionDebugger(str(file))
    assert caplog.messages == [f"pytest-probe: {file}: these keys have no effect here: step"]
    assert torch.initial_seed() == 5
    debugger.start()
    F.gelu(torch.randn(4, 8, requires_grad=True))
    debugger.close()
    assert not (tmp_path / "out" / "free_benchmark.csv").exists()
