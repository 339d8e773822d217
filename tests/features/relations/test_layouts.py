"""`layout` of any function, and of gradients; and what a relation says that is not asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TEST = """
import torch
import torch.nn.functional as F

def in_order(x):
    return torch.as_strided(x, x.shape, torch.empty(x.shape).stride())

def scaled(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)

def wrong(x):  # takes x for contiguous, the second time that it reads it
    return in_order(x) * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

class TakesContiguous(Twice):
    @staticmethod
    def backward(ctx, gradient):
        return 2 * (gradient if 0 in gradient.stride() else in_order(gradient))

class TakesItsOwn(Twice):
    @staticmethod
    def backward(ctx, gradient):
        if 0 in gradient.stride():  # takes its memory for as large as its shape
            gradient = torch.where(torch.arange(gradient.shape[-1]) < 3, gradient, 0)
        return 2 * gradient

def test_it(probe):
    probe.check({kernel}, reference={reference}, inputs=[probe.tensor((12, 16), "{dtype}"){more}], {asked})
"""
TWICE = "lambda x: x * 2"


def run(pytester: pytest.Pytester, kernel: str, reference: str, asked: str, more: str = "",
        dtype: str = "float32") -> tuple[pytest.RunResult, dict[str, tuple[str, str]]]:  # fmt: skip
    """What was found on each relation, by direction."""
    pytester.makepyfile(TEST.replace("{kernel}", kernel).replace("{reference}", reference).replace("{asked}", asked)
                        .replace("{more}", more).replace("{dtype}", dtype))  # fmt: skip
    result = pytester.runpytest("--probe-out=out")
    results = map(json.loads, Path("out", "results.jsonl").read_text().splitlines())
    rows = ((each["direction"], row) for each in results for row in each["outputs"])
    named = ((f"{way} {row['name'].removeprefix('relation.')}", row) for way, row in rows if "relation." in row["name"])
    return result, {name: (row["verdict"], row["reason"]) for name, row in named}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("kernel", "verdict"), [("wrong", "error"), ("scaled", "pass")])
def test_a_function_that_no_table_has(pytester: pytest.Pytester, kernel: str, verdict: str, dtype: str) -> None:
    result, found = run(pytester, kernel, "scaled", 'relations=["layout"]', dtype=dtype)
    assert found["forward layout"][0] == verdict
    assert result.ret == (verdict == "error")


@pytest.mark.parametrize(
    ("kernel", "verdict", "words"),
    [
        ("TakesContiguous.apply", "error", "with transposed incoming gradients, grad.input.0: "),
        ("TakesItsOwn.apply", "error", "with expanded incoming gradients, grad.input.0: "),
        (TWICE, "pass", ""),
    ],
)
def test_gradients_that_lie_otherwise(pytester: pytest.Pytester, kernel: str, verdict: str, words: str) -> None:
    _, found = run(pytester, kernel, TWICE, 'relations=["layout"], backward=True')
    assert found["forward layout"] == ("pass", "")
    assert found["backward layout"][0] == verdict
    assert found["backward layout"][1].startswith(words)


def test_an_empty_output_has_a_gradient_too(pytester: pytest.Pytester) -> None:
    split = "lambda x: torch.split(x, [0, 12])"
    _, found = run(pytester, split, split, 'relations=["layout"], backward=True')
    assert found == {"forward layout": ("pass", ""), "backward layout": ("pass", "")}


def test_what_is_not_asked_is_said(pytester: pytest.Pytester) -> None:
    asked = 'relations=["order", "batch", "out", "inplace", "alias", "stream"]'
    result, found = run(pytester, "scaled", "scaled", asked)
    assert {verdict for verdict, _ in found.values()} == {"skip"}
    assert [name.removeprefix("forward ") for name in found] == ["out", "inplace", "alias", "batch", "order", "stream"]
    assert found["forward batch"][1] == "no dimension is known to be rows; say which: batch={'x': 0}"
    result.assert_outcomes(passed=1)


def test_what_is_drawn_has_no_relation(pytester: pytest.Pytester) -> None:
    asked = 'relations=["all-written", "layout"], api="Functional.dropout"'
    _, found = run(pytester, "F.dropout", "F.dropout", asked)
    assert {reason for _, reason in found.values()} == {
        "its numbers are drawn anew each time, or left as memory held them"
    }


@pytest.mark.parametrize(("kernel", "more"), [("F.relu", ""), ("F.relu", ", False"), ("F.leaky_relu", ", 0.1, False")])
def test_a_twin_gets_the_arguments_that_it_takes(pytester: pytest.Pytester, kernel: str, more: str) -> None:
    asked = f'relations=["inplace"], api="Functional.{kernel[2:]}"'
    _, found = run(pytester, kernel, kernel, asked, more)
    assert found == {"forward inplace": ("pass", "")}
