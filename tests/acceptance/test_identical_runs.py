"""A run beside a second one of the same device: random and uninitialised outputs are judged by what they promise."""

from __future__ import annotations

import shutil
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pytest_probe.cli import main
from tests.acceptance.conftest import DumpMaker, backward, forward, tensor, written
from tests.support.running import ran

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
WRONG = """
    import torch

    def pytest_probe_register(registry):
        registry.calls["Torch.randn"] = lambda *size, **given: torch.randn(*size, **given) * 1.1
        registry.calls["Functional.dropout"] = lambda x, *given: torch.nn.functional.dropout(x, *given) * 1.01
        registry.calls["Torch.abs"] = lambda x: torch.abs(x) * 1.001
"""


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest("--probe-dump=dump.json", "--probe-strict", *args)


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
def first(pytester: pytest.Pytester, whole: Path) -> str:
    """The test's own copy of the results."""
    shutil.copytree(whole, pytester.path, dirs_exist_ok=True)
    return "first"


def test_two_runs_of_one_device_compare_without_errors(
    pytester: pytest.Pytester, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(pytester, f"--probe-benchmark={first}", "--probe-out=second").assert_outcomes(passed=16, skipped=3)
    for device, benchmark in ((first, first), (first, "second"), ("second", first)):
        for standard in ("msprobe", "msprobe-1.0", "msprobe-26", "paddleapex"):
            capsys.readouterr()
            out = f"compared/{device}-{benchmark}-{standard}"
            assert main(["compare", device, benchmark, "-o", out, f"--standard={standard}"]) == 0
            told = capsys.readouterr().out
            assert "20 outputs on both sides" in told
            assert "17 pass, 3 SKIP" in told


@pytest.mark.parametrize("standard", ["noise", "exact", "ptdbg", "mindspore"])
def test_a_standard_by_name_judges_no_drawn_value(
    pytester: pytest.Pytester, make_dump: DumpMaker, standard: str
) -> None:
    make_dump(data=DRAWN)
    pytester.makeconftest(OTHER_NUMBERS)
    result = run(pytester, f"--probe-standard={standard}")
    assert result.ret == 0
    drawn = result.parseoutcomes()
    # The tools' tables have nothing to say of what is drawn.
    assert drawn == ({"passed": 14, "skipped": 3} if standard in ("noise", "exact") else {"skipped": 17})


def test_a_dropout_that_draws_nothing_is_judged_by_value(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    still = forward(X, number(0.3), {"type": "bool", "value": False}, output=X)
    make_dump(data={"Functional.dropout.0.forward": still})
    pytester.makeconftest(WRONG)
    for standard in ("noise", "mindspore"):
        run(pytester, f"--probe-standard={standard}").assert_outcomes(failed=1)


def test_a_wrong_device_differs_from_the_benchmark(
    pytester: pytest.Pytester, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytester.makeconftest(WRONG)
    result = run(pytester, f"--probe-benchmark={first}", "--probe-out=wrong")
    result.assert_outcomes(passed=12, failed=4, skipped=3)
    capsys.readouterr()
    assert main(["compare", "wrong", first, "-o", "compared"]) == 1
    told = capsys.readouterr().out
    assert "13 pass, 4 error, 3 SKIP" in told
    for call in ("Torch.randn.0.forward", "Functional.dropout.0.forward", "Functional.dropout.0.backward"):
        assert f"  {call}.output.0: " in told
    # The other way round it is the benchmark that is wrong.
    assert main(["compare", first, "wrong", "-o", "other"]) == 0


def test_a_file_of_details_does_not_tell(
    pytester: pytest.Pytester, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (details,) = Path(first).glob("accuracy_checking_details_*.csv")
    capsys.readouterr()
    assert main(["compare", str(details), str(details), "-o", "compared"]) == 0
    assert "17 outputs on both sides, judged by msprobe: 3 pass, 14 SKIP" in capsys.readouterr().out
    (result,) = Path("compared").glob("api_precision_compare_result_*.csv")
    assert "random values; only a folder of --probe-out says" in result.read_text(encoding="utf-8-sig")
