"""What --probe-cluster costs: `python benchmarks/cluster_cost.py`. Needs Ray: pip install 'pytest-probe[cluster]'.

A Ray of its own on this machine, with pytest's own plugins and ours alone, and cases of a dump that repeats the records
of cases/gpt. They do not run: each passes at once, or after it has slept.

1. The controller's CPU an item of 10,000 cases that do nothing, on two devices, from the first result to the last;
   beside -n 2 on the same cases.
2. Bytes of a case's reports on their way back.
3. Seconds of a run of cases that sleep 50 ms, on two devices over one, from the first result to the last.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.reading_speed import write_dump
from pytest_probe.model.verdict import Verdict
from pytest_probe.plugin.items import ProbeItem

NOTHING, SLEEPING = 10_000, 400
SLEEP = 0.05
# Of the variables of its environment a run tells its shards those of pytest.
TOLD, SLEEPS = "CLUSTER_COST_TOLD", "PYTEST_CLUSTER_COST_SLEEPS"
PLUGINS = ["-p", "xdist.plugin", "-p", "pytest_probe.plugin", "-p", "benchmarks.cluster_cost", "-c", os.devnull]
BEGUN: list[tuple[float, float, int]] = []
SENT = {"back": 0, "items": 0}


def pytest_configure(config: pytest.Config) -> None:
    """As a plugin, in every process: cases pass, and what is sent is counted."""
    setattr(ProbeItem, "judge", _judge)  # noqa: B010
    on_cluster = any(arg.startswith("--probe-cluster=") for arg in sys.argv)
    if on_cluster and not hasattr(config, "workerinput"):
        from pytest_probe.features.cluster.ray_pool import RayPool

        news = RayPool.news

        def counted_news(self: RayPool) -> Any:
            said, ended = news(self)
            reports = [message[1] for *_, message in said if isinstance(message, tuple)]
            SENT["back"] += sum(len(pickle.dumps(each)) for each in reports)
            SENT["items"] += len(reports)
            return said, ended

        setattr(RayPool, "news", counted_news)  # noqa: B010


def _judge(item: ProbeItem) -> Verdict:
    time.sleep(float(os.environ[SLEEPS]))
    return Verdict("pass", "auto", "")


def pytest_runtest_logstart() -> None:
    """As a plugin: when the first result is here."""
    if not BEGUN:
        BEGUN.append((time.perf_counter(), time.process_time(), SENT["items"]))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """As a plugin: append what the items took to a file."""
    found = yield
    if not hasattr(session.config, "workerinput"):
        wall, cpu, _ = BEGUN[0]
        told = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, **SENT}
        Path(os.environ[TOLD]).write_text(json.dumps({**told, "items": session.testscollected}))
    return found


def run(folder: Path, records: int, sleep: float, *args: str) -> dict[str, float]:
    """What the controller told of a run of these many records."""
    dump = folder / f"{records}.json"
    if not dump.exists():
        write_dump(dump, records, nan=False)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(Path(__file__).parents[1]),
        TOLD: str(folder / "told.json"),
        SLEEPS: str(sleep),
    }
    own = ["-q", f"--probe-dump={dump}", "--probe-device=cpu", "--probe-direction=forward", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *PLUGINS, *own, *args]
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if process.returncode:
        sys.exit(process.stdout + process.stderr)
    found: dict[str, float] = json.loads((folder / "told.json").read_text())
    return found


def main() -> None:
    from ray.cluster_utils import Cluster

    args = {"num_cpus": 2, "resources": {"ONE": 1, "TWO": 2}, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=args)
    os.environ["RAY_ADDRESS"] = cluster.address
    one, two = ([f"--probe-cluster=ray,resource={name}"] for name in ("ONE", "TWO"))
    try:
        with tempfile.TemporaryDirectory() as name:
            measure(Path(name), one, two)
    finally:
        cluster.shutdown()


def measure(folder: Path, one: list[str], two: list[str]) -> None:
    found = run(folder, NOTHING, 0.0, *two)
    items = found["items"]
    print(f"{items:,.0f} cases that do nothing: {found['cpu'] / items * 1e3:.2f} ms of the controller's CPU an item")
    print(f"reports of a case: {found['back'] / items:,.0f} bytes")
    beside = run(folder, NOTHING, 0.0, "-n2")
    print(f"-n 2 on the same cases: {beside['cpu'] / beside['items'] * 1e3:.2f} ms")
    walls = [run(folder, SLEEPING, SLEEP, *devices)["wall"] for devices in (one, two)]
    print(
        f"{SLEEPING} cases of {SLEEP * 1e3:g} ms: {walls[0]:.1f} s on one device, {walls[1]:.1f} s on two: "
        f"{walls[1] / walls[0]:.2f}"
    )


if __name__ == "__main__":
    main()
