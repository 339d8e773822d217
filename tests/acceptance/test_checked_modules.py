"""Modules as function or as reference of `probe.check`, and what else its arguments may be."""

from __future__ import annotations

import pytest

from tests.support.suites import Suite, suite

pytestmark = pytest.mark.compat

HEAD = """
    import pytest
    import torch
    from torch.nn.functional import batch_norm, gelu, layer_norm

    class Slipped(torch.nn.BatchNorm1d):
        def forward(self, x):
            out = super().forward(x)
            self.running_var = self.running_var * 1.01
            return out

    class Leaky(torch.nn.Linear):
        def forward(self, x):
            total = self.weight.sum()
            return super().forward(x) + 0.01 * (total - total.detach())

    class Mean(torch.nn.Module):
        def __init__(self, momentum):
            super().__init__()
            self.momentum = momentum
            self.register_buffer("mean", torch.ones(8))

        def forward(self, x):
            self.mean = self.mean * self.momentum + x.detach().mean(0)
            return 2 * x

    class Gamma(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gamma = torch.nn.Parameter(torch.ones(8))

        def forward(self, x):
            return layer_norm(x, (8,)) * self.gamma

    def checked(probe, function, reference, dtype="float32"):
        x = probe.tensor((6, 8), dtype)
        forward, backward = probe.check(function, reference=reference, inputs=x, backward=True)
        names = [output.name for verdict in (forward, backward) for output in verdict.outputs]
        return " ".join(name.replace("kwargs.module.", "") for name in names)
"""


TEXTS = {
    "parameters": """
    def test_layer_norm(probe):
        module = torch.nn.LayerNorm(8, dtype=torch.bfloat16)
        assert checked(probe, module, module, "bfloat16") == "output.0 grad.input.0 grad.weight grad.bias"

    def test_another_layer_norm(probe):
        other = torch.nn.LayerNorm(8)
        torch.nn.init.normal_(other.weight)
        module = torch.nn.LayerNorm(8, dtype=torch.float16)
        # The reference has the parameters of the function.
        assert checked(probe, module, other, "float16") == "output.0 grad.input.0 grad.weight grad.bias"

    def test_training(probe):
        module = torch.nn.BatchNorm1d(8)
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        changed = "num_batches_tracked running_mean running_var"
        found = checked(probe, module, torch.nn.BatchNorm1d(8))
        assert found == f"output.0 {changed} grad.input.0 grad.weight grad.bias"
        assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
        assert all(parameter.grad is None for parameter in module.parameters())

    def test_evaluation(probe):
        module = torch.nn.BatchNorm1d(8).eval()
        assert checked(probe, module, module) == "output.0 grad.input.0 grad.weight grad.bias"

    def test_frozen(probe):
        module = torch.nn.Linear(8, 4).requires_grad_(False)
        assert checked(probe, module, module) == "output.0 grad.input.0"

    def test_nested_and_tied(probe):
        module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        module[1].weight = module[0].weight
        assert checked(probe, module, module) == "output.0 grad.input.0 grad.0.weight grad.0.bias grad.1.bias"

    def test_compiled(probe):
        module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
        found = checked(probe, torch.compile(module, backend="eager"), module)
        assert found == "output.0 grad.input.0 grad.0.weight grad.0.bias"

    def test_assigned_buffer(probe):
        assert checked(probe, Mean(0.9), Mean(0.9)) == "output.0 mean grad.input.0"
    """,
    "functions": """
    def normed(x):
        return batch_norm(x, None, None, training=True)

    def test_function(probe):
        assert checked(probe, torch.nn.BatchNorm1d(8), normed) == "output.0 grad.input.0"

    def test_reference(probe):
        module = torch.nn.BatchNorm1d(8)
        assert checked(probe, normed, module) == "output.0 grad.input.0"
        assert not module.num_batches_tracked

    def test_wrong(probe):
        checked(probe, lambda x: normed(x) * 1.01, torch.nn.BatchNorm1d(8))
    """,
    "random": """
    dropout = torch.nn.functional.dropout

    def normal(x):
        return x + torch.randn(8).sum()

    def unused(x):
        torch.nn.Linear(8, 8)
        return 2 * x

    def test_dropout(probe):
        probe.check(lambda x: 0 * x, reference=dropout, inputs=probe.tensor((64, 8)))

    def test_made_anew(probe):
        probe.check(torch.nn.Linear(8, 8), reference=lambda x: torch.nn.Linear(8, 8)(x), inputs=probe.tensor((6, 8)))

    def test_normal(probe):
        probe.check(normal, reference=normal, inputs=probe.tensor(8))

    def test_random(probe):
        probe.check(dropout, reference=dropout, inputs=probe.tensor((64, 8)), api="Functional.dropout")

    def test_unused(probe):
        probe.check(unused, reference=unused, inputs=probe.tensor((64, 8)))
    """,
    "one_input": """
    def scaled(x, *, by, how="up"):
        return {"up": x * by}[how]

    def test_mine(probe):
        x, by = probe.tensor((4, 8)), probe.tensor(8)
        forward, backward = probe.check(scaled, reference=scaled, inputs=x, kwargs={"by": by}, backward=True)
        assert [output.name for output in backward.outputs] == ["grad.input.0", "grad.kwargs.by"]
        assert backward.outputs[1].shape == (8,)
    """,
}
# A wrong module, its reference, and how the failure names what differs.
WRONG = [
    ("Slipped(8)", "torch.nn.BatchNorm1d(8)", "*kwargs.module.running_var [[]8[]] float32: error (noise)*"),
    ("Leaky(8, 8)", "torch.nn.Linear(8, 8)", "*grad.kwargs.module.weight [[]8, 8[]] float32: error (noise)*"),
    ("Mean(0.9)", "Mean(0.8)", "*kwargs.module.mean [[]8[]] float32: error (noise)*"),
    ("Gamma()", "torch.nn.LayerNorm(8)", "*name their parameters alike*: gamma of the function, weight of the *"),
    (
        "torch.nn.Linear(8, 4)",
        "torch.nn.Linear(8, 8)",
        "*weight is [[]8, 8[]] there and [[]4, 8[]] in the function*",
    ),
    (
        "Gamma()",
        "lambda x, layer=torch.nn.Linear(8, 8): layer(x)",
        "*the reference raised RuntimeError: *; it gets floating tensors as*",
    ),
]
# What an API that is misspelt means.
MEANT = {
    "Functional.gleu": "Functional.gelu",
    "torch.nn.functional.sofmax": "Functional.softmax",
    "gelu": "Functional.gelu",
    "Functional.svd": "Tensor.svd",
    "Tensor.ad_": "Tensor.add_",
    "NPU.npu_rotary_mull": "NPU.npu_rotary_mul",
}
KNOWN = ["Functional.gelu", "torch.nn.functional.gelu", "Torch.sigmoid", "Tensor.add_", "NPU.gelu", "NPU.own", "", None]
TOLERANCES = ["rtol=1e-3", "atol=0", "rtol=0.0, atol=1e-5"]
CONFTEST = """
    def pytest_probe_register(registry):
        registry.references["NPU.npu_rotary_mul"] = registry.references["NPU.own"] = lambda x: x
"""


