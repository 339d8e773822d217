"""Names of MindSpore's: what torch makes of them, and what their arguments are called."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_probe import frameworks
from pytest_probe.errors import UnknownAPI
from pytest_probe.frameworks.mindspore.signatures import bind, canonical, spelled, written

A, B = np.zeros((2, 3)), np.ones((4, 3))
CANONICAL = {
    **{"Mint.add": "add", "MintFunctional.softmax": "softmax", "Tensor.__iadd__": "add", "Tensor.add_": "add"},
    **{"Mint.linalg.inv": "inv", "Functional.unknown": "unknown"},
}
SPELLED = {
    "mindspore.mint.nn.functional.relu": "MintFunctional.relu",
    "mindspore.mint.add*": "Mint.add*",
    "mindspore.Tensor.abs": "Tensor.abs",
    "mindspore.ops.gelu": "Functional.gelu",
    "torch.add": "torch.add",
}
DTYPES = {"float32": "Float32", "bfloat16": "BFloat16", "uint8": "UInt8", "bool": "Bool"}


def test_names_and_dtypes_are_spelled_as_they_are_recorded() -> None:
    assert {api: canonical(api) for api in CANONICAL} == CANONICAL
    assert {name: spelled(name) for name in SPELLED} == SPELLED
    assert {each: written(each) for each in DTYPES} == {
        each: ("mindspore.Tensor", "mindspore.dtype", name) for each, name in DTYPES.items()
    }


@pytest.mark.parametrize(
    ("api", "args", "kwargs", "name"),
    [
        ("Mint.mm", (A, B), {}, "other"),
        ("MintFunctional.linear", (A, B), {}, "weight"),
        ("Tensor.softmax", (A,), {"dim": 1}, "dim"),
    ],
)
def test_arguments_have_the_names_of_torchs(
    api: str, args: tuple[object, ...], kwargs: dict[str, int], name: str
) -> None:
    found = bind(api, args, kwargs)
    assert (found.api, found.native) == (api, True)
    assert found.argument(name) is not None


@pytest.mark.parametrize(
    ("namespace", "api", "path"),
    [
        *(("Mint", "add", "torch.add"), ("MintFunctional", "linear", "torch.nn.functional.linear")),
        *(("Tensor", "__add__", "torch.Tensor.__add__"), ("Mint", "linalg.inv", "torch.linalg.inv")),
    ],
)
def test_a_name_leads_to_torchs_function(namespace: str, api: str, path: str) -> None:
    framework = frameworks.load("mindspore", stored=True)
    (found,) = framework.candidates(namespace, api, {})
    assert found.path == path
    assert (framework.name, framework.package) == ("mindspore", "torch")


@pytest.mark.parametrize(
    ("namespace", "api", "reason"),
    [
        *(("Mint", api, "torch has no public function of that name") for api in ("doesnotexist", "load")),
        ("Mint", "svdvals", "torch has no public function of that name"),  # torch's is in a module below
        ("Primitive", "mm.MatMul", "a dump does not have what a primitive was made with"),
        ("os", "system", "os is not one of"),
    ],
)
def test_a_name_without_a_counterpart(namespace: str, api: str, reason: str) -> None:
    with pytest.raises(UnknownAPI, match=reason):
        frameworks.load("mindspore", stored=True).candidates(namespace, api, {})


def test_names_that_are_known() -> None:
    known = set(frameworks.load("mindspore", stored=True).apis())
    assert {"Mint.add", "MintFunctional.gelu", "Tensor.__add__"} <= known
    assert not {name for name in known if name.startswith(("Torch.", "VF."))}
