"""A project's own rules and limits: what they decide, and what a wrong file says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.standards import standards
from pytest_probe.standards.tools.table import Entry, StandardsFile, Table, packaged, read_standards_file
from tests.support.asking import comparison

WHY = "the kernel rounds by design"
RULES = """
apis:
  Functional.linear:
    bfloat16:
      standard: ulp
      over_ratio: 1e-2
      justification: "the kernel rounds
        by design"
    "*":
      standard: thousandth
      justification: all dtypes
  "Torch.my_*":
    float32:
      standard: absolute_threshold
      rtol: 1e-4
      justification: theirs
  mul:
    float32:
      rtol: 0.01
      justification: bare
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rules.yaml"


def read(file: Path, text: str) -> StandardsFile:
    file.write_text(text, encoding="utf-8")
    return read_standards_file(file)


def table(file: Path, text: str = RULES) -> Table:
    return packaged().with_entries(read(file, text).entries)


def test_an_api_in_a_dtype(file: Path) -> None:
    rule = table(file).rule("Functional.linear", "bfloat16")
    assert (rule.name, rule.justification) == ("ulp", WHY)
    assert rule.limits == {"over": 1, "over_ratio": 0.01, "mean": 0}


def test_the_more_precise_entry_counts(file: Path) -> None:
    found = table(file)
    assert found.rule("Functional.linear", "float32").justification == "all dtypes"
    globbed = '  "Functional.*":\n    bfloat16: {standard: binary, justification: glob}\n'
    assert table(file, RULES + globbed).rule("Functional.linear", "bfloat16").justification == WHY
    assert table(file, RULES + globbed).rule("Functional.gelu", "bfloat16").name == "binary"


def test_a_glob_with_limits_of_its_own_and_the_rest_of_the_rules(file: Path) -> None:
    rule = table(file).rule("Torch.my_add", "float32")
    assert rule.limits == {"rtol": 1e-4, "small_value": 1e-6, "small_value_atol": 1e-9}
    assert table(file).rule("Torch.my_add", "float16").name == "benchmark"


def test_limits_without_a_rule_change_those_of_the_apis_own(file: Path) -> None:
    rule = table(file).rule("Torch.mul", "float32")
    assert (rule.name, rule.limits["rtol"], rule.limits["small_value"]) == ("absolute_threshold", 0.01, 1e-6)
    assert table(file).rule("Tensor.mul_", "float32").limits["rtol"] == 1e-6


def test_apis_that_no_entry_names_keep_their_rule(file: Path) -> None:
    assert table(file).rule("Torch.matmul", "float32") == packaged().rule("Torch.matmul", "float32")


def judged(file: Path, standard: str, error: float) -> OutputVerdict:
    values = np.linspace(1.0, 2.0, 100)
    asked = comparison(values * (1 + error), values, dtype="float32", api="Torch.mul")
    return standards(table(file))[standard].judge(asked)


@pytest.mark.parametrize("standard", ["msprobe", "absolute_threshold"])
def test_the_limits_judge_and_reports_say_why(file: Path, standard: str) -> None:
    found = judged(file, standard, 0.009)
    assert (found.verdict, found.metrics["justification"]) == ("pass", "bare")
    assert found.reason == "limits of the project's own: bare"
    wrong = judged(file, standard, 0.011)
    assert wrong.verdict == "error"
    assert wrong.reason.endswith("; limits of the project's own: bare")


@pytest.mark.parametrize("standard", ["msprobe-1.0", "noise", "auto"])
def test_neither_a_tool_nor_noise_listens_to_them(file: Path, standard: str) -> None:
    assert judged(file, standard, 0.009).verdict == "error"


def test_they_may_warn_under_auto(file: Path) -> None:
    strict = "apis: {mul: {float32: {rtol: 1e-7, justification: exact by contract}}}"
    values = np.linspace(1.0, 2.0, 100)
    asked = comparison(values + 2.0**-22, values, dtype="float32", api="Torch.mul")
    assert standards(packaged())["auto"].judge(asked).verdict == "pass"
    found = standards(table(file, strict))["auto"].judge(asked)
    assert (found.verdict, found.metrics["table"]) == ("warning", "absolute_threshold")
    assert "exact by contract" in found.reason


def test_lists_as_msprobe_writes_them(tmp_path: Path) -> None:
    config = {"white_list": ["conv2d", "linear"], "black_list": ["relu"], "error_data_path": "./"}
    plain, tabs, nested = (tmp_path / name for name in ("config.json", "tabs.json", "all.json"))
    plain.write_text(json.dumps(config, indent=2), encoding="utf-8-sig")
    tabs.write_text(json.dumps(config, indent="\t"))
    nested.write_text(json.dumps({"task": "statistics", "rank": [], "run_ut": config}))
    for path in (plain, tabs, nested):
        assert read_standards_file(path) == StandardsFile((), ("conv2d", "linear"), ("relu",))


