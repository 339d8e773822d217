"""Three test suites in small, as public projects have them, each with tests that pass and tests that fail; and one of
odd operands."""

from __future__ import annotations

KERNEL = """
    # As suites of kernels have them: a launcher, a reference, `assert torch.allclose`.
    import pytest
    import torch

    def softmax_kernel(x, block):
        out = torch.empty_like(x)
        full = x.shape[0] - x.shape[0] % block
        out[:full] = torch.softmax(x[:full].float(), -1).to(x.dtype)
        out[full:] = 0
        return out

    @pytest.mark.parametrize("rows", [64, 67])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_softmax(rows, dtype):
        torch.manual_seed(0)
        x = torch.randn(rows, 128).to(dtype)
        out = softmax_kernel(x, block=32)
        expected = torch.softmax(x, -1)
        assert torch.allclose(out, expected, atol=1e-2, rtol=0), (out, expected)

    def test_add():
        x = torch.rand(98432)
        assert torch.allclose(x + x, 2 * x)

    @pytest.mark.xfail(reason="known")
    def test_known():
        assert torch.allclose(torch.ones(8), torch.zeros(8))

    @pytest.mark.skip(reason="no device")
    def test_device():
        raise AssertionError
"""
LAYER = """
    # As suites of layers have them: classes, fixtures, helpers that hide themselves, dictionaries of tensors.
    import pytest
    import torch
    from torch.testing import assert_close

    def rms_norm(x):
        wide = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return wide.to(x.dtype) * torch.linspace(0.5, 1.5, 64).to(x.dtype)

    def check_layer(actual, expected, **tolerance):
        __tracebackhide__ = True
        assert_close(actual, expected, **tolerance)

    @pytest.fixture(params=[torch.float16, torch.float32], ids=str)
    def dtype(request):
        torch.manual_seed(0)
        yield request.param
        print("torn down")

    class TestLayers:
        @pytest.mark.parametrize("tokens", [7, 83])
        def test_rms_norm(self, dtype, tokens):
            x = torch.randn(tokens, 64, dtype=dtype)
            check_layer(rms_norm(x) * 1.03, rms_norm(x), atol=1e-2, rtol=1e-2)

        def test_state(self):
            assert_close({"weight": torch.ones(4, requires_grad=True)}, {"weight": torch.ones(4)})

        def test_raises(self):
            with pytest.raises(AssertionError):
                assert_close(torch.ones(4), torch.zeros(4))

    def test_several(subtests):
        for number in range(3):
            with subtests.test(number=number):
                assert_close(torch.arange(8.0) + number % 2, torch.arange(8.0))
"""
LIBRARY = """
    # As suites of libraries on NumPy have them: unittest, numpy.testing, decimals.
    import unittest
    import numpy as np
    from numpy.testing import assert_allclose, assert_array_almost_equal

    def smoothed(values, width=3):
        return np.convolve(values, np.ones(width) / width, mode="same")

    class TestFilters(unittest.TestCase):
        def setUp(self):
            self.values = np.random.default_rng(0).normal(size=100)

        def test_mean(self):
            assert_array_almost_equal(smoothed(self.values).mean(), self.values.mean(), decimal=3)

        def test_shifted(self):
            assert_allclose(np.roll(self.values, 1), self.values, rtol=1e-3, err_msg="shifted")

        def test_steps(self):
            for width in (1, 3):
                with self.subTest(width=width):
                    assert_allclose(smoothed(self.values, width), self.values, rtol=1e-6)

    def test_shape():
        assert_allclose(np.ones((2, 3)), np.ones((3, 2)))

    def test_message():
        assert np.allclose([1.0], [2.0]), "not the same"
"""
# What a test compares may be anything.
ODD = """
    import numpy as np
    import torch
    from torch.testing import assert_close as same

    x = torch.linspace(1, 2, 64).reshape(8, 8)

    def test_meta():
        same(torch.ones(4, device="meta"), torch.ones(5, device="meta"))

    def test_sparse():
        same(torch.eye(4).to_sparse(), 2 * torch.eye(4).to_sparse())

    def test_dtypes():
        same(x, x.double())

    def test_shapes():
        same(torch.ones(3, 4), torch.ones(4, 3))

    def test_bool_and_complex():
        same(torch.ones(4, dtype=torch.bool), torch.ones(4, dtype=torch.complex64) * 1j, check_dtype=False)

    def test_complex():
        same(torch.ones(64, dtype=torch.complex64) * 1j, torch.ones(64, dtype=torch.complex64))

    def test_nan():
        same(torch.full((4, 4), float("nan")), torch.full((4, 4), float("nan")))

    def test_nan_and_numbers():
        same(torch.full((4, 4), float("nan")), torch.ones(4, 4))

    def test_empty():
        same(torch.ones(0, 4), torch.ones(4, 0))

    def test_objects():
        np.testing.assert_array_equal(np.array([object()]), np.array([object()]))

    def test_strings():
        np.testing.assert_array_equal(np.array(["a"]), np.array(["b"]))

    def test_keys():
        same({"a": x}, {"b": x})

    def test_nested():
        deep = [x]
        deep.append(deep)
        assert np.allclose(deep[0] * 2, x)

    def test_raises():
        class Tensor:
            shape, dtype = (2,), "float32"

            def __array__(self, *args, **kwargs):
                raise RuntimeError("it is gone")

        def assert_close(actual, expected):
            raise AssertionError

        assert_close.__globals__["__name__"], name = "torch.testing.mine", __name__
        try:
            assert_close(Tensor(), Tensor())
        finally:
            assert_close.__globals__["__name__"] = name
"""
SUITES = {"kernel": KERNEL, "layer": LAYER, "library": LIBRARY, "odd": ODD}
