"""What every reader promises: it names the file, the record and the field, refuses what is cut off before its first
record, and loses no other record."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_probe.errors import DumpError, ProbeError, RecordError
from pytest_probe.model.dump import Dump, Record
from pytest_probe.records import find_dumps, read_dump
from tests.records.formats import FORMATS, HIGH, JSON, LOW, SHAPE, Format

each_format = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
each_json = pytest.mark.parametrize("form", [FORMATS[name] for name in JSON], ids=JSON)


def numbers(dump: Dump) -> list[int]:
    """Of the records that are calls of the tensor."""
    found = []
    for record in dump.records:
        with suppress(RecordError, IndexError):
            if getattr(dump.decode(record).args[0], "shape", None) == (2, 3):
                found.append(record.number)
    return found


def second(form: Format, old: str, new: str) -> list[str]:
    """The records, the second one changed."""
    one, two, *rest = form.records()
    assert old in two
    return [one, two.replace(old, new, 1), *rest]


@each_format
def test_every_record_is_read(tmp_path: Path, form: Format) -> None:
    path = form.write(tmp_path)
    assert find_dumps(tmp_path) == find_dumps(path) == [path]
    dump = read_dump(path)
    assert [record.name for record in dump.records] == [form.call.replace("#", str(number)) for number in range(1, 5)]
    assert (numbers(dump), dump.damage, dump.skipped) == ([1, 2, 3, 4], (), {})
    assert dump.framework == form.framework
    for name in dump.records[0].name, "Torch.other.7":
        assert dump.stack(f"{name}.forward") == dump.stack(f"{name}.backward") == ()


@each_format
def test_a_wrong_field_is_named_and_costs_its_own_record(tmp_path: Path, form: Format) -> None:
    path = form.write(tmp_path, second(form, SHAPE, "[2, -3]"))
    dump = read_dump(path)
    with pytest.raises(RecordError) as caught:
        dump.decode(dump.records[1])
    assert str(caught.value).startswith(f"{path}: {form.call.replace('#', '2')}.forward: {form.field}")
    assert (numbers(dump), dump.damage) == ([1, 3, 4], ())


@each_format
def test_every_cut_keeps_the_records_before_it(tmp_path: Path, form: Format) -> None:
    path, text = form.write(tmp_path), form.text(form.records())
    ends = [len(form.head + form.separator.join(form.records()[:count])) for count in range(1, 5)]
    for cut in range(ends[0], len(text) - len(form.tail), 3):
        path.write_text(text[:cut])
        dump = read_dump(path)
        kept = sum(end <= cut for end in ends)
        assert numbers(dump) == list(range(1, kept + 1)), cut
        if form.is_json:
            (damage,) = dump.damage
            assert damage.startswith(f"{path}: is damaged or cut off at byte "), cut
            assert damage.endswith(f"entries kept: {kept}; copy the file again, or repeat the capture"), cut


@each_format
@pytest.mark.parametrize(
    "change", ["\0\0", "[" * 700 + "]" * 700, "[" * 50_000 + "]" * 50_000, "[" * 50_000, '"', "\ud800"]
)
def test_what_is_no_value_costs_its_own_record(tmp_path: Path, form: Format, change: str) -> None:
    path = form.write(tmp_path)
    text = form.text(second(form, SHAPE, change))
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    dump = read_dump(path)
    assert numbers(dump) == [1, 3, 4]
    assert len(dump.damage) + sum(record.number == 2 for record in dump.records) == 1


@each_json
def test_values_nested_too_deep_are_an_error_of_their_record(tmp_path: Path, form: Format) -> None:
    dump = read_dump(form.write(tmp_path, second(form, '{"type"', "[" * 700 + "]" * 700 + ', {"type"')))
    name = form.call.replace("#", "2")
    with pytest.raises(RecordError, match=re.escape(name) + ".*: found values nested too deep, expected fewer than ab"):
        dump.decode(dump.records[1])
    assert numbers(dump) == [1, 3, 4]


@each_json
def test_a_hole_says_where_it_is(tmp_path: Path, form: Format) -> None:
    path = form.write(tmp_path, second(form, SHAPE, "\0\0"))
    (damage,) = read_dump(path).damage
    names = [re.search(r'"(.*?)"', record)[1] for record in form.records()[:2]]  # type: ignore[index]
    assert f"(line 3), in entry {names[1]}; the last good entry before is {names[0]}; entries kept: 3" in damage
    path = form.write(tmp_path)
    size = path.stat().st_size
    path.write_text(path.read_text() + "oops")
    assert f"at byte {size} " in read_dump(path).damage[0]
    assert numbers(read_dump(path)) == [1, 2, 3, 4]
    path.write_text(form.head + form.records()[0][:-9])
    with pytest.raises(DumpError, match=r"cut off at byte \d+ \(line 2\), in entry .*; no entry could be read"):
        read_dump(path)


@each_json
def test_the_last_of_two_entries_of_one_name_counts(tmp_path: Path, form: Format) -> None:
    one, two, *_ = form.records()
    path = form.write(tmp_path, [one, two, one.replace(HIGH, "9.0")])
    dump = read_dump(path)
    (note,) = dump.notes
    assert re.fullmatch(r"entry \S+1(\.forward)? occurs 2 times, the last one counts", note)
    assert [dump.decode(record).args[0].max for record in dump.records] == [9.0, 2.5]


@each_json
@pytest.mark.parametrize(("old", "new"), [(r"([.*])add", r"\1"), (r'"\w+[.*]add', '"add'), (r'".*?":', '"x":')])
def test_a_name_that_is_no_call_is_counted(tmp_path: Path, form: Format, old: str, new: str) -> None:
    one, two, *rest = form.records()
    dump = read_dump(form.write(tmp_path, [one, re.sub(old, new, two, count=1), *rest]))
    assert (numbers(dump), dump.skipped) == ([1, 3, 4], {"entries with a name that is no API call": 1})


@each_format
def test_the_name_of_a_file_marks_and_ends_of_lines_say_nothing(tmp_path: Path, form: Format) -> None:
    path = tmp_path / f"any name{Path(form.file).suffix}"
    path.write_bytes(b"\xef\xbb\xbf" + form.text(form.records()).replace("\n", "\r\n").encode())
    assert find_dumps(tmp_path) == [path]
    dump = read_dump(path)
    assert (numbers(dump), dump.damage) == ([1, 2, 3, 4], ())


@each_format
def test_a_dump_in_an_archive_is_read(tmp_path: Path, form: Format) -> None:
    form.write(tmp_path / "run" / "step0")
    (path,) = find_dumps(Path(shutil.make_archive(str(tmp_path / "run"), "zip", tmp_path / "run")))
    assert path.parts[-3:] == ("run.zip", "step0", form.file)
    assert numbers(read_dump(path)) == [1, 2, 3, 4]


@pytest.mark.parametrize("form", [FORMATS[name] for name in (*JSON, "ptdbg")], ids=[*JSON, "ptdbg"])
def test_statistics_may_be_not_finite(tmp_path: Path, form: Format) -> None:
    path = form.write(tmp_path, second(form, f"{HIGH}", "NaN"))
    path.write_text(path.read_text().replace(LOW, "-Infinity"))
    dump = read_dump(path)
    found = [dump.decode(record).args[0] for record in dump.records]
    assert str([(spec.max, spec.min) for spec in found[:2]]) == "[(2.5, -inf), (nan, -inf)]"
    assert dump.damage == ()


def is_refused(dump: Dump, record: Record) -> bool:
    """All that a reader is asked for of a record, as an error of the record's or without any."""
    dump.stack(f"{record.name}.forward")
    dump.modules(f"{record.name}.forward")
    with suppress(RecordError):
        dump.gradients(record)
    try:
        dump.decode(record)
    except RecordError:
        return True
    return False


