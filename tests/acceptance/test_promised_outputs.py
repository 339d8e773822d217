"""What `probe.check` and `probe_case.check` ask of outputs beside their numbers."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from tests.acceptance.conftest import DumpMaker
from tests.support.running import reports

pytestmark = pytest.mark.compat

HEAD = """
    from dataclasses import dataclass
    from typing import Any

    import pytest
    import torch
    from torch.nn.functional import gelu

    @dataclass
    class Both:
        first: Any
        second: Any

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, gradient):
            x, w = ctx.saved_tensors
            return ctx.gradients(gradient * w, gradient * x)

    def product(gradients):
        class Own(Product):
            @staticmethod
            def forward(ctx, x, w):
                ctx.gradients = gradients
                return Product.forward(ctx, x, w)
        return Own.apply

    def mul(x, w):
        return x * w
"""


def run(pytester: pytest.Pytester, body: str, *args: str) -> pytest.RunResult:
    pytester.makepyfile(test_mine=dedent(HEAD) + dedent(body))
    return pytester.runpytest("-p", "no:cacheprovider", *args)


# What checks are of.
TENSORS = """\
x, w, v = (probe.tensor((4, 8), "bfloat16") for _ in range(3))
ones = torch.ones(8)
"""


def checked(pytester: pytest.Pytester, check: str, *args: str) -> pytest.RunResult:
    """A test whose only check is this one."""
    return run(pytester, f"def test_mine(probe):\n{indent(f'{TENSORS}probe.check({check})', '    ')}", *args)


GRADIENTS = "product(lambda g, h: {}), reference=mul, inputs=[x, w], backward=True"
WRONG = [
    (
        "lambda x: gelu(x.float()), reference=gelu, inputs=[x]",
        "dtype float32, the reference gives bfloat16 for these arguments; dtype=?any? allows it",
    ),
    ("lambda x: gelu(x).half(), reference=gelu, inputs=[x]", "dtype float16, the reference gives *"),
    (
        "lambda x: gelu(x).half(), reference=lambda x: gelu(x.double()), inputs=[x]",
        "*float16, the reference gives*",
    ),
    (
        "lambda x, c: (x.float().sum(0) * c).half(), reference=lambda x, c: x.sum(0) * c, inputs=[x, ones]",
        "dtype float16, the reference gives float32 *",
    ),
    ("lambda x: gelu(x) > 9, reference=gelu, inputs=[x], dtype='any'", "*dtype bool, the reference has float64*"),
    ("lambda x: gelu(x)[:2], reference=gelu, inputs=[x]", "*shape [[]2, 8[]], the reference has [[]4, 8[]]*"),
    ("lambda x: [gelu(x)], reference=gelu, inputs=[x]", "*returns (tensor,), the reference tensor*"),
    ("lambda x: (x, None), reference=lambda x: (x,), inputs=[x]", "*returns (tensor, None), the reference (tens*"),
    ("lambda x: (x, x), reference=lambda x: (x,), inputs=[x]", "*returns (tensor, tensor), the reference (tens*"),
    ("lambda x: {'a': x}, reference=lambda x: {'b': x}, inputs=[x]", "*returns {a: tensor}, the reference {b: *"),
    ("lambda x: x.tolist(), reference=gelu, inputs=[x]", "*returns ((float, *...*the reference tensor*"),
    ("lambda x: x.sum().item(), reference=lambda x: x.sum(), inputs=[x]", "*returns float, the reference tensor*"),
    ("lambda x: iter(x), reference=lambda x: iter(x), inputs=[x]", "*cannot be compared; return tensors, numbers*"),
    (
        "lambda x: Both(x, x * 1.1), reference=lambda x: Both(x, x), inputs=[x]",
        "*output.second [[]4, 8[]] bfloat16: error (noise)*",
    ),
    (
        "lambda x: gelu(x).t().contiguous().t(), reference=gelu, inputs=[x], strides=True",
        "strides [[]1, 4[]], the reference has [[]8, 1[]]",
    ),
    (GRADIENTS.format("(g[:2], h)"), "*invalid gradient at index 0*"),
    (GRADIENTS.format("(g, None)"), "*grad.input.1 [[]4, 8[]] *: error (structure): the device gives no gradient*"),
    (GRADIENTS.format("(g,)"), "*returned an incorrect number of gradients*"),
    (GRADIENTS.format("(g, h * 1.1)"), "*grad.input.1 [[]4, 8[]] bfloat16: error (noise)*"),
]
RIGHT = [
    "lambda x: gelu(x.float()), reference=gelu, inputs=[x], dtype='any'",
    "lambda x: gelu(x).t().contiguous().t(), reference=gelu, inputs=[x]",
    "lambda x: gelu(x.double()), reference=lambda x: gelu(x.double()), inputs=[x]",
    # The reference computes wider and returns that, the kernel rounds at its end.
    "gelu, reference=lambda x: gelu(x.double()), inputs=[x]",
    "gelu, reference=lambda x: gelu(x.float()), inputs=[x], backward=True",
    "lambda x, c: (x * c).to(x.dtype), reference=lambda x, c: x * c, inputs=[x, ones]",
    "lambda x: [x, {'a': x}], reference=lambda x: (x, {'a': x}), inputs=[x]",
    "lambda x: x.sum().item(), reference=lambda x: x.sum().item(), inputs=[x]",
    "lambda x: Both(x, 2 * x), reference=lambda x: Both(x, 2 * x), inputs=[x], backward=True",
    "lambda x, w: x @ w.t(), reference=lambda x, w: x @ w.t(), inputs=[x, w], strides=True, backward=True",
    "lambda x: x.t(), reference=lambda x: x.t(), inputs=[x], strides=True, backward=True",
    # Its shape hangs on its values, so that the reference has to run.
    "lambda x: x[x > 0], reference=lambda x: x[x > 0], inputs=[x], strides=True",
    # Nothing tells what it gives in other dtypes than float64.
    "lambda x: gelu(x.float()), reference=lambda x: gelu(x + torch.zeros(8).double() @ torch.eye(8)), inputs=[x],"
    " dtype='any'",
    "mul, reference=mul, inputs=[x], kwargs={'w': w}, backward=True",
    "product(lambda g, h: (g, h)), reference=mul, inputs=[x, w], backward=True",
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What one run says of each wrong check."""
    checks = [check for check, _ in WRONG]
    bodies = [f"{TENSORS}probe.check({check})" for check in checks]
    found = reports(tmp_path_factory.mktemp("wrong"), HEAD, bodies, fixture="probe")
    return dict(zip(checks, found, strict=True))


