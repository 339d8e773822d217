"""What `probe.check`, `probe.check_quantizer` and `probe.tensor` ask of a user's functions and arguments."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest
import torch

from tests.acceptance.conftest import DumpMaker, written
from tests.support.suites import Suite, suite

pytestmark = pytest.mark.compat
HEAD = """
    from dataclasses import dataclass
    from typing import Any

    import pytest
    import torch
    from torch.nn.functional import batch_norm, dropout, embedding, gelu, layer_norm, linear, softmax

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

    def scaled(x, *, by, how="up"):
        return {"up": x * by}[how]

    def normed(x):
        return batch_norm(x, None, None, training=True)

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

    def module(probe, function, reference, dtype="float32"):
        x = probe.tensor((6, 8), dtype)
        forward, backward = probe.check(function, reference=reference, inputs=x, backward=True)
        names = [output.name for verdict in (forward, backward) for output in verdict.outputs]
        return " ".join(name.replace("kwargs.module.", "") for name in names)

    def attention(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)

    def my_attention(q, k, v):
        scores = q.float() @ k.float().mT
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        rounded = weights.to(v.dtype).float()
        return (rounded @ v.float() / weights.sum(-1, keepdim=True)).to(v.dtype)

    def bordered(probe, borders, **how):
        given = [probe.tensor((4, 32, 16), "bfloat16") for _ in range(3)]
        mine = how.pop("function", lambda *args: my_attention(*args) * 1.1)
        return probe.check(mine, reference=attention, inputs=given, borders=borders, **how)
