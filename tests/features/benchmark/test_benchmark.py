"""Three-party judging: --probe-benchmark, and `pytest-probe compare` afterwards."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from textwrap import dedent

import pytest

from pytest_probe.cli import main
from tests.acceptance.conftest import DumpMaker, forward, tensor, written
from tests.support.running import by_case, ran, refusal

X = tensor(40, 50)
DATA = {f"Torch.{name}.0.forward": forward(X, output=X) for name in ("exp", "sin", "abs")}
STANDALONE = "--probe-standard=msprobe"
# A device whose exp errs by a few roundoffs: less than the noise rule allows, more than the benchmark's.
CONFTEST = """
    import torch

    def pytest_probe_register(registry):
        registry.calls["Torch.exp"] = lambda x: (torch.exp(x.double()) * (1 + {error})).to(x.dtype)
"""


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest("--probe-dump=dump.json", *args)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base/ has the results of a device that is right, out/ of one whose exp errs."""
    folder = tmp_path_factory.mktemp("results")
    written(folder / "dump.json", DATA)
    for name, error in (("base", "0"), ("out", "2.5 * 2**-24")):
        (folder / "conftest.py").write_text(dedent(CONFTEST.format(error=error)))
        ran(folder, "--probe-dump=dump.json", f"--probe-out={name}").result.assert_outcomes(passed=3)
    (folder / "conftest.py").unlink()
    return folder


@pytest.fixture
def benchmark(pytester: pytest.Pytester, results: Path) -> str:
    """A folder of results of a device that is right: the test's own copy."""
    shutil.copytree(results, pytester.path, dirs_exist_ok=True)
    shutil.rmtree("out")
    return "base"


@pytest.mark.parametrize(("standard", "verdict"), [("auto", "warning"), ("benchmark", "error"), ("", "pass")])
def test_an_error_larger_than_the_benchmarks(
    pytester: pytest.Pytester, benchmark: str, standard: str, verdict: str
) -> None:
    pytester.makeconftest(CONFTEST.format(error="2.5 * 2**-24"))
    asked = (f"--probe-benchmark={benchmark}", f"--probe-standard={standard}") if standard else (STANDALONE,)
    dtypes = ["--probe-dtype=recorded,bfloat16"] * (standard == "auto")
    result = run(pytester, *asked, "--probe-out=out", *dtypes)
    found = by_case()
    exp, sin, absolute = (found[f"Torch.{name}.0.forward"] for name in ("exp", "sin", "abs"))
    assert [each["verdict"] for each in (exp, sin, absolute)] == [verdict, "pass", "pass"]
    assert result.ret == int(verdict == "error")
    if standard == "auto":
        assert exp["outputs"][0]["verdict"] == "warning"
        assert exp["reason"].startswith("output.0: benchmark: ")
        assert exp["outputs"][0]["metrics"]["benchmark_rmse"] > 2
        assert sin["outputs"][0]["metrics"]["benchmark_rmse"] == 1
        # Another dtype is compared with what is there.
        assert found["Torch.exp.0.forward[bfloat16]"]["outputs"][0]["metrics"]["benchmark_rmse"] > 100
    if standard == "benchmark":
        # msprobe's list has abs among what must be equal; here its ratio of errors, 0 / 0, counts.
        assert absolute["outputs"][0]["metrics"]["benchmark_rmse"] == 1


def test_what_has_no_one_right_value_is_not_compared(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    square, call = tensor(9, 9), {"type": "float", "value": 0.3}
    data = {
        "Torch.linalg.qr.0.forward": {**forward(square, output=square), "output": [square, square]},
        "Torch.randn_like.0.forward": forward(X, output=X),
        "Functional.dropout.0.forward": forward(X, call, output=X),
    }
    make_dump(data=data)
    run(pytester, "--probe-out=base").assert_outcomes(passed=3)
    pytester.makeconftest(
        """
        import torch

        torch.manual_seed(5)

        def other_signs(a):
            q, r = torch.linalg.qr(a)
            signs = torch.ones(a.shape[-1])
            signs[::2] = -1
            return q * signs, r * signs[:, None]

        def pytest_probe_register(registry):
            registry.calls["Torch.linalg.qr"] = other_signs
        """
    )
    run(pytester, "--probe-benchmark=base", "--probe-strict").assert_outcomes(passed=3)


TEST = """
    import pytest
    import torch

    def my_exp(x):
        return (torch.exp(x.double()) * (1 + ERROR)).to(x.dtype)

    @pytest.mark.parametrize("size", [50, 60])
    def test_exp(probe, size):
        probe.check(my_exp, reference=torch.exp, inputs=[probe.tensor((40, size))])
"""


def test_checks_are_compared_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=TEST.replace("ERROR", "0"))
    pytester.runpytest("--probe-out=base", "-k", "50").assert_outcomes(passed=1, deselected=1)
    pytester.makepyfile(test_mine=TEST.replace("ERROR", "1.5e-7"))
    result = pytester.runpytest("--probe-benchmark=base", "--probe-standard=benchmark")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*error (benchmark): benchmark: rmse is *", "probe: only in this run: 1 case"])
    result.stdout.no_fnmatch_line("probe: only in the benchmark:*")


