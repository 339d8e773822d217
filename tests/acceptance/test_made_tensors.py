"""What `probe.tensor` makes, and tests that sweep shapes and dtypes."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.support.running import reports

pytestmark = pytest.mark.compat

HEAD = """
    import pytest
    import torch
    from torch.nn.functional import embedding, softmax
"""


def run(pytester: pytest.Pytester, body: str, *args: str) -> pytest.RunResult:
    pytester.makepyfile(test_mine=dedent(HEAD) + dedent(body))
    return pytester.runpytest("-p", "no:cacheprovider", *args)


def test_a_sweep_of_shapes_and_dtypes(pytester: pytest.Pytester) -> None:
    body = """
    @pytest.mark.parametrize("layout", ["contiguous", "transposed"])
    @pytest.mark.parametrize("fill", [None, "ties"])
    @pytest.mark.parametrize("dtype", ["float32", torch.bfloat16])
    @pytest.mark.parametrize("shape", [(4, 8), (3, 1), (2, 0), (5, 3, 17)])
    def test_softmax(probe, shape, dtype, fill, layout):
        x = probe.tensor(shape, dtype, fill=fill, layout=layout)
        probe.check(
            lambda x: softmax(x * (1.1 if x.shape == (4, 8) else 1), -1), reference=lambda x: softmax(x, -1), inputs=x
        )
    """
    result = run(pytester, body, "-rf", "-n1")
    result.assert_outcomes(passed=24, failed=8)
    failed = [line.split(" ")[1] for line in result.outlines if line.startswith("FAILED")]
    assert all("test_softmax[shape0-" in name for name in failed)


def test_fills_layouts_and_indices(pytester: pytest.Pytester) -> None:
    body = """
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

    def test_ties(probe):
        ties = probe.tensor((8, 64), fill="ties")
        assert 2 <= ties.unique().numel() <= 4
        assert all((row == row.max()).sum() > 1 for row in ties)
        assert not torch.equal(ties, probe.tensor((8, 64), fill="ties"))
        bounded = probe.tensor((8, 64), low=2, high=3, fill="ties")
        assert 2 <= bounded.min() <= bounded.max() <= 3

    def test_layouts(probe):
        assert probe.tensor((3, 4)).stride() == (4, 1)
        assert probe.tensor((2, 3, 4), layout="transposed").stride() == (12, 1, 3)
        assert probe.tensor((2, 3, 4, 5), layout="channels_last").is_contiguous(memory_format=torch.channels_last)
        assert probe.tensor((3, 4), layout="sliced").stride() == (5, 1)
        assert probe.tensor(4, layout="sliced").stride() == (2,)
        expanded = probe.tensor((3, 4), layout="expanded")
        assert expanded.stride() == (0, 1)
        assert torch.equal(expanded[0], expanded[2])
        for layout in ("transposed", "sliced", "expanded"):
            x = probe.tensor((6, 8), "bfloat16", layout=layout)
            seen = []
            kernel = lambda x: seen.append(x.stride()) or softmax(x, -1)
            probe.check(kernel, reference=lambda x: softmax(x, -1), inputs=x, backward=True)
            assert seen == [x.stride()]

    def test_indices(probe):
        index = probe.tensor((40, 5), index_below=7)
        assert index.dtype == torch.int64
        assert sorted(index.unique().tolist()) == list(range(7))
        assert probe.tensor((3,), "int32", index_below=1).tolist() == [0, 0, 0]
        weight = probe.tensor((7, 4))
        probe.check(embedding, reference=embedding, inputs=[index, weight], backward=True, api="Functional.embedding")
    """
    run(pytester, body).assert_outcomes(passed=4)


def test_statistics_of_another_tensor(pytester: pytest.Pytester) -> None:
    body = """
    ENTRY = {
        "type": "torch.Tensor", "dtype": "torch.float32", "shape": [64, 128], "Max": 5.5, "Min": -3.25, "Mean": 0.5,
        "Norm": 120.0, "requires_grad": False,
    }

    def near(x, top, bottom, mean, rms):
        x = x.double()
        assert (x.max(), x.min()) == (top, bottom)
        assert abs(x.mean() - mean) < 0.03
        assert abs(x.square().mean().sqrt() - rms) < 0.03

    def test_entry(probe):
        rms = 120 / (64 * 128) ** 0.5
        near(probe.tensor(like=ENTRY), 5.5, -3.25, 0.5, rms)
        other = probe.tensor((128, 256), "bfloat16", like=ENTRY)
        assert (other.dtype, other.shape) == (torch.bfloat16, (128, 256))
        near(other, 5.5, -3.25, 0.5, rms)

    def test_tensor(probe):
        known = torch.randn(64, 64, dtype=torch.float64).relu() * 3 + 1
        made = probe.tensor(like=known, layout="transposed")
        assert (made.dtype, made.shape, made.stride()) == (torch.float64, (64, 64), (1, 64))
        near(made, known.max(), known.min(), known.mean(), known.square().mean().sqrt())

    def test_zeros(probe):
        known = torch.randn(64, 64).relu()
        made = probe.tensor(like=known)
        assert abs((made == 0).double().mean() - (known == 0).double().mean()) < 0.05

    def test_mask(probe):
        known = torch.zeros(16, 16).masked_fill(torch.ones(16, 16).triu(1).bool(), -torch.inf)
        made = probe.tensor(like=known)
        assert made.isneginf().sum() == known.isneginf().sum()
        assert (made[made.isfinite()] == 0).all()

    def test_nan(probe):
        known = torch.full((8, 8), 2.0)
        known[0, :3] = torch.nan
        known[1, 1] = torch.inf
        made = probe.tensor((16, 8), like=known)
        assert (made.isnan().sum(), made.isposinf().sum(), made.isneginf().sum()) == (6, 2, 0)
        assert (made[made.isfinite()] == 2).all()

    def test_others(probe):
        integers = probe.tensor((200,), like=torch.tensor([3, 9]))
        assert (integers.min(), integers.max(), integers.dtype) == (3, 9, torch.int64)
        assert probe.tensor(like=torch.arange(16) < 5).sum() == 5
        assert probe.tensor((3,), "complex64", like=torch.ones(2, dtype=torch.complex128)).abs().allclose(torch.ones(3))
        assert probe.tensor((0, 3), like=torch.ones(2)).shape == (0, 3)
        assert probe.tensor((3,), like=torch.ones(0)).shape == (3,)
        assert probe.tensor(like=torch.tensor(2.5)).item() == 2.5
    """
    run(pytester, body).assert_outcomes(passed=6)


IMPOSSIBLE = [
    ("", "probe.tensor: shape: None cannot be used; give the sizes, or a tensor with like="),
    ("(3, -1)", "probe.tensor: shape: (3, -1) cannot be used; sizes are 0 or more"),
    ("(3,), 'float31'", "probe.tensor: dtype: 'float31' cannot be used; *"),
    ("(3,), low=1", "probe.tensor: low, high: (1, None) cannot be used; *"),
    ("(3,), fill='zero'", "probe.tensor: fill: 'zero' cannot be used; give one of zeros, * (did you mean zeros?)"),
    ("(3,), layout='channel_last'", "probe.tensor: layout: * (did you mean channels_last?)"),
    ("(3,), layout='transposed'", "*it needs a shape of 2 dimensions or more; this one is [[]3[]]"),
    ("(3,), 'float32', index_below=4", "probe.tensor: dtype: 'float32' cannot be used; indices are integers: *"),
    ("(3,), index_below=0", "probe.tensor: index_below: 0 cannot be used; *1 or more"),
    ("(3,), index_below=2, low=0, high=1", "probe.tensor: low, high and index_below: * give one of them"),
    ("like=torch.ones(2), fill='ties'", "probe.tensor: like and fill: * give one of them"),
    ("(3,), low=0, high=1, fill='ones'", "probe.tensor: low, high and fill: * give one of them"),
    ("(3,), 'int64', like=torch.ones(2)", "probe.tensor: dtype, like: ('int64', 'float32') cannot be used; *"),
    ("like='softmax'", "probe.tensor: like: 'softmax' cannot be used; give a tensor, or a tensor's entry *"),
    ("like={'dtype': 'torch.float32', 'shape': 3}", "*like.shape*"),
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What one run says of each."""
    every = [asked for asked, _ in IMPOSSIBLE]
    bodies = [f"probe.tensor({asked})" for asked in every]
    found = reports(tmp_path_factory.mktemp("impossible"), HEAD, bodies, fixture="probe")
    return dict(zip(every, found, strict=True))


@pytest.mark.parametrize(("asked", "reason"), IMPOSSIBLE)
def test_a_tensor_that_cannot_be_made(said: dict[str, str], asked: str, reason: str) -> None:
    lines = said[asked].splitlines()
    text = " ".join(line.removeprefix("E").strip() for line in lines if line.startswith("E  "))
    pytest.LineMatcher([text]).fnmatch_lines([f"*Error: {reason}"])
    pytest.LineMatcher(lines).no_fnmatch_line("*plugin/tensors.py*")