"""
# What the one-line checks are of.
GIVEN = """\
check, tensor = probe.check, probe.tensor
x, w, v = (tensor((4, 8), "bfloat16") for _ in range(3))
ones, small, wide = torch.ones(8), tensor((4, 4)), tensor((64, 256), "bfloat16")
"""
GRADIENTS = "check(product(lambda g, h: {}), reference=mul, inputs=[x, w], backward=True{})"
STRIDES = GRADIENTS.format("(g.t().contiguous().t(), h)", "{}")
RANDOM = "the reference draws random numbers and gives others in each run; "
OTHER = "borders gives other numbers than the reference in output.0: "
# A misspelt API and what is meant.
MEANT = {
    "Functional.gleu": "Functional.gelu",
    "torch.nn.functional.sofmax": "Functional.softmax",
    "gelu": "Functional.gelu",
    "Functional.svd": "Tensor.svd",
    "Tensor.ad_": "Tensor.add_",
    "NPU.npu_rotary_mull": "NPU.npu_rotary_mul",
}
KNOWN = ["Functional.gelu", "torch.nn.functional.gelu", "Torch.sigmoid", "Tensor.add_", "NPU.gelu", "NPU.own", "", None]
# What fails, and what is said.
WRONG = [
    ("check(lambda x: gelu(x.float()), reference=gelu, inputs=[x])",
     "dtype float32, the reference gives bfloat16 for these arguments; dtype=?any? allows it"),
    ("check(lambda x: gelu(x).half(), reference=gelu, inputs=[x])", "dtype float16, the reference gives *"),
    ("check(lambda x: gelu(x).half(), reference=lambda x: gelu(x.double()), inputs=[x])",
     "*float16, the reference gives*"),
    ("check(lambda x, c: (x.float().sum(0) * c).half(), reference=lambda x, c: x.sum(0) * c, inputs=[x, ones])",
     "dtype float16, the reference gives float32 *"),
    ("check(lambda x: gelu(x) > 9, reference=gelu, inputs=[x], dtype='any')", "dtype bool, the reference has float64"),
    ("check(lambda x: gelu(x)[:2], reference=gelu, inputs=[x])", "shape [[]2, 8[]], the reference has [[]4, 8[]]"),
    ("check(lambda x: [gelu(x)], reference=gelu, inputs=[x])", "returns (tensor,), the reference tensor"),
    ("check(lambda x: (x, None), reference=lambda x: (x,), inputs=[x])", "returns (tensor, None), the reference (tens"),
    ("check(lambda x: (x, x), reference=lambda x: (x,), inputs=[x])", "returns (tensor, tensor), the reference (tens"),
    ("check(lambda x: {'a': x}, reference=lambda x: {'b': x}, inputs=[x])", "returns {a: tensor}, the reference {b: "),
    ("check(lambda x: x.tolist(), reference=gelu, inputs=[x])", "returns ((float, *...*the reference tensor"),
    ("check(lambda x: x.sum().item(), reference=lambda x: x.sum(), inputs=[x])", "returns float, the reference tensor"),
    ("check(lambda x: iter(x), reference=lambda x: iter(x), inputs=[x])", "cannot be compared; return tensors, number"),
    ("check(lambda x: Both(x, x * 1.1), reference=lambda x: Both(x, x), inputs=[x])",
     "output.second [[]4, 8[]] bfloat16: error (noise)"),
    ("check(lambda x: gelu(x).t().contiguous().t(), reference=gelu, inputs=[x], strides=True)",
     "strides [[]1, 4[]], the reference has [[]8, 1[]]"),
    (GRADIENTS.format("(g[:2], h)", ""), "invalid gradient at index 0"),
    (GRADIENTS.format("(g, None)", ""),
     "grad.input.1 [[]4, 8[]] *: error (structure): the device gives no gradient"),
    (GRADIENTS.format("(g,)", ""), "returned an incorrect number of gradients"),
    (GRADIENTS.format("(g, h * 1.1)", ""), "grad.input.1 [[]4, 8[]] bfloat16: error (noise)"),
    (STRIDES.format(", strides=True"), "grad.input.0 *: strides [[]1, 4[]], its argument"),
    ("check(lambda x, *, by: x * by.detach(), reference=scaled, inputs=x, kwargs={'by': w[0]}, backward=True)",
     "grad.kwargs.by [[]8[]] *: error (structure): the device gives no gradient"),
    ("check(gelu, reference=gelu, inputs=[x], dtype='bfloat16')",
     "check: dtype: 'bfloat16' cannot be used; give *same*any"),
    ("check(gelu, reference=lambda x: x + {}, inputs=[small])", "the reference raised TypeError: "),
    ("check(gelu, reference=lambda x: torch.from_numpy(x.numpy().astype('f')), inputs=[small])",
     "gave output.0 as float32 where its "),
    ("check(print, reference=lambda x: None, inputs=[small])",
     "the reference returns nothing and changes no argument: "),
    ("check(lambda x: gelu(x).detach(), reference=gelu, inputs=[small], backward=True)",
     "no output of the device can be diff"),
    ("check(lambda x: gelu(x.add_(1)), reference=lambda x: gelu(x + 1), inputs=[small])",
     "the device changed this argument; "),
    ("check(lambda x: 0 * x, reference=dropout, inputs=tensor((64, 8)))", "512 elements in a row are dropped where p"),
    ("check(torch.nn.Linear(8, 8), reference=lambda x: torch.nn.Linear(8, 8)(x), inputs=tensor((6, 8)))", RANDOM),
    ("check(2 .__mul__, reference=lambda x: x + torch.randn(8).sum(), inputs=tensor(8))", RANDOM),
    ("module(probe, lambda x: normed(x) * 1.01, torch.nn.BatchNorm1d(8))", "output.0 [[]6, 8[]] *: error (noise)"),
    ("module(probe, Slipped(8), torch.nn.BatchNorm1d(8))",
     "kwargs.module.running_var [[]8[]] float32: error (noise)"),
    ("module(probe, Leaky(8, 8), torch.nn.Linear(8, 8))",
     "grad.kwargs.module.weight [[]8, 8[]] float32: error (noise)"),
    ("module(probe, Mean(0.9), Mean(0.8))", "kwargs.module.mean [[]8[]] float32: error (noise)"),
    ("module(probe, Gamma(), torch.nn.LayerNorm(8))",
     "name their parameters alike*: gamma of the function, weight of the "),
    ("module(probe, torch.nn.Linear(8, 4), torch.nn.Linear(8, 8))",
     "weight is [[]8, 8[]] there and [[]4, 8[]] in the function"),
    ("module(probe, Gamma(), lambda x, layer=torch.nn.Linear(8, 8): layer(x))",
     "the reference raised RuntimeError: *; it gets floating tensors as"),
    *((f"check(gelu, reference=gelu, inputs=[], api={api!r})",
       f"SettingsError: api: '{api}' cannot be used; *did you mean {meant}[?]") for api, meant in MEANT.items()),
    *((f"check(gelu, reference=gelu, inputs=[], {name}={value})",
       f"SettingsError: check: {name}: * cannot be used; a check takes no tolerance: ")
      for name, value in (("rtol", "1e-3"), ("atol", "0"), ("rtol", "0.0, atol=1e-5"))),
    ("bordered(probe, lambda *args: attention(*args) * 1.1)",
     OTHER + "they differ by up to *, and the largest is *; in float64 it must give what the reference"),
    ("bordered(probe, lambda *args: attention(*args)[0])",
     "borders gives output.0 with shape [[]32, 16[]], the reference [[]4, 32, 16[]]; in"),
    ("bordered(probe, lambda *args: (attention(*args), args[0]))",
     "borders gives output.0, output.1, the reference output.0; in float64 it must"),
    ("bordered(probe, lambda q, k, v: q.nothing)", "borders raised AttributeError: "),
    ("bordered(probe, lambda *args: attention(*args).log())", OTHER + "infinities or NaN in"),
    ("bordered(probe, lambda q, k, v: attention(q.detach(), k, v), backward=True)",
     "borders gives the gradient of input.1, input.2, the reference the gradient of"),
    ("tensor()", "Error: probe.tensor: shape: None cannot be used; give the sizes, or a tensor with like="),
    ("tensor((3, -1))", "Error: probe.tensor: shape: (3, -1) cannot be used; sizes are 0 or more"),
    ("tensor((3,), 'float31')",
     "Error: probe.tensor: dtype: 'float31' cannot be used; give one of float64, *did you mean float"),
    ("tensor((3,), low=1)", "Error: probe.tensor: low, high: (1, None) cannot be used; give both, "),
    ("tensor((3,), low=2, high=1)", "Error: probe.tensor: low, high: (2, 1) cannot be used"),
    ("tensor((3,), low=float('nan'), high=1)", "Error: probe.tensor: low, high: (nan, 1) cannot be used"),
    ("tensor((3,), fill='zero')", "Error: probe.tensor: fill: 'zero' * give one of zeros, * (did you mean zeros?)"),
    ("tensor((3,), layout='channel_last')", "Error: probe.tensor: layout: * (did you mean channels_last?)"),
    ("tensor((3,), layout='transposed')", "it needs a shape of 2 dimensions or more; this one is [[]3[]]"),
    ("tensor((3,), 'float32', index_below=4)", "tensor: dtype: 'float32' cannot be used; indices are integers: "),
    ("tensor((3,), index_below=0)", "Error: probe.tensor: index_below: 0 cannot be used; *1 or more"),
    ("tensor((3,), index_below=2, low=0, high=1)", "probe.tensor: low, high and index_below: * give one of them"),
    ("tensor(like=torch.ones(2), fill='ties')", "Error: probe.tensor: like and fill: * give one of them"),
    ("tensor((3,), low=0, high=1, fill='ones')", "Error: probe.tensor: low, high and fill: * give one of them"),
    ("tensor((3,), 'int64', like=torch.ones(2))", "tensor: dtype, like: ('int64', 'float32') cannot be used; "),
    ("tensor(like='softmax')", "tensor: like: 'softmax' cannot be used; give a tensor, or a tensor's entry "),
    ("tensor(like={'dtype': 'torch.float32', 'shape': 3})", "like.shape"),
]  # fmt: skip
RIGHT = [
    "check(lambda x: gelu(x.float()), reference=gelu, inputs=[x], dtype='any')",
    "check(lambda x: gelu(x).t().contiguous().t(), reference=gelu, inputs=[x])",
    "check(lambda x: gelu(x.double()), reference=lambda x: gelu(x.double()), inputs=[x])",
    # The reference computes wider and returns that, the kernel rounds at its end.
    "check(gelu, reference=lambda x: gelu(x.double()), inputs=[x])",
    "check(gelu, reference=lambda x: gelu(x.float()), inputs=[x], backward=True)",
    "check(lambda x, c: (x * c).to(x.dtype), reference=lambda x, c: x * c, inputs=[x, ones])",
    "check(lambda x: [x, {'a': x}], reference=lambda x: (x, {'a': x}), inputs=[x])",
    "check(lambda x: x.sum().item(), reference=lambda x: x.sum().item(), inputs=[x])",
    "check(lambda x: Both(x, 2 * x), reference=lambda x: Both(x, 2 * x), inputs=[x], backward=True)",
    "check(lambda x, w: x @ w.t(), reference=lambda x, w: x @ w.t(), inputs=[x, w], strides=True, backward=True)",
    "check(lambda x: x.t(), reference=lambda x: x.t(), inputs=[x], strides=True, backward=True)",
    # Its shape hangs on its values, so that the reference has to run.
    "check(lambda x: x[x > 0], reference=lambda x: x[x > 0], inputs=[x], strides=True)",
    # Nothing tells what it gives in other dtypes than float64.
    "check(lambda x: gelu(x.float()), reference=lambda x: gelu(x + torch.zeros(8).double() @ torch.eye(8)), inputs=[x],"
    " dtype='any')",
    "check(mul, reference=mul, inputs=[x], kwargs={'w': w}, backward=True)",
    GRADIENTS.format("(g, h)", ""),
    STRIDES.format(""),
    "check(dropout, reference=dropout, inputs=tensor((64, 8)), api='Functional.dropout')",
    # Random numbers that nothing of the result hangs on.
    "check(lambda x: 2 * x, reference=lambda x: (torch.nn.Linear(8, 8), 2 * x)[1], inputs=tensor((64, 8)))",
    *(f"check(gelu, reference=gelu, inputs=small, api={api!r})" for api in KNOWN),
]
TEXTS = {
    "modules": """
    def test_layer_norm(probe):
        mine = torch.nn.LayerNorm(8, dtype=torch.bfloat16)
        assert module(probe, mine, mine, "bfloat16") == "output.0 grad.input.0 grad.weight grad.bias"

    def test_another_layer_norm(probe):
        other = torch.nn.LayerNorm(8)
        torch.nn.init.normal_(other.weight)
        mine = torch.nn.LayerNorm(8, dtype=torch.float16)
        # The reference has the parameters of the function.
        assert module(probe, mine, other, "float16") == "output.0 grad.input.0 grad.weight grad.bias"

    def test_training(probe):
        mine = torch.nn.BatchNorm1d(8)
        before = {name: tensor.clone() for name, tensor in mine.state_dict().items()}
        changed = "num_batches_tracked running_mean running_var"
        found = module(probe, mine, torch.nn.BatchNorm1d(8))
        assert found == f"output.0 {changed} grad.input.0 grad.weight grad.bias"
        assert all(torch.equal(tensor, before[name]) for name, tensor in mine.state_dict().items())
        assert all(parameter.grad is None for parameter in mine.parameters())

    def test_nested_and_tied(probe):
        mine = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        mine[1].weight = mine[0].weight
        assert module(probe, mine, mine) == "output.0 grad.input.0 grad.0.weight grad.0.bias grad.1.bias"

    def test_compiled(probe):
        mine = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
        found = module(probe, torch.compile(mine, backend="eager"), mine)
        assert found == "output.0 grad.input.0 grad.0.weight grad.0.bias"

    def test_others(probe):
        mine = torch.nn.BatchNorm1d(8).eval()
        assert module(probe, mine, mine) == "output.0 grad.input.0 grad.weight grad.bias"
        mine = torch.nn.Linear(8, 4).requires_grad_(False)
        assert module(probe, mine, mine) == "output.0 grad.input.0"
        assert module(probe, Mean(0.9), Mean(0.9)) == "output.0 mean grad.input.0"
        assert module(probe, torch.nn.BatchNorm1d(8), normed) == "output.0 grad.input.0"
        mine = torch.nn.BatchNorm1d(8)
        assert module(probe, normed, mine) == "output.0 grad.input.0"
        assert not mine.num_batches_tracked

    def test_one_input(probe):
        x, by = probe.tensor((4, 8)), probe.tensor(8)
        forward, backward = probe.check(scaled, reference=scaled, inputs=x, kwargs={"by": by}, backward=True)
        assert [output.name for output in backward.outputs] == ["grad.input.0", "grad.kwargs.by"]
        assert backward.outputs[1].shape == (8,)

    def test_autocast(probe):
        x = torch.ones((4, 8))
        with torch.autocast(probe.device, torch.bfloat16):
            probe.check(linear, reference=linear, inputs=[x, x])
    """,
    "borders": """
    def test_attention(probe):
        def borders(q, k, v):
            scores = q @ k.mT
            weights = torch.exp(scores - scores.amax(-1, keepdim=True))
            return probe.border(weights) @ v / weights.sum(-1, keepdim=True)

        found = bordered(probe, borders, function=my_attention, backward=True)
        assert found[0].outputs[0].reason == "rounds at its borders"
        with pytest.raises(AssertionError, match="(?s)no.{1,3}rounding at its borders: RMS"):
            bordered(probe, borders, function=lambda *args: my_attention(*args) * 1.02)
        found = bordered(probe, None, function=my_attention)
        assert found[0].outputs[0].reason == "rounds the operands of its products to 16 bit"
        x = probe.tensor((3,), "bfloat16")
        assert probe.border(x) is x

    class Layers(torch.nn.Module):
        def __init__(self, border=lambda tensor: tensor):
            super().__init__()
            self.first, self.second = torch.nn.Linear(64, 96), torch.nn.Linear(96, 32)
            self.border = border

        def forward(self, x):
            return self.second(self.border(self.first(x)))

    class Once(Layers):
        def forward(self, x):
            wide = linear(x.double(), self.first.weight.double(), self.first.bias.double())
            weight, bias = self.second.weight.double(), self.second.bias.double()
            return linear(wide.to(x.dtype).double(), weight, bias).to(x.dtype)

    class Merged(Layers):
        def forward(self, x):
            return linear(x, self.second.weight @ self.first.weight, self.second(self.first.bias))

    def test_module(probe):
        # With one in a hundred of a module's parameters an element of a gradient is unstable.
        torch.manual_seed(0)
        x = probe.tensor((16, 64), "bfloat16")
        mine = Once().to(torch.bfloat16)
        probe.check(mine, reference=Merged(), inputs=x, borders=Layers(probe.border), backward=True)
    """,
    "tensors": """
    def test_ranges(probe):
        x = probe.tensor((2, 50), torch.float16, low=-3, high=5)
        assert (x.shape, x.dtype, x.min().item(), x.max().item()) == ((2, 50), torch.float16, -3, 5)
        index = probe.tensor((200,), "int32", low=2, high=4)
        assert (index.dtype, set(index.tolist())) == (torch.int32, {2, 3, 4})
        assert probe.tensor((10,), torch.bool).sum() == 5
        assert probe.tensor((), "complex64").shape == ()
        assert abs(probe.tensor((10_000,)).std().item() - 1) < 0.03
        assert probe.device == "cpu"

    @pytest.mark.parametrize("layout", ["contiguous", "transposed"])
    @pytest.mark.parametrize("fill", [None, "ties"])
    @pytest.mark.parametrize("dtype", ["float32", torch.bfloat16])
    @pytest.mark.parametrize("shape", [(4, 8), (3, 1), (2, 0), (5, 3, 17)])
    def test_sweep(probe, shape, dtype, fill, layout):
        x = probe.tensor(shape, dtype, fill=fill, layout=layout)
        probe.check(
            lambda x: softmax(x * (1.1 if x.shape == (4, 8) else 1), -1), reference=lambda x: softmax(x, -1), inputs=x
        )

    def test_fills(probe):
        assert not probe.tensor((3, 4), fill="zeros").any()
        assert (probe.tensor((3, 4), "bfloat16", fill="ones") == 1).all()
        assert probe.tensor((2, 2), "bool", fill="ones").all()
        ramp = probe.tensor((3, 4), fill="ramp")
        assert torch.equal(ramp, torch.linspace(-1, 1, 12, dtype=torch.float64).float().reshape(3, 4))
        assert probe.tensor(5, "float64", low=0, high=8, fill="ramp").tolist() == [0, 2, 4, 6, 8]
        assert probe.tensor((2, 3), "int32", fill="ramp").tolist() == [[0, 1, 2], [3, 4, 5]]
        assert probe.tensor(300, "uint8", fill="ramp")[254:258].tolist() == [254, 255, 0, 1]
        assert probe.tensor(5, "int64", low=-4, high=4, fill="ramp").tolist() == [-4, -2, 0, 2, 4]
        assert probe.tensor(0, fill="ramp").numel() == 0
        ties = probe.tensor((8, 64), fill="ties")
        assert 2 <= ties.unique().numel() <= 4
        assert all((row == row.max()).sum() > 1 for row in ties)
        assert not torch.equal(ties, probe.tensor((8, 64), fill="ties"))
        bounded = probe.tensor((8, 64), low=2, high=3, fill="ties")
        assert 2 <= bounded.min() <= bounded.max() <= 3

    layouts = torch.t, lambda x: x[:, ::2], lambda x: x[:1].expand(6, 8), lambda x: x[1:, 1:]

    def test_layouts(probe):
        assert probe.tensor((3, 4)).stride() == (4, 1)
        assert probe.tensor((2, 3, 4), layout="transposed").stride() == (12, 1, 3)
        assert probe.tensor((2, 3, 4, 5), layout="channels_last").is_contiguous(memory_format=torch.channels_last)
        assert probe.tensor((3, 4), layout="sliced").stride() == (5, 1)
        assert probe.tensor(4, layout="sliced").stride() == (2,)
        expanded = probe.tensor((3, 4), layout="expanded")
        assert expanded.stride() == (0, 1)
        assert torch.equal(expanded[0], expanded[2])
        made = [probe.tensor((6, 8), "bfloat16", layout=each) for each in ("transposed", "sliced", "expanded")]
        for x in (*made, *(change(probe.tensor((6, 8))) for change in layouts)):
            seen = []
            kernel = lambda x: seen.append((x.stride(), x.shape)) or softmax(x, -1)
            probe.check(kernel, reference=lambda x: softmax(x, -1), inputs=x, backward=True)
            assert seen == [(x.stride(), x.shape)]

    def test_indices(probe):
        index = probe.tensor((40, 5), index_below=7)
        assert index.dtype == torch.int64
        assert sorted(index.unique().tolist()) == list(range(7))
        assert probe.tensor((3,), "int32", index_below=1).tolist() == [0, 0, 0]
        weight = probe.tensor((7, 4))
        probe.check(embedding, reference=embedding, inputs=[index, weight], backward=True, api="Functional.embedding")

    ENTRY = {
        "type": "torch.Tensor", "dtype": "torch.float32", "shape": [64, 128], "Max": 5.5, "Min": -3.25, "Mean": 0.5,
        "Norm": 120.0, "requires_grad": False,
    }

    def near(x, top, bottom, mean, rms):
        x = x.double()
        assert (x.max(), x.min()) == (top, bottom)
        assert abs(x.mean() - mean) < 0.03
        assert abs(x.square().mean().sqrt() - rms) < 0.03

    def test_like_an_entry(probe):
        rms = 120 / (64 * 128) ** 0.5
        near(probe.tensor(like=ENTRY), 5.5, -3.25, 0.5, rms)
        other = probe.tensor((128, 256), "bfloat16", like=ENTRY)
        assert (other.dtype, other.shape) == (torch.bfloat16, (128, 256))
        near(other, 5.5, -3.25, 0.5, rms)

    def test_like_a_tensor(probe):
        known = torch.randn(64, 64, dtype=torch.float64).relu() * 3 + 1
        made = probe.tensor(like=known, layout="transposed")
        assert (made.dtype, made.shape, made.stride()) == (torch.float64, (64, 64), (1, 64))
        near(made, known.max(), known.min(), known.mean(), known.square().mean().sqrt())
        zeros = torch.randn(64, 64).relu()
        assert abs((probe.tensor(like=zeros) == 0).double().mean() - (zeros == 0).double().mean()) < 0.05
        integers = probe.tensor((200,), like=torch.tensor([3, 9]))
        assert (integers.min(), integers.max(), integers.dtype) == (3, 9, torch.int64)
        assert probe.tensor(like=torch.arange(16) < 5).sum() == 5
        assert probe.tensor((3,), "complex64", like=torch.ones(2, dtype=torch.complex128)).abs().allclose(torch.ones(3))
        assert probe.tensor((0, 3), like=torch.ones(2)).shape == (0, 3)
        assert probe.tensor((3,), like=torch.ones(0)).shape == (3,)
        assert probe.tensor(like=torch.tensor(2.5)).item() == 2.5

    def test_like_what_is_not_finite(probe):
        known = torch.zeros(16, 16).masked_fill(torch.ones(16, 16).triu(1).bool(), -torch.inf)
        made = probe.tensor(like=known)
        assert made.isneginf().sum() == known.isneginf().sum()
        assert (made[made.isfinite()] == 0).all()
        known = torch.full((8, 8), 2.0)
        known[0, :3] = torch.nan
        known[1, 1] = torch.inf
        made = probe.tensor((16, 8), like=known)
        assert (made.isnan().sum(), made.isposinf().sum(), made.isneginf().sum()) == (6, 2, 0)
        assert (made[made.isfinite()] == 2).all()
    """,
    "recorded": """
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
    """,
}
CONFTEST = """
    def pytest_probe_register(registry):
        registry.references["NPU.npu_rotary_mul"] = registry.references["NPU.own"] = lambda x: x
