"""--probe-cluster on three nodes of Ray's own in one machine: results, deaths, and what does not go."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.features.cluster import worker
from tests.acceptance.conftest import DumpMaker, entries
from tests.acceptance.test_workers import FAULTS
from tests.support import forks
from tests.support.dumps import unpack
from tests.support.other_plugins import junit_of
from tests.support.running import refusal, timeless

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("address", "forked")]

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'pytest-probe[cluster]'")

RUN = ["--probe-dump=dump.json", "--probe-cluster=ray", "--probe-device=cpu"]
# In the command of a process that a shard keeps.
WORKER = worker.__name__.encode()


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*args, "-p", "no:randomly", timeout=240)


def written(pytester: pytest.Pytester, folder: str = "out") -> dict[str, dict[str, Any]]:
    """By the entry of their case: all but durations, the gate, and details: which of many passes are shown in detail is
    decided in each process."""
    return {name: {**row, "details": None, "gate": None} for name, row in timeless(pytester.path / folder).items()}


def processes(address: str, *, and_theirs: bool = False) -> list[int]:
    """The shards on the nodes of this cluster, and, where asked for, the processes that they keep. Another worker of
    this suite may have a cluster of its own on this machine."""
    commands, parents = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            commands[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])

    def of_this_cluster(process: int) -> bool:
        command = commands.get(process, b"")
        own = b"raylet" in command and f"--gcs-address={address} ".encode() in command
        return own or (process in parents and of_this_cluster(parents[process]))

    wanted = (b"ray::_shard", *([WORKER] if and_theirs else []))
    found = [process for process, command in commands.items() if any(name in command for name in wanted)]
    return [process for process in found if of_this_cluster(process)]


def runs(process: int) -> bool:
    """Also where the one that started it has ended. What has ended itself has no command."""
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except OSError:
        return False


def ends(check: Callable[[], bool]) -> bool:
    """Does it become true, however loaded the machine is?"""
    end = time.monotonic() + 240
    while not check():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


PLANTED = """
    import os
    from msgspec.structs import replace

    os.environ["HERE"] = "1"

    def pytest_probe_verdict(case, verdict):
        if (case.record.api, case.direction) == ("avg_pool2d", "forward"):
            return replace(verdict, verdict="PLANTED", reason="planted")
"""


def test_results_and_saved_tensors_are_those_of_a_serial_run(pytester: pytest.Pytester) -> None:
    """A test of the user's own runs here. Of the cases that are compared with a baseline, one got worse."""
    pytester.makepyfile(test_own="import os\ndef test_own():\n    assert os.environ['HERE'] == '1'")
    dump = f"--probe-dump={unpack('msprobe-26.2.0/cnn', pytester.path)}"
    common = [dump, "test_own.py", "--probe-device=cpu", "--probe-skip-api=*dropout*", "--probe-save=all"]
    common.append("--probe-baseline=base.jsonl")
    names = ("serial", "cluster")
    own = ["--probe-baseline-update"], ["--probe-cluster=ray", "--probe-html=page.html"]
    runs = []
    for name, planted, more in zip(names, ("pass", "warning"), own, strict=True):
        pytester.makeconftest(PLANTED.replace("PLANTED", planted))
        runs.append(run(pytester, *common, *more, f"--probe-out={name}", f"--junit-xml={name}.xml"))
    serial, sent = (written(pytester, name) for name in names)
    worse = "Functional.avg_pool2d.0.forward"
    assert (serial.pop(worse)["verdict"], sent.pop(worse)["verdict"]) == ("pass", "warning")
    assert sent == serial
    cases = [[dict(case.properties) for case in junit_of(pytester.path / f"{name}.xml")] for name in names]
    moved = [case for case in cases[1] if case.get("probe.gate") == "worse"]
    assert [case["probe.id"].rpartition("::")[2] for case in moved] == [worse]
    for properties in (*cases[0], *cases[1]):
        properties.pop("probe.gate", None)
        properties.pop("probe.gate_reason", None)
    same = [sorted(str(case) for case in each if worse not in case.get("probe.id", "")) for each in cases]
    assert same[0] == same[1]
    runs[1].stdout.fnmatch_lines(["probe: cpu, torch *, dtype recorded, *", "gate: 1 worse, * as before *(base.jsonl)"])
    assert (pytester.path / "page.html").exists()
    told = json.loads((pytester.path / "cluster/run.json").read_text())
    assert [device["device"] for device in told["devices"]] == ["cpu"]
    assert {node["device"] for node in told["nodes"]} == {"cpu"}
    assert told["not_run"] == 0
    saved = [sorted(path.name for path in (pytester.path / name).glob("saved/**/*.pt")) for name in names]
    assert saved[0] == saved[1] != []
    script = next((pytester.path / "cluster").glob("saved/**/*.py"))
    assert pytester.run(sys.executable, script).ret == 0


