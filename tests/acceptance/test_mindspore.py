"""Dumps of MindSpore, where it need not be installed: `--probe-device=recorded`."""

from __future__ import annotations

import csv
import gzip
import io
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe.cli import main
from tests.support.dumps import DATA
from tests.support.mindspore_dumps import packed, split_of_three, unpack, write
from tests.support.other_plugins import Ran
from tests.support.running import ran

Results = Mapping[str, dict[str, Any]]
RECORDED = ("--probe-device=recorded", "--probe-out=out")
PEERS = DATA / "peers"
# Files of stored tensors that are wrong, by the item that finds them.
WRONG = {
    "MintFunctional.linear.0.forward": "MintFunctional.linear.0.forward.output.0",
    "MintFunctional.linear.1.backward": "MintFunctional.linear.1.backward.output.1",
    "Mint.log.0.backward": "Mint.log.0.backward.output.0",
    "Tensor.__gt__.0.forward": "Tensor.__gt__.0.forward.output.0",
}


def counted(results: Results) -> Counter[tuple[str, str]]:
    return Counter((found["verdict"], found["kind"]) for found in results.values())


def changed(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Another tensor is stored under that name."""
    file = folder / "dump_tensor_data" / f"{name}.npy"
    np.save(file, change(np.load(file)))


def off(array: Any) -> Any:
    array.flat[3] = not array.flat[3] if array.dtype == bool else array.flat[3] * 1.01 + 1e-3
    return array


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One run of dumps of all kinds."""
    folder = tmp_path_factory.mktemp("mindspore")
    for name in ("wrong", "reshaped"):
        unpack("mlp", folder).parent.rename(folder / name)
    for name in WRONG.values():
        changed(folder / "wrong", name, off)
    changed(folder / "reshaped", "Mint.log.0.forward.output.0", lambda array: array[:2])
    for name in ("mlp", "mlp-1.2.2", "kwargs-bf16", "edge", "cells"):
        unpack(name, folder)
    for ignored in (True, False):
        write(folder / f"split-{ignored}", split_of_three(strides_ignored=ignored))
    x = np.eye(3, dtype=np.float32)
    call = {"input_args": [x], "input_kwargs": {}, "output": [x]}
    write(folder / "inverse", {"Tensor.cholesky_inverse.0.forward": call})
    return ran(folder, "--probe-dump=.", *RECORDED, "-rs", "-vv")


def of(every: Ran, name: str) -> Results:
    """The results of one of the dumps."""
    found = {row["id"].partition("::")[2]: row for row in every.rows if row["id"].startswith(f"{name}/")}
    assert found
    return found


@pytest.mark.parametrize("release", ["mlp", "mlp-1.2.2"])
def test_stored_outputs_and_gradients_are_judged(every: Ran, release: str) -> None:
    found = of(every, release)
    # Gradients of tensors in a list are not in a dump.
    assert counted(found) == {("pass", ""): 37, ("skip", "no stored tensors"): 1}
    assert found["Mint.cat.0.backward"]["verdict"] == "skip"
    assert {output["standard"] for each in found.values() for output in each["outputs"]} <= {"noise", "exact"}


def test_bfloat16_keywords_and_what_works_in_place(every: Ran) -> None:
    found = of(every, "kwargs-bf16")
    assert counted(found) == {("pass", ""): 6}
    assert found["Tensor.__add__.0.forward"]["outputs"][0]["dtype"] == "bfloat16"


def test_statistics_alone_are_skipped(every: Ran) -> None:
    found = of(every, "edge")
    kinds = Counter(each["kind"] for each in found.values())
    assert kinds == {"no stored tensors": 20, "broken record": 1, "not recorded": 1}
    assert found["Mint.add.9.backward"]["kind"] == "broken record"


def test_a_wrong_stored_tensor_is_found(every: Ran) -> None:
    assert {name for name, each in of(every, "wrong").items() if each["verdict"] == "error"} == WRONG.keys()


def test_a_file_of_another_shape_is_one_skip(every: Ran) -> None:
    found = of(every, "reshaped")
    (wrong,) = (each for name, each in found.items() if each["verdict"] != "pass" and name.endswith("forward"))
    assert wrong["kind"] == "broken record"
    assert "shape" in wrong["reason"]
    assert "Mint.log.0.forward.output.0.npy" in wrong["reason"]


@pytest.mark.parametrize(("strides_ignored", "verdict"), [(True, "error"), (False, "pass")])
def test_the_gradient_of_a_split_that_ignores_strides(every: Ran, strides_ignored: bool, verdict: str) -> None:
    found = of(every, f"split-{strides_ignored}")
    assert found["Mint.split.0.forward"]["verdict"] == "pass"
    assert found["Mint.split.0.backward"]["verdict"] == verdict


def test_what_the_table_says_is_judged(every: Ran) -> None:
    found = of(every, "cells")
    judged = {name for name, each in found.items() if each["verdict"] == "pass" and name.startswith("Functional.")}
    forward = ("maximum", "gelu", "cat", "tile", "softmax", "gather")
    assert judged == {
        *(f"Functional.{name}.0.forward" for name in forward),
        *(f"Functional.{name}.0.backward" for name in forward if name != "cat"),
    }
    assert not [name for name, each in found.items() if each["verdict"] == "error"]


def test_primitives_and_cells(every: Ran) -> None:
    primitive = [each for name, each in of(every, "cells").items() if name.startswith("Primitive.mm")]
    assert [each["verdict"] for each in primitive] == ["skip", "skip"]
    every.result.stdout.fnmatch_lines(["*2 Cell entries*", "*a dump does not have what a primitive was made with*"])


def test_a_method_that_means_something_else_is_a_skip(every: Ran) -> None:
    found = of(every, "inverse")
    assert counted(found) == {("skip", "outside the allow-list"): 1}
    assert "gives other numbers" in found["Tensor.cholesky_inverse.0.forward"]["reason"]


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


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a run by the checker's standard."""
    folder = tmp_path_factory.mktemp("checker")
    return ran(folder, f"--probe-dump={packed('mlp')}", *RECORDED, "--probe-standard=mindspore").folder / "out"


@pytest.mark.parametrize("version", ["msprobe-26.2.0", "msprobe-1.2.2"])
def test_the_files_of_the_checker_for_mindspore(checker: Path, version: str) -> None:
    details, expected = written(checker, "details"), peers(version, "details")
    assert [row[0] for row in details] == [row[0] for row in expected]
    assert len(details) == 33
    unlike = [
        (row[0], column, ours, theirs)
        for row, other in zip(details, expected, strict=True)
        for column, ours, theirs in zip(details[0], row, other, strict=True)
        if not same_cell(ours, theirs)
    ]
    assert unlike == []
    result, expected = written(checker, "result"), peers(version, "result")
    # Why it cannot tell a gradient of tensors in a list is said in other words.
    (ours,), (theirs,) = ([row.pop() for row in table if row[0] == "Mint.cat.0"] for table in (result, expected))
    assert "no gradient was stored" in ours
    assert theirs == "element 0 of tensors does not require grad and does not have a grad_fn"
    assert [[*row, ""][:4] for row in result] == [[*row, ""][:4] for row in expected]


LIMIT = "max absolute difference is greater than threshold: "


@pytest.mark.parametrize(("standard", "verdict"), [("mindspore", "pass"), ("mindspore-documented", "error")])
def test_messages_of_the_checker_and_the_limit_of_the_documentation(
    tmp_path: Path, standard: str, verdict: str
) -> None:
    dump = unpack("mlp", tmp_path)
    changed(dump.parent, "Mint.sum.0.forward.output.0", np.negative)
    changed(dump.parent, "Mint.abs.0.forward.output.0", lambda array: array + np.float32(0.0005))
    apis = ("--probe-api=Mint.sum", "--probe-api=Mint.abs")
    found = ran(tmp_path, f"--probe-dump={dump}", *RECORDED, f"--probe-standard={standard}", *apis)
    assert found.by_name["Mint.abs.0.forward"]["verdict"] == verdict
    rows = {row[0]: [cell.rstrip() for cell in row[-2:]] for row in written(tmp_path / "out", "details")}
    assert rows["Mint.abs.0.forward.output.0"] == [verdict, LIMIT + "0.0001" if verdict == "error" else ""]
    if standard == "mindspore":
        said = f"cosine similarity is less than threshold: 0.99 {LIMIT}0.001"
        assert rows["Mint.sum.0.forward.output.0"] == ["error", said]
        results = [[cell.rstrip() for cell in row] for row in written(tmp_path / "out", "result")]
        assert ["Mint.sum.0", "error", "pass", said] in results


def test_show_knows_what_can_be_judged(capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", str(packed("cells"))])
    pytest.LineMatcher(capsys.readouterr().out.splitlines()).fnmatch_lines(
        [
            "dump.json: 21 records (mindspore, tensor, mix); no items: 2 Cell entries",
            "  Mint.gather.0.forward *float32 *36",
            "*Primitive.mm.MatMul.0.forward *skip: *a dump does not have what a primitive was made with",
        ]
    )
