"""A run beside a second one of the same device: random and uninitialised outputs are judged by what they promise."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeAlias

import pytest

from pytest_probe.cli import main
from tests.acceptance.conftest import Probed, backward, forward, tensor, written
from tests.support.running import ran

Beside: TypeAlias = Callable[..., tuple[dict[str, int], Callable[..., tuple[int, str]]]]
X, SMALL = tensor(60, 50), tensor(4, 5)
PROBABILITIES = {**X, "Min": 0.1, "Mean": 0.5}


def number(value: float) -> dict[str, Any]:
    return {"type": type(value).__name__, "value": value}


def integers(*shape: int) -> dict[str, Any]:
    return tensor(*shape, dtype="int64", requires_grad=False)


SIZE = [number(4), number(5)]
DROPPED = (X, number(0.3), {"type": "bool", "value": True})
DRAWN: dict[str, Any] = {
    "Functional.dropout.0.forward": forward(*DROPPED, output=X),
    "Functional.dropout.0.backward": backward(X, X),
    "Functional.alpha_dropout.0.forward": forward(*DROPPED, output=X),
    "Torch.randn.0.forward": forward(number(400), number(500), output=tensor(400, 500)),
    "Torch.rand_like.0.forward": forward(X, output=X),
    "Torch.randint.0.forward": forward(number(0), number(9), [number(30)], output=integers(30)),
    "Torch.randperm.0.forward": forward(number(30), output=integers(30)),
    "Torch.multinomial.0.forward": forward({**tensor(10), "Min": 0.1}, number(3), output=integers(3)),
    "Torch.binomial.0.forward": forward({**X, "Max": 20, "Min": 1}, PROBABILITIES, output=X),
    "Torch._standard_gamma.0.forward": forward(PROBABILITIES, output=X),
    "Tensor.bernoulli_.0.forward": forward(X, number(0.5), output=X),
    "Tensor.exponential_.0.forward": forward(X, output=X),
    "Torch.empty.0.forward": forward(number(60), number(50), output=X),
    "Torch.empty_like.0.forward": forward(X, output=X),
    "Torch.empty_strided.0.forward": forward(SIZE, [number(5), number(1)], output=SMALL),
    "Tensor.new_empty.0.forward": forward(X, SIZE, output=SMALL),
    "Tensor.resize_.0.forward": forward(tensor(3), SIZE, output=SMALL),
}
VALUES: dict[str, Any] = {
    "Torch.abs.0.forward": forward(X, output=X),
    "Torch.topk.0.forward": {**forward(X, number(3), output=X), "output": [tensor(60, 3), integers(60, 3)]},
}
# Each run draws its own numbers, and finds its own in new memory.
OTHER_NUMBERS = """
    import os

    import torch

    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))

    def pytest_probe_register(registry):
        empty = torch.empty
        registry.calls["Torch.empty"] = lambda *size: empty(*size).fill_(float(os.urandom(1)[0]))
"""
DROPOUT = """
    def dropout(x, p, training):
        return torch.nn.functional.dropout(x, p, training) * (1 if training else 1.01)
"""
WRONG = """
    import torch

    def pytest_probe_register(registry):
        registry.calls["Torch.randn"] = lambda *size, **given: torch.randn(*size, **given) * 1.1
        registry.calls["Functional.dropout"] = lambda x, *given: torch.nn.functional.dropout(x, *given) * 1.01
        registry.calls["Torch.abs"] = lambda x: torch.abs(x) * 1.001
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dump, and in first/ the results of a run of it."""
    folder = tmp_path_factory.mktemp("whole")
    written(folder / "dump.json", DRAWN | VALUES)
    (folder / "conftest.py").write_text(dedent(OTHER_NUMBERS))
    args = ("--probe-dump=dump.json", "--probe-strict", "--probe-out=first")
    ran(folder, *args).result.assert_outcomes(passed=16, skipped=3)
    return folder


@pytest.fixture
def beside(pytester: pytest.Pytester, whole: Path, capsys: pytest.CaptureFixture[str]) -> Beside:
    """A second run of the dump, beside the first one's results; and what `compare` says of two folders."""
    shutil.copytree(whole, pytester.path, dirs_exist_ok=True)

    def run(out: str, conftest: str = OTHER_NUMBERS) -> tuple[dict[str, int], Callable[..., tuple[int, str]]]:
        pytester.makeconftest(conftest)
        args = ("--probe-dump=dump.json", "--probe-strict", "--probe-benchmark=first", f"--probe-out={out}")
        outcomes = pytester.runpytest(*args).parseoutcomes()

        def compared(*words: str) -> tuple[int, str]:
            capsys.readouterr()
            status = main(["compare", *words, "-o", f"compared/{len(list(Path().glob('compared/*')))}"])
            return status, capsys.readouterr().out

        return outcomes, compared

    return run


def test_two_runs_of_one_device_compare_without_errors(beside: Beside) -> None:
    outcomes, compared = beside("second")
    assert outcomes == {"passed": 16, "skipped": 3}
    for sides in (("first", "first"), ("first", "second"), ("second", "first")):
        for standard in ("msprobe", "msprobe-1.0", "msprobe-26", "paddleapex"):
            status, told = compared(*sides, f"--standard={standard}")
            assert (status, "20 outputs on both sides" in told, "17 pass, 3 SKIP" in told) == (0, True, True)
    # A file of details does not tell what was drawn.
    (details,) = Path("first").glob("accuracy_checking_details_*.csv")
    status, told = compared(str(details), str(details))
    assert status == 0
    assert "17 outputs on both sides, judged by msprobe: 3 pass, 14 SKIP" in told
    (result,) = Path("compared/12").glob("api_precision_compare_result_*.csv")
    assert "random values; only a folder of --probe-out says" in result.read_text(encoding="utf-8-sig")


def test_a_wrong_device_differs_from_the_benchmark(beside: Beside) -> None:
    outcomes, compared = beside("wrong", WRONG)
    assert outcomes == {"passed": 12, "failed": 4, "skipped": 3}
    status, told = compared("wrong", "first")
    assert (status, "13 pass, 4 error, 3 SKIP" in told) == (1, True)
    for call in ("Torch.randn.0.forward", "Functional.dropout.0.forward", "Functional.dropout.0.backward"):
        assert f"  {call}.output.0: " in told
    # The other way round it is the benchmark that is wrong.
    assert compared("first", "wrong")[0] == 0


@pytest.mark.parametrize("standard", ["exact", "ptdbg", "mindspore"])
def test_a_standard_by_name_judges_no_drawn_value(probed: Probed, standard: str) -> None:
    """The tools' tables have nothing to say of what is drawn. A dropout that draws nothing is judged by its value."""
    still = forward(X, number(0.3), {"type": "bool", "value": False}, output=X)
    data = DRAWN | {"Functional.dropout.1.forward": still}
    conftest = OTHER_NUMBERS + "        registry.calls['Functional.dropout'] = dropout\n" + DROPOUT
    found = probed("--probe-strict", f"--probe-standard={standard}", data=data, conftest=conftest)
    # By ptdbg's rules one percent is little.
    judged = "pass" if standard == "ptdbg" else "error"
    assert found.by_name["Functional.dropout.1.forward"]["verdict"] == judged
    drawn = Counter({"pass": 14, "skip": 3} if standard == "exact" else {"skip": 17})
    assert Counter(row["verdict"] for row in found.rows) == drawn + Counter([judged])