@pytest.mark.parametrize(("check", "reason"), WRONG)
def test_what_is_not_as_promised_is_said(said: dict[str, str], check: str, reason: str) -> None:
    lines = said[check].splitlines()
    text = " ".join(line.removeprefix("E").strip() for line in lines if line.startswith("E  "))
    pytest.LineMatcher([text]).fnmatch_lines([f"*{reason}*"])


def test_outputs_that_are_as_promised_pass(pytester: pytest.Pytester) -> None:
    tests = (f"def test_{number}(probe):\n{indent(f'{TENSORS}probe.check({check})', '    ')}\n"
             for number, check in enumerate(RIGHT))  # fmt: skip
    run(pytester, "\n".join(tests)).assert_outcomes(passed=len(RIGHT))


def test_strides_of_gradients_are_compared_where_asked(pytester: pytest.Pytester) -> None:
    check = "product(lambda g, h: (g.t().contiguous().t(), h)), reference=mul, inputs=[x, w], backward=True"
    checked(pytester, check).assert_outcomes(passed=1)
    result = checked(pytester, f"{check}, strides=True")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*grad.input.0 *: strides [[]1, 4[]], its argument*"])


def test_an_autocast_of_the_users_promises_its_dtype(pytester: pytest.Pytester) -> None:
    body = """
    def test_mine(probe):
        x = torch.ones((4, 8))
        linear = torch.nn.functional.linear
        with torch.autocast(probe.device, torch.bfloat16):
            probe.check(linear, reference=linear, inputs=[x, x])
    """
    run(pytester, body).assert_outcomes(passed=1)


def test_an_unknown_demand_is_said(pytester: pytest.Pytester) -> None:
    result = checked(pytester, "gelu, reference=gelu, inputs=[x], dtype='bfloat16'")
    result.stdout.fnmatch_lines(["E*check: dtype: 'bfloat16' cannot be used; give *same*any*"])


def test_a_recorded_call_promises_what_was_recorded(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    body = """
    WRONG = {
        "float": lambda out: out.float(), "half": lambda out: out.half(), "list": lambda out: [out],
        "short": lambda out: out[:1], "column": lambda out: out.t().contiguous().t(), "same": lambda out: out,
    }

    @pytest.mark.parametrize("strides", [False, True])
    @pytest.mark.parametrize("wrong", list(WRONG))
    @pytest.mark.probe(dump="dump.json", api="Functional.relu", dtype=["recorded", "bfloat16"])
    def test_mine(probe_case, wrong, strides):
        probe_case.check(WRONG[wrong](torch.relu(*probe_case.args)), strides=strides)

    @pytest.mark.probe(dump="dump.json", api="Functional.relu", dtype="bfloat16")
    def test_any(probe_case):
        probe_case.check(torch.relu(*probe_case.args).float(), dtype="any")
    """
    result = run(pytester, body, "-rf", "-v", "-n1")
    passed = [line for line in result.outlines if "PASSED" in line]
    names = ["float", "half", "list", "short", "column", "same"]
    found = {name: sum(f"-{name}-" in line for line in passed) for name in names}
    # In float32, float() changes nothing; both with strides and without.
    assert found == {"float": 2, "half": 0, "list": 0, "short": 0, "column": 2, "same": 4}
    assert result.parseoutcomes()["passed"] == 9


@pytest.mark.parametrize("wrong", ["half()", "t().contiguous().t()"])
def test_a_call_that_is_judged_in_samples(pytester: pytest.Pytester, make_dump: DumpMaker, wrong: str) -> None:
    make_dump()
    body = f"""
    @pytest.mark.parametrize("wrong", [False, True])
    @pytest.mark.probe(dump="dump.json", api="Functional.linear")
    def test_mine(probe_case, wrong):
        out = torch.nn.functional.linear(*probe_case.args)
        probe_case.check(out.{wrong} if wrong else out, strides=True)
    """
    result = run(pytester, body, "--probe-flops=1")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*output.0 [[]2, 4[]] float*: error (structure): *"])
