"""Three-party judging: --probe-benchmark, and `pytest-probe compare` afterwards."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pytest_probe.cli import main
from tests.acceptance.conftest import DumpMaker, forward, tensor, written
from tests.support.other_plugins import Ran
from tests.support.running import by_case, ran, refusal

X, SQUARE = tensor(40, 50), tensor(9, 9)
# The last ones have no one right value.
DATA = {
    **{f"Torch.{name}.0.forward": forward(X, output=X) for name in ("exp", "sin", "abs", "cos")},
    "Torch.linalg.qr.0.forward": {**forward(SQUARE, output=SQUARE), "output": [SQUARE, SQUARE]},
    "Torch.randn_like.0.forward": forward(X, output=X),
    "Functional.dropout.0.forward": forward(X, {"type": "float", "value": 0.3}, output=X),
}
# A device whose exp errs by a few roundoffs: less than the noise rule allows, more than the benchmark's. Its qr has
# other signs.
CONFTEST = """
    import torch

    def signs(a):
        return torch.where(torch.arange(a.shape[-1]) % 2 == 0, {sign}, 1)

    def qr(a):
        q, r = torch.linalg.qr(a)
        return q * signs(a), r * signs(a)[:, None]

    def pytest_probe_register(registry):
        registry.calls["Torch.exp"] = lambda x: (torch.exp(x.double()) * (1 + {error})).to(x.dtype)
        registry.calls["Torch.linalg.qr"] = qr
"""
TEST = """
    import pytest
    import torch

    def my_exp(x):
        return (torch.exp(x.double()) * (1 + {error})).to(x.dtype)

    @pytest.mark.parametrize("size", [50, 60])
    def test_exp(probe, size):
        probe.check(my_exp, reference=torch.exp, inputs=[probe.tensor((40, size))])
"""
ERROR = "2.5 * 2**-24"
DUMP, BENCHMARK = "--probe-dump=dump.json", "--probe-benchmark=base"
# Runs of the device that errs.
RUNS = {
    "out": ("--probe-standard=msprobe", "--probe-skip-api=*qr", "test_mine.py", "-k", "not 60"),
    "auto": (BENCHMARK, "--probe-dtype=recorded,bfloat16"),
    "benchmark": (BENCHMARK, "--probe-standard=benchmark", "--probe-skip-api=cos", "test_mine.py"),
    "alone": (BENCHMARK, "--probe-strict", "-k", "60", "test_mine.py"),
}


def write(folder: Path, error: str, sign: int) -> None:
    (folder / "conftest.py").write_text(dedent(CONFTEST.format(error=error, sign=sign)))
    (folder / "test_mine.py").write_text(dedent(TEST.format(error=error)))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """base/ has the results of a device that is right; what runs of the one that errs say, each with its folder."""
    folder = tmp_path_factory.mktemp("results")
    written(folder / "dump.json", DATA)
    write(folder, "0", 1)
    ran(folder, DUMP, "test_mine.py", "-k", "not 60", "--probe-out=base").result.assert_outcomes(passed=8, deselected=1)
    write(folder, ERROR, -1)
    return {name: ran(folder, DUMP, *args, f"--probe-out={name}") for name, args in RUNS.items()}


def of(told: Mapping[str, Ran], name: str) -> dict[str, dict[str, Any]]:
    return by_case(told[name].folder / name)


@pytest.fixture
def benchmark(pytester: pytest.Pytester, told: dict[str, Ran]) -> str:
    """A folder of results of a device that is right: the test's own copy."""
    shutil.copytree(told["out"].folder, pytester.path, dirs_exist_ok=True)
    return "base"


@pytest.mark.parametrize(("name", "verdict"), [("auto", "warning"), ("benchmark", "error"), ("out", "pass")])
def test_an_error_larger_than_the_benchmarks(told: dict[str, Ran], name: str, verdict: str) -> None:
    found = of(told, name)
    exp, sin, absolute = (found[f"Torch.{api}.0.forward"] for api in ("exp", "sin", "abs"))
    assert [each["verdict"] for each in (exp, sin, absolute)] == [verdict, "pass", "pass"]
    assert told[name].result.ret == int(verdict == "error")
    if name == "auto":
        assert exp["outputs"][0]["verdict"] == "warning"
        assert exp["reason"].startswith("output.0: benchmark: ")
        assert exp["outputs"][0]["metrics"]["benchmark_rmse"] > 2
        assert sin["outputs"][0]["metrics"]["benchmark_rmse"] == 1
        # Another dtype is compared with what is there.
        assert found["Torch.exp.0.forward[bfloat16]"]["outputs"][0]["metrics"]["benchmark_rmse"] > 100
    if name == "benchmark":
        # msprobe's list has abs among what must be equal; here its ratio of errors, 0 / 0, counts.
        assert absolute["outputs"][0]["metrics"]["benchmark_rmse"] == 1


def test_what_has_no_one_right_value_is_not_compared(told: dict[str, Ran]) -> None:
    found = of(told, "auto")
    for name in ("Torch.linalg.qr", "Torch.randn_like", "Functional.dropout"):
        assert found[f"{name}.0.forward"]["verdict"] == "pass"


