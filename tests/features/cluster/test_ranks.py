"""--probe-ranks with --probe-cluster: collectives made on the devices of two nodes of Ray's own in one machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_probe.errors import NoKernel
from pytest_probe.features.collectives.processes import Processes, RanksFailed
from pytest_probe.frameworks.torch.collectives import PROGRAM
from pytest_probe.model.collective import RankCall
from tests.features.collectives.dumps import write
from tests.features.collectives.test_replay import COLLECTIVES, all_ways
from tests.support.running import timeless

pytestmark = pytest.mark.slow

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'pytest-probe[cluster]'")

Making = Callable[[str], Sequence[Any]]


@pytest.mark.usefixtures("address", "forked")
def test_verdicts_are_those_of_ranks_on_this_machine(pytester: pytest.Pytester) -> None:
    write(pytester.path / "dump", all_ways())
    common = ["--probe-dump=dump", "--probe-ranks=2", "-p", "no:randomly"]
    pytester.runpytest_inprocess(*common, "--probe-out=here")
    result = pytester.runpytest_subprocess(*common, "--probe-out=there", "--probe-cluster=ray")
    result.assert_outcomes(passed=17, skipped=3)
    result.stdout.fnmatch_lines(["probe: collectives are made again by 2 ranks of gloo, on the cluster"])
    assert timeless("there") == timeless("here")


@pytest.fixture(scope="module")
def devices(cluster: Any) -> Iterator[Any]:
    """Those of two nodes, for this process."""
    from pytest_probe.features.cluster.ray_ranks import HostDevice

    ray.init(cluster.address, log_to_driver=False)
    nodes = [(node["NodeID"], node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"]]
    own = {"STARTED_BY": f"{os.getpid()} for all"}
    yield [
        HostDevice(node, 0, address, {**own, "HOST": str(number)}) for number, (node, address) in enumerate(nodes[:2])
    ]
    ray.shutdown()


@pytest.fixture(scope="module")
def processes(devices: Any) -> Iterator[Processes]:
    """Of three ranks, on two devices."""
    from pytest_probe.features.cluster.ray_ranks import RayRanks

    found = Processes(RayRanks(lambda count, seconds: devices, {}), 3, "gloo", PROGRAM, 150.0)
    yield found
    found.close()


@pytest.fixture
def make(processes: Processes, tmp_path: Path) -> Making:
    """What each rank receives of a collective of the user's own: rank r sends r + 1."""
    path = tmp_path / "mine.py"
    path.write_text(
        dedent(COLLECTIVES)
        + "def where(x):\n    return x * 0 + int(os.environ['HOST'])\n"
        + "def ends(x):\n    os._exit(3) if dist.get_rank() == 2 else dist.all_reduce(x)\n"
    )

    def made(name: str) -> Sequence[Any]:
        own = (str(path), "mine", name)
        sent = [np.full(2, rank + 1, np.float32) for rank in range(3)]
        calls = [RankCall("reduced to all", "total", 3, 0, each, (2,), function=own) for each in sent]
        return [each.tolist() for (each,) in processes.make(calls)]

    return made


def test_several_ranks_share_a_device(make: Making) -> None:
    assert make("mine") == [[6.0, 6.0]] * 3
    assert make("where") == [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dies", "rank 1 of 3 died: signal 9 (SIGKILL)"),
        ("ends", "rank 2 of 3 died: exit status 3"),
        ("raises", "rank 1 of 3 raised ValueError: no"),
    ],
)
def test_a_rank_that_ends_or_raises_is_named(make: Making, name: str, words: str) -> None:
    with pytest.raises(RanksFailed) as raised:
        make(name)
    assert str(raised.value) == words
    assert make("mine") == [[6.0, 6.0]] * 3, "the next one starts new processes"


