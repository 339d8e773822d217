"""The gate: --probe-baseline, --probe-baseline-update."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.acceptance.conftest import DumpMaker, forward, tensor, written
from tests.support.other_plugins import Ran
from tests.support.running import by_case, ran, refusal

X = tensor(40, 50)
NAMES = ("exp", "sin", "tanh")
DATA = {f"Torch.{name}.0.forward": forward(X, output=X) for name in NAMES}
# A healthy operator whose errors can be made larger: each element's by so many roundoffs of float32.
CONFTEST = """
    import os
    import torch

    def worse(x, error):
        right = torch.exp(x.double())
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return (right * (1 + error * 2**-24 * noise)).to(x.dtype)

    def pytest_probe_register(registry):
        registry.calls["Torch.exp"] = lambda x: worse(x, float(os.environ.get("ERROR", "0")))
"""
DUMP, BASELINE, UPDATE = "--probe-dump=dump.json", "--probe-baseline=base.jsonl", "--probe-baseline-update"


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest(DUMP, *args)


def lines(path: str = "base.jsonl") -> dict[str, dict[str, Any]]:
    """The cases of a baseline by name."""
    found = [json.loads(line) for line in Path(path).read_text().splitlines()[1:]]
    return {case["id"].partition("::")[2]: case for case in found}


def change(edit: Any, path: str = "base.jsonl") -> None:
    """Edit the objects of a baseline's lines, the first one included."""
    found = [json.loads(line) for line in Path(path).read_text().splitlines()]
    edit(found)
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in found))


@pytest.fixture(scope="module")
def updated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dump, and a baseline of healthy operators."""
    folder = tmp_path_factory.mktemp("baseline")
    written(folder / "dump.json", DATA)
    (folder / "conftest.py").write_text(dedent(CONFTEST))
    result = ran(folder, DUMP, BASELINE, UPDATE).result
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["baseline base.jsonl: 3 cases, 3 added"])
    return folder


@pytest.fixture
def baseline(pytester: pytest.Pytester, updated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own copy of it."""
    shutil.copytree(updated, pytester.path, dirs_exist_ok=True)
    for name in ("ERROR", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)


# The roundoffs of errors in the baseline and now; and planted verdicts, then and now, with the outcome.
MOVED = {"exp": (0, 1), "sin": (0, 0.3), "tanh": (0, 0), "sinh": (1, 0), "cosh": (3000, 3000), "expm1": (3000, 9000)}
CHANGES = {
    "ceil": ("pass", "warning", "FAILED"),
    "floor": ("warning", "error", "FAILED"),
    "abs": ("pass", "error", "FAILED"),
    "log": ("error", "error", "XFAIL"),
    "relu": ("error", "warning", "WARNED"),
    "sqrt": ("warning", "warning", "WARNED"),
    "erf": ("error", "pass", "PASSED"),
    "log1p": ("skip", "pass", "PASSED"),
    "tan": ("pass", "skip", "SKIPPED"),
}
NOW = f"""
    import os
    import torch
    from msgspec.structs import replace

    CHANGES, NOW = {CHANGES}, os.environ.get("WHEN") == "now"

    def made(name, errors):
        def call(x):
            noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
            return (getattr(torch, name)(x.double()) * (1 + errors[NOW] * 2**-24 * noise)).to(x.dtype)
        return call

    def pytest_probe_register(registry):
        registry.calls.update({{f"Torch.{{name}}": made(name, errors) for name, errors in {MOVED}.items()}})

    def pytest_probe_verdict(case, verdict):
        if case.record.api in CHANGES:
            return replace(verdict, verdict=CHANGES[case.record.api][NOW], reason="planted")
"""


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """Runs that are compared with the baseline of another one, plain and strict, and one that brings it up to date."""
    folder = tmp_path_factory.mktemp("moved")
    written(folder / "dump.json", {f"Torch.{name}.0.forward": forward(X, output=X) for name in (*MOVED, *CHANGES)})
    frame = "File model.py, line 4, in forward, \n return torch.exp(x)"
    (folder / "stack.json").write_text(json.dumps({"Torch.exp.0.forward": [frame]}))
    (folder / "conftest.py").write_text(dedent(NOW))
    assert ran(folder, DUMP, BASELINE, UPDATE).result.ret == 1
    # As editors and merges change ends of lines and their order; and nobody may write it.
    header, *cases = (folder / "base.jsonl").read_bytes().splitlines()
    (folder / "base.jsonl").write_bytes(b"\r\n".join([b"\xef\xbb\xbf" + header, *reversed(cases), b"", b""]))
    shutil.copy(folder / "base.jsonl", folder / "before.jsonl")
    (folder / "base.jsonl").chmod(0o444)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHEN", "now")
        files = ("--junitxml=junit.xml", "--probe-out=out")
        runs = {"plain": ran(folder, DUMP, BASELINE, "-v", "-rxf", *files)}
        runs["strict"] = ran(folder, DUMP, BASELINE, "--probe-strict", "-v")
        (folder / "base.jsonl").chmod(0o644)
        runs["update"] = ran(folder, DUMP, BASELINE, UPDATE)
    return runs


