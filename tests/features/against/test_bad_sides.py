"""What --probe-against says of dumps and options that do not fit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.conftest import DumpMaker, forward, tensor
from tests.features.against.conftest import Compare
from tests.support.running import by_case, refusal

X = tensor(4, 5)


def make(make_dump: DumpMaker, name: str, **calls: object) -> None:
    make_dump(f"{name}/dump.json", data={f"Torch.{api}.0.forward": call for api, call in calls.items()})


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--probe-against=gpt"], "it needs a dump to compare: add --probe-dump=PATH"),
        (["--probe-dump=gpt", "--probe-against=nothing"], "--probe-against: *there is no such file or folder"),
        (["--probe-dump=gpt", "--probe-standard=close"], "--probe-standard: 'close' cannot be used; *"),
    ],
)
def test_what_needs_two_dumps_is_refused(
    pytester: pytest.Pytester, recorded: Callable[[str], Path], args: list[str], words: str
) -> None:
    Path("gpt").symlink_to(recorded("gpt"))
    refusal(pytester, *args).fnmatch_lines([f"*{words}"])


def test_two_programs_are_refused_before_anything_is_compared(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    one, other = (
        "exp sin cos tan abs neg sqrt log ceil floor tanh",
        "relu gelu erf sign square exp2 rsqrt log2 trunc frac exp",
    )
    make(make_dump, "A", **dict.fromkeys(one.split(), forward(X, output=X)))
    make(make_dump, "B", **dict.fromkeys(other.split(), forward(X, output=X)))
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


def test_a_damaged_side_without_a_file_gives_its_good_records(
    pytester: pytest.Pytester, recorded: Callable[[str], Path]
) -> None:
    shutil.copytree(recorded("gpt"), "B")
    (dump,), (tensors,) = Path("B").rglob("dump.json"), Path("B").rglob("dump_tensor_data")
    text = dump.read_text()
    dump.write_text(text[: len(text) * 2 // 3])
    missing = "Functional.softmax.0.forward.output.0.pt"
    (tensors / missing).unlink()
    paths = f"--probe-dump={recorded('again')}", "--probe-against=B"
    result = pytester.runpytest(*paths, "--probe-out=out", "-rs")
    verdicts = [each["verdict"] for each in by_case().values()]
    assert set(verdicts) == {"pass", "skip"}
    assert verdicts.count("pass") > 20
    result.stdout.fnmatch_lines([f"*{missing}*"])
    result.stdout.fnmatch_lines(["*B is damaged*"])
    assert result.ret == 1
    dump.write_text(text)
    assert pytester.runpytest(*paths).ret == 0


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