@pytest.mark.usefixtures("benchmark")
def test_cases_on_one_side_only_are_listed(pytester: pytest.Pytester) -> None:
    run(pytester, "--probe-skip-api=exp", "--probe-out=without")
    result = run(pytester, "--probe-benchmark=without", "--probe-skip-api=abs", "--probe-out=out")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "probe: only in this run: 1 case",
            "  dump.json::Torch.exp.0.forward",
            "probe: only in the benchmark: 1 case",
            "  dump.json::Torch.abs.0.forward",
        ]
    )
    assert by_case()["Torch.exp.0.forward"]["notes"] == ["the benchmark's results do not have this case"]
    result = run(pytester, "--probe-benchmark=without", "--probe-strict")
    result.stdout.fnmatch_lines(["probe: *without does not have 1 case, which --probe-strict does not allow"])
    assert result.ret == 1
    result = run(pytester, "--probe-benchmark=without", "--probe-api=exp")
    result.stdout.fnmatch_lines(["probe: nothing was compared: the other side has none of 1 case that ran, *"])
    assert result.ret == 1


def test_a_benchmark_that_judged_nothing(pytester: pytest.Pytester, benchmark: str) -> None:
    path = Path(benchmark, "results.jsonl")
    found = map(json.loads, path.read_text().splitlines())
    skips = ({**each, "verdict": "skip", "reason": "no kernel", "outputs": []} for each in found)
    path.write_text("".join(f"{json.dumps(each)}\n" for each in skips))
    result = run(pytester, f"--probe-benchmark={benchmark}", "--probe-out=out")
    result.stdout.fnmatch_lines(["probe: nothing was compared: *"])
    assert result.ret == 1
    assert by_case()["Torch.exp.0.forward"]["notes"] == ["the benchmark has no outputs of this case: no kernel"]
    assert main(["compare", "out", benchmark, "-o", "cmp"]) == 1


@pytest.mark.usefixtures("benchmark")
def test_a_benchmark_that_is_none_or_of_another_dump_of_that_name_is_refused(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    """Of other inputs: tests/acceptance/test_run_identity.py."""
    said = refusal(pytester, "--probe-dump=dump.json", "--probe-benchmark=none")
    said.fnmatch_lines(["--probe-benchmark: '*none' cannot be used; give a folder of --probe-out; *"])
    make_dump(data={**DATA, "Torch.cos.0.forward": forward(X, output=X)})
    said = refusal(pytester, "--probe-dump=dump.json", "--probe-benchmark=base")
    said.fnmatch_lines(["--probe-benchmark: '*base' *its run has dumps dump.json sha256:*, this run has sha256:*"])


def test_compare_writes_tables_and_fails_where_rows_differ(
    results: Path, benchmark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(results / "out", "out")
    capsys.readouterr()
    assert main(["compare", benchmark, benchmark, "-o", "same"]) == 0
    assert main(["compare", "out", benchmark, "-o", "cmp"]) == 1
    assert main(["compare", "out", benchmark, "-o", "cmp26", "--standard=msprobe-26"]) == 0
    text = capsys.readouterr().out
    assert "3 outputs on both sides, judged by msprobe: 3 pass" in text
    assert "3 outputs on both sides, judged by msprobe: 2 pass, 1 error" in text
    assert "3 outputs on both sides, judged by msprobe-26: 3 pass" in text
    assert "  Torch.exp.0.forward.output.0: benchmark: " in text
    (result,) = Path("cmp").glob("api_precision_compare_result_*.csv")
    with result.open(encoding="utf-8-sig", newline="") as file:
        rows = {row["API Name"]: row["Forward Test Success"] for row in csv.DictReader(file)}
    assert rows == {"Torch.exp.0": "error", "Torch.sin.0": "pass", "Torch.abs.0": "pass"}
    (details,) = Path("out").glob("accuracy_checking_details_*.csv")
    assert main(["compare", str(details), benchmark, "-o", "csv"]) == 1


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
