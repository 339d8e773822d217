"""The gate: --probe-baseline, --probe-baseline-update."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.acceptance.conftest import DumpMaker, forward, tensor, written
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


@pytest.mark.usefixtures("baseline")
def test_an_operator_that_gets_worse_and_is_right_again(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = "File model.py, line 4, in forward, \n return torch.exp(x)"
    (pytester.path / "stack.json").write_text(json.dumps({"Torch.exp.0.forward": [frame]}))
    monkeypatch.setenv("ERROR", "1")
    result = run(pytester, BASELINE)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "Torch.exp.0.forward in float32 by *: pass, worse than the baseline",
            "output.0 *baseline*now*factor*limit",
            "  relative RMSE *e-08 *e-0? * 1.8  worse",
            "*model.py:4*",
            "to reproduce: pytest 'dump.json::Torch.exp.0.forward' --probe-baseline=base.jsonl",
            "FAILED dump.json::Torch.exp.0.forward - worse: * times the *",
            "gate: 1 worse, 2 as before (base.jsonl)",
            "bits: 2 of 3 outputs as before",
        ]
    )
    run(pytester, BASELINE, UPDATE).stdout.fnmatch_lines(["baseline base.jsonl: 3 cases, 1 rewritten"])
    monkeypatch.delenv("ERROR")
    result = run(pytester, BASELINE)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["gate: 2 as before, 1 better (base.jsonl)", "better:", "*Torch.exp.0.forward"])


@pytest.mark.usefixtures("baseline")
def test_only_the_case_that_got_worse_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ini file names a baseline, and one that is read-only is compared."""
    pytester.makeini("[pytest]\nprobe_dump = dump.json\nprobe_baseline = base.jsonl\n")
    monkeypatch.setenv("ERROR", "1")
    os.chmod("base.jsonl", 0o444)
    result = pytester.runpytest("--junitxml=junit.xml", "--probe-out=out")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["3 cases, 3 pass", "gate: 1 worse, 2 as before (base.jsonl)"])
    found = {row["api"]: row["gate"]["change"] for row in by_case().values()}
    assert found == {"Torch.exp": "worse", "Torch.sin": "same", "Torch.tanh": "same"}
    junit = Path("junit.xml").read_text()
    assert 'name="probe.gate" value="worse"' in junit
    assert 'name="probe.gate_reason" value="' in junit


@pytest.mark.usefixtures("baseline")
def test_what_rounding_explains_passes_and_other_bits_fail_where_they_count(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where editors and merges have changed the file's ends of lines and their order."""
    header, *cases = Path("base.jsonl").read_bytes().splitlines()
    Path("base.jsonl").write_bytes(b"\r\n".join([b"\xef\xbb\xbf" + header, *reversed(cases), b"", b""]))
    monkeypatch.setenv("ERROR", "0.3")
    result = run(pytester, BASELINE)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["gate: 3 as before (base.jsonl)", "bits: 2 of 3 outputs as before"])
    result = run(pytester, BASELINE, "--probe-strict")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "Torch.exp.0.forward *: pass, other bits than the baseline",
            "  CRC-32 *",
            "to reproduce: * --probe-baseline=base.jsonl --probe-strict*",
            "gate: 1 with other bits, 2 as before *",
        ]
    )
    # Those of other inputs, or of another device, are not compared.
    before = Path("dump.json").read_text()
    written(Path("dump.json"), {**DATA, "Torch.cos.0.forward": forward(X, output=X)})
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


# What each operator's verdict was in the baseline, is now, and the outcome.
CHANGES = {
    "exp": ("pass", "warning", "FAILED"),
    "sin": ("warning", "error", "FAILED"),
    "abs": ("pass", "error", "FAILED"),
    "cosh": ("error", "error", "XFAIL"),
    "relu": ("error", "warning", "WARNED"),
    "sqrt": ("warning", "warning", "WARNED"),
    "erf": ("error", "pass", "PASSED"),
    "log1p": ("skip", "pass", "PASSED"),
    "tan": ("pass", "skip", "SKIPPED"),
}
VERDICTS = f"""
    import os
    from msgspec.structs import replace

    CHANGES = {CHANGES}

    def pytest_probe_verdict(case, verdict):
        planted = CHANGES[case.record.api][os.environ["WHEN"] == "now"]
        return replace(verdict, verdict=planted, reason="planted")
"""