def test_each_change_decides_the_outcome(moved: dict[str, Ran]) -> None:
    """What rounding explains passes, and fails where bits count; so does a warning that was there before."""
    outcomes = {name: outcome for name, (_, _, outcome) in CHANGES.items()}
    outcomes |= {"exp": "FAILED", "sin": "PASSED", "tanh": "PASSED", "sinh": "PASSED"}
    outcomes |= {"cosh": "XFAIL", "expm1": "FAILED"}
    strict = outcomes | {"sin": "FAILED", "sinh": "FAILED", "sqrt": "XFAIL", "relu": "XFAIL"}
    for name, wanted in (("plain", outcomes), ("strict", strict)):
        lines = re.findall(r"^dump\.json::Torch\.(\w+)\.0\.forward ([A-Z]+)", moved[name].result.stdout.str(), re.M)
        assert dict(lines) == wanted
        assert moved[name].result.ret == 1
    changes = {name: row["gate"]["change"] for name, row in by_case(moved["plain"].folder / "out").items()}
    wanted = {"exp": "worse", "sin": "same", "tanh": "same", "sinh": "better", "cosh": "known", "expm1": "worse"}
    assert {name: changes[f"Torch.{name}.0.forward"] for name in wanted} == wanted
    assert 'name="probe.gate_reason" value="' in (moved["plain"].folder / "junit.xml").read_text()


def test_a_run_that_goes_on_fails_what_the_baseline_failed_before(
    pytester: pytest.Pytester, moved: dict[str, Ran]
) -> None:
    """As the run itself did: what got worse though it passes, and not what is known to fail."""
    shutil.copytree(moved["plain"].folder, pytester.path, dirs_exist_ok=True)
    shutil.copy("before.jsonl", "base.jsonl")
    result = run(pytester, BASELINE, "--probe-out=out", "--probe-resume", "--junitxml=again.xml")
    runxfail = run(pytester, BASELINE, "--probe-out=out", "--probe-resume", "--runxfail")
    runs = (moved["plain"].result, result, runxfail)
    first, again, more = (re.findall(r"^FAILED (\S+) ", each.stdout.str(), re.M) for each in runs)
    assert first == again != []
    known = {f"dump.json::Torch.{name}.0.forward" for name in ("cosh", "log")}
    assert set(more) == {*first, *known}
    result.stdout.fnmatch_lines(
        ["Torch.exp.0.forward on cpu: pass, *", "worse than the baseline: * times the relative*"]
    )
    junit = Path("again.xml").read_text()
    assert junit.count("pytest.xfail") == 2
    assert 'message="known failure: planted"' in junit


def test_what_is_said_of_changes(moved: dict[str, Ran]) -> None:
    plain, strict = moved["plain"].result.stdout, moved["strict"].result.stdout
    plain.fnmatch_lines(
        [
            "Torch.exp.0.forward in float32 by *: pass, worse than the baseline",
            "output.0 *baseline*now*factor*limit",
            "  relative RMSE *e-08 *e-0? * 1.8  worse",
            "*model.py:4*",
            "to reproduce: pytest 'dump.json::Torch.exp.0.forward' --probe-baseline=base.jsonl",
            "Torch.expm1.0.forward *: error, worse than the baseline",
            "*relative RMSE* 3 * worse",
        ]
    )
    plain.fnmatch_lines(["XFAIL *Torch.cosh.0.forward - known failure*"])
    plain.fnmatch_lines(["FAILED dump.json::Torch.exp.0.forward - worse: * times the *"])
    counted = "gate: 5 worse, 3 as before, 2 known to fail, 3 better, 1 new, 1 no longer judged (base.jsonl)"
    plain.fnmatch_lines([counted, "bits: 9 of 13 outputs as before", "better:", "*Torch.sinh.0.forward"])
    strict.fnmatch_lines(
        [
            "Torch.sin.0.forward *: pass, other bits than the baseline",
            "  CRC-32 *",
            "to reproduce: * --probe-baseline=base.jsonl --probe-strict*",
        ]
    )
    counted = "gate: 5 worse, 2 with other bits, 1 as before, 4 known to fail, 1 better, 1 new, 1 no longer judged *"
    strict.fnmatch_lines([counted])


