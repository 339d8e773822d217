"""What every question and every comparison with other results promises.

Two workers, shards of which one was killed and goes on in a process apart, and the command that joins them find what
one process finds. Results, junit, tables, page, history and summary say it, and so does the command that is printed
below a failure.
"""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from collections import Counter
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from msgspec import Struct

from pytest_probe import capture
from pytest_probe.cli import main
from tests.acceptance.conftest import entries, written
from tests.support import html_page
from tests.support.installed import needs_paddle
from tests.support.other_plugins import Ran, junit_of
from tests.support.running import ran

RUN = ("--probe-device=cpu", "-p", "no:randomly", "-p", "no:cacheprovider")
DUMP = "--probe-dump=dump.json"
# Each linear and Paddle's softmax are half as large again, or are right.
CONFTEST = """
    import torch

    def pytest_probe_register(registry):
        registry.calls["Functional.linear"] = lambda *args: {factor} * torch.nn.functional.linear(*args)
        registry.calls["paddle.nn.functional.softmax"] = softmax

    def softmax(x, axis):
        import paddle

        return {factor} * paddle.nn.functional.softmax(x, axis)
"""
ENGINE = """
    import torch

    def pytest_probe_register(registry):
        registry.calls["Functional.relu"] = lambda x, inplace=False: torch.relu(x) * 1.01
"""
QUESTIONS: dict[str, tuple[str, ...]] = {
    "verdicts": (
        DUMP, "--probe-dtype=recorded,bfloat16", "--probe-repeat=2", "--probe-relations=again,batch,order",
        "--probe-sensitivity", "--probe-unique",
    ),
    "self": (DUMP, "--probe-standard=self"),
    "compile": (DUMP, "--probe-compile=aot_eager"),
    "against-call": (DUMP, "--probe-against-call=engine.py"),
    "against": ("--probe-dump=a", "--probe-against=b"),
    "recorded": ("--probe-dump=b", "--probe-device=recorded"),
    "benchmark and baseline": (DUMP, "--probe-benchmark=base", "--probe-baseline=base.jsonl"),
    "outputs": (DUMP, "--probe-outputs=faulty", "--probe-benchmark=base", "--probe-standard=exact"),
    "fuzz": (DUMP, "--probe-fuzz=quick", "--probe-api=Functional.linear", "--probe-api=Functional.relu"),
    "paddle against torch": ("--probe-dump=calls.txt", "--probe-against-framework=torch"),
    "paddle by torch": (
        "--probe-dump=calls.txt", "--probe-framework=torch", "--probe-reference-framework=torch",
    ),
}  # fmt: skip
PADDLE = """\
paddle.nn.functional.linear(Tensor([16, 64],"float32"), Tensor([64, 4],"float32"), )
paddle.nn.functional.relu(Tensor([16, 64],"float32"), )
paddle.nn.functional.softmax(Tensor([16, 64],"float32"), axis=-1, )
paddle.nn.functional.embedding(Tensor([4],"int64"), Tensor([8, 3],"float32"), max_norm=1.0, )
"""
# What depends on a clock, or on what a process did before: a compiler makes equal graphs once.
TIMES = re.compile(r'"(duration|seconds|graphs)": ?[-+.e\d]+')
NAMED = re.compile(r'classname="([^"]*)" name="([^"]*)"')
GROUPED = re.compile(r'<property name="probe\.group\.\d" value="([^"]*)"')


class Asked(Struct, frozen=True):
    """A question in one process, and in two shards."""

    folder: Path
    name: str
    whole: Ran

    def rows(self, folder: str) -> list[dict[str, Any]]:
        """By their ids. Whether sensitivity finds a stale output depends on the case before, another one in a shard."""
        text = (self.folder / folder / "results.jsonl").read_text()
        found = [json.loads(TIMES.sub(r'"\1": 0', line)) for line in text.splitlines()]
        for row in found:
            row.pop("parts", None)
        for answer in (answer for row in found for answer in row.get("answers", ())):
            answer.get("shares", {}).pop("stale", None)
        return sorted(found, key=lambda row: str(row["id"]))

    def shard(self, place: int, out: str, *args: str) -> None:
        files = (f"--probe-out={self.name}/{out}", f"--probe-html={self.name}/{out}.html")
        ran(self.folder, *options(self.name), f"--probe-shard={place}/2", *files, *args)


def tables_of(folder: Path) -> dict[str, list[str]]:
    """Their rows, in an order of their own, by names without the time of the run; answers without stale outputs."""
    found = {re.sub(r"\d{14}", "", path.name): path.read_text() for path in folder.glob("accuracy*.csv")}
    answers = folder / "answers.json"
    for answer in json.loads(TIMES.sub(r'"\1": 0', answers.read_text()))["answers"] if answers.exists() else ():
        answer["shares"].pop("stale", None)
        found["answers"] = found.get("answers", "") + f"{answer}\n"
    return {name: sorted(TIMES.sub("", text).splitlines()) for name, text in found.items()}


def in_order(folder: Path) -> list[str]:
    return [json.loads(line)["id"] for line in (folder / "results.jsonl").read_text().splitlines()]


def verdicts_of(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["id"].partition("::")[2]: row["verdict"] for row in rows}


def options(name: str) -> tuple[str, ...]:
    """The device is named once."""
    given = QUESTIONS[name]
    fits = name not in ("against", "recorded", "outputs")
    return (*given, *(RUN if fits else RUN[1:]))


