"""Which asserts get a section: by whatever name, in whatever form, and nothing is computed again for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from tests.support.installed import needs_paddle
from tests.support.running import reports

HEAD = """
    import unittest
    import numpy as np
    import pytest
    import torch
    from numpy.testing import assert_allclose as near
    from torch.testing import assert_close as same

    x = torch.linspace(1, 2, 64).reshape(8, 8)
    y = x * 1.5
"""
SEEN = "looks like: all times 1.5"


def section(pytester: pytest.Pytester, body: str, *options: str) -> str:
    """What the report of the one test says behind its traceback."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    pytester.makepyfile(f"{HEAD}\n    def test_it():\n{lines}")
    result = pytester.runpytest("--probe-asserts", *options)
    result.assert_outcomes(failed=1)
    return result.stdout.str().partition(" probe -")[2]


EXPLAINED = [
    "torch.testing.assert_close(y, x)",
    "same(y, x, rtol=1e-3, atol=1e-3)",
    "same(actual=y, expected=x)",
    "same({'a': [x, y]}, {'a': [x, x]})",
    "near(y, x, rtol=1e-3)",
    "np.testing.assert_almost_equal(y.numpy(), x.numpy())",
    "np.testing.assert_array_almost_equal(y, x, decimal=3)",
    "np.testing.assert_array_max_ulp(y.numpy(), x.numpy(), 4)",
    "np.testing.assert_array_almost_equal_nulp(y.numpy(), x.numpy())",
    "np.testing.assert_array_equal(y, x)",
    "np.testing.assert_equal({'a': y.numpy()}, {'a': x.numpy()})",
    "assert torch.allclose(y, x)",
    "assert torch.allclose(y, x, 1e-3, atol=1e-3), 'a message'",
    "assert torch.allclose(input=y, other=x)",
    "assert y.allclose(x)",
    "assert torch.equal(y, x)",
    "assert np.allclose(y.numpy(), x.numpy())",
    "assert np.array_equal(y, x)",
    "assert len(x) == 8 and torch.allclose(y + 0, x + 0)",
    "assert x is None or (torch.allclose(x, x) and\n        torch.allclose(y, x))",
    "a = x + 0; assert torch.allclose(y, a)",
    "assert torch.allclose(x, x); assert torch.allclose(y, x); assert torch.allclose(x, y)",
    "äö = x; same(x, x); same(y, äö)",
    "if len(x): assert torch.allclose(y, x)",
    "ok = unittest.TestCase()\nok.assertTrue(torch.allclose(y, x))",
    "ok = unittest.TestCase()\nok.assertTrue(np.allclose(y.double().numpy(), x.numpy()))",
]
NOT_EXPLAINED = [
    "assert not torch.allclose(x, x)",
    "assert len(x) == 9 and torch.allclose(y, x)",
    "assert torch.allclose(x, x) and len(x) == 9",
    "assert y.sum() == x.sum()",
    "raise ValueError(torch.allclose(y, x))",
    "np.testing.assert_array_less(y.numpy(), x.numpy())",
    "np.testing.assert_equal('a', 'b')",
    "same(1.0, 2.0)",
    "same('a', 'b')",
    "near(['a'], ['b'])",
]
# Sides of another origin.
WITHOUT_LINES = [
    "out = y\nsame(out, x)",
    "out = torch.mul(x, 1.5)\nsame(out, torch.add(x, 0))",
    "out = torch.exp(x)\nout = out + 1\nsame(out, torch.exp2(x))",
    "same(torch.ones(8, 8), torch.zeros(8, 8))",
    "same(y.exp(), x.exp())",
    "for out in [torch.exp(x)]:\n    same(out, torch.log(x))",
    "out = torch.exp(*[x])\nsame(out, torch.log(*[x]))",
]