def test_a_rank_that_hangs_says_where(make: Making, processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    make("mine")
    monkeypatch.setattr(processes, "_seconds", 2.0)
    with pytest.raises(RanksFailed, match=r"ranks 0 to 2 of 3 did not end within 2 s") as raised:
        make("hangs")
    assert "in hangs" in raised.value.stacks[1]
    assert ended("STARTED_BY", "all")


def test_a_rank_whose_node_goes_away_is_named(devices: Any) -> None:
    from pytest_probe.features.cluster.ray_ranks import RayRanks

    pool = RayRanks(lambda count, seconds: devices, {"STARTED_FOR": f"{os.getpid()} for this"})
    pool.start(2, "gloo", PROGRAM, 60.0)
    ray.kill(pool._actors[1])
    found: dict[int, Any] = {}
    while 1 not in found:
        found |= pool.answers([1], 30.0)
    assert found[1].kind == "lost"
    assert found[1].value.startswith("its node went away (")
    pool.close()
    assert ended("STARTED_FOR", "this")


@pytest.mark.usefixtures("devices")
def test_a_node_without_the_package_says_so() -> None:
    from ray import cloudpickle

    from pytest_probe.features.cluster.ray_pool import task_of_shard

    task = cloudpickle.dumps(task_of_shard())

    def without() -> Any:
        for name in [name for name in sys.modules if name.partition(".")[0] == "pytest_probe"]:
            del sys.modules[name]
        sys.modules["pytest_probe"] = None  # type: ignore[assignment]
        said: list[Any] = []
        why = cloudpickle.loads(task)(({}, b""), (), None, 1, SimpleNamespace(put=said.append))
        return said, why

    remote: Any = ray.remote
    [(number, *place, message)], why = ray.get(remote(without).remote())
    assert (number, message) == (1, None)
    assert place in [[each["NodeID"], each["NodeManagerAddress"]] for each in ray.nodes()]
    assert why.startswith("ModuleNotFoundError: No module named 'pytest_probe.")


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """How many CPUs each node has that is there."""
    from pytest_probe.features.cluster import ray_pool

    nodes = {"a": 1.0, "b": 2.0}
    found = lambda: [{"NodeID": node, "Resources": {"CPU": cpus}} for node, cpus in nodes.items()]  # noqa: E731
    monkeypatch.setattr(ray_pool, "_nodes", found)
    return nodes


@pytest.fixture
def pool(nodes: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The second node alone can run a shard, and the first shard has been submitted."""
    from pytest_probe.features.cluster import ray_pool

    pool: Any = object.__new__(ray_pool.RayPool)
    pool._wanted, pool._resource, pool._one, pool._number = {"num_cpus": 2}, "CPU", True, 0
    pool._tasks, pool._begun, pool.refused, pool._start, pool._queue = {}, set(), {}, None, Words()
    pool._task = Task()
    monkeypatch.setattr(ray, "wait", lambda tasks, timeout: ([], tasks))
    pool.submit(["item"])
    return pool


class Words:
    """A queue in which the messages of shards are."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def size(self) -> int:
        return len(self.said)

    def get_nowait_batch(self, size: int) -> list[Any]:
        said, self.said = self.said, []
        return said


class Task:
    """Submitted to no cluster."""

    def options(self, **options: Any) -> Task:
        self.wanted = options
        return self

    def remote(self, start: Any, items: Any, resource: Any, number: int, queue: Any) -> str:
        return f"task {number}"


def test_shards_end_where_no_device_is_left(pool: Any, nodes: dict[str, float]) -> None:
    assert pool.news() == ([], [])
    nodes.clear()
    assert pool.news() == ([], [(1, "no device of the cluster is left", True)])
    pool.refused["b"], nodes["b"] = "it has no dump", 2.0
    pool.submit(["item"])
    assert pool.news() == ([], [(2, "no device of the cluster is left (it has no dump)", True)])


def test_a_shard_that_runs_on_a_refused_node_goes_on(pool: Any) -> None:
    pool.refused["b"] = "a shard could not start"
    pool._queue.said = [(1, "b", "node b", None)]
    assert pool.news() == ([(1, "b", "node b", None)], [])
    pool.submit(["item"])
    assert pool.news() == ([], [])


def test_a_node_is_avoided_while_another_can_run_a_shard(pool: Any, nodes: dict[str, float]) -> None:
    """It is no reason to wait for ever."""
    pool.submit(["item"], ["b"])
    assert "label_selector" not in pool._task.wanted
    nodes["c"] = 2.0
    pool.submit(["item"], ["b"])
    assert pool._task.wanted["label_selector"] == {"ray.io/node-id": "!in(b)"}
    del nodes["c"]
    assert pool.news() == ([], [(3, "no device of the cluster is left", True)])
    pool.submit(["item"], ["b"])
    assert "label_selector" not in pool._task.wanted


def test_a_lost_head_is_named(pool: Any) -> None:
    def lost() -> int:
        raise ray.exceptions.RayActorError

    pool._queue.size = lost
    with pytest.raises(ConnectionError, match=r"^the head of the cluster is lost \("):
        pool.news()


@pytest.mark.usefixtures("devices")
def test_without_a_free_device_it_is_a_skip() -> None:
    from pytest_probe.features.cluster.ray_ranks import RayRanks

    with pytest.raises(NoKernel, match="no device of the cluster was free for a rank"):
        Processes(RayRanks(lambda count, seconds: [], {}), 2, "gloo", PROGRAM, 60.0).make([])


def ended(name: str, purpose: str) -> bool:
    """Does no process of a rank that this process had started for this run any more, a little later?"""
    own = f"\0{name}={os.getpid()} for {purpose}\0".encode()
    end = time.monotonic() + 30
    while any(own in variables(process) for process in Path("/proc").glob("[0-9]*")):
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def variables(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:  # it has ended
        return b""
