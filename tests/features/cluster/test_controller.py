"""What the process that reports does with what its shards say and how they end, without Ray."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_probe.features.cluster import controller
from pytest_probe.features.cluster.controller import Cluster, _Shard
from pytest_probe.model.result import Result
from pytest_probe.plugin.session import make_probe
from pytest_probe.reports.results_file import lines_of, results_in
from tests.support.writing import entries, write_dump

CPU = [{"device": "cpu"}]


class Pool:
    """Nodes by their names, with why each runs no shard. The first that is not refused runs one, and that is not
    avoided where there is such a one. A fatal item takes its shard with it, a repeated one is also said again and by a
    shard that was lost, and a missing one has no result."""

    def __init__(
        self,
        nodes: dict[str, str],
        fatal: Collection[str] = (),
        repeated: Collection[str] = (),
        missing: Collection[str] = (),
    ) -> None:
        self.nodes, self.fatal, self.repeated, self.missing = nodes, fatal, repeated, missing
        self.refused: dict[str, str] = {}
        self.submitted: list[str] = []
        self.waiting: dict[int, tuple[Sequence[str], Collection[str]]] = {}

    def submit(self, items: Sequence[str], avoided: Collection[str]) -> int:
        self.submitted.append("".join(items))
        without = {*self.refused, *avoided}
        self.waiting[len(self.submitted)] = items, without if self.nodes.keys() - without else {*self.refused}
        return len(self.submitted)

    def news(self) -> tuple[list[Any], list[Any]]:
        number = min(self.waiting)
        items, without = self.waiting.pop(number)
        node = next((node for node in self.nodes if node not in without), None)
        if node is None:
            return [], [(number, "no device is left", True)]
        said: list[Any] = [(number, node, node, None)]
        if self.nodes[node]:
            return said, [(number, self.nodes[node], False)]
        said.append((number, node, node, CPU))
        said += [(0, node, node, (item, ())) for item in self.repeated]
        for item in (*items, *self.repeated):
            if item in self.fatal:
                return said, [(number, "its node is dead", True)]
            if item not in self.missing:
                said.append((number, node, node, (item, ())))
        return said, [(number, "1 item is not there" if set(items) & set(self.missing) else "", False)]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The items that ran, in their order, and in capitals the ones that took their shard with them."""
    ran: list[str] = []
    monkeypatch.setattr(controller, "workers_describe_devices", lambda probe: False)
    monkeypatch.setattr(Cluster, "_ran", lambda self, item, reports, notes: ran.append(item))
    monkeypatch.setattr(Cluster, "_lose", lambda self, item, why: ran.append(item.upper()))
    return ran


def run(pool: Any, *shards: str) -> Cluster:
    probe: Any = SimpleNamespace(config=None, know_names=lambda name, devices: None)
    cluster = Cluster(probe, pool)
    cluster._waiting = {item: item for items in shards for item in items}  # type: ignore[misc]
    for items in shards:
        cluster._submit(_Shard(items))
    while cluster._shards:
        cluster._listen()
    return cluster


