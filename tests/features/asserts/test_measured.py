"""--probe-asserts=all: what the tolerances of passing asserts need, and what else they would let pass."""

from __future__ import annotations

import json
import re
from textwrap import dedent
from typing import TypeAlias

import numpy as np
import numpy.testing  # pytester forgets what a run of its own imports first
import pytest
import torch

from tests.features.asserts.test_failed import HEAD
from tests.support.other_plugins import Ran
from tests.support.running import ran

Rows: TypeAlias = "list[dict[str, object]]"

PASSING = """
    @pytest.mark.parametrize("number", range(3))
    def test_norm(number):
        same((x * 1.0001).bfloat16(), x.bfloat16(), rtol=2e-2, atol=0)
        same(x * (1 + 1e-3 * number), x, rtol=1e-2, atol=0)

    def test_zeros():
        near(1e-5 * x, 1.01e-5 * x, rtol=1e-3, atol=1e-3)

    def test_factor():
        np.testing.assert_array_almost_equal(x.numpy() * 1.001, x.numpy(), decimal=1)

    class TestPredicates(unittest.TestCase):
        def test_asserted(self):
            assert torch.allclose(x, x * 1.0001, rtol=1e-3)
            self.assertTrue(np.allclose(x.numpy(), x.numpy() * 1.0001, rtol=1e-3))
            if torch.allclose(x, x):
                assert not torch.allclose(x, y)

    def test_nothing_to_tighten():
        np.testing.assert_array_equal(x, x)
        same({"a": [x]}, {"a": [x]})
        np.testing.assert_equal("a", "a")

    def test_odd():
        x = torch.ones(4) * float("nan")
        same(x, x, equal_nan=True)
        near(np.array([1.0, np.inf]), np.array([1.0, np.inf]))
        same(torch.ones(0), torch.ones(0))
        near([1.0, 2.0], [1.0, 2.0])
        near(np.zeros(4), np.zeros(4))
        near(torch.ones(4), np.ones(4))
        same(torch.ones(4, dtype=torch.complex64), torch.ones(4, dtype=torch.complex64))
        same(torch.ones(4, requires_grad=True), torch.ones(4))

    def test_raises():
        with pytest.raises(AssertionError):
            same(x, y)

    def test_fails():
        same(x, y)
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("measured")
    (folder / "test_mine.py").write_text(dedent(HEAD + PASSING))
    return ran(folder, "--probe-asserts=all", "--probe-out=out", "--probe-device=cpu", "-n2")


@pytest.fixture
def rows(measured: Ran) -> Rows:
    measured.result.assert_outcomes(passed=9, failed=1, warnings=0)
    return [json.loads(line) for line in (measured.folder / "out/asserts.jsonl").read_text().splitlines()]


def of(rows: Rows, test: str) -> Rows:
    return [row for row in rows if str(row["id"]).endswith(f"::{test}")]


def test_what_was_needed(rows: Rows) -> None:
    narrow, wide = sorted(of(rows, "test_norm"), key=lambda row: str(row["dtype"]))
    assert narrow | {"asserts": 3, "rtol": 0.02, "dtype": "bfloat16", "ulp": 2.0**-7, "pass_zeros": 0} == narrow
    assert wide["asserts"] == 3
    assert wide["needed_rtol"] == pytest.approx(2e-3, rel=1e-3)
    # The assert passes with what is needed, and fails with 1 % less.
    x, needed = torch.linspace(1, 2, 64), float(str(wide["needed_rtol"]))
    torch.testing.assert_close(x * 1.002, x, rtol=needed * 1.001, atol=0)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(x * 1.002, x, rtol=needed * 0.99, atol=0)
    (zeros,) = of(rows, "test_zeros")
    assert zeros | {"pass_zeros": 1, "pass_factor": 1} == zeros
    (factor,) = of(rows, "test_factor")
    assert factor | {"pass_zeros": 0, "pass_factor": 1, "atol": pytest.approx(0.15)} == factor
    assert {row["function"] for row in of(rows, "test_asserted")} == {"allclose"}
    assert sum(int(str(row["asserts"])) for row in of(rows, "test_asserted")) == 2
    assert not any("used" in row for row in of(rows, "test_nothing_to_tighten"))
    assert sum(int(str(row["asserts"])) for row in of(rows, "test_odd")) == 8
    assert not of(rows, "test_raises")
    assert not of(rows, "test_fails")


def test_what_the_summary_says(measured: Ran) -> None:
    """A run that probes shows sections as well."""
    assert "  looks like: all times " in measured.result.stdout.str()
    text = " ".join(measured.result.stdout.str().partition("probe: asserts")[2].split())
    assert re.search(r"\d+ passing asserts in 6 test functions; what their tolerances need:", text)
    words = "test_mine.py::test_norm: rtol 0.01 given, 0.002 needed over 3 asserts; one float32 ulp is 1.2e-07"
    assert words in text
    assert "test_mine.py::test_zeros: rtol 0.001 given, 2e-07 needed and atol 0.001 given, 2e-07 needed in 1 " in text
    assert "would pass an output of zeros would pass a factor of 1.05" in text


def test_names_that_a_conftest_bound_before_are_measured(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(helper="from torch.testing import assert_close\ndef check(a, b):\n    assert_close(a, b)\n")
    pytester.makeconftest("import helper")
    pytester.makepyfile("import helper\nimport torch\ndef test_it():\n    helper.check(torch.ones(8), torch.ones(8))\n")
    pytester.syspathinsert()
    functions = torch.testing.assert_close, torch.allclose, np.testing.assert_allclose, np.allclose
    assert "1 passing assert in 1 test function;" in pytester.runpytest("--probe-asserts=all").stdout.str()
    # They are themselves again.
    assert functions == (torch.testing.assert_close, torch.allclose, np.testing.assert_allclose, np.allclose)
