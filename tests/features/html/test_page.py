"""The file itself: one, whole, with nothing from elsewhere. tests/browser opens it."""

from __future__ import annotations

import hashlib
import html
import re
from base64 import b64decode
from pathlib import Path

import pytest
from msgspec import structs

from pytest_probe.features.html.collected import Collected
from pytest_probe.features.html.page import Page, tiles
from pytest_probe.reports.result_set import RunFile
from tests.support.made_results import RUN, made_result, made_results

FACTS = RunFile.of(RUN)


def text_of(folder: Path, *results: object) -> str:
    collected = Collected()
    for result in results:
        collected.add(result)  # type: ignore[arg-type]
    Page(FACTS, collected).write(folder / "page.html")
    return (folder / "page.html").read_text(encoding="utf-8")


def test_the_policy_knows_the_script_and_the_style(tmp_path: Path) -> None:
    text = text_of(tmp_path, *made_results(10, 2))
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert found is not None
    policy = html.unescape(found[1])
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        digest = re.search(rf"{tag}-src 'sha256-([^']*)'", policy)
        inside = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert digest is not None
        assert inside is not None
        assert b64decode(digest[1]) == hashlib.sha256(inside[1].encode()).digest()


def test_the_page_begins_with_the_groups(tmp_path: Path) -> None:
    text = html.unescape(text_of(tmp_path, *made_results(1000, 40)))
    groups = re.findall(
        r'<li class="(\w+)" data-group="\d+"><span class="mark" aria-hidden="true"></span><span>(.*)</span></li>', text
    )
    first = (
        r"looks like all times 1\.0003, Functional\.linear, first at layers\.\d\.\w+, layers\.py:120 \(record linear\."
    )
    assert [verdict for verdict, line in groups if re.search(first, line)] == ["error"]
    assert {verdict for verdict, _ in groups} == {"error", "warning"}
    counts = [int(line.split()[0]) for _, line in groups]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == 40
    assert "<ol" not in text_of(tmp_path, *made_results(10))


def test_the_page_refers_to_no_other_host(tmp_path: Path) -> None:
    text = text_of(tmp_path, *made_results(10, 2))
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe|object|embed)\b|\bsrc=|\bhref=\"(?!#)|@import|url\(", text)


def test_texts_of_a_dump_are_escaped(tmp_path: Path) -> None:
    hostile = "</td><script>alert(1)</script>\" '&"
    text = text_of(tmp_path, structs.replace(made_result(1, "error"), id=f"{hostile}::x.0.forward", reason=hostile))
    assert hostile not in text
    assert html.escape(hostile, quote=False).replace('"', "&#34;").replace("'", "&#39;") in text
    assert text.count("<script") == 1 + text.count('<script type="application/json"')


def test_a_page_replaces_another_whole(tmp_path: Path) -> None:
    text_of(tmp_path, *made_results(10))
    (tmp_path / "page.html").chmod(0o444)
    assert "This run has no cases" in text_of(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_tiles_show_the_conditions_of_the_run() -> None:
    found = {tile.name: (tile.text, tuple(tile.more)) for tile in tiles(FACTS, 1.5)}
    assert found["Device"] == ("cpu", ("a CPU",))
    assert found["Seed"] == ("0", ("1 run of each case",))
    assert found["Dump"] == ("dump.json", ("sha256:000000000000",))
    assert found["Time"] == ("3 min 20 s", ("started 2026-11-23 07:00:00 UTC", "all cases together 1.5 s"))
    assert found["Versions"][0] == "torch 2.13.0"
    assert found["Standard"][0] == "auto"


@pytest.mark.parametrize("finished", [None, "", "yesterday"])
def test_a_run_that_was_killed_has_no_time(finished: str | None) -> None:
    run = structs.replace(FACTS, finished=finished)
    assert next(tile.text for tile in tiles(run, 0) if tile.name == "Time") == "not finished"


def test_many_dumps_and_devices() -> None:
    devices = tuple({"device": f"cuda:{number}", "framework": "torch", "version": "2"} for number in range(2))
    run = structs.replace(FACTS, dumps=FACTS.dumps * 9, devices=devices)
    found = {tile.name: (tile.text, len(tile.more)) for tile in tiles(run, 0)}
    assert found["Devices"] == ("cuda:0, cuda:1", 0)
    assert found["Dumps"] == ("9", 5)