def test_a_node_that_does_not_fit_is_left_out(ran: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    pool = Pool({"bad": "it has no dump", "worse": "another Python", "good": ""})
    run(pool, "ab", "c")
    assert sorted(ran) == ["a", "b", "c"]
    assert len(pool.submitted) == 6
    assert capfd.readouterr().err == "bad runs no cases: it has no dump\nworse runs no cases: another Python\n"


def test_no_node_fits(ran: list[str]) -> None:
    for items in ("a", ""):
        pool = Pool({str(number): f"{number} has no dump" for number in range(9)})
        with pytest.raises(pytest.UsageError, match="0 has no dump"):
            run(pool, items)
        assert len(pool.submitted) == 12


def test_a_node_on_which_a_shard_could_start_is_not_refused(ran: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """Whether it started before or after the one that could not: that one is tried elsewhere."""
    pool = Pool({"node": ""})
    cluster = run(pool, "a")
    pool.nodes = {"node": "its worker died", "other": ""}
    cluster._waiting, cluster._trouble = {"b": "b"}, ""  # type: ignore[dict-item]
    cluster._submit(_Shard("b"))
    while cluster._shards:
        cluster._listen()
    assert ran == ["a", "b"]
    assert not pool.refused
    pool.refused["node"] = "its worker died"
    pool.nodes = {"node": ""}
    cluster._describe(_Shard("c", place="node"), CPU)
    assert not pool.refused
    assert capfd.readouterr().err == ""


def test_a_shard_that_starts_nowhere_is_tried_three_times(ran: list[str]) -> None:
    pool = Pool({"node": ""})
    cluster = run(pool, "a")
    pool.nodes = {"node": "its worker died"}
    cluster._waiting = {"b": "b"}  # type: ignore[dict-item]
    cluster._submit(_Shard("b"))
    while cluster._shards:
        cluster._listen()
    assert pool.submitted == ["a", "b", "b", "b"]
    assert cluster._trouble == "node node: its worker died"


def test_a_case_that_takes_its_shard_is_a_crash_and_the_others_have_results(ran: list[str]) -> None:
    pool = Pool({"node": ""}, fatal="bd")
    cluster = run(pool, "abcde")
    # Nothing that has a result runs again, and a case that may be fatal runs alone.
    assert pool.submitted == ["abcde", "b", "cde", "b", "d", "e", "d"]
    assert sorted(ran) == ["B", "D", "a", "c", "e"]
    assert not cluster._waiting
    assert not cluster._trouble


def test_a_case_that_a_node_takes_once_or_that_could_not_start_is_no_crash(ran: list[str]) -> None:
    pool = Pool({"node": ""}, fatal="a")
    cluster = run(pool, "")
    cluster._waiting = {"a": "a", "b": "b"}  # type: ignore[dict-item]
    cluster._submit(_Shard("ab"))
    cluster._listen()
    pool.nodes = {"node": "its worker died"}
    for _ in range(2):
        cluster._listen()
        cluster._listen()
    pool.nodes, pool.fatal = {"node": ""}, ""
    while cluster._shards:
        cluster._listen()
    assert sorted(ran) == ["a", "b"]


def test_a_result_that_comes_again_counts_once(ran: list[str]) -> None:
    run(Pool({"node": ""}, repeated="a"), "ab", "c")
    assert sorted(ran) == ["a", "b", "c"]


def test_what_did_not_run_is_not_forgotten(ran: list[str]) -> None:
    pool = Pool({"node": ""}, missing="a")
    cluster = run(pool, "ab", "c")
    assert sorted(ran) == ["b", "c"]
    assert list(cluster._waiting) == ["a"]
    assert cluster._trouble == "node node: 1 item is not there"
    assert pool.submitted == ["ab", "c", "a", "a"]


@pytest.mark.parametrize("stopped", [False, True])
def test_the_run_names_what_did_not_run_and_stops_where_pytest_says(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    troubles: list[str] = []
    monkeypatch.setattr(Cluster, "_reporting", SimpleNamespace(trouble=troubles.append))
    monkeypatch.setattr(controller, "sharing_runs", lambda items: [[item] for item in items])
    monkeypatch.setattr(controller, "costs_of", lambda groups: [1.0 for _ in groups])
    items: list[Any] = [SimpleNamespace(nodeid=f"case{number}") for number in range(7)]
    session: Any = SimpleNamespace(shouldstop="", shouldfail="stopping after 1 failures" if stopped else "")
    pool: Any = Pool({"node": ""}, missing=[item.nodeid for item in items[1:]])
    pool.devices, pool.free_ranks = 2, lambda: None
    probe: Any = SimpleNamespace(config=None, know_names=lambda name, devices: None)
    Cluster(probe, pool)._run_there(session, items)
    assert len(pool.submitted) == (2 if stopped else 6)
    assert bool(ran) is not stopped
    left = "6 cases did not run: case1, case2, case3, case4, case5 and 1 more"
    assert troubles == ([] if stopped else [f"node node: 1 item is not there; {left}"])
    assert session.shouldstop == ("" if stopped else left)


def test_a_run_that_waits_for_a_device_says_so(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(controller, "_BUSY_NOTICE", -1.0)
    pool: Any = Pool({"node": ""})
    news = pool.news

    def quiet() -> tuple[list[Any], list[Any]]:
        pool.news = news
        return [], []

    pool.news = quiet
    run(pool, "a")
    assert ran == ["a"]
    assert capfd.readouterr().err == "probe: no device of the cluster is free yet; the run goes on when one is\n"


def test_a_lost_head_ends_the_run(ran: list[str]) -> None:
    def lost(*_: object) -> None:
        raise ConnectionError("the head of the cluster is lost")

    pool: Any = Pool({"node": ""}, fatal=["a"])
    submit, pool.submit = pool.submit, lost
    assert run(pool, "ab", "c")._trouble == "the head of the cluster is lost"
    pool.submit = submit
    cluster = run(pool)
    cluster._submit(_Shard("ab"))
    pool.submit = lost
    cluster._waiting = {"a": "a", "b": "b"}  # type: ignore[dict-item]
    cluster._listen()
    assert (cluster._trouble, ran) == ("the head of the cluster is lost", [])
    pool.news = lost
    pool.submit = submit
    with pytest.raises(pytest.UsageError, match="the head of the cluster is lost"):
        run(pool, "a")


def test_what_has_another_device_or_cannot_be_saved_has_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    line = lines_of([Result("d::a", "a", "forward", "", "cpu", "pass", "auto", "", "", 0.0, (), ())])
    sent: list[Any] = []
    hook: Any = SimpleNamespace(
        pytest_report_from_serializable=lambda config, data: SimpleNamespace(probe_results=data["lines"]),
        pytest_runtest_logstart=lambda nodeid, location: None,
        pytest_runtest_logreport=lambda report: sent.append(report),
        pytest_runtest_logfinish=lambda nodeid, location: None,
    )
    monkeypatch.setattr(controller, "workers_describe_devices", lambda probe: False)
    probe: Any = SimpleNamespace(config=SimpleNamespace(hook=hook), know_names=lambda name, devices: None)
    pool: Any = SimpleNamespace(refused={})
    cluster = Cluster(probe, pool)
    for place, devices in ("file", CPU), ("new", [{"device": "cpu:1", "hardware": "a rare one"}]):
        shard = _Shard("", node=place)
        cluster._waiting = {"d::a": SimpleNamespace(share=1, nodeid="d::a", location=())}  # type: ignore[dict-item]
        cluster._hear(shard, devices)
        for piece in b"x", b"y":
            cluster._hear(shard, (str(tmp_path / place / "a.pt"), piece))
        cluster._hear(shard, ("d::a", [{"lines": line}]))
    notes = [results_in(report.probe_results)[0].notes for report in sent]
    assert notes == [
        (f"not saved: {tmp_path}/file/a.pt cannot be written (File exists)",),
        ("ran on node new, whose device is cpu (a rare one); the first is cpu (of no name)",),
    ]
    assert (tmp_path / "new" / "a.pt").read_bytes() == b"xy"


def test_a_lost_shard_leaves_no_file(ran: list[str], tmp_path: Path) -> None:
    cluster = run(Pool({"node": ""}), "")
    shards = [_Shard("a") for _ in range(3)]
    for number, shard in enumerate(shards):
        shard.files.add(tmp_path / "a.pt", bytes([number]))
    cluster._ended(shards[0], "its node is dead", lost=True)
    assert not shards[1].files.save()
    cluster._shards[2] = shards[2]
    cluster._drop()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.pt": b"\1"}


def test_processes_collect_all_dumps_of_the_run(pytester: pytest.Pytester) -> None:
    """Also those that pytest found itself, of which no item is left: labels are the same everywhere then."""
    call = entries("Torch.neg.0", torch.neg, torch.ones(3))
    paths = [write_dump(pytester.mkdir(name), call) for name in "cab"]
    probe = make_probe(pytester.parseconfig("--probe-device=cpu", f"--probe-dump={paths[0]}"))
    for path in paths[1:]:
        probe.dumps.know(path)
    start = controller._start(probe)
    assert set(start.collected) == set(start.files) == set(map(str, paths))
