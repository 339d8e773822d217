"""A dump that somebody else wrote, with intent: it moves no cursor, computes in no spreadsheet, reads no other folder,
and takes neither memory nor time."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import socket
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_probe.cli import main
from pytest_probe.errors import DumpError, RecordError
from pytest_probe.records import read_dump
from tests.acceptance.conftest import DumpMaker, forward, tensor
from tests.support.other_plugins import Ran
from tests.support.running import collected, refusal

# What a text holds that is not to reach a terminal, a junit file or a table as it is.
EVIL = "\x1b[31mred\r\x00\x9b\u202eback\u2066"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
HEADER = '{"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null, "data": {'
RELU = "Functional.relu.0.forward"


def evil_dump(make_dump: DumpMaker, path: str = "dump.json") -> Path:
    """Names, keys, values and stack frames with such texts; relu runs, and fails by the hook of `failing`."""
    x = tensor(2, 3)
    text = {"type": "str", "value": EVIL}
    data = {
        RELU: forward(x, output=x),
        f"Functional.{EVIL}.0.forward": forward(x, output=x),
        "=cmd|1.relu.0.forward": forward(x, output=x),
        "Functional.softmax.0.forward": {"input_args": [x], "input_kwargs": {EVIL: text}, "output": [x]},
        "Functional.gelu.0.forward": {"input_args": [x], "input_kwargs": {"approximate": text}, "output": [x]},
        "Torch.sum.0.forward": forward({**x, "dtype": EVIL}, output=x),
    }
    dump = make_dump(path, data, task=EVIL, **{EVIL: 1})
    frame = f"File /home/{EVIL}.py, line 12, in step{EVIL}, \n y = F.relu(x){EVIL}"
    dump.with_name("stack.json").write_text(json.dumps({key: [frame] for key in data}))
    return dump


FAILING = """
    from msgspec.structs import replace

    def pytest_probe_verdict(case, verdict):
        if case.record.api == "relu":
            return replace(verdict, verdict="error", reason="it says " + {text!r}, notes=({text!r},))