def test_a_change_of_verdict_decides_the_outcome(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dump(data={f"Torch.{name}.0.forward": forward(X, output=X) for name in CHANGES})
    pytester.makeconftest(VERDICTS)
    monkeypatch.setenv("WHEN", "before")
    assert run(pytester, BASELINE, UPDATE).ret == 1
    monkeypatch.setenv("WHEN", "now")
    result = run(pytester, BASELINE, "-v")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [f"dump.json::Torch.{name}.0.forward {outcome} *" for name, (_, _, outcome) in CHANGES.items()]
    )
    for args, outcome in (
        (("--runxfail", "-k", "cosh"), {"failed": 1}),
        (("--probe-strict", "-k", "sqrt"), {"xfailed": 1}),
    ):
        result = run(pytester, BASELINE, *args)
        assert result.parseoutcomes() == {**outcome, "deselected": len(CHANGES) - 1}
        assert result.ret == int("failed" in outcome)


@pytest.mark.usefixtures("baseline")
def test_a_known_failure_fails_where_it_gets_worse(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("base.jsonl").unlink()
    monkeypatch.setenv("ERROR", "3000")
    run(pytester, BASELINE, UPDATE).assert_outcomes(passed=2, failed=1)
    result = run(pytester, BASELINE, UPDATE, "-rx")
    result.assert_outcomes(passed=2, xfailed=1)
    words = ["XFAIL *Torch.exp.0.forward - known failure*", "3 cases, 2 pass, 1 error"]
    result.stdout.fnmatch_lines([*words, "gate: 2 as before, 1 known to fail *"])
    assert result.ret == 0
    monkeypatch.setenv("ERROR", "9000")
    result = run(pytester, BASELINE)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["Torch.exp.0.forward *: error, worse than the baseline", "*relative RMSE* 3 * worse"])


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
def test_an_update_rewrites_what_moved_alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Path("base.jsonl").read_bytes()
    monkeypatch.setenv("ERROR", "1")
    # A run that leaves it out leaves its line alone.
    assert run(pytester, BASELINE, UPDATE, "--probe-api=Torch.sin").ret == 0
    assert Path("base.jsonl").read_bytes() == before
    run(pytester, BASELINE, UPDATE, "-n1").assert_outcomes(passed=3)
    old, new = before.decode().splitlines(), Path("base.jsonl").read_text().splitlines()
    assert [line for line in old[1:] if line not in new] == [line for line in old if "Torch.exp" in line]
    assert len(new) == len(old)


