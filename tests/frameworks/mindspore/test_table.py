"""What of torch's corresponds to APIs of MindSpore's that have other names or parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pytest_probe import frameworks
from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.mindspore.signatures import bind, call, canonical
from pytest_probe.frameworks.mindspore.table import Entry, entries
from pytest_probe.frameworks.torch.allowlist import is_api

X = torch.arange(6.0).reshape(2, 3)


def of(api: str) -> Entry:
    return entries()[f"mindspore.{api}"]


def test_every_entry_leads_to_a_public_function_of_torchs() -> None:
    found = entries().values()
    assert len(found) > 150
    for entry in found:
        module, _, name = entry.path.rpartition(".")
        assert is_api(
            "torch" if module == "torch.linalg" else module, name if module != "torch.linalg" else f"linalg.{name}"
        )
        assert entry.only.keys() <= set(entry.takes.parameters)


def test_parameters_and_defaults_are_mindspores() -> None:
    assert torch.equal(of("ops.leaky_relu")(-X), -0.2 * X)
    assert torch.equal(of("ops.leaky_relu")(-X, alpha=0.5), -0.5 * X)
    assert torch.equal(of("ops.cat")([X, X], axis=1), torch.cat([X, X], 1))
    assert torch.equal(of("ops.transpose")(X, (1, 0)), X.T)
    assert of("ops.flatten")(X).shape == (2, 3)
    assert of("ops.smooth_l1_loss")(X, X + 1).shape == (2, 3)


def test_a_variance_is_divided_by_the_number_of_elements() -> None:
    assert of("Tensor.var")(X, 1).tolist() == pytest.approx([2 / 3, 2 / 3])
    assert of("Tensor.var")(X, 1, 1).tolist() == [1, 1]
    with pytest.raises(Unsupported, match=r"mindspore\.Tensor\.var: torch has no dim that means the same"):
        of("Tensor.var")(X, dim=1)


def test_the_norm_of_a_matrix_is_its_own() -> None:
    assert of("Tensor.norm")(X, 2).item() == pytest.approx(np.linalg.norm(X.numpy(), 2))
    assert of("Tensor.norm")(X).item() == pytest.approx(np.linalg.norm(X.numpy()))


def test_a_target_has_no_gradient() -> None:
    logarithm, share = (torch.tensor([0.25, 0.5], requires_grad=True) for _ in range(2))
    of("ops.kl_div")(logarithm, share).backward()
    assert (logarithm.grad is None, share.grad) == (False, None)


def test_what_torch_has_not() -> None:
    with pytest.raises(Unsupported, match="torch has no order"):
        of("ops.flatten")(X, "F")
    with pytest.raises(Unsupported, match="torch has no argument 1"):
        of("ops.abs")(X, 1)
    with pytest.raises(Unsupported, match="torch has no initial that means the same"):
        of("ops.var")(X, initial=0.0)


def test_arguments_have_canonical_names() -> None:
    found = bind("Functional.softmax", ("x",), {"axis": 1})
    assert (found.name, found.argument("input"), found.argument("dim"), found.paths["dim"]) == (
        *("softmax", "x", 1),
        "kwargs.axis",
    )
    found = bind("Functional.bmm", ("x", "y"), {})
    assert (found.argument("input"), found.argument("other")) == ("x", "y")
    assert bind("Functional.leaky_relu", ("x",), {}).defaults["negative_slope"] == 0.2
    assert canonical("Functional.dense") == "linear"
    assert call("Functional.bmm", {"input": "x", "other": "y"}) == (("x", "y"), {})


def test_candidates() -> None:
    (found,) = frameworks.load("mindspore", stored=True).candidates("Functional", "gelu", {})
    assert found.path == "torch.nn.functional.gelu"
    assert torch.equal(found.lookup()(X), torch.nn.functional.gelu(X))
    assert "Functional.gelu" in set(frameworks.load("mindspore", stored=True).apis())