def record(folder: Path, factor: float) -> None:
    torch.manual_seed(0)
    with capture(folder, task="tensor"):
        x = torch.randn(6, 8, requires_grad=True)
        (torch.nn.functional.gelu(x).exp() * factor).tanh().sum().backward()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a dump of which a case is there twice, two recordings, and results of a right and of a wrong device."""
    folder = tmp_path_factory.mktemp("contract")
    data = entries()
    written(folder / "dump.json", {**data, "Functional.relu.1.forward": data["Functional.relu.0.forward"]})
    (folder / "engine.py").write_text(dedent(ENGINE))
    (folder / "calls.txt").write_text(PADDLE)
    for name, factor in (("base", 1), ("faulty", 1.5)):
        (folder / "conftest.py").write_text(dedent(CONFTEST.format(factor=factor)))
        baseline = (f"--probe-baseline={name}.jsonl", "--probe-baseline-update")
        ran(folder, DUMP, *RUN, *baseline, f"--probe-out={name}", "--probe-save=all")
    record(folder / "a", 1.0)
    record(folder / "b", 1.5)
    return folder


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[needs_paddle] * ("paddle" in name)) for name in QUESTIONS]
)
def asked(request: pytest.FixtureRequest, folder: Path) -> Asked:
    name = request.param
    (folder / name).mkdir()
    written = {"junitxml": "whole.xml", "probe-html": "page.html", "probe-out": "whole", "probe-history": "runs.db"}
    files = [f"--{option}={name}/{file}" for option, file in written.items()]
    return Asked(folder, name, ran(folder, *options(name), *files))


def test_workers_a_killed_shard_and_merge_find_what_one_process_finds(asked: Asked) -> None:
    place, whole = asked.folder / asked.name, asked.rows(f"{asked.name}/whole")
    asked.shard(1, "one", "-n2", "--dist=worksteal")
    first = {row["id"] for row in asked.rows(f"{asked.name}/one")}
    assert first
    assert first < {row["id"] for row in whole}
    asked.shard(2, "two")
    # As a kill leaves it: the last case is half written, and nobody has said how the run ended.
    results, run = place / "two/results.jsonl", place / "two/run.json"
    results.write_text(results.read_text()[:-40])
    run.write_text(json.dumps({**json.loads(run.read_text()), "finished": None, "not_run": None}))
    asked.shard(2, "two", "--probe-resume", "--probe-isolate")

    folders = [str(place / name) for name in ("one", "two")]
    status = main(["merge", *folders, f"--out={place / 'merged'}", f"--junit={place / 'merged.xml'}"])
    assert status == asked.whole.result.ret == int(any(row["verdict"] == "error" for row in whole))
    assert asked.rows(f"{asked.name}/merged") == whole
    assert in_order(place / "merged") == in_order(place / "whole")
    for pattern in (NAMED, GROUPED):
        one, joined = (sorted(pattern.findall((place / f"{name}.xml").read_text())) for name in ("whole", "merged"))
        assert joined == one
    tables = [tables_of(place / name) for name in ("whole", "merged")]
    assert tables[1] == tables[0]
    one, joined = (json.loads((place / name / "run.json").read_text()) for name in ("whole", "merged"))
    for key in ("verdicts", "not_run", "exit_status", "dumps", "devices", "identity"):
        assert joined[key] == one[key], key

    assert main(["report", str(place / "merged"), "-o", str(place / "merged.html")]) == 0
    assert html_page.verdicts(place / "merged.html") == verdicts_of(whole)


def test_each_report_says_what_results_say(asked: Asked) -> None:
    place, whole = asked.folder / asked.name, asked.rows(f"{asked.name}/whole")
    verdicts = verdicts_of(whole)
    assert set(verdicts.values()) - {"skip"}
    assert html_page.verdicts(place / "page.html") == verdicts
    assert main(["report", str(place / "whole"), "-o", str(place / "later.html")]) == 0
    for part in ("rows", "details", "names"):
        written = (html_page.embedded(place / f"{page}.html", part) for page in ("page", "later"))
        assert next(written) == next(written), part

    with sqlite3.connect(place / "runs.db") as file:
        kept = file.execute("SELECT name, verdict FROM history").fetchall()
        (counts,) = file.execute("SELECT errors, warnings, passes, skips, not_run, exit_status FROM runs")
    assert Counter(kept) == Counter((row["id"], row["verdict"]) for row in whole)
    number = Counter(verdicts.values())
    status = int(number["error"] > 0)
    assert counts == (number["error"], number["warning"], number["pass"], number["skip"], 0, status)

    cases = {case.properties["probe.id"]: case for case in junit_of(place / "whole.xml")}
    assert {id: case.properties["probe.verdict"] for id, case in cases.items()} == {
        row["id"]: row["verdict"] for row in whole
    }
    failed = [id for id, case in cases.items() if "failure" in case.kinds]
    summary = (place / "whole/summary.md").read_text()
    said = f"{len(failed)} case{'s' * (len(failed) > 1)}" if failed else "nothing"
    assert summary.startswith(f"## pytest-probe: {said} failed\n")
    assert sorted(re.findall(r"^\| `(.*?)` \|", summary, re.MULTILINE)) == sorted(failed)


def test_the_command_below_a_failure_gives_it_again(asked: Asked) -> None:
    whole = asked.rows(f"{asked.name}/whole")
    commands = re.findall(r"^to reproduce: pytest (.*)$", asked.whole.result.stdout.str(), re.MULTILINE)
    assert bool(commands) == any(row["verdict"] == "error" for row in whole)
    for command in commands[:1]:
        files = (f"--probe-out={asked.name}/again", f"--probe-html={asked.name}/again.html")
        again = ran(asked.folder, *shlex.split(command), *RUN[1:], *files)
        assert again.result.ret == 1
        (row,) = asked.rows(f"{asked.name}/again")
        assert row in whole
