"""--probe-cluster on nodes of Ray's own in one machine: results, deaths, a lost node, and what does not go."""

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

from tests.acceptance.conftest import DumpMaker, entries
from tests.features.cluster.conftest import STORE
from tests.support import forks
from tests.support.dumps import unpack
from tests.support.other_plugins import junit_of
from tests.support.running import refusal, timeless

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("address", "forked")]

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'pytest-probe[cluster]'")

SHARD = b"pytest-probe shard"
RUN = ["--probe-dump=dump.json", "--probe-cluster=ray", "--probe-device=cpu"]


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*args, "-p", "no:randomly", timeout=240)


def written(pytester: pytest.Pytester, folder: str = "out") -> dict[str, dict[str, Any]]:
    """By the entry of their case: all but durations, the gate, and details: which of many passes are shown in detail is
    decided in each process."""
    return {name: {**row, "details": None, "gate": None} for name, row in timeless(pytester.path / folder).items()}


def processes(address: str) -> list[int]:
    """The shards on the nodes of this cluster, and their workers. Another worker of this suite may have a cluster of
    its own on this machine."""
    commands, parents = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            commands[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])

    def below(process: int, *words: bytes) -> bool:
        command = commands.get(process, b"")
        return all(word in command for word in words) or (process in parents and below(parents[process], *words))

    ours = b"raylet", f"--gcs-address={address} ".encode()
    return [process for process in commands if below(process, b"ray::" + SHARD) and below(process, *ours)]


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


# Records of number 99 kill their process, those of 98 the shard on a cluster, as where Ray ends it for memory; and one
# is killed from outside, once.
FAULTS = """
    import ctypes, os, signal
    from pathlib import Path
    from msgspec.structs import replace

    os.environ["HERE"] = "1"

    def pytest_configure_node(node):
        node.workerinput["given"] = "a worker" if hasattr(node.config, "workerinput") else "who reports"

    def pytest_sessionstart(session):
        if hasattr(session.config, "workerinput"):
            assert session.config.workerinput["given"] == "who reports"

    def pytest_probe_inputs(case, arguments):
        if case.record.number == 99:
            ctypes.string_at(0)
        if case.record.number == 98 and "PLANTED" == "warning":
            with Path(__file__).with_name("tries").open("a") as file:
                file.write("x")
            os.kill(os.getppid(), signal.SIGKILL)
        killed = Path(__file__).with_name("killed")
        if case.record.api == "linear" and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def pytest_probe_verdict(case, verdict):
        if (case.record.api, case.direction) == ("avg_pool2d", "forward"):
            return replace(verdict, verdict="PLANTED", reason="planted")
"""


