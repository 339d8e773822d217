"""`probe.check(..., borders=...)` and `probe.border` in a project's own tests."""

from __future__ import annotations

from textwrap import dedent

import pytest

pytestmark = pytest.mark.compat

ATTENTION = """
    import pytest
    import torch

    def attention(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)

    def my_attention(q, k, v):
        scores = q.float() @ k.float().mT
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        rounded = weights.to(v.dtype).float()
        return (rounded @ v.float() / weights.sum(-1, keepdim=True)).to(v.dtype)

    @pytest.fixture
    def given(probe):
        return [probe.tensor((4, 32, 16), "bfloat16") for _ in range(3)]
"""


def run(pytester: pytest.Pytester, text: str, *args: str) -> pytest.RunResult:
    pytester.makepyfile(test_mine=dedent(ATTENTION) + dedent(text))
    return pytester.runpytest("-p", "no:cacheprovider", *args)


def test_a_kernel_that_rounds_at_a_named_border_passes(pytester: pytest.Pytester) -> None:
    text = """
    def test_attention(probe, given):
        def bordered(q, k, v):
            scores = q @ k.mT
            weights = torch.exp(scores - scores.amax(-1, keepdim=True))
            return probe.border(weights) @ v / weights.sum(-1, keepdim=True)

        found = probe.check(my_attention, reference=attention, inputs=given, borders=bordered, backward=True)
        assert found[0].outputs[0].reason == "rounds at its borders"
        with pytest.raises(AssertionError, match="(?s)no.{1,3}rounding at its borders: RMS"):
            probe.check(lambda *args: my_attention(*args) * 1.02, reference=attention, inputs=given, borders=bordered)

    def test_without(probe, given):
        found = probe.check(my_attention, reference=attention, inputs=given)
        assert found[0].outputs[0].reason == "rounds the operands of its products to 16 bit"

    def test_outside_of_a_check(probe):
        x = probe.tensor((3,), "bfloat16")
        assert probe.border(x) is x
    """
    result = run(pytester, text)
    result.assert_outcomes(passed=3)


def test_borders_that_are_another_function_than_the_reference_are_refused(pytester: pytest.Pytester) -> None:
    text = """
    def check(probe, given, borders, **how):
        probe.check(lambda *args: my_attention(*args) * 1.1, reference=attention, inputs=given, borders=borders, **how)

    def test_other_numbers(probe, given):
        check(probe, given, lambda *args: attention(*args) * 1.1)

    def test_another_shape(probe, given):
        check(probe, given, lambda *args: attention(*args)[0])

    def test_two_outputs(probe, given):
        check(probe, given, lambda *args: (attention(*args), args[0]))

    def test_raises(probe, given):
        check(probe, given, lambda q, k, v: q.nothing)

    def test_infinities(probe, given):
        check(probe, given, lambda *args: attention(*args).log())

    def test_another_gradient(probe, given):
        check(probe, given, lambda q, k, v: attention(q.detach(), k, v), backward=True)
    """
    result = run(pytester, text)
    result.assert_outcomes(failed=6)
    result.stdout.fnmatch_lines_random(
        [
            "E *borders gives other numbers than the reference in output.0: they differ by up to",
            "E *, and the largest is *; in float64 it must give what the reference",
            "E *borders gives output.0 with shape [[]32, 16[]], the reference [[]4, 32, 16[]]; in",
            "E *borders gives output.0, output.1, the reference output.0; in float64 it must",
            "E *borders raised AttributeError: *",
            "E *borders gives other numbers than the reference in output.0: infinities or NaN in",
            "E *borders gives the gradient of input.1, input.2, the reference the gradient of",
        ]
    )


def test_borders_of_a_module_are_those_of_a_module_with_its_parameters(pytester: pytest.Pytester) -> None:
    text = """
    class Layers(torch.nn.Module):
        def __init__(self, border=lambda tensor: tensor):
            super().__init__()
            self.first, self.second = torch.nn.Linear(64, 96), torch.nn.Linear(96, 32)
            self.border = border

        def forward(self, x):
            return self.second(self.border(self.first(x)))

    class Once(Layers):
        def forward(self, x):
            wide = torch.nn.functional.linear(x.double(), self.first.weight.double(), self.first.bias.double())
            weight, bias = self.second.weight.double(), self.second.bias.double()
            return torch.nn.functional.linear(wide.to(x.dtype).double(), weight, bias).to(x.dtype)

    class Merged(Layers):
        def forward(self, x):
            weight = self.second.weight @ self.first.weight
            return torch.nn.functional.linear(x, weight, self.second(self.first.bias))

    def test_module(probe):
        # With one in a hundred of a module's parameters an element of a gradient is unstable.
        torch.manual_seed(0)
        x = probe.tensor((16, 64), "bfloat16")
        mine = Once().to(torch.bfloat16)
        probe.check(mine, reference=Merged(), inputs=x, borders=Layers(probe.border), backward=True)
    """
    run(pytester, text).assert_outcomes(passed=1)
