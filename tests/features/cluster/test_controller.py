"""What the controller does with what its shards say and how they end, without Ray."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_probe.features.cluster import controller
from pytest_probe.features.cluster.controller import Cluster, _Shard
from pytest_probe.features.cluster.shard import Died, Message
from pytest_probe.features.cluster.worker import _Worker
from pytest_probe.model.result import Result
from pytest_probe.model.verdict import Verdict
from pytest_probe.plugin.device_reports import Described
from pytest_probe.plugin.session import make_probe
from pytest_probe.reports.results_file import lines_of, results_in
from tests.support.writing import entries, write_dump

CPU = Described("cpu", [{"device": "cpu"}])


class Pool:
    """Nodes by their names, with what each says of its device; the first that is not refused runs a shard, one that is
    not avoided where there is one. A fatal item takes its shard with it, and no process finds a missing one."""

    queued = 16

    def __init__(self, nodes: dict[str, Described], fatal: Collection[str] = (), missing: Collection[str] = ()) -> None:
        self.nodes, self.fatal, self.missing, self.memory = nodes, fatal, missing, 10
        self.submitted: list[tuple[str, ...]] = []
        self.waiting: dict[int, tuple[tuple[str, ...], int, Collection[str]]] = {}
        self.messages: deque[tuple[int, str, str, Sequence[Message]]] = deque()

    def submit(self, items: tuple[str, ...], memory: int, refused: Collection[str], avoided: Collection[str]) -> int:
        self.submitted.append(items)
        without = {*refused, *avoided}
        self.waiting[len(self.submitted)] = items, memory, without if self.nodes.keys() - without else set(refused)
        return len(self.submitted)

    def wait(self, seconds: float) -> list[Any]:
        return [self.messages.popleft()] if self.messages else []

    def ended(self) -> list[tuple[int, str, str]]:
        waiting, self.waiting = self.waiting, {}
        return [(number, *self._run(number, *shard)) for number, shard in waiting.items()]

    def _run(self, number: int, items: Sequence[str], memory: int, avoided: Collection[str]) -> tuple[str, str]:
        node = next((node for node in self.nodes if node not in avoided and memory <= self.memory), None)
        if node is None:
            return "no device of the cluster is left", "gone"
        said: list[Message] = [self.nodes[node]]
        for item in items if not self.nodes[node].trouble else ():
            if item in self.missing:
                continue
            if item in self.fatal:
                break
            died = Died(item, Verdict("error", "", "x"), None, "")
            said.append(died if item == "dies" else (item, pickle.dumps(((), {}))))
        self.messages.append((number, node, node, said))
        if self.nodes[node].trouble:
            return "RuntimeError", "failed"
        if set(items) & set(self.missing):
            return "1 item did not run", "failed"
        return ("its node is dead", "lost") if len(said) <= len(items) else ("", "failed")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What became of items: None of one that ran, else what was decided."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(controller, "workers_describe_devices", lambda probe: False)
    monkeypatch.setattr(Cluster, "_ran", lambda self, item, reports, files, remark: found.update({item: remark}))

    def decide(self: Any, item: str, verdict: Verdict, device: str | None) -> None:
        if self._waiting.pop(item, None):
            found[item] = verdict

    monkeypatch.setattr(Cluster, "_decide", decide)
    return found


def run(pool: Any, *shards: tuple[tuple[str, ...], int]) -> Cluster:
    probe: Any = SimpleNamespace(config=None, know_names=lambda name, devices: None)
    cluster = Cluster(probe, pool)
    cluster._waiting = {item: item for items, _ in shards for item in items}  # type: ignore[misc]
    for items, memory in shards:
        cluster._submit(_Shard(items, memory))
    while (cluster._waiting or cluster._devices is None) and cluster._goes_on():
        pass
    return cluster


def test_a_node_that_does_not_fit_is_left_out(found: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    pool = Pool({"bad": Described(trouble="it has no dump"), "worse": Described(trouble="another Python"), "good": CPU})
    run(pool, (("a", "b"), 0), (("c",), 0))
    assert found == {"a": "", "b": "", "c": ""}
    assert len(pool.submitted) == 6


def test_no_node_fits(found: dict[str, Any]) -> None:
    nodes = {str(number): Described(trouble=f"{number} has no dump") for number in range(9)}
    for items in (("a",), ()):
        pool = Pool(nodes)
        with pytest.raises(pytest.UsageError, match="0 has no dump"):
            run(pool, (items, 0))
        assert len(pool.submitted) == 10


def test_a_case_that_takes_its_node_is_a_crash_and_the_rest_runs(found: dict[str, Any]) -> None:
    pool = Pool({"node": CPU}, fatal=("b", "d"))
    run(pool, (("a", "b", "c", "d", "e"), 0))
    assert {item for item, verdict in found.items() if verdict == ""} == {"a", "c", "e"}
    for item in "bd":
        assert (found[item].verdict, found[item].kind) == ("error", "crash")
        assert "lost 2 times while it ran" in found[item].reason
        assert found[item].reason.endswith("its node is dead")
    # Nothing that has a result runs again, and a case that may be fatal runs alone.
    assert pool.submitted == [tuple("abcde"), ("b",), tuple("cde"), ("d",), ("e",)]


def test_a_case_at_which_a_node_went_once_has_its_result(found: dict[str, Any]) -> None:
    pool = Pool({"node": CPU}, fatal=["b"])
    ended = pool.ended

    def once() -> list[tuple[int, str, str]]:
        first = ended()
        pool.fatal = ()
        return first

    pool.ended = once  # type: ignore[method-assign]
    run(pool, (("a", "b", "c"), 0))
    assert found == {"a": "", "b": "", "c": ""}


def test_a_shard_that_no_node_can_hold_any_more_does_not_keep_the_run(found: dict[str, Any]) -> None:
    cluster = run(Pool({"node": CPU}), (("a",), 11), (("b",), 10))
    assert found == {"b": ""}
    assert list(cluster._waiting) == ["a"]
    assert cluster._trouble == "no device of the cluster is left"


def test_a_shard_whose_items_are_not_there_is_given_up(found: dict[str, Any]) -> None:
    for nodes in "n", "no", "nodes":  # a node that has failed it tries again where there is no other
        pool = Pool(dict.fromkeys(nodes, CPU), missing=["a"])
        cluster = run(pool, (("a", "b"), 0))
        assert pool.submitted == [("a", "b"), *[("a",)] * 3]
        assert cluster._trouble == "1 item did not run"
    assert found == {"b": ""}


def test_large_cases_have_shards_of_their_own() -> None:
    """Else each shard would ask Ray for the memory of a large case, and few would run at the same time."""
    case = SimpleNamespace(record=None)
    found = [([SimpleNamespace(nodeid=str(size), case=case)], size) for size in (1, 9, 2, 3, 8, 1)]
    one_at_a_time: Any = lambda memory: 1 if memory > 3 else 4  # noqa: E731
    shards = list(controller.shards_of(found, 3, one_at_a_time))  # type: ignore[arg-type]
    assert shards[0] == _Shard(("9", "8"), 9)
    assert sorted(len(shard.items) for shard in shards[1:]) == [1, 1, 1, 1]
    assert max(shard.memory for shard in shards[1:]) == 3


def test_a_death_on_other_hardware_has_a_note(found: dict[str, Any]) -> None:
    pool = Pool({"other": Described("cpu", [{"device": "cpu", "hardware": "a rare one"}])})
    pool.messages.append((9, "first", "first", [CPU]))
    run(pool, (("dies", "b"), 0))
    assert "whose device is cpu (a rare one)" in found["b"]
    assert found["dies"].notes == (found["b"],)


def test_files_that_cannot_be_written_and_another_device_are_notes(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sent: list[Any] = []
    hook = SimpleNamespace(pytest_report_from_serializable=lambda config, data: SimpleNamespace(probe_results=data))
    probe: Any = SimpleNamespace(config=SimpleNamespace(hook=hook))
    cluster = Cluster(probe, Pool({}))  # type: ignore[arg-type]
    cluster._report = lambda item, reports: sent.extend(reports)  # type: ignore[method-assign]
    line = lines_of([Result("d::a", "a", "forward", "", "cpu", "pass", "auto", "", "", 0.0, (), ())])
    item: Any = SimpleNamespace(share=1)
    cluster._ran(item, [line], {str(tmp_path / "file" / "a.pt"): b"x"}, "")
    cluster._ran(item, [line], {str(tmp_path / "new" / "a.pt"): b"x"}, "ran elsewhere")
    notes = [results_in(report.probe_results)[0].notes for report in sent]
    assert notes == [(f"not saved: {tmp_path}/file/a.pt cannot be written (File exists)",), ("ran elsewhere",)]
    assert (tmp_path / "new" / "a.pt").read_bytes() == b"x"


def test_processes_collect_all_dumps_of_the_run(pytester: pytest.Pytester) -> None:
    """Also those that pytest found itself, of which no item is left: labels are the same everywhere then."""
    call = entries("Torch.neg.0", torch.neg, torch.ones(3))
    paths = [write_dump(pytester.mkdir(name), call) for name in "cab"]
    probe = make_probe(pytester.parseconfig("--probe-device=cpu", f"--probe-dump={paths[0]}"))
    for path in paths[1:]:
        probe.dumps.know(path)
    assert list(controller._arguments(probe)) == list(map(str, paths))
    assert set(controller._read(probe)) == set(map(str, paths))


def test_a_relative_path_belongs_to_the_folder_of_the_run() -> None:
    start: Any = SimpleNamespace(folder="/run/here", worker={"probe_files": "/sent"})
    pipe: Any = None
    place = _Worker(pipe, start)._written_at
    assert place(Path("../saved/a.pt")) == Path("/sent/run/saved/a.pt")
    assert place(Path("/out/a.pt")) == Path("/sent/out/a.pt")
