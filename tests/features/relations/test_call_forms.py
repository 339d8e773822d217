"""inplace, out and alias: which twin is called, and what of it is compared."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.options import RELATION_NAMES
from tests.features.relations.conftest import Ask, broken, found, normal

X, Y, ROW = normal(4, 6), normal(4, 6, seed=1), normal(6)
COMPLEX = [torch.complex(normal(4, 5, seed=seed), normal(4, 5, seed=seed + 2)) for seed in (0, 1)]
# A call, the relations that are asked, and what is said of those that are.
HEALTHY: dict[str, tuple[tuple[Any, ...], tuple[str, ...], dict[str, str]]] = {
    "a method": (("Tensor.exp", torch.Tensor.exp, X), ("out", "inplace"), {"out": "pass", "inplace": "pass"}),
    "several outputs": (("Torch.sort", torch.sort, X), ("out",), {"out": "pass"}),
    "a result of another shape": (("Torch.add", torch.add, ROW, Y), ("inplace",), {"inplace": "skip"}),
    "a product of complex numbers": (("Torch.div", torch.div, *COMPLEX), ("inplace",), {"inplace": "skip"}),
    "it writes itself": (("Tensor.exp_", torch.Tensor.exp_, X), ("inplace", "out", "all-written"), {}),
    "arguments of two shapes": (("Torch.add", torch.add, ROW, Y), ("alias",), {}),
    "it draws": (("Functional.dropout", F.dropout, X, 0.5, True), RELATION_NAMES, {}),
    "it leaves memory": (("Torch.empty_like", torch.empty_like, X), RELATION_NAMES, {}),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_which_forms_a_call_has(ask: Ask, name: str) -> None:
    call, names, expected = HEALTHY[name]
    verdict = ask(*call, names=names)
    assert {relation: each.verdict for relation, each in found(verdict).items()} == expected


# Another kernel for a form, and what is said of it.
WRONG: dict[str, tuple[str, Any, str]] = {
    "an out that is never resized": (
        "Torch.exp", lambda x, out=None: torch.exp(x) if out is None else out.copy_(torch.exp(x)),
        "with an out of size 0, it raises: ",
    ),
    "an out that is copied": (
        "Torch.exp", lambda x, out=None: torch.exp(x) if out is None else torch.exp(x, out=out).clone(),
        "with an out, it returns another tensor",
    ),
    "a twin that returns a copy": (
        "Functional.relu_", lambda x: x.relu_().clone(), "in place, it returns a copy of its argument",
    ),
    "a twin that is another function": ("Functional.relu_", lambda x: x.clamp_(0.5), "in place, output.0: "),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_form_that_is_not_what_it_promises(ask: Ask, name: str) -> None:
    api, kernel, reason = WRONG[name]
    relation, call = ("out", torch.exp) if api == "Torch.exp" else ("inplace", F.relu)
    verdict = ask(api.rstrip("_"), call, X, names=(relation,), calls={api: kernel})
    assert broken(verdict) == {relation: "error"}
    assert reason in found(verdict)[relation].reason


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


@pytest.mark.parametrize("function", [torch.sigmoid, torch.exp2, torch.sinh], ids=lambda function: function.__name__)
def test_an_out_lies_as_a_plain_result_does(ask: Ask, function: Any) -> None:
    """torch chooses kernels by strides, and they round otherwise."""
    verdict = ask(f"Torch.{function.__name__}", function, normal(33, 40).t(), names=("out",))
    assert found(verdict)["out"].verdict == "pass"


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
