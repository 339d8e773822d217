"""Reading takes time in proportion to what is read, whatever that is.

A dump is untrusted, and no time limit counts while items are collected.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_probe import records
from pytest_probe.errors import DumpError, RecordError
from pytest_probe.records.msprobe.call_sites import user_frame
from tests.support.writing import write_dump

pytestmark = pytest.mark.slow

COUNT = 100_000
# Seconds of CPU for a word that comes so often: nearly all take less than a tenth of it, also on a slow machine, and
# what is quadratic takes ten times as much.
LIMIT = 5.0
# What each format is made of, and what its patterns repeat; each reader has to answer all of them.
WORDS = (
    *(
        " ",
        "\t",
        "\n",
        '"data" ',
        '"Max": ',
        '" ',
        ",) ",
        "\n[",
        '"File ',
        '\n["a"',
        '\n["Torch_relu_0_forward_input.0",[],',
    ),
    *("\npaddle.add(1, )", ", line 1, in ", '\n["A_b_0_forward_input.0'),
    *r"""" "" { } [ ] ( ) , : \ \" _ . * / - 1 0. 1e a a. a_ _0_ .forward .forward[ "a.forward":{""".split(),
    *""""data":{ "task": "level": null, {"a": "Max":1 "Max":[ "zeros":0. "mode":[0, "address":1 NaN""".split(),
    *'''-Infinity, 1, [1, Tensor( Tensor([ Tensor([2, Tensor([2],"float32"), Tensor(paddle.Size([ Tensor(["'''.split(),
    *"""paddle. paddle.add( list[ tuple( slice( complex( Dtype( 1+ 1j 1e5+ a= a=1, "a"b ", ),""".split(),
    *""""paddle.add*0": "paddle.add*0":{"args" "Torch*cat*0":{"args" "Torch*cat*0":[  a*""".split(),
    *r"""["Torch_relu_0_forward_input.0" _forward_input /lib/python3 /torch \lib forward_real_data/rank""".split(),
    '"stop_gradient":',
)
# What stands before the words: where each format goes on to read.
BEGINNINGS = (
    "",
    '{"task": "statistics", "level": "L1", "data": {"Torch.add.0.forward": {"input_args": [{"type": "torch.Tensor", ',
    '{"task": "statistics", "data": {"Torch.add.0.forward": {"input_args": [], "input_kwargs": {}, "output": []}, "',
    '{"paddle.add*0": {"args": [',
    '{"Torch*cat*0": {"args": [',
    '["Torch_relu_0_forward_input.0", ',
    "paddle.add(1, )\npaddle.add(",
    'paddle.add(1, )\npaddle.cast(Tensor([2],"',
)
_MANY = "1" * 8000
NUMBERS = (_MANY, f"-{_MANY}", f"1.{_MANY}", f"{_MANY}x", f"1e{_MANY}", f"{_MANY}j", f"{_MANY}jx")


def read_all(path: Path) -> None:
    """As collection reads a path, and as a run decodes its records."""
    with suppress(DumpError):
        for each in records.find_dumps(path):
            dump = records.read_dump(each)
            for record in dump.records[:1000]:
                with suppress(RecordError):
                    dump.decode(record)
                dump.stack(f"{record.name}.forward")


def seconds(work: Callable[[], object]) -> float:
    """Of this process's CPU."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


@pytest.mark.parametrize(
    "beginning", BEGINNINGS, ids=["words alone", "tensor", "entry", "paddleapex", "checker", "ptdbg", "line", "cast"]
)
def test_words_that_are_repeated(tmp_path: Path, beginning: str) -> None:
    path = tmp_path / "dump.json"
    slow = {}
    for word in WORDS:
        for ending in ("", '"], )') if beginning.startswith("paddle") else ("",):
            path.write_text(beginning + word * COUNT + ending)
            taken = seconds(lambda: read_all(path))
            if taken > LIMIT:
                slow[word, ending] = taken
    assert not slow


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: f"{number[:3]}...{number[-2:]}")
@pytest.mark.parametrize(
    "beginning", BEGINNINGS[1:7], ids=["tensor", "entry", "paddleapex", "checker", "ptdbg", "line"]
)
def test_numbers_of_8000_digits(tmp_path: Path, beginning: str, number: str) -> None:
    """Python's own int() refuses them with an error that no reader may let through."""
    path = tmp_path / "dump.json"
    for content in (beginning + number, beginning + number + ", )", beginning + '"Max": ' + number):
        path.write_text(content)
        assert seconds(lambda: read_all(path)) < 1


@pytest.mark.parametrize("name", ["stack.json", "construct.json"])
def test_words_that_are_repeated_in_the_files_beside_a_dump(tmp_path: Path, name: str) -> None:
    entry = "Torch.add.0.forward"
    path = write_dump(tmp_path, {entry: {"input_args": [], "input_kwargs": {}, "output": []}})
    slow = {}
    for word in WORDS:
        text = word * COUNT
        frames = [f"File {text}, line 1, in f\n x", f"File a{text}\n{text}"]
        contents = (text, '{"0": [[' + text, json.dumps({entry: frames}), json.dumps({"0": [[entry], frames]}))
        for number, content in enumerate((*contents, json.dumps({entry: text}))):
            (tmp_path / name).write_text(content)
            taken = seconds(lambda: places_of(path, entry))
            if taken > LIMIT:
                slow[word, number] = taken
    assert not slow


def places_of(path: Path, entry: str) -> None:
    """Where a call stood, and in which modules."""
    dump = records.read_dump(path)
    user_frame(dump.stack(entry))
    dump.modules(entry)