# Machines under load draw slowly.
SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
_NOISE = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"]",
    b",",
    b"NaN",
    b"1e999",
    b"_stack_info",
    b"_backward_output",
    b"input..",
    b"\n[",
]


@each_format
@settings(max_examples=60, suppress_health_check=SLOW)
@given(data=st.data())
def test_whatever_happens_to_a_file_it_is_a_dump_or_our_own_error(
    tmp_path: Path, form: Format, data: st.DataObject
) -> None:
    path, content = tmp_path / form.file, form.text(form.records()).encode()
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 40)) | st.just(len(content)))
    noise = data.draw(st.binary(max_size=60) | st.sampled_from(_NOISE))
    path.write_bytes(content[:start] + noise + content[end:])
    with suppress(ProbeError):
        for record in (dump := read_dump(path)).records:
            is_refused(dump, record)


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value, the outermost first."""
    yield path
    if isinstance(tree, (dict, list)):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(value, (*path, key))


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.copy(tree)
    changed[path[0]] = replaced(tree[path[0]], path[1:], value)
    return changed


WRONG: list[Any] = [None, 1, "x", "N", [], {}, -1, float("inf"), True, 10**400, 2.5, [None], {"type": 3}, {"type": "x"}]


@pytest.mark.parametrize("form", [FORMATS[name] for name in (*JSON, "ptdbg")], ids=[*JSON, "ptdbg"])
def test_a_wrong_value_anywhere_in_a_record_is_a_call_or_its_own_error(tmp_path: Path, form: Format) -> None:
    one, two, three, _ = form.records()
    key, _, body = two.partition(": ") if form.is_json else ("", "", two)
    tree = json.loads(body)
    refused = 0
    for place in places(tree):
        for wrong in WRONG:
            changed = json.dumps(replaced(tree, place, wrong))
            path = form.write(tmp_path, [one, f"{key}: {changed}" if key else changed, three])
            dump = read_dump(path)
            assert {1, 3} <= set(numbers(dump))
            refused += sum(is_refused(dump, record) for record in dump.records)
    assert refused > 40
