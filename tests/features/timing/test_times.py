"""--probe-mode=time: on a machine whose clock moves only as its calls say, so that nothing hangs on the real one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_probe.frameworks.torch.framework import TorchFramework
from pytest_probe.model.run import Run, Way
from tests.acceptance.conftest import DumpMaker, backward, forward, tensor
from tests.support.csv_cells import rows
from tests.support.fake_clock import Machine
from tests.support.fake_clock import machine as machine
from tests.support.running import by_case, refusal

X = tensor(40, 50)
NAMES = ("exp", "sin", "relu")
DATA = {f"Torch.{name}.0.forward": forward(X, output=X) for name in NAMES}
BOTH = {**DATA, "Torch.exp.0.backward": backward(X, X)}
DEVICES = """
    from tests.support.devices import Emulated

    def pytest_probe_register(registry):
        registry.devices["sim"] = Emulated
"""


@pytest.fixture(autouse=True)
def dump(pytester: pytest.Pytester, make_dump: DumpMaker, machine: Machine) -> Path:
    pytester.makeconftest(DEVICES)
    return make_dump(data=BOTH)


def run(pytester: pytest.Pytester, *args: str, mode: str = "time") -> pytest.RunResult:
    return pytester.runpytest("--probe-dump=dump.json", f"--probe-mode={mode}", *args)


@pytest.fixture(scope="module")
def kept_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("times") / "base"


@pytest.fixture
def base(pytester: pytest.Pytester, dump: Path, kept_base: Path) -> None:
    """base/ has the times of this machine: the test's own copy."""
    if kept_base.exists():
        shutil.copytree(kept_base, "base")
    else:
        run(pytester, "--probe-out=base").assert_outcomes(passed=4)
        shutil.copytree("base", kept_base)


def test_time_alone_makes_no_reference(
    pytester: pytest.Pytester, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[Way] = []
    right = TorchFramework.run

    def seen(self: Any, function: Any, arguments: Any, way: Way, wanted: Any = None) -> Run:
        ways.append(way)
        return right(self, function, arguments, way, wanted)

    monkeypatch.setattr(TorchFramework, "run", seen)
    machine.costs |= {"exp": 2e-3, "backward": 3.1e-3}
    result = run(pytester, "--probe-out=out", "--junitxml=junit.xml")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["probe: *, mode time", "probe: results are measured, and not judged"])
    assert ways
    assert all(way.device is not None for way in ways)
    found = by_case()
    names = ("exp.0.forward", "exp.0.backward", "sin.0.forward")
    medians = [found[f"Torch.{name}"]["time"]["median_us"] for name in names]
    # In a backward a call that does nothing costs nothing, since the device does not make it.
    assert medians == [1900.0, 3100.0, 900.0]
    time = found["Torch.exp.0.forward"]["time"]
    kept = [time[key] for key in ("first_us", "empty_us", "least_us", "clock", "inputs", "sets")]
    assert kept == [2000.0, 100.0, 1900.0, "host", "warm", 1]
    assert (time["input_shapes"], time["output_shapes"]) == ([[40, 50]], [[40, 50]])
    # 40 x 50 floats are read and written in 1.9 ms.
    assert time["throughput"]["gb_per_s"] == pytest.approx(2 * 8000 / 1.9e-3 / 1e9, rel=1e-3)
    assert time["throughput"]["gflop_per_s"] == pytest.approx(2000 / 1.9e-3 / 1e9, rel=1e-3)
    assert time["throughput"]["copy_gb_per_s"] > 0
    assert found["Torch.exp.0.forward"]["outputs"] == []
    assert 'name="probe.time_us" value="1900.0"' in Path("junit.xml").read_text()
    assert not list(Path("out").glob("accuracy*"))
    assert [row["Acc_status"] for row in rows(Path("out"), "prof_summary")] == ["N/A"] * 4