def test_results_and_saved_tensors_are_those_of_a_run_on_this_machine(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    """A test of the user's own runs here. Of the cases that are compared with a baseline, one got worse; another
    kills its process, and one its shard, of which all others have results."""
    relu = entries()["Functional.relu.0.forward"]
    make_dump(data={f"Functional.relu.{number}.forward": relu for number in (98, 99)})
    common = ["--probe-dump=dump.json", f"--probe-dump={unpack('msprobe-26.2.0/cnn', pytester.path)}", "test_own.py"]
    common += ["--probe-device=cpu", "--probe-skip-api=*dropout*", "--probe-save=all"]
    common.append("--probe-baseline=base.jsonl")
    pytester.makepyfile(test_own="import os\ndef test_own():\n    assert os.environ['HERE'] == '1'")
    names = ("here", "cluster")
    own = ["--probe-isolate", "--probe-baseline-update"], ["--probe-cluster=ray", "--probe-html=page.html"]
    runs = []
    for name, planted, more in zip(names, ("pass", "warning"), own, strict=True):
        pytester.makeconftest(FAULTS.replace("PLANTED", planted))
        runs.append(run(pytester, *common, *more, f"--probe-out={name}", f"--junit-xml={name}.xml"))
        (pytester.path / "killed").unlink()
    here, sent = (written(pytester, name) for name in names)
    worse = "Functional.avg_pool2d.0.forward"
    assert (here.pop(worse)["verdict"], sent.pop(worse)["verdict"]) == ("pass", "warning")
    ends_shard = "Functional.relu.98.forward"
    crash = sent.pop(ends_shard)
    assert (here.pop(ends_shard)["verdict"], crash["verdict"], crash["kind"]) == ("pass", "error", "crash")
    lost = "its process or node was lost 3 times while it ran; it is not run again: The worker died unexpectedly"
    assert crash["reason"].startswith(lost)
    assert (pytester.path / "tries").read_text() == "xxx"
    assert sent == here
    died = [name for name, row in sent.items() if (row["verdict"], row.get("kind")) == ("error", "crash")]
    assert died == ["Functional.relu.99.forward"]
    cases = [[dict(case.properties) for case in junit_of(pytester.path / f"{name}.xml")] for name in names]
    moved = [case["probe.id"].rpartition("::")[2] for case in cases[1] if case.get("probe.gate") == "worse"]
    assert moved == [worse]
    for properties in (*cases[0], *cases[1]):
        properties.pop("probe.gate", None)
        properties.pop("probe.gate_reason", None)
    others = (worse, ends_shard)
    same = [sorted(str(case) for case in each if not case.get("probe.id", worse).endswith(others)) for each in cases]
    assert same[0] == same[1]
    runs[1].stdout.fnmatch_lines(["probe: cpu, torch *, dtype recorded, *"])
    runs[1].stdout.fnmatch_lines(["gate: 1 worse, * as before *(base.jsonl)"])
    runs[1].stdout.fnmatch_lines([f"to reproduce: pytest 'dump.json::{ends_shard}' --probe-device=cpu*"])
    assert (pytester.path / "page.html").exists()
    said = json.loads((pytester.path / "cluster/run.json").read_text())
    assert [device["device"] for device in said["devices"]] == ["cpu"]
    assert {node["device"] for node in said["nodes"]} == {"cpu"}
    assert said["not_run"] == 0
    saved = [sorted(path.name for path in (pytester.path / name).glob("saved/**/*.pt")) for name in names]
    assert [name for name in saved[0] if not name.startswith(ends_shard)] == saved[1] != []
    script = next((pytester.path / "cluster").glob("saved/**/*.py"))
    assert pytester.run(sys.executable, script).ret == 0


CASES = 20
# All cases but the first wait for a file, so that nothing that is looked at has run by then; the last one for ever.
GO = "go"
WAITS = f"""
    import time
    from pathlib import Path

    def pytest_probe_inputs(case, arguments):
        number = case.record.number
        while number == {CASES - 1} or (number and not Path(__file__).with_name("{GO}").exists()):
            time.sleep(0.02)
"""


def test_a_lost_node_costs_nothing_and_ctrl_c_leaves_nothing_behind(
    pytester: pytest.Pytester, make_dump: DumpMaker, cluster: Any
) -> None:
    """The one device of the first node goes; of the two others one runs a case that does not end."""
    first, _ = (cluster.add_node(num_cpus=0, resources={"there": devices}, **STORE) for devices in (1, 2))
    relu = entries()["Functional.relu.0.forward"]
    make_dump(data={f"Functional.relu.{each}.forward": relu for each in range(CASES)})
    pytester.makeconftest(WAITS)
    command = ["-m", "pytest", *RUN, "--probe-cluster=ray,resource=there", "--probe-out=out", "-p", "no:cacheprovider"]
    process = forks.Program(command, pytester.path, os.environ)
    results = pytester.path / "out/results.jsonl"

    def are_there(number: int) -> bool:
        return results.exists() and results.read_bytes().count(b"\n") == number

    try:
        assert ends(lambda: are_there(1) and len(processes(cluster.address)) >= 6)
        cluster.remove_node(first, allow_graceful=False)
        (pytester.path / GO).touch()  # let the cases run that wait
        assert ends(lambda: are_there(CASES - 1))
        left = processes(cluster.address)
    finally:
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=240)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, said
    assert len(left) >= 2
    assert ends(lambda: not any(map(runs, left)))
    assert ends(lambda: not processes(cluster.address))
    assert len(written(pytester)) == CASES - 1
    assert f"{CASES - 1} passed" in said


def test_a_shard_that_ray_ends_for_memory_is_not_tried_for_ever(
    pytester: pytest.Pytester, make_dump: DumpMaker, cluster: Any
) -> None:
    always = {"RAY_memory_usage_threshold": "0.01", "RAY_memory_monitor_refresh_ms": "100"}
    node = cluster.add_node(num_cpus=0, resources={"full": 1}, env_vars=always, **STORE)
    make_dump()
    result = run(pytester, *RUN, "--probe-cluster=ray,resource=full")
    cluster.remove_node(node)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: * killed due to the node running low on memory*"])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-n1"], "--probe-cluster: 'ray' cannot be used; -n starts processes on this machine*"),
        (["--probe-cluster=ray,resource=TPU"], "--probe-cluster: 'TPU' cannot be used; no node*there are *CPU*"),
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
        [f"ERROR: --probe-cluster: '{given}' cannot be used; no cluster answers at *:{port}: {why}"]
    )