def test_an_update_rewrites_what_moved_alone(moved: dict[str, Ran]) -> None:
    folder = moved["update"].folder
    before, after = (set((folder / name).read_bytes().splitlines()) for name in ("before.jsonl", "base.jsonl"))
    rewritten = {json.loads(line)["id"].split(".")[2] for line in after - before if b'"id"' in line}
    kept = {"sin", "tanh", "cosh", *(name for name, (one, other, _) in CHANGES.items() if one == other)}
    assert rewritten == {*MOVED, *CHANGES} - kept
    moved["update"].result.stdout.fnmatch_lines([f"baseline base.jsonl: 15 cases, {len(rewritten)} rewritten"])


def test_runxfail_runs_what_is_known_to_fail(pytester: pytest.Pytester, moved: dict[str, Ran]) -> None:
    shutil.copytree(moved["plain"].folder, pytester.path, dirs_exist_ok=True)
    result = run(pytester, BASELINE, "--runxfail", "-k", "log.0")
    assert result.parseoutcomes() == {"failed": 1, "deselected": 14}
    assert result.ret == 1


@pytest.mark.usefixtures("baseline")
def test_bits_of_other_inputs_or_another_device_are_not_compared(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Path("dump.json").read_text()
    written(Path("dump.json"), {**DATA, "Torch.cos.0.forward": forward(X, output=X)})
    monkeypatch.setenv("ERROR", "0.3")
    run(pytester, BASELINE, "--probe-strict").assert_outcomes(passed=4)
    Path("dump.json").write_text(before)
    # Lines whose metrics did not move stay, unless bits are what the gate is for.
    run(pytester, BASELINE, UPDATE).stdout.fnmatch_lines(["baseline base.jsonl: 3 cases, none moved"])
    updated = run(pytester, BASELINE, UPDATE, "--probe-strict")
    updated.stdout.fnmatch_lines(["baseline base.jsonl: 3 cases, 1 rewritten"])
    monkeypatch.delenv("ERROR")
    run(pytester, BASELINE, "--probe-strict").assert_outcomes(passed=2, failed=1)
    change(lambda found: found[0]["devices"][0].update(hardware="another processor"))
    result = run(pytester, BASELINE, "--probe-strict")
    result.assert_outcomes(passed=3)
    words = "probe: ANOTHER ENVIRONMENT than the baseline's: hardware another processor (now*"
    result.stdout.fnmatch_lines(["bits: not compared*", words])
    assert str(result.stdout).count("ANOTHER ENVIRONMENT") == 1


@pytest.mark.usefixtures("baseline")
def test_cases_that_come_go_and_change(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    narrower = tensor(40, 49)
    data = {
        "Torch.exp.0.forward": forward(narrower, output=narrower),
        "Torch.sin.0.forward": DATA["Torch.sin.0.forward"],
        "Torch.cos.0.forward": forward(X, output=X),
    }
    make_dump(data=data)
    strict = run(pytester, BASELINE, "--probe-strict", "-n1")
    strict.stdout.fnmatch_lines(
        [
            "gate: 1 as before, 1 new, 1 changed, not compared, 1 vanished (base.jsonl)",
            "new:",
            "  dump.json::Torch.cos.0.forward",
            "changed, not compared:",
            "  dump.json::Torch.exp.0.forward",
            "*another call than the baseline's*",
            "vanished, the dump has them no more:",
            "  dump.json::Torch.tanh.0.forward",
        ]
    )
    strict.stdout.fnmatch_lines(["probe: 1 case of the baseline vanished, which --probe-strict does not allow"])
    assert (strict.ret, run(pytester, BASELINE).ret) == (1, 0)
    assert run(pytester, BASELINE, UPDATE, "-k", "cos", "-n1").ret == 0
    assert [*lines()] == [f"Torch.{name}.0.forward" for name in ("cos", "exp", "sin", "tanh")]
    assert run(pytester, BASELINE, UPDATE).ret == 0
    assert [*lines()] == [f"Torch.{name}.0.forward" for name in ("cos", "exp", "sin")]


@pytest.mark.usefixtures("baseline")
def test_an_update_elsewhere_is_of_all_cases(pytester: pytest.Pytester) -> None:
    change(lambda found: found[0]["versions"].update(numpy="1.0"))
    before = Path("base.jsonl").read_bytes()
    result = run(pytester, BASELINE, UPDATE, "-k", "sin")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*base.jsonl was not written: it is of another environment*numpy 1.0 (now *"])
    assert Path("base.jsonl").read_bytes() == before


@pytest.mark.usefixtures("baseline")
def test_places_that_take_no_baseline_are_found_before_the_run(pytester: pytest.Pytester) -> None:
    said = refusal(pytester, DUMP, "--probe-baseline=base.jsonl/new/base.jsonl", UPDATE)
    said.fnmatch_lines(["--probe-baseline: *nothing can be written in *base.jsonl, and *"])
    os.chmod("base.jsonl", 0o444)
    said = refusal(pytester, DUMP, BASELINE, UPDATE)
    said.fnmatch_lines(["--probe-baseline: *base.jsonl' cannot be used; it is read-only, and *"])
    pytester.makeini("[pytest]\nprobe_dump = dump.json\nprobe_baseline_update = true\n")
    refusal(pytester).fnmatch_lines(["probe_baseline_update in tox.ini: there is no such key; *"])


def _twice(found: list[Any]) -> None:
    found.append(found[1])


@pytest.mark.usefixtures("baseline")
@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda found: found[0].update(schema=2), "base.jsonl:1: *it is of schema 2, this version reads 1"),
        (lambda found: found[0].pop("schema"), "base.jsonl:1: *its first line has no schema"),
        (lambda found: found[0].update(seed=7), "*it has seed 7, this run has seed 0; give --probe-seed=7*"),
        (lambda found: found[0].update(inputs="stored"), "*it has inputs stored, this run has inputs auto*"),
        (lambda found: found[0].update(standard="msprobe"), "*it has standard msprobe, this run has standard auto*"),
        (lambda found: found[2].update(verdict="good"), "*base.jsonl:3: *Invalid enum value 'good'*"),
        (_twice, "*base.jsonl:5: *line 2 has the id dump.json::Torch.exp.0.forward as well*"),
        ("<<<<<<< HEAD\n", "*base.jsonl:1: *JSON is malformed*"),
        ("[1]\n", "*base.jsonl:1: *"),
        ('{"schema": 1}\n', "*base.jsonl:1: *required field `seed`*"),
    ],
)
def test_a_baseline_that_cannot_be_used(pytester: pytest.Pytester, edit: Any, words: str) -> None:
    if callable(edit):
        change(edit)
    else:
        Path("base.jsonl").write_text(edit)
    for args in ((BASELINE,), (BASELINE, UPDATE)):
        refusal(pytester, DUMP, *args).fnmatch_lines([f"--probe-baseline: *base.jsonl*{words}"])