HANGS = """
    import signal, time
    from pathlib import Path

    def pytest_probe_inputs(case, arguments):
        if case.record.api == "relu" and case.direction == "forward":
            time.sleep(1000)
        killed = Path(__file__).with_name("killed")
        if case.record.api == "linear" and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_deaths_and_hangs_have_the_kinds_that_they_have_without_it(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    """What is killed once runs again; what is killed at each run: test_shard.py."""
    make_dump()
    pytester.makeconftest(FAULTS + HANGS)
    run(pytester, *RUN, "--probe-timeout=3", "--probe-out=out")
    found = written(pytester)
    assert {name: (row["verdict"], row.get("kind", "")) for name, row in found.items() if "load" not in name} == {
        "Functional.relu.0.forward": ("error", "timeout"),
        "Functional.relu.0.backward": ("error", "crash"),
        "Torch.argmax.0.forward": ("skip", "no reference"),
        **{f"Functional.linear.0.{way}": ("pass", "") for way in ("forward", "backward")},
    }
    assert found["Functional.relu.0.backward"]["reason"] == "the process died by SIGSEGV while the device ran it"
    assert (pytester.path / "killed").exists()


# All cases but the first wait for this file, so that nothing that is looked at has run by then.
GO = "go"
STORE = {"object_store_memory": 100 * 2**20}
WAITS = f"""
    import time
    from pathlib import Path

    def pytest_probe_inputs(case, arguments):
        while case.record.number and not Path(__file__).with_name("{GO}").exists():
            time.sleep(0.02)
