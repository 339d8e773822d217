"""A dump that cannot be used whole: good records run, and one item says what is wrong. Collection never fails."""

from __future__ import annotations

import pytest

import pytest_probe.items
from tests.plugin.conftest import DumpMaker, entries


def test_a_truncated_dump_runs_what_is_before_the_cut(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    dump = make_dump()
    text = dump.read_text()
    dump.write_text(text[: text.index("Torch.argmax.0.forward") + 60])
    result = pytester.runpytest("--probe-dump=dump.json", "-v")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*dump.json: is damaged or cut off*", "to reproduce: pytest 'dump.json::(damaged)'", "1 failed*"][:2]
    )
    pytester.runpytest("dump.json::(damaged)").assert_outcomes(failed=1)


@pytest.mark.parametrize("content", ["", "{", "no json", "[]", '{"data": {}}'])
def test_a_file_that_is_no_dump_is_one_failing_item(pytester: pytest.Pytester, content: str) -> None:
    (pytester.path / "dump.json").write_text(content)
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-out=out")
    assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    result.stdout.no_fnmatch_line("*Traceback*")
    assert len((pytester.path / "out/results.jsonl").read_text().splitlines()) == 1


def test_a_dump_of_modules_only_says_what_to_record(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(data={name: entry for name, entry in entries().items() if name.startswith("Module")}, level="L0")
    result = pytester.runpytest("--probe-dump=dump.json", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*it holds no API calls, only 1 Module entry; record with level L1 or mix*"])


def test_a_dump_of_another_framework(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(framework="mindspore")
    result = pytester.runpytest("--probe-dump=dump.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*dump.json: *mindspore*give a dump of pytorch"])


def test_without_torch(pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    make_dump()
    monkeypatch.setitem(pytest_probe.items.FRAMEWORKS, "pytorch", "no_such_torch")
    result = pytester.runpytest("--probe-dump=dump.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*its calls need no_such_torch, which is not installed: pip install *"])


def test_a_broken_record_is_a_skip_of_its_items(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    data = entries()
    data["Functional.relu.0.forward"]["input_args"][0]["shape"] = [-2, 3]
    make_dump(data=data)
    for args in ([], ["--probe-dtype=float16"]):
        result = pytester.runpytest("--probe-dump=dump.json", "-rs", *args)
        result.assert_outcomes(passed=3, skipped=3)
        result.stdout.fnmatch_lines(["SKIPPED*Functional.relu.0.forward*shape*"])
