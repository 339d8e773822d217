"""What of torch's corresponds to APIs of MindSpore's that have other names or parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pytest_probe import frameworks
from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.mapping.entry import Translation
from pytest_probe.frameworks.mapping.framework import translation
from pytest_probe.frameworks.mapping.table import packaged
from pytest_probe.frameworks.mindspore.signatures import bind, call, called, canonical
from pytest_probe.frameworks.torch.allowlist import is_api

TABLE = packaged("mindspore_torch")
X = torch.arange(6.0).reshape(2, 3)


def of(api: str) -> Translation:
    return translation(TABLE, f"mindspore.{api}", False)


def test_every_entry_leads_to_a_public_function_of_torchs_or_one_of_ours() -> None:
    assert len(TABLE.entries) > 160
    for entry in TABLE.entries.values():
        module, _, name = called(entry).replace("torch.linalg.", "torch.linalg_").rpartition(".")
        assert is_api(module, name.replace("linalg_", "linalg."))
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
    with pytest.raises(Unsupported, match=r"no counterpart for dim of mindspore\.Tensor\.var"):
        of("Tensor.var")(X, dim=1)


def test_the_norm_of_a_matrix_is_its_own() -> None:
    assert of("Tensor.norm")(X, 2).item() == pytest.approx(np.linalg.norm(X.numpy(), 2))
    assert of("Tensor.norm")(X).item() == pytest.approx(np.linalg.norm(X.numpy()))


def test_a_target_has_no_gradient() -> None:
    logarithm, share = (torch.tensor([0.25, 0.5], requires_grad=True) for _ in range(2))
    of("ops.kl_div")(logarithm, share).backward()
    assert (logarithm.grad is None, share.grad) == (False, None)


def test_what_torch_has_not() -> None:
    with pytest.raises(Unsupported, match=r"no counterpart for order='F' of mindspore\.ops\.flatten"):
        of("ops.flatten")(X, "F")
    with pytest.raises(Unsupported, match="no counterpart for the argument at place 1"):
        of("ops.abs")(X, 1)
    with pytest.raises(Unsupported, match="no counterpart for initial"):
        of("ops.var")(X, initial=0.0)
    with pytest.raises(Unsupported, match="no counterpart for batch_dims=1"):
        of("ops.gather")(X, torch.tensor([0]), 0, 1)


def test_an_index_of_any_shape() -> None:
    index = torch.tensor([[0, 1], [2, 0]], dtype=torch.int32)
    assert torch.equal(of("ops.gather")(X, index, 1), X[:, index.long()])
    assert torch.equal(of("ops.gather")(X, torch.tensor(1), -2), X[1])


def test_an_extreme_comes_with_its_index_and_without_a_dimension_with_0() -> None:
    values, indices = of("ops.max")(X, 1, keepdims=True)
    assert (values.tolist(), indices.tolist()) == ([[2.0], [5.0]], [[2], [2]])
    values, indices = of("ops.max")(X)
    assert (values.item(), indices.item()) == (5.0, 0)
    assert of("ops.min")(X, 0)[0].tolist() == [0.0, 1.0, 2.0]
    assert of("ops.argmax")(X, keepdim=True).shape == ()


@pytest.mark.parametrize(
    ("mode", "padding", "shape"),
    [("valid", 0, (1, 1, 3, 2)), ("same", 0, (1, 1, 3, 3)), ("pad", 1, (1, 1, 4, 3)), ("pad", (1, 0), (1, 1, 4, 2))],
)
def test_modes_of_a_convolution(mode: str, padding: object, shape: tuple[int, ...]) -> None:
    image, kernel = torch.ones(1, 1, 6, 5), torch.ones(1, 1, 2, 2)
    found = of("ops.conv2d")(image, kernel, None, 2, mode, padding)
    assert found.shape == shape
    # The odd place is behind: the first window is whole.
    assert mode == "pad" or found[0, 0, 0, 0] == 4
    assert mode != "same" or found[0, 0, 0, -1] == 2


def test_weights_of_classes_have_a_gradient_and_those_of_mint_none() -> None:
    scores, target = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0], dtype=torch.int32)
    weight = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
    for reduction in ("none", "sum", "mean"):
        loss = of("ops.cross_entropy")(scores, target, weight, 1, reduction, 0.1)
        expected = torch.nn.functional.cross_entropy(
            scores, target.long(), weight.detach(), ignore_index=1, reduction=reduction, label_smoothing=0.1
        )
        torch.testing.assert_close(loss, expected)
        assert loss.requires_grad
    assert not of("mint.nn.functional.nll_loss")(scores, target, weight).requires_grad


def test_arguments_have_canonical_names() -> None:
    found = bind("Functional.softmax", ("x",), {"axis": 1})
    assert (found.name, found.argument("input"), found.argument("dim"), found.paths["dim"]) == (
        *("softmax", "x", 1),
        "kwargs.axis",
    )
    found = bind("Functional.bmm", ("x", "y"), {})
    assert (found.argument("input"), found.argument("other")) == ("x", "y")
    assert bind("Functional.var", ("x",), {"axis": 1}).argument("dim") == 1
    assert bind("Functional.leaky_relu", ("x",), {}).defaults["negative_slope"] == 0.2
    assert canonical("Functional.dense") == "linear"
    assert call("Functional.bmm", {"input": "x", "other": "y"}) == (("x", "y"), {})


def test_candidates() -> None:
    (found,) = frameworks.load("mindspore", stored=True).candidates("Functional", "gelu", {})
    assert found.path == "torch.nn.functional.gelu"
    (convolution,) = frameworks.load("mindspore", stored=True).candidates("Functional", "conv2d", {})
    assert (convolution.path, canonical("Functional.conv2d")) == ("torch.nn.functional.conv2d", "conv2d")
    assert torch.equal(found.lookup()(X), torch.nn.functional.gelu(X))
    assert "Functional.gelu" in set(frameworks.load("mindspore", stored=True).apis())
