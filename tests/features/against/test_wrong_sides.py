"""Wrong values in one of two dumps that are equal otherwise: none passes. Differences that are no errors. And dumps and
options that do not fit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import DumpMaker, forward, tensor
from tests.features.against.conftest import Compare, Pairs
from tests.support.running import by_case, refusal

MADE = "behind a call that A alone has: Tensor.__mul__.0.forward"


@pytest.mark.parametrize(
    ("a", "b", "wrong"),
    [
        ("one more", "layers", {"Functional.linear.2.forward": MADE}),
        ("layers", "one more", {"Functional.linear.2.forward": MADE.replace("A alone", "B alone")}),
        ("scaled", "layers", {"Functional.mse_loss.0.backward": MADE.replace("forward", "backward")}),
        ("one in vain", "layers", {}),
        # All calls behind the first one differ by rounding; at the one that is wrong a thousand times as much.
        ("one more, rounded", "layers", {"Functional.linear.2.forward": MADE}),
        ("one in vain, rounded", "layers", {}),
    ],
)
def test_the_first_difference_behind_a_call_of_one_side_is_warned_about(
    pair: Pairs, a: str, b: str, wrong: dict[str, str]
) -> None:
    found = pair(a, b)
    assert found.wrong == wrong
    first = f"{found.label}: no own error; sides first differ in Functional.linear.2.forward, behind"
    assert first in found.text or a != "one more"


@pytest.mark.parametrize(
    ("a", "b", "name"),
    [
        # The wrong output is that of the other side.
        ("stale", "norm", "Torch.exp.0.forward"),
        ("wrong dropout", "norm", "Functional.dropout.0.forward"),
        ("wrong dropout, evaluated", "norm, evaluated", "Functional.dropout.0.forward"),
        ("a wrong loss", "gpt", "Functional.cross_entropy.0.forward"),  # of one micro-batch
    ],
)
def test_a_wrong_value_is_an_own_error(pair: Pairs, a: str, b: str, name: str) -> None:
    assert pair(a, b).status(name) == ("error", "own")


def test_a_file_that_is_empty_on_both_sides_is_not_equal(pair: Pairs) -> None:
    assert pair("norm, empty", "norm, empty").rows["Torch.exp.0.forward"]["verdict"] == "skip"


def test_settings_that_differ_are_named_behind_the_first_difference(pair: Pairs) -> None:
    found = pair("norm, another eps", "norm")
    assert found.status("Functional.layer_norm.0.forward") == ("warning", "arguments")
    assert "kwargs.eps is 0.001 and 1e-06" in found.wrong["Functional.layer_norm.0.forward"]
    assert found.status("Torch.exp.0.forward") == ("pass", "inherited")


def test_a_setting_that_changes_no_output_and_a_permuted_input_are_none_to_warn_about(pair: Pairs) -> None:
    assert pair("norm, more", "norm").wrong == {}


def test_inputs_that_no_call_made_are_named(pair: Pairs) -> None:
    found = pair("another weight", "gpt")
    assert f"{found.label}: inputs that no recorded call made, and that differ: input.1 of" in found.text


def test_a_rule_that_needs_tensors_says_so(compare: Compare) -> None:
    _, found = compare("softmax_statistics", "statistics", "--probe-standard=close")
    assert found["Functional.softmax.1.forward"]["verdict"] == "skip"
    assert "needs tensors" in found["Functional.softmax.1.forward"]["reason"]


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


@pytest.mark.parametrize(("standard", "found"), [("exact", "error"), ("statistics", "warning"), ("ptdbg-2.3", "pass")])
def test_rules_that_compare_outputs_alone(compare: Compare, standard: str, found: str) -> None:
    """An error of a thousandth is none by cosine, and statistics name nothing that has inherited it."""
    _, rows = compare("softmax", "gpt", f"--probe-standard={standard}")
    assert rows["Functional.softmax.0.forward"]["verdict"] == "pass"
    assert rows["Functional.softmax.1.forward"]["verdict"] == found
    status = {name: row["answers"][0]["pair"]["status"] for name, row in rows.items()}
    assert [name for name in status if status[name] == "own"] == ["Functional.softmax.1.forward"] * (found != "pass")
    assert ("inherited" in status.values()) == (standard == "exact")
    warned = {name for name, each in rows.items() if each["verdict"] == "warning"}
    assert warned == ({"Functional.softmax.1.forward"} if standard == "statistics" else set())


def test_strict_wants_each_call_and_each_dump_on_both_sides(
    pytester: pytest.Pytester, recorded: Callable[[str], Path]
) -> None:
    for place, name in {"A/step0": "norm", "A/step1": "one in vain", "B/step1": "layers"}.items():
        shutil.copytree(recorded(name) / "step0", place)
    result = pytester.runpytest("--probe-dump=A", "--probe-against=B", "--probe-strict", "--probe-out=out")
    wrong = {name for name, row in by_case().items() if row["verdict"] == "error"}
    assert wrong == {"Tensor.__mul__.0.forward", "Tensor.__mul__.0.backward"}
    result.assert_outcomes(failed=2, passed=21)
    result.stdout.fnmatch_lines(["probe: --probe-strict: 1 dump without a counterpart: *"])


EMPTY: dict[str, Any] = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": {}}


@pytest.mark.parametrize(("a", "b"), [("norm", "empty"), ("empty", "norm"), ("empty", "empty")])
def test_an_empty_side_is_an_error(pytester: pytest.Pytester, recorded: Callable[[str], Path], a: str, b: str) -> None:
    Path("empty").mkdir()
    Path("empty/dump.json").write_text(json.dumps(EMPTY))
    one, other = (recorded(name) if name == "norm" else name for name in (a, b))
    said = refusal(pytester, f"--probe-dump={one}", f"--probe-against={other}")
    said.fnmatch_lines(["*--probe-against: *cannot be used; *record*"])
