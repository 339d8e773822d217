"""Calls that build a model are checked last, and shown as one line where they pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from pytest_probe import PrecisionDebugger
from pytest_probe.check.initialisation import initialisation
from pytest_probe.records import read_dump
from tests.support.dumps import STATISTICS, unpack
from tests.support.running import rows

BUILDING = {
    "Torch.empty": 6, "Torch.ones": 1, "Torch.zeros": 1, "Torch.tensor": 1, "Tensor.zero_": 4, "Tensor.fill_": 3,
    "Tensor.normal_": 2,
}  # fmt: skip
ALL = sum(BUILDING.values())
# Calls on the device that a project has in place of the framework's.
FAULTS = """
import torch


def pytest_probe_register(registry):
    registry.calls["Tensor.normal_"] = lambda x, mean=0.0, std=1.0: x.normal_(mean, 1.5 * std)
    registry.calls["Tensor.zero_"] = lambda x: x.fill_(1e-6)
"""


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The dumps of a program's first two steps. Gradients are set to zero, and data made, before each."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(64, 96), nn.BatchNorm1d(96), nn.Linear(96, 64, bias=False)
            self.scale = nn.Parameter(torch.empty(96))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.relu(self.norm(self.first(x))) * self.scale)

    @torch.no_grad()
    def initialise(module: nn.Module) -> None:
        """As models of transformers do, outside the module that is built."""
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(mean=0.0, std=0.02)
            if module.bias is not None:
                module.bias.data.zero_()

    folder = tmp_path_factory.mktemp("recorded")
    torch.manual_seed(5)
    debugger = PrecisionDebugger(dump_path=folder)
    debugger.start()
    model = Model().apply(initialise)
    with torch.no_grad():
        model.scale.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
    for _ in range(2):
        optimizer.zero_grad(set_to_none=False)
        x = torch.randn(16, 64) / 2
        model(x).square().mean().backward()
        optimizer.step()
        debugger.stop()
        debugger.step()
        debugger.start()
    debugger.close()
    first, second = (next(folder.glob(f"step{step}/*/dump.json")) for step in range(2))
    return first, second


def test_what_builds_the_model_is_known_from_the_dump_and_steps_have_none(steps: tuple[Path, Path]) -> None:
    first, second = map(read_dump, steps)
    names = [name.rpartition(".")[0] for name in initialisation(first)]
    assert {name: names.count(name) for name in names} == BUILDING
    # The data, and what a step makes of it; gradients that are set to zero.
    assert any(record.name == "Torch.randn.0" for record in first.records)
    assert sum(record.name.startswith("Tensor.zero_") for record in second.records) == 6
    assert initialisation(second) == frozenset()


def test_without_gradients_nothing_is_known_to_initialise(steps: tuple[Path, Path]) -> None:
    dump = read_dump(steps[0])
    assert initialisation(replace(dump, records=tuple(replace(each, backward=None) for each in dump.records))) == set()


def test_a_call_of_a_step_that_is_folded_with_one_of_building_is_no_initialisation(pytester: pytest.Pytester) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.mask = nn.Parameter(torch.ones(4, 4)), torch.zeros(4, 4)

    debugger = PrecisionDebugger(dump_path=pytester.path / "dumps")
    debugger.start()
    ((Model().weight * 2).sum() + torch.zeros(4, 4).sum()).backward()
    debugger.close()
    dump = next(pytester.path.glob("dumps/step*/*/dump.json"))
    assert initialisation(read_dump(dump)) == {"Torch.ones.0", "Torch.zeros.0"}
    run = pytester.runpytest_inprocess(f"--probe-dump={dump}", "--probe-unique", "-pno:xdist", "-pno:randomly")
    run.stdout.fnmatch_lines(["1 case of calls that initialise the model: all pass"])


@pytest.mark.parametrize("name", STATISTICS)
def test_dumps_of_steps_have_no_initialisation(name: str, tmp_path: Path) -> None:
    assert initialisation(read_dump(unpack(name, tmp_path))) == frozenset()


def test_they_come_last_and_are_one_line(steps: tuple[Path, Path], pytester: pytest.Pytester) -> None:
    run = pytester.runpytest_inprocess(f"--probe-dump={steps[0]}", "-n0", "-pno:randomly", "--probe-out=out")
    run.stdout.fnmatch_lines([f"{ALL} cases of calls that initialise the model: all pass"])
    found = rows()
    building = ["initialises" in result for result in found]
    assert building.count(True) == ALL < len(found)
    assert building == sorted(building)
    assert f"{ALL} cases of calls that initialise the model: all pass" in (pytester.path / "out/summary.md").read_text()


def test_faults_in_them_fail_as_usual_in_workers_too(steps: tuple[Path, Path], pytester: pytest.Pytester) -> None:
    pytester.makeconftest(FAULTS)
    run = pytester.runpytest_inprocess(f"--probe-dump={steps[0]}", "-n2", "-pno:randomly", "-rf", "--probe-out=out")
    failed = [f"FAILED *::Tensor.{name}.forward*" for name in ("normal_.0", "normal_.1", "zero_.0", "zero_.3")]
    run.stdout.fnmatch_lines([f"{ALL} cases of calls that initialise the model: {ALL - 5} pass, 5 error"])
    run.stdout.fnmatch_lines_random(failed)
    assert run.parseoutcomes()["failed"] == 5
    assert sum("initialises" in result for result in rows()) == ALL


def test_one_of_them_runs_alone_by_its_id(steps: tuple[Path, Path], pytester: pytest.Pytester) -> None:
    run = pytester.runpytest_inprocess(f"{steps[0]}::Tensor.fill_.0.forward", "-pno:xdist", "-pno:randomly")
    run.stdout.fnmatch_lines(["1 case, 1 pass", "1 case of calls that initialise the model: all pass"])
