"""Dtypes, units in the last place, error metrics and the noise ratio.

In: NumPy arrays. Out: numbers. Nothing here knows an API, a framework or a tool's verdict.
"""

# The documented tolerances, rtol and atol, of torch.testing.assert_close in torch 2.13, by dtype; of two dtypes the
# wider ones count. Others are exact.
TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