def alone(body: str) -> str:
    return f"\ndef test_mine(probe): {body}\n"


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    texts = {
        **TEXTS,
        "no_gradient": TEXTS["one_input"].replace("probe.check(scaled", "probe.check(lambda x, *, by: x * by.detach()"),
        **{f"wrong_{n}": alone(f"checked(probe, {a}, {b})") for n, (a, b, _) in enumerate(WRONG)},
        **{
            f"meant_{n}": alone(f"probe.check(gelu, reference=gelu, inputs=[], api={api!r})")
            for n, api in enumerate(MEANT)
        },
        "known": "".join(
            f"\ndef test_{n}(probe): probe.check(gelu, reference=gelu, inputs=probe.tensor((4, 8)), api={api!r})\n"
            for n, api in enumerate(KNOWN)
        ),
        **{
            f"tolerance_{n}": alone(f"probe.check(gelu, reference=gelu, inputs=[], {each})")
            for n, each in enumerate(TOLERANCES)
        },
    }
    return suite(tmp_path_factory.mktemp("modules"), HEAD, texts, conftest=CONFTEST)


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("parameters", {"passed": 8}),
        ("functions", {"passed": 2, "failed": 1}),
        ("random", {"passed": 2, "failed": 3}),
        ("one_input", {"passed": 1}),
        ("known", {"passed": len(KNOWN)}),
    ],
)
def test_modules_and_arguments_are_judged(all_of_them: Suite, name: str, outcomes: dict[str, int]) -> None:
    assert all_of_them.of(name).outcomes == outcomes


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_wrong_module_fails_and_names_what_differs(all_of_them: Suite, number: int) -> None:
    told = all_of_them.of(f"wrong_{number}")
    assert told.outcomes == {"failed": 1}
    text = " ".join(line.removeprefix("E").strip() for line in told.text.splitlines() if line.startswith("E  "))
    pytest.LineMatcher([text]).fnmatch_lines([WRONG[number][2]])


def test_a_reference_that_draws_random_numbers_is_none(all_of_them: Suite) -> None:
    told = all_of_them.of("random")
    assert told.text.count("the reference draws random numbers and gives others in each run; ") >= 3


@pytest.mark.parametrize("number", range(len(MEANT)))
def test_a_wrong_api_says_which_is_meant(all_of_them: Suite, number: int) -> None:
    told, (api, meant) = all_of_them.of(f"meant_{number}"), [*MEANT.items()][number]
    assert told.outcomes == {"failed": 1}
    told.shows(f"E*SettingsError: api: '{api}' cannot be used; *did you mean {meant}?")


@pytest.mark.parametrize("number", range(len(TOLERANCES)))
def test_a_tolerance_is_refused_with_the_reason(all_of_them: Suite, number: int) -> None:
    told, name = all_of_them.of(f"tolerance_{number}"), TOLERANCES[number].partition("=")[0]
    assert told.outcomes == {"failed": 1}
    told.shows(f"E*SettingsError: check: {name}: * cannot be used; a check takes no tolerance: *")


def test_a_keyword_tensor_without_a_gradient_fails(all_of_them: Suite) -> None:
    told = all_of_them.of("no_gradient")
    assert told.outcomes == {"failed": 1}
    told.shows("*grad.kwargs.by [[]8[]] *: error (structure): the device gives no gradient*")
