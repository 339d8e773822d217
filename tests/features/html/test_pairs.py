"""What the page has of two sides. tests/browser opens such pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import pytest_probe.features.html.page
from pytest_probe.cli import main
from pytest_probe.features.html.collected import Collected
from pytest_probe.features.html.page import Page
from pytest_probe.model.pairing import Paired, Status
from pytest_probe.reports.result_set import RunFile
from tests.support.html_page import embedded
from tests.support.made_results import RUN, made_pair, made_pairs, made_result, with_pair
from tests.support.running import by_case
from tests.support.two_sides import Fault, Gpt, record

AGAINST = "--probe-against=B"
FIELDS = ("gap", "nearer", "noise_a", "noise_b", "other", "suspect", "difference", "sources")


def pairs(page: Path) -> dict[str, dict[str, Any]]:
    """What the page has of each pair, by the names of cases; without what is none."""
    found, rows = embedded(page, "against"), embedded(page, "rows")
    told = [(rows[row][1], found["statuses"][status], rest) for row, status, *rest in found["rows"]]
    return {
        name: {"status": status, **{field: value for field, value in zip(FIELDS, rest, strict=False) if value}}
        for name, status, rest in told
    }


def rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def as_shown(found: Mapping[str, Any]) -> dict[str, Any]:
    """A line of results.jsonl as the page has it."""
    name, told = found["id"].partition("::")[2], found["answers"][0]["pair"]
    known = {field: rounded(told[field]) for field in FIELDS if told.get(field)}
    return {"status": told["status"], **{key: value for key, value in known.items() if value != name}}


def test_the_page_has_the_pairs_of_the_run(pytester: pytest.Pytester) -> None:
    record(Path("A"), lambda: Gpt(2), fault=Fault("_softmax", 0, lambda y: y * (1 + 1e-3)), modules=True)
    record(Path("B"), lambda: Gpt(2, extra=True), modules=True)
    pytester.runpytest("--probe-dump=A", AGAINST, "--probe-html=page.html", "--probe-out=out")
    found = pairs(Path("page.html"))
    assert found == {name: as_shown(row) for name, row in by_case().items()}
    assert found["Functional.softmax.0.forward"]["suspect"] == "A"
    assert found["Torch.exp.0.forward (only in B)"]["status"] == "unmatched"
    assert {each["status"] for each in found.values()} >= {"equal", "own", "inherited"}
    assert main(["report", "out", "-o", "later.html"]) == 0
    assert pairs(Path("later.html")) == found


def test_modules_alone_have_places(pytester: pytest.Pytester) -> None:
    tensors = {f"layers.{number}.mlp": torch.randn(3, 4) for number in (2, 0, 1)}
    for side in ("A", "B"):
        torch.save(tensors, f"{side}.pt")
    pytester.runpytest("--probe-dump=A.pt", "--probe-against=B.pt", "--probe-html=page.html")
    names = {row[7]: row[1] for row in embedded(Path("page.html"), "rows")}
    assert [names[place] for place in range(3)] == [f"{name}.forward" for name in tensors]


def written(folder: Path, *results: Any) -> Path:
    collected = Collected()
    for result in results:
        collected.add(result)
    Page(RunFile.of(RUN), collected).write(folder / "page.html")
    return folder / "page.html"


def test_a_run_of_one_side_has_no_pairs(tmp_path: Path) -> None:
    assert 'id="probe-against"' not in written(tmp_path, made_result(1)).read_text()
    assert 'id="probe-against"' in written(tmp_path, made_pair(1, "equal")).read_text()


def test_numbers_that_json_does_not_have(tmp_path: Path) -> None:
    odd = Paired("inherited", gap="inf", noise_a="nan", noise_b=2.0)
    (found,) = pairs(written(tmp_path, with_pair(made_pair(1, "equal"), odd))).values()
    assert found == {"status": "inherited", "gap": "inf", "noise_a": "nan", "noise_b": 2}


def test_names_of_the_other_side_cannot_end_a_script(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script>"
    page = written(tmp_path, made_pair(1, "own", hostile))
    assert "<script>alert" not in page.read_text()
    assert pairs(page)["Functional.linear.0.backward"]["other"] == hostile


def test_each_status_has_a_word_and_a_sign() -> None:
    script = Path(pytest_probe.features.html.page.__file__).parent / "script" / "pairs.js"
    known = re.findall(r'^  (\w+): \["[^"]+", "[^"]"\],$', script.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(known) == sorted(get_args(Status))


def test_a_pair_takes_few_bytes(tmp_path: Path) -> None:
    collected = Collected()
    for result in made_pairs(1000, {500}):
        collected.add(result)
    assert len(collected.pairs.data()) < 40 * 1000