def test_decimals_and_the_folder_of_tensors_are_msprobes(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"acc_check": {"precision": 6, "error_data_path": "wrong/tensors"}}))
    found = read_standards_file(path)
    assert (found.decimals, found.saved) == (6, Path("wrong/tensors"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"precision": 21}, "precision: '21' cannot be used; give a number of decimals, from 0 to 20"),
        ({"precision": "many"}, "precision: 'many' cannot be used; give a number of decimals, from 0 to 20"),
        ({"error_data_path": ["a"]}, r"error_data_path: \['a'\] cannot be used; give the path of a folder"),
    ],
)
def test_neither_can_be_anything(tmp_path: Path, content: dict[str, object], message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content))
    with pytest.raises(SettingsError, match=message):
        read_standards_file(path)


def test_an_empty_file_says_nothing(file: Path) -> None:
    assert read(file, "# nothing yet\n") == StandardsFile()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("api: {}", 1, "unknown key 'api'; did you mean 'apis'[?] Known keys: apis, "),
        ("apis:\n  mul:\n    flaot32: {}", 3, "unknown key 'flaot32'; did you mean 'float32'"),
        ("apis:\n  mul:\n    float32:\n      standard: uulp", 4, "mul: float32: standard: 'uulp' .*did you mean ulp"),
        ("apis:\n  mul:\n    float32:\n      rtoll: 1", 4, "unknown key 'rtoll'; did you mean 'rtol'"),
        (
            "apis:\n  mul:\n    float32: {standard: binary, rtol: 1}",
            3,
            "unknown key 'rtol'; known keys: standard, justification",
        ),
        ("apis:\n  mul:\n    float32: {rtol: 1}", 3, "mul: float32: justification: .*says why"),
        ("apis:\n  mul:\n    float32: {rtol: 1, justification: ' '}", 3, "mul: float32: justification: ' ' .*says why"),
        ("apis:\n  mul:\n    float32:\n      rtol: wide\n      justification: x", 4, "rtol: 'wide' .*give a number"),
        ("apis:\n  mul:\n    float32:\n      rtol: -1\n      justification: x", 4, "rtol: '-1' .*give a number"),
        ("apis:\n  mul:\n    float32:\n      rtol: .nan\n      justification: x", 4, "rtol: '.nan' .*give a number"),
        (
            "apis:\n  softmax:\n    float32: {rtol: 1, justification: x}",
            3,
            "'softmax: float32' .*msprobe's lists do not have it: add standard",
        ),
        (
            "apis:\n  'mu*':\n    float32: {rtol: 1, justification: x}",
            3,
            "'mu.: float32' .*msprobe's lists do not have it: add standard",
        ),
        ("apis:\n  mul:\n    float32: {mean: 1, justification: x}", 3, "unknown key 'mean'; known keys: .*small_value"),
        ("apis:\n  mul: ulp", 2, "'ulp' .*give a mapping"),
        ("apis: [mul]", 1, r"apis: \['mul'\] .*give a mapping"),
        ("white_list: conv2d", 1, "white_list: 'conv2d' .*give a list"),
        ("black_list:\n  - [relu]", 2, r"black_list: \['relu'\] .*give a list"),
        ("apis: {}\napis: {}", 2, "'apis' is there twice"),
        ("apis:\n  mul:\n    float32: {rtol: 1}\n    float32: {}", 4, "'float32' is there twice"),
        ("run_ut:\n  white_lst: []", 2, "run_ut: unknown key 'white_lst'; did you mean 'white_list'"),
        ("apis: {mul: &a {float32: *a}}", 1, "recursive"),
        ("? [mul]\n: {}", 1, "unhashable key"),
        ("apis: {", 1, "'the file' .*not YAML"),
        ('{\n\t"white_lst": []\n}', 2, "'white_lst'; did you mean 'white_list'"),
        ("- mul", 1, "give a mapping"),
        ("a: \x00", 1, "not YAML"),
    ],
)
def test_a_wrong_file_names_line_and_key(file: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as raised:
        read(file, text)
    assert str(raised.value).startswith(str(file))
    if "\x00" not in text:
        assert str(raised.value).startswith(f"{file}:{line}: ")


def test_a_file_of_a_thousand_levels(file: Path) -> None:
    with pytest.raises(SettingsError, match=r"rules.yaml: 'the file' .*nested too deep"):
        read(file, "[" * 3000)


def test_a_limit_is_as_large_as_it_likes_and_names_stay_texts(file: Path) -> None:
    found = read(file, "white_list: [on, 1]\napis: {on: {'*': {standard: ulp, over: 1e300, justification: 1e-6}}}")
    assert found.white_list == ("on", "1")
    assert found.entries == (Entry("on", "*", "ulp", {"over": 1e300}, "1e-6"),)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")
    for name in ("missing", "binary"):
        with pytest.raises(SettingsError, match=rf"{name}: .*cannot be read"):
            read_standards_file(tmp_path / name)