def test_a_slower_operator_is_found_beside_verdicts(pytester: pytest.Pytester, machine: Machine) -> None:
    """Of times alone, beside a baseline: below."""
    run(pytester, "--probe-out=base", "--probe-device=sim", mode="acc,time").assert_outcomes(passed=4)
    judged = by_case("base")["Torch.exp.0.backward"]
    assert judged["outputs"][0]["metrics"]["noise_ratio"] >= 0
    assert judged["time"]["median_us"] == 1000.0
    assert list(Path("base").glob("accuracy*"))
    assert [row["Acc_status"] for row in rows(Path("base"), "prof_summary")] == ["pass"] * 4
    beside = ("--probe-benchmark=base", "--probe-time-limit=1.15", "--probe-device=sim")
    machine.costs["sin"] = 1.27e-3
    result = run(pytester, *beside, "--probe-out=out", mode="acc,time")
    result.assert_outcomes(passed=3, failed=1)
    reason = "1.3 times the benchmark's time: 900 us there, 1.17 ms here; the limit is 1.15 times"
    found = by_case()["Torch.sin.0.forward"]
    assert (found["verdict"], found["kind"], found["reason"]) == ("error", "slower", reason)
    beside_it = {"where": "benchmark", "median_us": 900.0, "ratio": 1.3, "limit": 1.15, "least_us": 900.0}
    assert found["time"]["beside"] == beside_it
    result.stdout.fnmatch_lines(
        [
            "Torch.sin.0.forward in float32 on sim: error",
            "1.3 times the benchmark's time: 900 us there, 1.17 ms here; the limit is 1.15",
            "times",
            "  median                   1.17 ms      900 us",
            "  least                    1.17 ms      900 us",
            "to reproduce: * --probe-mode=acc,time --probe-time-limit=1.15 *--probe-benchmark=base",
            "times: 4 cases, 3.97 ms for one call of each, 1 slower than the limit",
            "slowest compared with the other run            ratio      time     there",
            "Torch.sin.0.forward                              1.3   1.17 ms    900 us",
            "Torch.exp.0.backward                               1      1 ms      1 ms",
            "slowest                                        share      time",
            "Torch.sin.0.forward                           29.5 %   1.17 ms",
        ]
    )
    row = next(row for row in rows(Path("out"), "prof_checking_result") if row["API Name"] == "Torch.sin.0")
    shape = "[[40, 50]]"
    assert [*row.values()] == ["Torch.sin.0", "float32", shape, shape, "forward", "900.0", "1170.0", "1.3"]
    # A case that is too slow may be right.
    status = {row["API Name"]: row["Acc_status"] for row in rows(Path("out"), "prof_summary")}
    assert status["Torch.sin.0"] == "pass"


class Disturbed(dict[str, float]):
    """Calls take twice as long while the machine does something else."""

    def __init__(self, machine: Machine, seconds: float) -> None:
        super().__init__(machine.costs)
        self.machine, self.end = machine, machine.time + seconds

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, default) * (2 if self.machine.time < self.end else 1)


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize(("seconds", "slept"), [(0.06, [0.2]), (2.5, [0.2, 0.8, 2.0])])
def test_what_looks_slower_is_measured_again(
    pytester: pytest.Pytester, machine: Machine, seconds: float, slept: list[float]
) -> None:
    machine.costs = Disturbed(machine, seconds)
    run(pytester, "--probe-out=out", "--probe-benchmark=base", "--probe-time-limit=1.15").assert_outcomes(passed=4)
    assert machine.slept == slept


def test_a_slower_device_is_not_waited_for_without_end(
    pytester: pytest.Pytester, machine: Machine, make_dump: DumpMaker
) -> None:
    make_dump(data={f"Torch.exp.{number}.forward": forward(X, output=X) for number in range(12)})
    run(pytester, "--probe-out=base")
    machine.default *= 2
    beside = ("--probe-benchmark=base", "--probe-time-limit=1.15")
    run(pytester, "--probe-out=out", *beside).assert_outcomes(failed=12)
    assert sum(machine.slept) == pytest.approx(30.0)


TWICE = """
    import torch

    made = []

    def exp(x):
        if x.dtype is torch.float32:
            made.append(x)
            if len(made) > 1:
                raise RuntimeError("output with shape [2] doesn't match")
        return torch.exp(x)

    def pytest_probe_register(registry):
        registry.calls["Torch.exp"] = exp
"""
CHECK = """
    import torch

    def test_sin(probe):
        probe.check(torch.sin, reference=torch.sin, inputs=[probe.tensor((8, 16), "float32")])
"""


def test_each_call_is_measured_for_itself(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """One that raises when it is made again is a skip; in-place calls have fresh copies; checks of tests count too."""
    seen: list[torch.Tensor] = []
    make_dump(data={**DATA, "Tensor.exp_.0.forward": forward(X, output=X)})
    pytester.makeconftest(TWICE)
    pytester.makepyfile(test_mine=CHECK)
    right = torch.Tensor.exp_

    def exp_(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.detach().clone())
        return right(x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "exp_", exp_)
        run(pytester, "test_mine.py", "--probe-out=out", "--probe-time-budget=0.021").assert_outcomes(
            passed=4, skipped=1
        )
    assert len(seen) > 20
    assert all(torch.equal(x, seen[0]) for x in seen)
    found = {row["api"]: row for row in by_case().values()}
    raised = "cpu raised when the call was made again: RuntimeError: output with shape [2] doesn't match"
    assert (found["Torch.exp"]["verdict"], found["Torch.exp"]["time"]) == ("skip", {"reason": raised})
    assert (found["Torch.exp"]["reason"], found["Torch.exp"]["kind"]) == (raised, "not measured")
    assert found["Torch.sin"]["time"]["median_us"] == found["sin"]["time"]["median_us"] == 900.0


# Baselines


BASELINE = ("--probe-baseline=base.jsonl",)
UPDATE = (*BASELINE, "--probe-baseline-update")


def kept(name: str) -> dict[str, Any]:
    lines = map(json.loads, Path("base.jsonl").read_text().splitlines()[1:])
    return next(line for line in lines if line["id"].endswith(name))


def test_a_baseline_keeps_times_and_learns_their_spread(pytester: pytest.Pytester, machine: Machine) -> None:
    run(pytester, *UPDATE).assert_outcomes(passed=4)
    assert kept("sin.0.forward")["time"] == [900.0, 900.0, 1]
    machine.costs["sin"] = 1.27e-3
    result = run(pytester, *BASELINE, "--probe-time-limit=1.15")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["1.3 times the baseline's time: 900 us there, 1.17 ms here*"])
    # What the update takes does not fail.
    run(pytester, *UPDATE, "--probe-time-limit=1.15").assert_outcomes(passed=4)
    assert kept("sin.0.forward")["time"] == [900.0, 1170.0, 2]
    run(pytester, *BASELINE, "--probe-time-limit=1.15").assert_outcomes(passed=4)