def test_checks_are_compared_and_cases_on_one_side_only_are_listed(told: dict[str, Ran]) -> None:
    found, checks = of(told, "benchmark"), "test_mine.py::test_exp"
    verdicts = {row["id"]: row["verdict"] for row in found.values()}
    assert verdicts[f"{checks}[50]::my_exp.0.forward"] == "error"
    told["benchmark"].result.stdout.fnmatch_lines(
        [
            "*error (benchmark): benchmark: rmse is *",
            "probe: only in this run: 1 case",
            f"  {checks}[[]60[]]::my_exp.0.forward",
            "probe: only in the benchmark: 1 case",
            "  dump.json::Torch.cos.0.forward",
        ]
    )


def test_strict_wants_each_case_in_the_benchmark(told: dict[str, Ran]) -> None:
    (row,) = of(told, "alone").values()
    assert row["notes"] == ["the benchmark's results do not have this case"]
    told["alone"].result.stdout.fnmatch_lines(
        [
            "probe: *base does not have 1 case, which --probe-strict does not allow",
            "probe: nothing was compared: the other side has none of 1 case that ran, *",
        ]
    )
    assert told["alone"].result.ret == 1


def test_a_benchmark_that_judged_nothing(pytester: pytest.Pytester, benchmark: str) -> None:
    path = Path(benchmark, "results.jsonl")
    found = map(json.loads, path.read_text().splitlines())
    skips = ({**each, "verdict": "skip", "reason": "no kernel", "outputs": []} for each in found)
    path.write_text("".join(f"{json.dumps(each)}\n" for each in skips))
    result = pytester.runpytest(DUMP, BENCHMARK, "test_mine.py", "--probe-out=skips")
    result.stdout.fnmatch_lines(["probe: nothing was compared: *"])
    assert result.ret == 1
    assert "the benchmark has no outputs of this case: no kernel" in by_case("skips")["Torch.exp.0.forward"]["notes"]
    assert main(["compare", "skips", benchmark, "-o", "cmp"]) == 1


@pytest.mark.usefixtures("benchmark")
def test_a_benchmark_that_is_none_or_of_another_dump_of_that_name_is_refused(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    """Of other inputs: tests/acceptance/test_run_identity.py."""
    said = refusal(pytester, "--probe-dump=dump.json", "--probe-benchmark=none")
    said.fnmatch_lines(["--probe-benchmark: '*none' cannot be used; give a folder of --probe-out; *"])
    make_dump(data={**DATA, "Torch.tan.0.forward": forward(X, output=X)})
    said = refusal(pytester, "--probe-dump=dump.json", "--probe-benchmark=base")
    said.fnmatch_lines(["--probe-benchmark: '*base' *its run has dumps dump.json sha256:*, this run has sha256:*"])


def test_compare_writes_tables_and_fails_where_rows_differ(benchmark: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["compare", benchmark, benchmark, "-o", "same"]) == 0
    assert main(["compare", "out", benchmark, "-o", "cmp"]) == 1
    assert main(["compare", "out", benchmark, "-o", "cmp26", "--standard=msprobe-26"]) == 0
    text = capsys.readouterr().out
    assert "9 outputs on both sides, judged by msprobe: 9 pass" in text
    assert "7 outputs on both sides, judged by msprobe: 4 pass, 2 error, 3 SKIP" in text
    assert "7 outputs on both sides, judged by msprobe-26: 6 pass, 3 SKIP" in text
    assert "  dump.json::Torch.exp.0.forward.output.0: benchmark: " in text
    (result,) = Path("cmp").glob("api_precision_compare_result_*.csv")
    with result.open(encoding="utf-8-sig", newline="") as file:
        rows = {row["API Name"].rpartition("::")[2]: row["Forward Test Success"] for row in csv.DictReader(file)}
    assert [rows[f"Torch.{name}.0"] for name in ("exp", "sin", "abs")] == ["error", "pass", "pass"]
    # A file beside a folder.
    (details,) = Path("out/dump.json").glob("accuracy_checking_details_*.csv")
    assert main(["compare", str(details), "auto", "-o", "csv"]) == 0
    assert "5 outputs on both sides" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["none", "base"], "compare: 'none' cannot be used; it cannot be read: "),
        (["base", "base", "--standard=nosie"], "--standard: 'nosie' cannot be used; give one of msprobe, "),
    ],
)
def test_compare_refuses_unusable_arguments(
    benchmark: str, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    capsys.readouterr()
    assert main(["compare", *args, "-o", "out"]) == 2
    assert message in capsys.readouterr().err


def test_lines_that_no_run_wrote(pytester: pytest.Pytester, benchmark: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(benchmark, "results.jsonl")
    file.write_text(file.read_text().replace('"name":"output.0"', '"name":0'))
    capsys.readouterr()
    assert main(["compare", benchmark, benchmark, "-o", "out"]) == 2
    wanted = "results.jsonl:1: pytest-probe does not write this: Expected `str`, got `int` - at `$.outputs[0].name`"
    assert wanted in capsys.readouterr().err
    said = refusal(pytester, "--probe-dump=dump.json", f"--probe-benchmark={benchmark}")
    said.fnmatch_lines(["--probe-benchmark: '*base' *results.jsonl:1: *$.outputs?0?.name*"])
    Path(benchmark, "run.json").write_text('{"identity": []}')
    said = refusal(pytester, "--probe-dump=dump.json", f"--probe-benchmark={benchmark}")
    said.fnmatch_lines(["*run.json: *$.identity*"])