"""


def test_texts_of_a_dump_are_escaped_everywhere(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    pytester.makeconftest(FAILING.format(text=EVIL))
    evil_dump(make_dump, "\x1b\u202erun/dump.json")
    result = pytester.runpytest(
        "--probe-dump=\x1b\u202erun",
        "--probe-out=out",
        "--junitxml=junit.xml",
        "--probe-html=page.html",
        "-rA",
        "-v",
        "-p",
        "no:logging",
        "-n1",
    )
    result.assert_outcomes(failed=2, skipped=4)
    written = [result.stdout.str(), *(path.read_text("utf-8") for path in (pytester.path / "out").rglob("*.*"))]
    for text in (*written, *((pytester.path / name).read_text("utf-8") for name in ("junit.xml", "page.html"))):
        assert not UNSAFE.search(text.replace("\r\n", "\n").replace("#x", "")), repr(UNSAFE.search(text))
    for table in (pytester.path / "out").glob("*.csv"):
        cells = [cell for row in csv.reader(io.StringIO(table.read_text("utf-8-sig"))) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t"))]
        # The others have rows of cases that ran alone.
        assert any(cell.startswith("'=cmd|1") for cell in cells) or "accuracy_checking_result" not in table.name


def test_show_escapes_as_well(make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(evil_dump(make_dump))]) == 0
    assert not UNSAFE.search(capsys.readouterr().out)


def a_socket(path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    folder = os.getcwd()
    os.chdir(path.parent)  # a socket's path is short
    server.bind(path.name)
    os.chdir(folder)
    server.close()


SPECIAL: dict[str, tuple[Callable[[Path], None], str]] = {
    "FIFO": (os.mkfifo, "a FIFO"),
    "socket": (a_socket, "a socket"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a device"),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_what_is_no_file_is_refused_at_once(pytester: pytest.Pytester, make_dump: DumpMaker, name: str) -> None:
    make, kind = SPECIAL[name]
    make(pytester.path / "dump.json")
    said = refusal(pytester, "--probe-dump=dump.json")
    said.fnmatch_lines([f"--probe-dump: '*dump.json' cannot be used; it is {kind}; give a file, *"])
    refusal(pytester, "--probe-dump=.").fnmatch_lines(["--probe-dump: *; the folder holds no dump; *"])
    with pytest.raises(pytest.UsageError):
        collected(pytester, "dump.json")
    make_dump("run/dump.json", STORED)
    said = refusal(pytester, "--probe-dump=run", "--probe-standards-file=dump.json")
    said.fnmatch_lines([f"*dump.json: 'the file' cannot be used; it cannot be read: *{kind}*"])


STORED = {RELU: forward({**tensor(2), "data_name": "x.pt"}, output=tensor(2))}


def bomb(folder: Path) -> None:
    """A file of a tensor whose storage unpacks to much."""
    torch.save(torch.zeros(2), folder / "plain.pt")
    with zipfile.ZipFile(folder / "plain.pt") as plain, zipfile.ZipFile(folder / "x.pt", "w", 8) as packed:
        for name in plain.namelist():
            packed.writestr(name, b"\0" * 100_000_000 if name.endswith("data/0") else plain.read(name))
    assert (folder / "x.pt").stat().st_size < 200_000


def test_files_beside_a_dump_are_no_more_than_files(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """What is none is not read, tensors lie in the dump's folder, and nothing is unpacked. Each dump has one call."""
    elsewhere = pytester.mkdir("elsewhere")
    torch.save(torch.ones(2), elsewhere / "x.pt")
    made: dict[str, str] = {}
    for name, (make, _) in SPECIAL.items():
        make_dump(f"run/{name}/dump.json", STORED)
        (pytester.path / f"run/{name}/stack.json").unlink()
        (pytester.path / f"run/{name}/dump_tensor_data").mkdir()
        for place in ("dump_tensor_data/x.pt", "stack.json"):
            make(pytester.path / "run" / name / place)
        made[name] = "no file 'x.pt' in "
    make_dump("run/outside/dump.json", STORED, dump_data_dir=str(elsewhere))
    made["outside"] = "no file 'x.pt' in "
    link = make_dump("run/link/dump.json", STORED).with_name("dump_tensor_data")
    inside = make_dump("run/inside/dump.json", STORED, dump_data_dir=str(pytester.path / "run/inside/in")).with_name(
        "in"
    )
    for each in (link, inside):
        each.symlink_to(elsewhere)
    made |= {"link": "x.pt, a link out of the dump's folder", "inside": "no file 'x.pt' in "}
    make_dump("run/bomb/dump.json", STORED)
    bomb(pytester.mkdir("run/bomb/dump_tensor_data"))
    made["bomb"] = "x.pt, which cannot be read (its storage 0 is not there, or is packed)"
    found = Ran(pytester.runpytest("--probe-dump=run", "--probe-out=out"), pytester.path)
    found.result.assert_outcomes(skipped=len(made))
    reasons = {row["id"].partition("/")[0]: row["reason"] for row in found.rows}
    assert {name: words in reasons[name] for name, words in made.items()} == dict.fromkeys(made, True)
    found.result.stdout.fnmatch_lines(["*dump_data_dir '*elsewhere' is outside *--probe-data-dir=DIR*"])