@pytest.mark.usefixtures("baseline")
def test_no_baseline_is_refused_where_it_is_read(pytester: pytest.Pytester) -> None:
    Path("base.jsonl").write_text("")
    refusal(pytester, DUMP, BASELINE).fnmatch_lines(["--probe-baseline: *base.jsonl*it is empty"])
    Path("base.jsonl").unlink()
    words = "*base.jsonl*there is no such file; a run with --probe-baseline-update writes it"
    refusal(pytester, DUMP, BASELINE).fnmatch_lines([f"--probe-baseline: {words}"])


@pytest.mark.usefixtures("baseline")
def test_a_baseline_without_a_case_of_the_run_compares_nothing(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump("other.json", data=DATA)
    result = pytester.runpytest("--probe-dump=other.json", BASELINE)
    result.stdout.fnmatch_lines(["probe: *base.jsonl has none of this run's cases*it is of dump.json*"])
    assert result.ret == 1
    change(lambda found: [case.update(signature="another") for case in found[1:]])
    assert run(pytester, BASELINE, "--probe-api=exp").ret == 0
    result = run(pytester, BASELINE)
    result.stdout.fnmatch_lines(["probe: *base.jsonl has none of this run's cases as they are now, and nothing was *"])
    assert result.ret == 1


# Wrong for other inputs than the first ones.
WRONG_LATER = """
        first = []
        def sin(x):
            first.append(x)
            return torch.sin(x) * (1 if torch.equal(x, first[0]) else 1.01)

        registry.calls["Torch.sin"] = sin
"""


@pytest.mark.usefixtures("baseline")
def test_repeats_measure_the_spread_and_an_error_with_other_inputs_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "spread" not in lines()["Torch.exp.0.forward"]
    pytester.makeconftest(CONFTEST + WRONG_LATER)
    result = run(pytester, BASELINE, UPDATE, "--probe-repeat=3", "-n1")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["probe: cpu, *, seeds 0 to 2", "note: found with other inputs: --probe-seed=1 --probe-repeat=1"]
    )
    assert lines()["Torch.sin.0.forward"]["verdict"] == "error"
    (spread,) = lines()["Torch.exp.0.forward"]["spread"]
    assert all(1 <= factor < 1.2 for factor in spread)
    assert json.loads(Path("base.jsonl").read_text().splitlines()[0])["repeat"] == 3
    # 1.5 times the RMSE is within the calibrated spread of 1.8, and beyond the measured one.
    monkeypatch.setenv("ERROR", "0.5")
    result = run(pytester, BASELINE)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["  relative RMSE * 1.3*  worse"])


