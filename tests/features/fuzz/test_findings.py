"""Findings in a dump: what is written is read again as the call that was found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_probe.errors import DumpError
from pytest_probe.features.fuzz.findings import Finding, append
from pytest_probe.features.fuzz.shrinking import cut_sizes
from pytest_probe.model.dump import Call, DtypeSpec, Lost, Surroundings, TensorSpec
from pytest_probe.model.run import Arguments, Leaf
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump

VERDICT = Verdict("error", "auto", "wrong")
X = Leaf(np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3), True, (1, 2))


def finding(api: str, *args: Any, **kwargs: Any) -> Finding:
    return Finding(api, Arguments(args, kwargs, ()), "backward", VERDICT, {"output.0": np.ones(3, np.float32)})


@pytest.mark.parametrize(
    ("framework", "api", "dtype"), [("pytorch", "Torch.sum", "torch.bfloat16"), ("paddle", "paddle.sum", "bfloat16")]
)
def test_a_call_of_each_framework(tmp_path: Path, framework: str, api: str, dtype: str) -> None:
    found = finding(api, X, [0, -1], dtype=DtypeSpec("float32"), keepdim=False)
    assert append(tmp_path, found, framework) == f"{api}.0"
    assert append(tmp_path, found, framework) == f"{api}.1"
    written = json.loads((tmp_path / "dump.json").read_text())
    assert written["framework"] == framework
    assert written["data"][f"{api}.0.forward"]["input_args"][0]["dtype"] == dtype
    dump = read_dump(tmp_path / "dump.json")
    assert dump.framework == framework
    assert [record.directions for record in dump.records] == [("forward", "backward")] * 2
    call = dump.decode(dump.records[1])
    tensor, dims = call.args
    assert isinstance(tensor, TensorSpec)
    assert (tensor.dtype, tensor.shape, tensor.stride, tensor.requires_grad) == ("bfloat16", (2, 3), (1, 2), True)
    assert list(dims) == [0, -1]
    assert dict(call.kwargs) == {"dtype": DtypeSpec("float32"), "keepdim": False}


def test_a_dump_holds_calls_of_one_framework(tmp_path: Path) -> None:
    append(tmp_path, finding("paddle.sum", X), "paddle")
    with pytest.raises(DumpError, match="it holds calls of paddle, and this is one of pytorch"):
        append(tmp_path, finding("Torch.sum", X), "pytorch")


def test_a_call_that_a_dump_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"input\.1 of the call is a Lost"):
        append(tmp_path, finding("Torch.sum", X, Lost()), "pytorch")
    assert not (tmp_path / "dump.json").exists()


def product(*shapes: tuple[int, ...]) -> tuple[Call, Arguments]:
    specs = tuple(TensorSpec("float32", shape) for shape in shapes)
    leaves = tuple(Leaf(np.arange(np.prod(shape), dtype=np.float32).reshape(shape)) for shape in shapes)
    return Call(specs, {}, None, (), surroundings=Surroundings()), Arguments(leaves, {}, ())


@pytest.mark.parametrize(
    ("shapes", "smallest"),
    [
        (((9,), (9, 9)), [(9,), (1, 9)]),  # the size that may shrink is equal to one that may not
        (((9,), (7, 9)), [(9,), (1, 9)]),
        (((4, 40), (40, 9)), [(1, 9), (9, 1)]),
    ],
)
def test_each_dimension_is_cut_as_far_as_the_call_fails(shapes: tuple[tuple[int, ...], ...], smallest: object) -> None:
    def fails(tried: Call, arguments: Arguments) -> bool:
        first, second = (leaf.array.shape for leaf in arguments.args)
        assert [spec.shape for spec in tried.args] == [first, second]
        terms = second[0] if len(first) > 1 else second[-1]
        return first[-1] == terms >= 9 and 0 not in (*first, *second)

    found = cut_sizes(*product(*shapes), fails)[1]
    assert [leaf.array.shape for leaf in found.args] == smallest


def test_a_size_that_cannot_be_cut_takes_few_of_the_tries() -> None:
    def fails(_: Call, arguments: Arguments) -> bool:
        shapes = [leaf.array.shape for leaf in arguments.args]
        return all(rows >= 1 and terms == 47 for rows, terms in shapes)

    found = cut_sizes(*product((19, 47), (128, 47)), fails)[1]
    assert [leaf.array.shape for leaf in found.args] == [(1, 47), (1, 47)]
