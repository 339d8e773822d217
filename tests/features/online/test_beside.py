"""Three-party: the checking host's own device runs what came as well."""

from __future__ import annotations

import csv
import json

import pytest

from tests.features.online.conftest import Ends, said

pytestmark = pytest.mark.slow

COMPARE = "import sys; from pytest_probe.cli import main; sys.exit(main())"


def rows(ends: Ends, out: str, pattern: str) -> list[dict[str, str]]:
    (path,) = (ends.folder / out).glob(pattern)
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_a_device_beside_is_the_benchmark(ends: Ends) -> None:
    """What the files say is what `pytest-probe compare` says of a dump that was checked twice."""
    said(ends.program(f"online={ends.address}", "fault=gelu"))
    text = said(ends.checker("online", f"--probe-listen={ends.address}", "--probe-device=cpu"))
    assert "compared with " in text
    assert "3 failed, 48 passed" in text
    found = ends.results("online/benchmark")
    assert len(found) == 51
    assert {line["verdict"] for line in found} == {"pass"}

    said(ends.program("dump_path=dump", "fault=gelu"))
    said(ends.checker("recorded", "--probe-dump=dump", "--probe-device=recorded"))
    said(ends.checker("cpu", "--probe-dump=dump", "--probe-device=cpu"))
    said(ends.start("-c", COMPARE, "compare", "recorded", "cpu", "-o", "compared"))
    (path,) = (ends.folder / "compared").glob("api_precision_compare_details_*.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        offline = list(csv.DictReader(file))
    online = rows(ends, "online", "api_precision_compare_details_*_rank0.csv")
    assert {row["API Name"].partition("::")[0] for row in online} == {f"rank0/step{step}" for step in range(3)}

    def bare(lines: list[dict[str, str]]) -> list[list[str]]:
        """Without the labels, which name the folder of a dump."""
        return sorted([row["API Name"].partition("::")[2], *list(row.values())[1:]] for row in lines)

    assert bare(online) == bare(offline)
    wrong = {row["API Name"].partition("::")[2] for row in online if row["比对结果"] == "error"}
    assert wrong == {"Functional.gelu.0.forward.output.0"}


def test_ranks_that_are_not_asked_for(ends: Ends) -> None:
    said(ends.program(f"online={ends.address}"))
    checking = {"is_online": True, "nfs_path": str(ends.shared), "rank_list": [3]}
    (ends.folder / "checking.json").write_text(json.dumps({"task": "run_ut", "run_ut": checking}))
    said(ends.checker("online", "--probe-listen=checking.json"))
    assert ends.results("online") == []


def test_a_device_that_is_not_here(ends: Ends) -> None:
    checker = ends.checker("online", f"--probe-listen={ends.address}", "--probe-device=npu")
    text = said(checker)
    assert checker.returncode == 4, text
    assert "--probe-device: 'npu' cannot be used" in text
