"""inplace, out and alias: which twin is called, and what of it is compared."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.features.relations.conftest import Ask, broken, found, normal


def test_forms_of_a_method(ask: Ask) -> None:
    verdict = ask("Tensor.exp", torch.Tensor.exp, normal(4, 6), names=("out", "inplace"))
    assert {name: each.verdict for name, each in found(verdict).items()} == {"out": "pass", "inplace": "pass"}


def test_several_outputs_have_several_outs(ask: Ask) -> None:
    verdict = ask("Torch.sort", torch.sort, normal(4, 6), names=("out",))
    assert found(verdict)["out"].verdict == "pass"


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (
            lambda x, out=None: torch.exp(x) if out is None else out.copy_(torch.exp(x)),
            "with an out of size 0, it raises: ",
        ),
        (
            lambda x, out=None: torch.exp(x) if out is None else torch.exp(x, out=out).clone(),
            "with an out, it returns another tensor",
        ),
    ],
    ids=["never resized", "returns a copy"],
)
def test_an_out_that_is_not_what_it_promises(ask: Ask, kernel: Any, reason: str) -> None:
    verdict = ask("Torch.exp", torch.exp, normal(4, 6), names=("out",), calls={"Torch.exp": kernel})
    assert reason in found(verdict)["out"].reason


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (lambda x: x.relu_().clone(), "in place, it returns a copy of its argument"),
        (lambda x: x.clamp_(0.5), "in place, output.0: "),
    ],
    ids=["returns a copy", "another function"],
)
def test_a_twin_that_is_not_in_place(ask: Ask, kernel: Any, reason: str) -> None:
    calls = {"Functional.relu_": kernel}
    verdict = ask("Functional.relu", F.relu, normal(4, 6), names=("inplace",), calls=calls)
    assert broken(verdict) == {"inplace": "error"}
    assert reason in found(verdict)["inplace"].reason


def test_a_result_of_another_shape_has_no_twin(ask: Ask) -> None:
    verdict = ask("Torch.add", torch.add, normal(6), normal(4, 6, seed=1), names=("inplace",))
    assert found(verdict)["inplace"].reason == "its output is float32[4, 6], its argument has another dtype or shape"


def test_calls_that_write_themselves_have_none(ask: Ask) -> None:
    verdict = ask("Tensor.exp_", torch.Tensor.exp_, normal(4, 6), names=("inplace", "out", "all-written"))
    assert found(verdict) == {}


def test_arguments_of_two_shapes_are_no_alias(ask: Ask) -> None:
    verdict = ask("Torch.add", torch.add, normal(6), normal(4, 6, seed=1), names=("alias",))
    assert found(verdict) == {}


def test_an_alias_in_place(ask: Ask) -> None:
    def kernel(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """It adds the second half to what may be the first."""
        for place in range(x.shape[0]):
            x[place] += other[x.shape[0] - 1 - place]
        return x

    def healthy(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return x.add_(other.flip(0))

    made = normal(5, 6), normal(5, 6, seed=1)
    rows = {"Tensor.add_": {"alias": ["input", "other"]}}
    right = ask("Tensor.add_", torch.Tensor.add_, *made, names=("alias",), rows=rows)
    assert found(right)["alias"].verdict == "pass"
    wrong = ask("Tensor.add_", torch.Tensor.add_, *made, names=("alias",), rows=rows, calls={"Tensor.add_": kernel})
    assert found(wrong)["alias"].reason.startswith("with input.0 as input.1, too, output.0: ")


def test_random_calls_are_asked_nothing(ask: Ask) -> None:
    assert found(ask("Functional.dropout", F.dropout, normal(4, 6), 0.5, True)) == {}
    assert found(ask("Torch.empty_like", torch.empty_like, normal(4, 6))) == {}


@pytest.mark.parametrize("function", [torch.sigmoid, torch.exp2, torch.sinh], ids=lambda function: function.__name__)
def test_an_out_lies_as_a_plain_result_does(ask: Ask, function: Any) -> None:
    """torch chooses kernels by strides, and they round otherwise."""
    verdict = ask(f"Torch.{function.__name__}", function, normal(33, 40).t(), names=("out",))
    assert found(verdict)["out"].verdict == "pass"


def test_complex_products_are_not_asked_in_place(ask: Ask) -> None:
    x, y = (torch.complex(normal(4, 5, seed=seed), normal(4, 5, seed=seed + 2)) for seed in (0, 1))
    assert found(ask("Torch.div", torch.div, x, y, names=("inplace",)))["inplace"].verdict == "skip"


def test_an_argument_that_only_the_other_form_writes_to(ask: Ask) -> None:
    def clobbering(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        result = torch.exp(x, out=out)
        if out is not None:
            x[0] = 5
        return result

    calls = {"Torch.exp": clobbering}
    assert (
        "it changes input.0"
        in found(ask("Torch.exp", torch.exp, normal(4, 6), names=("out",), calls=calls))["out"].reason
    )

    def doubling(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        result = torch.add(a, b)
        if a is b:
            with torch.no_grad():
                a.mul_(2)
        return result

    verdict = ask(
        "Torch.add", torch.add, normal(4, 5), normal(4, 5, seed=1), names=("alias",), calls={"Torch.add": doubling}
    )
    assert "it changes" in found(verdict)["alias"].reason
