"""What the process that reports does with what its shards say and how they end, without Ray."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_probe.features.cluster import controller
from pytest_probe.features.cluster.controller import Cluster
from pytest_probe.model.result import Result
from pytest_probe.plugin.session import make_probe
from pytest_probe.reports.results_file import lines_of, results_in
from tests.support.writing import entries, write_dump

CPU = [{"device": "cpu"}]


class Pool:
    """Nodes by their names, with why each runs no shard; the first that is not refused runs one. What is said of lost
    items comes twice, as from a node that is lost after them, and a missing item has no result."""

    def __init__(self, nodes: dict[str, str], lost: Collection[str] = (), missing: Collection[str] = ()) -> None:
        self.nodes, self.lost, self.missing = dict(nodes), lost, missing
        self.submitted: list[Sequence[str]] = []
        self.waiting: dict[int, Sequence[str]] = {}

    def submit(self, items: Sequence[str]) -> int:
        self.submitted.append(items)
        self.waiting[len(self.submitted)] = items
        return len(self.submitted)

    def refuse(self, node: str) -> None:
        self.nodes.pop(node, None)

    def news(self) -> tuple[list[Any], list[Any]]:
        number, items = self.waiting.popitem()
        if not self.nodes:
            return [], [(number, "", "", "no device of the cluster is left")]
        node, why = next(iter(self.nodes.items()))
        if why:
            return [], [(number, node, node, why)]
        said: list[Any] = [(number, node, node, CPU)]
        said += [(number, node, node, (item, ())) for item in (*self.lost, *items) if item not in self.missing]
        return said, [(number, node, node, "1 item is not there" if set(items) & set(self.missing) else "")]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The items that ran, in their order."""
    ran: list[str] = []
    monkeypatch.setattr(controller, "workers_describe_devices", lambda probe: False)
    monkeypatch.setattr(Cluster, "_ran", lambda self, item, reports: ran.append(item))
    return ran


def run(pool: Any, *shards: Sequence[str]) -> Cluster:
    probe: Any = SimpleNamespace(config=None, know_names=lambda name, devices: None)
    cluster = Cluster(probe, pool)
    cluster._waiting = {item: item for items in shards for item in items}  # type: ignore[misc]
    for items in shards:
        cluster._submit(items)
    while cluster._shards:
        cluster._listen()
    return cluster


def test_a_node_that_does_not_fit_is_left_out(ran: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    pool = Pool({"bad": "it has no dump", "worse": "another Python", "good": ""})
    run(pool, "ab", "c")
    assert sorted(ran) == ["a", "b", "c"]
    assert len(pool.submitted) == 4
    assert capfd.readouterr().err == "bad runs no cases: it has no dump\nworse runs no cases: another Python\n"


def test_no_node_fits(ran: list[str]) -> None:
    for items in ("a", ""):
        with pytest.raises(pytest.UsageError, match="0 has no dump"):
            run(Pool({str(number): f"{number} has no dump" for number in range(9)}), items)


def test_a_result_that_comes_again_counts_once(ran: list[str]) -> None:
    run(Pool({"node": ""}, lost="a"), "ab", "c")
    assert sorted(ran) == ["a", "b", "c"]


def test_what_did_not_run_is_not_forgotten(ran: list[str]) -> None:
    cluster = run(Pool({"node": ""}, missing="a"), "ab", "c")
    assert sorted(ran) == ["b", "c"]
    assert list(cluster._waiting) == ["a"]
    assert cluster._trouble == "node node: 1 item is not there"


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
    assert len(pool.submitted) == 2
    assert bool(ran) is not stopped
    left = "6 cases did not run: case1, case2, case3, case4, case5 and 1 more"
    assert troubles == ([] if stopped else [f"node node: 1 item is not there; {left}"])
    assert session.shouldstop == ("" if stopped else left)


def test_files_that_cannot_be_written_are_notes(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sent: list[Any] = []
    line = lines_of([Result("d::a", "a", "forward", "", "cpu", "pass", "auto", "", "", 0.0, (), ())])
    hook: Any = SimpleNamespace(
        pytest_report_from_serializable=lambda config, data: SimpleNamespace(probe_results=line, probe_files=data),
        pytest_runtest_logstart=lambda nodeid, location: None,
        pytest_runtest_logreport=lambda report: sent.append(report),
        pytest_runtest_logfinish=lambda nodeid, location: None,
    )
    probe: Any = SimpleNamespace(config=SimpleNamespace(hook=hook))
    pool: Any = None
    item: Any = SimpleNamespace(share=1, nodeid="d::a", location=())
    for folder in ("file", "new"):
        Cluster(probe, pool)._ran(item, [{str(tmp_path / folder / "a.pt"): b"x"}])
    notes = [results_in(report.probe_results)[0].notes for report in sent]
    assert notes == [(f"not saved: {tmp_path}/file/a.pt cannot be written (File exists)",), ()]
    assert (tmp_path / "new" / "a.pt").read_bytes() == b"x"
    assert not any(hasattr(report, "probe_files") for report in sent)


def test_processes_collect_all_dumps_of_the_run(pytester: pytest.Pytester) -> None:
    """Also those that pytest found itself, of which no item is left: labels are the same everywhere then."""
    call = entries("Torch.neg.0", torch.neg, torch.ones(3))
    paths = [write_dump(pytester.mkdir(name), call) for name in "cab"]
    probe = make_probe(pytester.parseconfig("--probe-device=cpu", f"--probe-dump={paths[0]}"))
    for path in paths[1:]:
        probe.dumps.know(path)
    start = controller._start(probe)
    assert set(start.collected) == set(start.files) == set(map(str, paths))