"""
# Of torch 2.8 and newer, which have float4.
MINE = """
    import numpy as np
    import pytest_probe
    from torch.testing._internal.common_quantized import to_mxfp

    def mxfp8(x):
        scales, values = to_mxfp(x, format="mxfp8")
        return values, scales

    def mxfp4(x):
        scales, values = to_mxfp(x, format="mxfp4")
        return values, scales

    def last_rows_late(x):
        values, scales = mxfp8(x)
        scales = scales.view(torch.uint8).clone()
        scales[-1] = scales[0]
        return values, scales.view(torch.float8_e8m0fnu)

    def test_quantizers(probe):
        x = probe.tensor((64, 256), "bfloat16")
        for quantizer, recipe in ((mxfp8, "mxfp8"), (mxfp4, "mxfp4")):
            found = probe.check_quantizer(quantizer, x, recipe=recipe, rule="rceil")
            assert (found.verdict, [output.name for output in found.outputs]) == ("pass", ["scales", "elements"])
        values, scales = mxfp8(x)
        numbers = pytest_probe.dequantize(values, scales, "mxfp8")
        assert np.abs(numbers - x.double().numpy()).max() <= 0.25
"""
QUANTIZERS = [
    ("last_rows_late, wide, recipe='mxfp8', rule='rceil'", "scales follow no rule: * blocks of 512 are unlike rceil; "),
    ("mxfp8, wide, recipe='mxfp8', rule='floor'", "scales follow rceil, not floor: "),
    ("mxfp8, wide, recipe='fp8'", "the recipe is 'fp8', expected one of TensorWise, RowWise"),
    ("mxfp8, wide, recipe='mxfp8', rule='round'", "quantizer: rule: 'round' cannot be used; give one of"),
    ("mxfp8, wide, recipe='mxfp8', rounding='up'", "quantizer: rounding: 'up' cannot be used"),
    ("mxfp8, wide, recipe='nvfp4'", "the quantiser gave BlockWise1x16: scales of float8_e8m0fnu, expected"),
    ("lambda x: x, wide, recipe='mxfp8'", "the quantiser gave 1 outputs"),
    ("lambda x: 1 / 0, wide, recipe='mxfp8'", "cpu raised ZeroDivisionError"),
] * hasattr(torch, "float4_e2m1fn_x2")


def functions(name: str, bodies: list[str]) -> str:
    return "".join(
        f"\ndef test_{name}_{number}(probe):\n{indent(GIVEN + body, '    ')}\n" for number, body in enumerate(bodies)
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """One run of all of them."""
    folder = tmp_path_factory.mktemp("checks")
    written(folder / "dump.json")
    quantizers = [f"probe.check_quantizer({check})" for check, _ in QUANTIZERS]
    texts = {
        **TEXTS,
        "wrong": functions("wrong", [check for check, _ in WRONG]),
        "right": functions("right", RIGHT),
        **({"quantizers": dedent(MINE) + functions("quantizer", quantizers)} if quantizers else {}),
    }
    return suite(folder, HEAD, texts, "-v", conftest=CONFTEST)


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("modules", {"passed": 8}),
        ("borders", {"passed": 2}),
        ("tensors", {"passed": 7 + 24, "failed": 8}),
        ("recorded", {"passed": 9, "failed": 16}),
        ("right", {"passed": len(RIGHT)}),
        ("wrong", {"failed": len(WRONG)}),
    ],
)
def test_what_is_promised_passes_and_nothing_else(told: Suite, name: str, outcomes: dict[str, int]) -> None:
    assert told.of(name).outcomes == outcomes


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *((f"wrong_{number}", reason) for number, (_, reason) in enumerate(WRONG)),
        *((f"quantizer_{number}", reason) for number, (_, reason) in enumerate(QUANTIZERS)),
    ],
)
def test_what_is_not_as_promised_is_said(told: Suite, name: str, reason: str) -> None:
    found = told.of(name)
    assert found.outcomes == {"failed": 1}
    text = " ".join(line.removeprefix("E").strip() for line in found.text.splitlines() if line.startswith("E  "))
    pytest.LineMatcher([text]).fnmatch_lines([f"*{reason}*"])
    found.shows_not("*plugin/tensors.py*")


def test_a_sweep_of_shapes_and_dtypes_fails_where_the_kernel_does(told: Suite) -> None:
    failed = [line for line in told.run.result.outlines if "test_sweep[" in line and " FAILED" in line]
    assert len(failed) == 8
    assert all("test_sweep[shape0-" in line for line in failed)


def test_a_recorded_call_promises_what_was_recorded(told: Suite) -> None:
    """In float32, float() changes nothing; both with strides and without."""
    passed = [line for line in told.run.result.outlines if "test_recorded.py::test_mine" in line and "PASSED" in line]
    found = {name: sum(f"-{name}-" in line for line in passed) for name in ("float", "half", "list", "short", "column")}
    assert found == {"float": 2, "half": 0, "list": 0, "short": 0, "column": 2}


@pytest.mark.skipif(not QUANTIZERS, reason="torch has no float4 before 2.8")
def test_torchs_own_quantisers_follow_rceil(told: Suite) -> None:
    assert told.of("quantizers").outcomes == {"passed": 1, "failed": len(QUANTIZERS)}


def test_a_call_that_is_judged_in_samples(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makepyfile("""
        import pytest, torch

        @pytest.mark.parametrize("wrong", ["clone()", "half()", "t().contiguous().t()"])
        @pytest.mark.probe(dump="dump.json", api="Functional.linear")
        def test_mine(probe_case, wrong):
            probe_case.check(eval("out." + wrong, {"out": torch.nn.functional.linear(*probe_case.args)}), strides=True)
    """)
    result = pytester.runpytest("--probe-flops=1")
    result.assert_outcomes(passed=1, failed=2)
    assert sum("output.0 [2, 4] float" in line and ": error (structure): " in line for line in result.outlines) == 2
