"""Dumps of MindSpore, where it need not be installed: `--probe-device=recorded`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.mindspore_dumps import packed, split_of_three, unpack, write

Results = dict[str, dict[str, Any]]


def run(pytester: pytest.Pytester, dump: Path, *args: str) -> Results:
    pytester.runpytest(f"--probe-dump={dump}", "--probe-device=recorded", "--probe-out=out", *args)
    lines = (pytester.path / "out/results.jsonl").read_text().splitlines()
    return {found["id"].partition("::")[2]: found for found in map(json.loads, lines)}


def counted(results: Results) -> Counter[tuple[str, str]]:
    return Counter((found["verdict"], found["kind"]) for found in results.values())


@pytest.mark.parametrize("name", ["mlp", "mlp-1.2.2"])
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "xdist"])
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
