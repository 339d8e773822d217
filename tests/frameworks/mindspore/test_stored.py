"""What torch makes of names of MindSpore's."""

from __future__ import annotations

import pytest

from pytest_probe import frameworks
from pytest_probe.errors import UnknownAPI


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
        ("Mint", "doesnotexist", "torch has no public function of that name"),
        ("Mint", "load", "torch has no public function of that name"),
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
