"""What --probe-against says of dumps and options that do not fit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.conftest import DumpMaker, forward, tensor
from tests.features.against.conftest import Compare
from tests.support.running import refusal

X = tensor(4, 5)


def make(make_dump: DumpMaker, name: str, **calls: object) -> str:
    """A dump of statistics in a folder of that name."""
    folder = Path(name)
    folder.mkdir()
    data = {f"Torch.{api}.0.forward": call for api, call in calls.items()}
    make_dump(f"{name}/dump.json", data=data)
    return name


def test_it_needs_a_dump(pytester: pytest.Pytester, recorded: Callable[[str], Path]) -> None:
    said = refusal(pytester, f"--probe-against={recorded('gpt')}")
    said.fnmatch_lines(["*it needs a dump to compare: add --probe-dump=PATH"])


def test_another_side_that_is_none(pytester: pytest.Pytester, recorded: Callable[[str], Path]) -> None:
    said = refusal(pytester, f"--probe-dump={recorded('gpt')}", "--probe-against=nothing")
    said.fnmatch_lines(["*--probe-against: *there is no such file or folder*"])


def test_a_closeness_needs_two_dumps(pytester: pytest.Pytester, recorded: Callable[[str], Path]) -> None:
    said = refusal(pytester, f"--probe-dump={recorded('gpt')}", "--probe-standard=close")
    said.fnmatch_lines(["*--probe-standard: 'close' cannot be used; *"])


def test_two_programs_are_refused_before_anything_is_compared(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make(
        make_dump,
        "A",
        **dict.fromkeys("exp sin cos tan abs neg sqrt log ceil floor tanh".split(), forward(X, output=X)),
    )
    make(
        make_dump,
        "B",
        **dict.fromkeys("relu gelu erf sign square exp2 rsqrt log2 trunc frac exp".split(), forward(X, output=X)),
    )
    said = refusal(pytester, "--probe-dump=A", "--probe-against=B")
    said.fnmatch_lines(["*1 of 11 records have a counterpart in *give dumps of one program, or a map*"])
    Path("map.yaml").write_text("ignore: [nothing]")
    result = pytester.runpytest("--probe-dump=A", "--probe-against=B", "--probe-against-map=map.yaml")
    result.assert_outcomes(passed=1, skipped=20)


def test_another_shape_is_a_skip_that_names_both(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make(make_dump, "A", exp=forward(X, output=X))
    make(make_dump, "B", exp=forward(tensor(4, 6), output=tensor(4, 6)))
    result = pytester.runpytest("--probe-dump=A", "--probe-against=B", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*output.0 is float32 [[]4, 5] and float32 [[]4, 6]*"])
    result.stdout.fnmatch_lines(["probe: nothing was compared: *"])
    assert result.ret == 1


def test_a_damaged_side_gives_its_good_records(
    pytester: pytest.Pytester, recorded: Callable[[str], Path], compare: Compare
) -> None:
    shutil.copytree(recorded("gpt"), "B")
    (dump,) = Path("B").rglob("dump.json")
    text = dump.read_text()
    dump.write_text(text[: len(text) * 2 // 3])
    result = pytester.runpytest(f"--probe-dump={recorded('again')}", "--probe-against=B", "--probe-out=out")
    found = [json.loads(line) for line in Path("out", "results.jsonl").read_text().splitlines()]
    assert {each["verdict"] for each in found} == {"pass", "skip"}
    assert sum(each["verdict"] == "pass" for each in found) > 20
    result.stdout.fnmatch_lines(["*B is damaged*"])
    assert result.ret == 1


def test_a_missing_file_is_a_skip_of_its_call(pytester: pytest.Pytester, recorded: Callable[[str], Path]) -> None:
    shutil.copytree(recorded("gpt"), "B")
    (tensors,) = Path("B").rglob("dump_tensor_data")
    (tensors / "Functional.softmax.1.forward.output.0.pt").unlink()
    result = pytester.runpytest(f"--probe-dump={recorded('again')}", "--probe-against=B", "-rs")
    result.stdout.fnmatch_lines(["*Functional.softmax.1.forward.output.0.pt*"])
    assert result.ret == 0


@pytest.mark.parametrize(("standard", "wrong"), [("exact", "error"), ("close", "error"), ("statistics", "warning")])
def test_rules_that_compare_outputs_alone(compare: Compare, standard: str, wrong: str) -> None:
    _, found = compare("softmax", "gpt", f"--probe-standard={standard}")
    assert found["Functional.softmax.1.forward"]["verdict"] == wrong
    assert found["Functional.softmax.0.forward"]["verdict"] == "pass"
    warned = {name for name, each in found.items() if each["verdict"] == "warning"}
    if standard == "statistics":  # all else has inherited it
        assert warned == {"Functional.softmax.1.forward"}


def test_ptdbgs_limits(compare: Compare) -> None:
    """An error of a thousandth is none by cosine."""
    _, found = compare("softmax", "gpt", "--probe-standard=ptdbg-2.3")
    assert {each["verdict"] for each in found.values()} == {"pass"}