@pytest.fixture(scope="module")
def sections(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What one run says of each of these, behind its traceback."""
    bodies = [*EXPLAINED, *NOT_EXPLAINED, *WITHOUT_LINES]
    said = reports(tmp_path_factory.mktemp("asserts"), HEAD, bodies, "--probe-asserts")
    return {body: report.partition(" probe -")[2] for body, report in zip(bodies, said, strict=True)}


@pytest.mark.parametrize("body", EXPLAINED)
def test_an_assert_is_explained(sections: Mapping[str, str], body: str) -> None:
    assert SEEN in sections[body]


@pytest.mark.parametrize(
    "body",
    [
        "assert torch.allclose(y, x)",
        "out = y\nassert torch.allclose(out.float().cpu(), x.detach(), atol=1e-3)",
        pytest.param(
            "assert torch.allclose(x, x); assert torch.allclose(y, x); assert torch.allclose(x, y)",
            marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 says no column of a statement"),
        ),
    ],
)
def test_an_assert_that_pytest_does_not_rewrite_is_explained(pytester: pytest.Pytester, body: str) -> None:
    assert SEEN in section_of_helper(pytester, body)


def section_of_helper(pytester: pytest.Pytester, body: str) -> str:
    """Of an assert in a module that pytest takes as it is."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    pytester.makepyfile(helper=f"{HEAD}\n    def it():\n{lines}")
    return section(pytester, "import helper\nhelper.it()")


@pytest.mark.parametrize("body", NOT_EXPLAINED)
def test_another_failure_has_no_section(sections: Mapping[str, str], body: str) -> None:
    assert sections[body] == ""


def test_no_operand_is_computed_again(pytester: pytest.Pytester) -> None:
    """Calls of an assert have been made, and what they gave is still there."""
    body = "calls = []\ndef made():\n    calls.append(1)\n    assert len(calls) == 1\n    return y"
    assert SEEN in section(pytester, f"{body}\nassert torch.allclose(made(), x)")


def test_without_rewriting_what_would_have_to_be_computed_is_not(pytester: pytest.Pytester) -> None:
    body = "calls = []\ndef made():\n    calls.append(1)\n    return y\nassert torch.allclose(made(), x)"
    assert section_of_helper(pytester, body) == ""


def test_a_helper_of_the_project_is_seen_through(pytester: pytest.Pytester) -> None:
    check = "def check(a, b):\n    torch.testing.assert_close(a, b, rtol=0.1, atol=0)\n"
    pytester.makepyfile(helper=f"import torch\n{check}")
    found = section(pytester, "from helper import check\ncheck(y, x)")
    assert SEEN in found
    assert "beyond rtol 0.1, atol 0: 64 of 64 elements, by up to 5 times" in found


@pytest.mark.parametrize("cause", ["", " from error"])
def test_a_helper_that_says_it_in_its_own_words_is_seen_through(pytester: pytest.Pytester, cause: str) -> None:
    body = f"try:\n    same(y, x)\nexcept AssertionError as error:\n    raise AssertionError('y is wrong'){cause}"
    assert SEEN in section(pytester, body)


@needs_paddle
@pytest.mark.parametrize("body", ["assert paddle.allclose(b, a)", "near(b.numpy(), a.numpy())", "near(b, a)"])
def test_tensors_of_paddle_are_explained(pytester: pytest.Pytester, body: str) -> None:
    lines = "import paddle\na = paddle.to_tensor(x.numpy())\nb = a * 1.5"
    assert SEEN in section(pytester, f"{lines}\n{body}")


def test_the_lines_of_a_check(pytester: pytest.Pytester) -> None:
    """They stand where both sides are calls with the same arguments, casts aside."""
    body = (
        "def kernel(x, eps=0):\n    return x * 1.5\n"
        "def reference(x, eps=0):\n    return x\n"
        "out = kernel(x, eps=1)\nsame(out.float(), reference(x.float(), eps=1))"
    )
    found = section(pytester, body)
    lines = ["probe.check(", '    kernel, reference=reference, inputs=[x], kwargs={"eps": 1},', ")"]
    assert "\n".join(f"    {line}" for line in lines) in found


@pytest.mark.parametrize("body", WITHOUT_LINES)
def test_sides_of_another_origin_have_no_lines(sections: Mapping[str, str], body: str) -> None:
    assert "looks like" in sections[body]
    assert "probe.check" not in sections[body]


def test_the_lines_of_a_check_run(pytester: pytest.Pytester) -> None:
    """Put in the place of the assert they find the fault, and let a right function pass."""
    pytester.makepyfile(f"""
    {HEAD}
    def kernel(x):
        return torch.softmax(x, 1) * 1.01

    def softmax(x):
        return torch.softmax(x, 1)

    def test_wrong(probe):
        probe.check(
            kernel, reference=softmax, inputs=[x],
        )

    def test_right(probe):
        probe.check(
            softmax, reference=softmax, inputs=[x],
        )
    """)
    pytester.runpytest("--probe-device=cpu").assert_outcomes(failed=1, passed=1)
