from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.frameworks.mindspore.signatures import bind, canonical, spelled, written

A, B = np.zeros((2, 3)), np.ones((4, 3))


@pytest.mark.parametrize(
    ("api", "name"),
    [
        *(
            ("Mint.add", "add"),
            ("MintFunctional.softmax", "softmax"),
            ("Tensor.__iadd__", "add"),
            ("Tensor.add_", "add"),
        ),
        ("Mint.linalg.inv", "inv"),
    ],
)
def test_canonical(api: str, name: str) -> None:
    assert canonical(api) == name


def test_arguments_have_the_names_of_torchs(subtests: pytest.Subtests) -> None:
    for api, args, kwargs, name in (
        ("Mint.mm", (A, B), {}, "other"),
        ("MintFunctional.linear", (A, B), {}, "weight"),
        ("Tensor.softmax", (A,), {"dim": 1}, "dim"),
    ):
        with subtests.test(api):
            found = bind(api, args, kwargs)
            assert (found.api, found.native) == (api, True)
            assert found.argument(name) is not None


def test_spelling() -> None:
    assert spelled("mindspore.mint.nn.functional.relu") == "MintFunctional.relu"
    assert spelled("mindspore.mint.add*") == "Mint.add*"
    assert spelled("mindspore.Tensor.abs") == "Tensor.abs"
    assert spelled("mindspore.ops.gelu") == "Functional.gelu"
    assert spelled("torch.add") == "torch.add"
    assert canonical("Functional.unknown") == "unknown"


@pytest.mark.parametrize(
    ("dtype", "name"), [("float32", "Float32"), ("bfloat16", "BFloat16"), ("uint8", "UInt8"), ("bool", "Bool")]
)
def test_a_dtype_is_written_with_capitals(dtype: str, name: str) -> None:
    assert written(dtype) == ("mindspore.Tensor", "mindspore.dtype", name)
