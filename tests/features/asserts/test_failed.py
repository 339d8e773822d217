"""Which asserts get a section: by whatever name, in whatever form, and nothing is computed again for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent, indent

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
    # Calls of an assert have been made, and what they gave is still there: none is made again.
    "calls = []\ndef made():\n    calls.append(1)\n    assert len(calls) == 1\n    return y\n"
    "assert torch.allclose(made(), x)",
    # A helper says it in its own words.
    "try:\n    same(y, x)\nexcept AssertionError as error:\n    raise AssertionError('y is wrong')",
    "try:\n    same(y, x)\nexcept AssertionError as error:\n    raise AssertionError('y is wrong') from error",
]
# Of a module that pytest takes as it is, without rewriting.
HELPERS = {
    "check": "same(b, a, rtol=0.1, atol=0)",
    "plain": "assert torch.allclose(b, a)",
    "casts": "out = b\nassert torch.allclose(out.float().cpu(), a.detach(), atol=1e-3)",
    "three": "assert torch.allclose(a, a); assert torch.allclose(b, a); assert torch.allclose(a, b)",
    "called": "calls = []\ndef made():\n    calls.append(1)\n    return b\nassert torch.allclose(made(), a)",
}
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
# Both sides are calls with the same arguments, casts aside.
WITH_LINES = (
    "def kernel(x, eps=0):\n    return x * 1.5\n"
    "def reference(x, eps=0):\n    return x\n"
    "out = kernel(x, eps=1)\nsame(out.float(), reference(x.float(), eps=1))"
)


def of_helper(name: str) -> str:
    return f"import helper\nhelper.{name}(x, y)"


@pytest.fixture(scope="module")
def sections(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What one run says of each of these, behind its traceback."""
    folder = tmp_path_factory.mktemp("asserts")
    helpers = (f"def {name}(a, b):\n{indent(body, '    ')}\n" for name, body in HELPERS.items())
    (folder / "helper.py").write_text(dedent(HEAD) + "\n".join(helpers))
    bodies = [*EXPLAINED, *NOT_EXPLAINED, *WITHOUT_LINES, WITH_LINES, *map(of_helper, HELPERS)]
    said = reports(folder, HEAD, bodies, "--probe-asserts")
    return {body: report.partition(" probe -")[2] for body, report in zip(bodies, said, strict=True)}


@pytest.mark.parametrize("body", EXPLAINED)
def test_an_assert_is_explained(sections: Mapping[str, str], body: str) -> None:
    assert SEEN in sections[body]


@pytest.mark.parametrize("body", NOT_EXPLAINED)
def test_another_failure_has_no_section(sections: Mapping[str, str], body: str) -> None:
    assert sections[body] == ""


def test_a_helper_is_seen_through(sections: Mapping[str, str]) -> None:
    found = {name: sections[of_helper(name)] for name in HELPERS}
    assert "beyond rtol 0.1, atol 0: 64 of 64 elements, by up to 5 times" in found["check"]
    assert all(SEEN in found[name] for name in ("check", "plain", "casts"))
    # Python 3.10 says no column of a statement.
    assert SEEN in found["three"] or sys.version_info < (3, 11)
    # What would have to be computed again is not.
    assert found["called"] == ""


@needs_paddle
def test_tensors_of_paddle_are_explained(tmp_path: Path) -> None:
    head = f"{dedent(HEAD)}\nimport paddle\na = paddle.to_tensor(x.numpy())\nb = a * 1.5\n"
    bodies = ["assert paddle.allclose(b, a)", "near(b.numpy(), a.numpy())", "near(b, a)"]
    assert all(SEEN in report for report in reports(tmp_path, head, bodies, "--probe-asserts"))


def test_the_lines_of_a_check(sections: Mapping[str, str]) -> None:
    lines = ["probe.check(", '    kernel, reference=reference, inputs=[x], kwargs={"eps": 1},', ")"]
    assert "\n".join(f"    {line}" for line in lines) in sections[WITH_LINES]


@pytest.mark.parametrize("body", WITHOUT_LINES)
def test_sides_of_another_origin_have_no_lines(sections: Mapping[str, str], body: str) -> None:
    assert "looks like" in sections[body]
    assert "probe.check" not in sections[body]


def test_the_lines_of_a_check_run(pytester: pytest.Pytester) -> None:
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