SQUARE, SCALAR = tensor(9, 9), {"type": "float", "value": 0.3}
INTEGER = {**tensor(9, dtype="int64", requires_grad=False), "Max": 8, "Min": 0, "Mean": None, "Norm": None}
ODD = {
    "Functional.dropout.0.forward": forward(SQUARE, SCALAR, output=SQUARE),
    "Torch.argmax.0.forward": forward(SQUARE, {"type": "int", "value": 1}, output=INTEGER),
    "Torch.linalg.qr.0.forward": {**forward(SQUARE, output=SQUARE), "output": [SQUARE, SQUARE]},
    "Torch.load.0.forward": forward({"type": "str", "value": "x"}, output=SQUARE),
    "Torch.relu.0.forward": forward(tensor(0, 3), output=tensor(0, 3)),
    "Torch.sqrt.0.forward": forward(SQUARE, output=SQUARE),
}


TEST = """
    import torch
    from conftest import worse

    def test_exp(probe):
        probe.check(ERROR, reference=torch.exp, inputs=[probe.tensor((40, 50))])
"""


@pytest.mark.usefixtures("baseline")
def test_checks_of_tests_are_compared_and_outputs_without_one_right_number_are_not(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    make_dump(data=ODD)
    pytester.makepyfile(test_mine=TEST.replace("ERROR", "lambda x: worse(x, 0)"))
    args = ("test_mine.py", "--probe-baseline=mine.jsonl", "--probe-dtype=recorded,bfloat16")
    assert run(pytester, *args, UPDATE).ret == 0
    found = {name: case.get("outputs", []) for name, case in lines("mine.jsonl").items()}
    assert found["Functional.dropout.0.forward"] == [["output.0", None, None, None, None, None, None, 81, None]]
    assert found["Torch.load.0.forward"] == []
    assert found["Torch.argmax.0.forward"][0][1:6] == [None] * 5
    assert len(found["Torch.argmax.0.forward"][0][6]) == 8
    assert [output[1] for output in found["Torch.linalg.qr.0.forward"]] == [None, None]
    assert found["Torch.relu.0.forward"][0][7:] == [0, 0]
    # NaN on both sides is right.
    assert found["Torch.sqrt.0.forward"][0][1] > 0
    assert "Torch.sqrt.0.forward[bfloat16]" in found
    pytester.makepyfile(test_mine=TEST.replace("ERROR", "lambda x: worse(x, 1)"))
    result = run(pytester, *args)
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(
        [
            "*lambda*.0.forward*: pass, worse than the baseline",
            "*relative RMSE*worse",
            "*worse: * times the*",
            "gate: 1 worse, * as before (mine.jsonl)",
        ]
    )


@pytest.mark.usefixtures("baseline")
def test_the_death_of_a_worker_leaves_the_baseline(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Path("base.jsonl").read_bytes()
    pytester.makeconftest(
        CONFTEST.replace("right = ", 'os._exit(1) if os.environ.get("ERROR") else None\n        right = ')
    )
    monkeypatch.setenv("ERROR", "1")
    result = run(pytester, BASELINE, UPDATE, "-n1")
    result.stdout.fnmatch_lines(["gate: 2 as before (base.jsonl)"])
    assert result.ret == 1
    assert Path("base.jsonl").read_bytes() == before