"""


def relus(number: int) -> dict[str, Any]:
    relu = entries()["Functional.relu.0.forward"]
    return {f"Functional.relu.{each}.forward": relu for each in range(number)}


def begun(pytester: pytest.Pytester, *args: str) -> forks.Program:
    """A run that has results, and goes on."""
    command = ["-m", "pytest", *RUN, "--probe-out=out", "-p", "no:cacheprovider", *args]
    process = forks.Program(command, pytester.path, os.environ)
    file = pytester.path / "out/results.jsonl"
    if not ends(lambda: file.exists() and bool(file.read_bytes())):
        process.kill()
        pytest.fail(process.communicate()[0])
    return process


@pytest.mark.parametrize("lost", ["node", "shard"])
def test_what_a_lost_node_or_a_killed_shard_had_runs_again_once(
    pytester: pytest.Pytester, make_dump: DumpMaker, cluster: Any, lost: str
) -> None:
    node = cluster.add_node(num_cpus=1, resources={"gone": 1}, **STORE) if lost == "node" else None
    make_dump(data=relus(60))
    pytester.makeconftest(WAITS)
    process = begun(pytester)
    if node is None:
        os.kill(min(processes(cluster.address)), signal.SIGKILL)
    else:
        cluster.remove_node(node, allow_graceful=False)
    (pytester.path / GO).touch()  # let the cases run that wait
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    assert len(written(pytester)) == 60
    assert "60 passed" in said


def test_a_run_without_devices_ends_with_an_error(
    pytester: pytest.Pytester, make_dump: DumpMaker, cluster: Any
) -> None:
    node = cluster.add_node(num_cpus=0, resources={"lonely": 1}, **STORE)
    make_dump(data=relus(40))
    pytester.makeconftest(WAITS)
    process = begun(pytester, "--probe-cluster=ray,resource=lonely")
    cluster.remove_node(node, allow_graceful=False)
    said, _ = process.communicate(timeout=240)
    assert process.returncode != 0
    assert len(written(pytester)) == 1
    assert "no device of the cluster is left; 39 cases did not run:" in said


def test_ctrl_c_leaves_nothing_behind(pytester: pytest.Pytester, make_dump: DumpMaker, cluster: Any) -> None:
    make_dump(data=relus(20))
    pytester.makeconftest(WAITS)
    process = begun(pytester)
    shards, all_of_them = processes(cluster.address), processes(cluster.address, and_theirs=True)
    assert shards
    assert len(all_of_them) > len(shards)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=240)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, said
    assert ends(lambda: not any(map(runs, all_of_them)))
    assert ends(lambda: not processes(cluster.address, and_theirs=True))
    assert f"{len(written(pytester))} passed" in said


def test_x_stops_the_run(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(data=relus(100))
    pytester.makeconftest(FAULTS)
    result = run(pytester, *RUN, "-x", "--probe-out=out")
    result.stdout.fnmatch_lines(["*stopping after 1 failures*", "*1 failed*"])
    assert len(written(pytester)) < 100


def test_what_a_node_cannot_hold_is_skipped(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    large = entries()["Functional.relu.0.forward"]
    large = json.loads(json.dumps(large).replace("[2, 3]", "[4096, 4096]"))
    make_dump(data={"Functional.relu.0.forward": large, **{"Functional.relu.1.forward": relus(1).popitem()[1]}})
    result = run(pytester, *RUN, "--probe-cluster=ray,resource=NPU", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*about 1.* GiB, and no node of the cluster has more than 0.0625 GiB*"])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-n1"], "--probe-cluster: 'ray' cannot be used; -n starts processes on this machine*"),
        (["--probe-cluster=ray,resource=TPU"], "--probe-cluster: 'TPU' cannot be used; no node*there are *CPU*NPU*"),
        (["--probe-device=tpu"], "--probe-device: 'tpu' cannot be used; torch says: *"),
    ],
)
def test_options_that_a_cluster_refuses(
    pytester: pytest.Pytester, make_dump: DumpMaker, args: list[str], said: str
) -> None:
    make_dump()
    result = run(pytester, *RUN, *args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {said}"])
    result.stderr.no_fnmatch_line("*Traceback*")


def test_ray_is_not_installed(pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    make_dump()
    monkeypatch.setitem(sys.modules, "ray", None)
    wanted = "it needs Ray, which is not installed: pip install 'pytest-probe[[]cluster[]]'"
    refusal(pytester, *RUN).fnmatch_lines([f"--probe-cluster: 'ray' cannot be used; {wanted}"])


@pytest.mark.parametrize("listens", [False, True])
def test_an_address_that_does_not_answer_is_a_usage_error(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    make_dump()
    pytester.makeconftest("from pytest_probe.features.cluster import ray_pool\nray_pool._ANSWERS = 5.0")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        if listens:
            server.listen()
            monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        given = "ray" if listens else f"ray://127.0.0.1:{port}"
        result = run(pytester, "--probe-dump=dump.json", f"--probe-cluster={given}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    why = "what listens there is no Ray, *" if listens else "* Connection refused"
    result.stderr.fnmatch_lines(
        [f"ERROR: --probe-cluster: '{given}' cannot be used; no cluster answers at *:{port} within 5 s: {why}"]
    )
