"""Dumps of MindSpore, where it need not be installed: `--probe-device=recorded`."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe.cli import main
from tests.support.dumps import DATA
from tests.support.mindspore_dumps import packed, split_of_three, unpack, write

Results = dict[str, dict[str, Any]]
PEERS = DATA / "peers"


def run(pytester: pytest.Pytester, dump: Path, *args: str) -> Results:
    pytester.runpytest(f"--probe-dump={dump}", "--probe-device=recorded", "--probe-out=out", *args)
    lines = (pytester.path / "out/results.jsonl").read_text().splitlines()
    return {found["id"].partition("::")[2]: found for found in map(json.loads, lines)}


def counted(results: Results) -> Counter[tuple[str, str]]:
    return Counter((found["verdict"], found["kind"]) for found in results.values())


@pytest.mark.parametrize(("name", "workers"), [("mlp", ()), ("mlp-1.2.2", ("-n2",))])
def test_stored_outputs_and_gradients_are_judged(
    pytester: pytest.Pytester, name: str, workers: tuple[str, ...]
) -> None:
    found = run(pytester, packed(name), *workers)
    # Gradients of tensors in a list are not in a dump.
    assert counted(found) == {("pass", ""): 37, ("skip", "no stored tensors"): 1}
    assert found["Mint.cat.0.backward"]["verdict"] == "skip"
    assert {output["standard"] for each in found.values() for output in each["outputs"]} <= {"noise", "exact"}


def test_bfloat16_keywords_and_what_works_in_place(pytester: pytest.Pytester) -> None:
    found = run(pytester, packed("kwargs-bf16"))
    assert counted(found) == {("pass", ""): 6}
    assert found["Tensor.__add__.0.forward"]["outputs"][0]["dtype"] == "bfloat16"


def test_statistics_alone_are_skipped(pytester: pytest.Pytester) -> None:
    found = run(pytester, packed("edge"))
    kinds = Counter(each["kind"] for each in found.values())
    assert kinds == {"no stored tensors": 20, "broken record": 1, "not recorded": 1}
    assert found["Mint.add.9.backward"]["kind"] == "broken record"


def test_a_wrong_stored_tensor_is_found(pytester: pytest.Pytester) -> None:
    dump = unpack("mlp", pytester.path)
    wrong = {
        "MintFunctional.linear.0.forward": "MintFunctional.linear.0.forward.output.0",
        "MintFunctional.linear.1.backward": "MintFunctional.linear.1.backward.output.1",
        "Mint.log.0.backward": "Mint.log.0.backward.output.0",
        "Tensor.__gt__.0.forward": "Tensor.__gt__.0.forward.output.0",
    }
    for name in wrong.values():
        file = dump.parent / "dump_tensor_data" / f"{name}.npy"
        array = np.load(file)
        array.flat[3] = not array.flat[3] if array.dtype == bool else array.flat[3] * 1.01 + 1e-3
        np.save(file, array)
    found = run(pytester, dump)
    assert {name for name, each in found.items() if each["verdict"] == "error"} == wrong.keys()


def test_a_file_of_another_shape_is_one_skip(pytester: pytest.Pytester) -> None:
    dump = unpack("mlp", pytester.path)
    file = dump.parent / "dump_tensor_data/Mint.log.0.forward.output.0.npy"
    np.save(file, np.load(file)[:2])
    found = run(pytester, dump, "--probe-direction=forward")
    (wrong,) = (each for each in found.values() if each["verdict"] != "pass")
    assert wrong["kind"] == "broken record"
    assert "shape" in wrong["reason"]
    assert file.name in wrong["reason"]


@pytest.mark.parametrize(("strides_ignored", "verdict"), [(True, "error"), (False, "pass")])
def test_the_gradient_of_a_split_that_ignores_strides(
    pytester: pytest.Pytester, strides_ignored: bool, verdict: str
) -> None:
    dump = write(pytester.path / "split", split_of_three(strides_ignored=strides_ignored))
    found = run(pytester, dump)
    assert found["Mint.split.0.forward"]["verdict"] == "pass"
    assert found["Mint.split.0.backward"]["verdict"] == verdict


def test_what_the_table_says_is_judged(pytester: pytest.Pytester) -> None:
    found = run(pytester, packed("cells"))
    judged = {name for name, each in found.items() if each["verdict"] == "pass" and name.startswith("Functional.")}
    forward = ("maximum", "gelu", "cat", "tile", "softmax", "gather")
    assert judged == {
        *(f"Functional.{name}.0.forward" for name in forward),
        *(f"Functional.{name}.0.backward" for name in forward if name != "cat"),
    }
    assert not [name for name, each in found.items() if each["verdict"] == "error"]


def test_primitives_and_cells(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest(
        f"--probe-dump={packed('cells')}", "--probe-device=recorded", "-rs", "-k", "Primitive.mm"
    )
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["*2 Cell entries*", "*a dump does not have what a primitive was made with*"])


def test_a_device_needs_mindspore(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest(f"--probe-dump={packed('mlp')}", "-rf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*--probe-device=recorded judges stored outputs*"])


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def written(folder: Path, kind: str) -> list[list[str]]:
    (path,) = folder.glob(f"accuracy_checking_{kind}_*.csv")
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    return rows(path.read_text(encoding="utf-8-sig"))


def peers(version: str, kind: str) -> list[list[str]]:
    path = PEERS / f"mindspore/mlp/tensor/peer_csv/{version}/accuracy_checking_{kind}.csv.gz"
    return rows(gzip.decompress(path.read_bytes()).decode("utf-8-sig"))


def same_cell(ours: str, theirs: str) -> bool:
    """Equal texts, or numbers that differ by no more than 5e-6: products of float32 sum in another order elsewhere,
    and an element that cancels shows it in its relative error."""
    try:
        return ours == theirs or abs(float(ours) - float(theirs)) <= 5e-6
    except ValueError:
        return False


@pytest.mark.parametrize("version", ["msprobe-26.2.0", "msprobe-1.2.2"])
def test_the_files_of_the_checker_for_mindspore(pytester: pytest.Pytester, version: str) -> None:
    run(pytester, packed("mlp"), "--probe-standard=mindspore")
    details, expected = written(pytester.path / "out", "details"), peers(version, "details")
    assert [row[0] for row in details] == [row[0] for row in expected]
    assert len(details) == 33
    unlike = [
        (row[0], column, ours, theirs)
        for row, other in zip(details, expected, strict=True)
        for column, ours, theirs in zip(details[0], row, other, strict=True)
        if not same_cell(ours, theirs)
    ]
    assert unlike == []


@pytest.mark.parametrize("version", ["msprobe-26.2.0", "msprobe-1.2.2"])
def test_the_result_file_of_the_checker_for_mindspore(pytester: pytest.Pytester, version: str) -> None:
    run(pytester, packed("mlp"), "--probe-standard=mindspore")
    result, expected = written(pytester.path / "out", "result"), peers(version, "result")
    # Why it cannot tell a gradient of tensors in a list is said in other words.
    (ours,), (theirs,) = ([row.pop() for row in table if row[0] == "Mint.cat.0"] for table in (result, expected))
    assert "no gradient was stored" in ours
    assert theirs == "element 0 of tensors does not require grad and does not have a grad_fn"
    assert [[*row, ""][:4] for row in result] == [[*row, ""][:4] for row in expected]


def test_messages_of_the_checker_for_mindspore(pytester: pytest.Pytester) -> None:
    dump = unpack("mlp", pytester.path)
    file = dump.parent / "dump_tensor_data/Mint.sum.0.forward.output.0.npy"
    np.save(file, -np.load(file))
    run(pytester, dump, "--probe-standard=mindspore", "--probe-api=Mint.sum")
    said = (
        "cosine similarity is less than threshold: 0.99 max absolute difference is greater than threshold: 0.001 "
    ).rstrip()
    row = next(row for row in written(pytester.path / "out", "details") if row[0] == "Mint.sum.0.forward.output.0")
    assert [cell.rstrip() for cell in row[-2:]] == ["error", said]
    assert ["Mint.sum.0", "error", "pass", said] in [
        [cell.rstrip() for cell in row] for row in written(pytester.path / "out", "result")
    ]


@pytest.mark.parametrize(("standard", "verdict"), [("mindspore", "pass"), ("mindspore-documented", "error")])
def test_the_limit_of_the_documentation(pytester: pytest.Pytester, standard: str, verdict: str) -> None:
    dump = unpack("mlp", pytester.path)
    file = dump.parent / "dump_tensor_data/Mint.abs.0.forward.output.0.npy"
    np.save(file, np.load(file) + np.float32(0.0005))
    found = run(pytester, dump, f"--probe-standard={standard}", "--probe-api=Mint.abs", "--probe-direction=forward")
    assert [each["verdict"] for each in found.values()] == [verdict]
    said = "max absolute difference is greater than threshold: 0.0001" if verdict == "error" else ""
    assert [row[-1].rstrip() for row in written(pytester.path / "out", "details")[1:]] == [said]


def test_show_knows_what_can_be_judged(capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", str(packed("cells"))])
    pytest.LineMatcher(capsys.readouterr().out.splitlines()).fnmatch_lines(
        [
            "dump.json: 21 records (mindspore, tensor, mix); no items: 2 Cell entries",
            "  Mint.gather.0.forward *float32 *36",
            "*Primitive.mm.MatMul.0.forward *skip: *a dump does not have what a primitive was made with",
        ]
    )


def test_a_method_that_means_something_else_is_a_skip(pytester: pytest.Pytester) -> None:
    x = np.eye(3, dtype=np.float32)
    call = {"input_args": [x], "input_kwargs": {}, "output": [x]}
    found = run(pytester, write(pytester.path / "inverse", {"Tensor.cholesky_inverse.0.forward": call}))
    assert counted(found) == {("skip", "outside the allow-list"): 1}
    assert "gives other numbers" in found["Tensor.cholesky_inverse.0.forward"]["reason"]