def test_tensors_lie_where_the_user_says(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    torch.save(torch.ones(2), pytester.mkdir("elsewhere") / "x.pt")
    make_dump("run/dump.json", STORED, dump_data_dir="elsewhere")
    pytester.runpytest("--probe-dump=run/dump.json", "--probe-data-dir=elsewhere").assert_outcomes(passed=1)


def test_a_data_dir_of_several_dumps_is_refused(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    for name in ("a", "b"):
        make_dump(f"{name}/dump.json", {RELU: forward(tensor(2), output=tensor(2))})
    for folder, words in ((".", "the run has 2 dumps*give one dump"), ("none", "there is no such folder")):
        said = refusal(pytester, "--probe-dump=.", f"--probe-data-dir={folder}")
        said.fnmatch_lines([f"--probe-data-dir: '*' cannot be used; {words}"])


DEEP = 100_000
TEXTS = {
    "deep entry": f'"{RELU}": {{"input_args": {"[" * DEEP}{"]" * DEEP}}}}}}}',
    "deep and cut": f'"{RELU}": {{"input_args": {"[" * DEEP}',
    "odd names, cut": ", ".join(f'"odd{i}": {{"x": {i}}}' for i in range(10_000)),
    "holes": ", ".join(f'"Functional.relu.{i}.forward": {{"x": {i}' for i in range(20_000)),
    "quotes": '"' * 300_000,
    "no UTF-8": '"Functional.re\udcff\udcfelu.0.forward": {"input_args": []}}}',
}


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_json_is_answered_within_a_second(tmp_path: Path, name: str) -> None:
    path = tmp_path / "dump.json"
    path.write_bytes((HEADER + TEXTS[name]).encode("utf-8", "surrogateescape"))
    with Seconds(1):
        try:
            damage = read_dump(path).damage
        except DumpError as error:
            damage = (str(error),)
    assert "is damaged or cut off at byte" in damage[0]


@pytest.mark.parametrize(
    "text",
    ['{"' + "paddle." * 9_000, '{"task":' + '"task":1,' * 6_000 + '"data": {"x": 1}}'],
)
def test_a_file_that_is_no_dump_is_told_within_a_second(tmp_path: Path, text: str) -> None:
    (tmp_path / "dump.json").write_text(text)
    with Seconds(1), pytest.raises(DumpError, match="is not a dump: it is "):
        read_dump(tmp_path / "dump.json")


def test_a_hostile_stack_is_read_within_a_second(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(HEADER + f'"{RELU}": {json.dumps(forward(tensor(2), output=tensor(2)))}}}}}')
    path.with_name("stack.json").write_text(json.dumps({RELU: ["File x" + ", line 1, in , " * 30_000]}))
    with Seconds(1):
        assert read_dump(path).stack(RELU) == ()


@pytest.mark.parametrize(
    "text", ["[" * DEEP, "{a: " * DEEP, "- " * DEEP, "\n".join(" " * i + "a:" for i in range(600))]
)
def test_deep_rules_are_refused_within_a_second(pytester: pytest.Pytester, make_dump: DumpMaker, text: str) -> None:
    make_dump(data={})
    (pytester.path / "rules.yaml").write_text(f"apis: {text}" if text[0] in "[{" else text)
    with Seconds(3):
        said = refusal(pytester, "--probe-dump=dump.json", "--probe-standards-file=rules.yaml")
    said.re_match_lines([r".*rules.yaml: 'the file' cannot be used; .*(nested too deep|more than)"])


def test_an_expanded_tensor_takes_the_memory_of_its_storage(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    x = {**tensor(6, dtype="bfloat16"), "data_name": "x.pt"}
    path.write_text(HEADER + f'"{RELU}": {json.dumps(forward(x, output=x))}}}}}')
    (tmp_path / "dump_tensor_data").mkdir()
    torch.save(torch.zeros(1, dtype=torch.bfloat16).expand(2**40), tmp_path / "dump_tensor_data/x.pt")
    files = _files(path)
    spec = read_dump(path).decode(read_dump(path).records[0]).args[0]
    with pytest.raises(RecordError, match=r"shape \(1099511627776,\) in "):
        files.array(spec, RELU, "input_args.0")


def _files(path: Path) -> Any:
    from pytest_probe.inputs import StoredTensors

    return StoredTensors.of(read_dump(path))


def test_a_folder_whose_name_is_no_utf8(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump("run/dump.json", {RELU: forward(tensor(2), output=tensor(2))})
    (pytester.path / "run").rename(pytester.path / os.fsdecode(b"r\xff\xfe"))
    said = refusal(pytester, "--probe-dump=.")
    said.fnmatch_lines(["--probe-dump: '*udcff*' cannot be used; its name is not UTF-8; *"])


class Seconds:
    """Fails where its block takes longer than so many seconds of this process."""

    def __init__(self, limit: float) -> None:
        self._limit = limit

    def __enter__(self) -> None:
        self._begun = time.process_time()

    def __exit__(self, *_: object) -> None:
        assert time.process_time() - self._begun < self._limit