def test_times_alone_keep_what_was_judged_and_know_no_failure(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import torch

        def pytest_probe_register(registry):
            registry.calls["Torch.sin"] = lambda x: torch.sin(x) * 1.01
        """
    )
    run(pytester, *UPDATE, mode="acc")
    judged = kept("sin.0.forward")
    assert judged["verdict"] == "error"
    run(pytester, *UPDATE).assert_outcomes(passed=4)
    assert kept("sin.0.forward") == {**judged, "time": [900.0, 900.0, 1]}
    result = run(pytester, *BASELINE)
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["gate: 4 as before (base.jsonl)"])
    assert "bits:" not in result.stdout.str()
    run(pytester, *UPDATE, mode="acc")
    assert kept("sin.0.forward") == {**judged, "time": [900.0, 900.0, 1]}


def test_repeats_measure_the_spread_at_once(pytester: pytest.Pytester) -> None:
    run(pytester, *UPDATE, "--probe-repeat=3").assert_outcomes(passed=4)
    assert kept("sin.0.forward")["time"] == [900.0, 900.0, 3]


# What cannot be used


def test_without_the_mode_nothing_is_measured_and_such_results_are_refused(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nprobe_time_limit = 1.15\nprobe_time_budget = 0.05\n")
    judged = ("--probe-out=judged", "--probe-baseline=judged.jsonl", "--probe-baseline-update")
    run(pytester, *judged, mode="acc").assert_outcomes(passed=4)
    assert "time" not in by_case("judged")["Torch.exp.0.forward"]
    assert not list(Path("judged").glob("prof*"))
    Path("tox.ini").unlink()
    for args, words in {
        ("--probe-time-limit=1.15", "--probe-benchmark=judged"): "*--probe-time-limit: '1.15' * no times are measured: "
        "add --probe-mode=acc,time*",
        ("--probe-mode=time", "--probe-benchmark=judged"): "*--probe-benchmark: '*judged' * its results have no times; "
        "make it with --probe-mode=acc,time*",
        ("--probe-mode=time", "--probe-baseline=judged.jsonl", "--probe-time-limit=1.15"): "*--probe-baseline: "
        "'*judged.jsonl' * it has no times for --probe-time-limit; *",
    }.items():
        refusal(pytester, "--probe-dump=dump.json", *args).fnmatch_lines([words])


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ("cpu", "*-n: 3 cannot be used; times are measured by one worker a device, *"),
        ("sim:0,sim:1", "*-n: 3 cannot be used; * there are 2 devices; give -n 2*"),
    ],
)
def test_several_workers_of_a_device_are_refused(pytester: pytest.Pytester, devices: str, words: str) -> None:
    args = ("--probe-dump=dump.json", "--probe-mode=time", f"--probe-device={devices}")
    refusal(pytester, *args, "--tx=3*popen", "--dist=load").fnmatch_lines([words])


def test_memory_alone_may_have_workers(pytester: pytest.Pytester) -> None:
    run(pytester, "-n", "2", "--probe-out=out", mode="mem").assert_outcomes(passed=4)
    assert by_case()["Torch.exp.0.forward"]["memory"]["peak_bytes"] == 8000


def test_one_worker_may_measure_times(pytester: pytest.Pytester) -> None:
    run(pytester, "-n", "auto", "--probe-out=out", "--probe-time-budget=0").assert_outcomes(passed=4)
    assert by_case()["Torch.exp.0.forward"]["time"]["note"] == "once"


@pytest.mark.usefixtures("base")
def test_a_run_that_goes_on_measures_the_same(pytester: pytest.Pytester) -> None:
    said = refusal(pytester, "--probe-dump=dump.json", "--probe-out=base", "--probe-resume", "--probe-mode=acc,time")
    said.fnmatch_lines(["*its run has mode time, this run has acc,time*"])