@pytest.mark.usefixtures("baseline")
def test_an_update_elsewhere_is_of_all_cases(pytester: pytest.Pytester) -> None:
    change(lambda found: found[0]["versions"].update(numpy="1.0"))
    before = Path("base.jsonl").read_bytes()
    result = run(pytester, BASELINE, UPDATE, "-k", "sin")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*base.jsonl was not written: it is of another environment*numpy 1.0 (now *"])
    assert Path("base.jsonl").read_bytes() == before
    assert run(pytester, BASELINE, UPDATE).ret == 0
    assert json.loads(Path("base.jsonl").read_text().splitlines()[0])["versions"]["numpy"] != "1.0"


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
    """But a changed case that was selected alone is no mistake."""
    make_dump("other.json", data=DATA)
    result = pytester.runpytest("--probe-dump=other.json", BASELINE)
    result.stdout.fnmatch_lines(["probe: *base.jsonl has none of this run's cases*it is of dump.json*"])
    assert result.ret == 1
    change(lambda found: [case.update(signature="another") for case in found[1:]])
    assert run(pytester, BASELINE, "--probe-api=exp").ret == 0
    for edit in (lambda found: None, lambda found: found.__delitem__(slice(1, None))):
        change(edit)
        result = run(pytester, BASELINE)
        words = "probe: *base.jsonl has none of this run's cases as they are now, and nothing was *"
        result.stdout.fnmatch_lines([words])
        assert result.ret == 1


@pytest.mark.usefixtures("baseline")
def test_repeats_measure_the_spread(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "spread" not in lines()["Torch.exp.0.forward"]
    result = run(pytester, BASELINE, UPDATE, "--probe-repeat=3", "-n1")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["probe: cpu, *, seeds 0 to 2"])
    (spread,) = lines()["Torch.exp.0.forward"]["spread"]
    assert all(1 <= factor < 1.2 for factor in spread)
    assert json.loads(Path("base.jsonl").read_text().splitlines()[0])["repeat"] == 3
    # 1.5 times the RMSE is within the calibrated spread of 1.8, and beyond the measured one.
    monkeypatch.setenv("ERROR", "0.5")
    result = run(pytester, BASELINE)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["  relative RMSE * 1.3*  worse"])


def test_an_error_with_other_inputs_fails(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(data=DATA)
    pytester.makeconftest(
        """
        import torch

        SEEN = {}

        def exp(x):
            return torch.exp(x) * (1 if torch.equal(x, SEEN.setdefault("first", x)) else 1.01)

        def pytest_probe_register(registry):
            registry.calls["Torch.exp"] = exp
        """
    )
    result = run(pytester, BASELINE, UPDATE, "--probe-repeat=2")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["note: found with other inputs: --probe-seed=1 --probe-repeat=1"])
    assert lines()["Torch.exp.0.forward"]["verdict"] == "error"


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


def test_outputs_without_one_right_number(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(data=ODD)
    args = (BASELINE, "--probe-dtype=recorded,bfloat16")
    assert run(pytester, *args, UPDATE).ret == 0
    found = {name: case.get("outputs", []) for name, case in lines().items()}
    assert found["Functional.dropout.0.forward"] == [["output.0", None, None, None, None, None, None, 81, None]]
    assert found["Torch.load.0.forward"] == []
    assert found["Torch.argmax.0.forward"][0][1:6] == [None] * 5
    assert len(found["Torch.argmax.0.forward"][0][6]) == 8
    assert [output[1] for output in found["Torch.linalg.qr.0.forward"]] == [None, None]
    assert found["Torch.relu.0.forward"][0][7:] == [0, 0]
    # NaN on both sides is right.
    assert found["Torch.sqrt.0.forward"][0][1] > 0
    assert "Torch.sqrt.0.forward[bfloat16]" in found
    result = run(pytester, *args)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["gate: * as before (base.jsonl)"])
    before = Path("base.jsonl").read_bytes()
    assert run(pytester, *args, UPDATE).ret == 0
    assert Path("base.jsonl").read_bytes() == before


TEST = """
    import torch
    from conftest import worse

    def test_exp(probe):
        probe.check(ERROR, reference=torch.exp, inputs=[probe.tensor((40, 50))])
"""


@pytest.mark.usefixtures("baseline")
def test_checks_of_tests_are_compared(pytester: pytest.Pytester) -> None:
    for error, outcome in ((0, {"passed": 1}), (1, {"failed": 1})):
        pytester.makepyfile(test_mine=TEST.replace("ERROR", f"lambda x: worse(x, {error})"))
        result = pytester.runpytest("test_mine.py", "--probe-baseline=mine.jsonl", *[UPDATE] * (not error))
        result.assert_outcomes(**outcome)
    result.stdout.fnmatch_lines(
        ["*lambda*.0.forward*: pass, worse than the baseline", "*relative RMSE*worse", "*worse: * times the*"]
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
