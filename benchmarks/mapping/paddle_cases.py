"""What the arguments of Paddle's APIs may be in a proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.mapping.drawing import (
    ABSENT,
    Drawn,
    Group,
    bool_,
    complex_,
    definite,
    fixed,
    float_,
    int32,
    int_,
    matrix,
    positive,
    unit,
)
from pytest_probe.model.dump import DtypeSpec

SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (), (0, 3), (5,), (2, 1, 4))
# Shapes of two tensors, of which one is stretched.
BROADCAST = (((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 4)), ((), (3,)), ((0, 3), (1,)), ((4,), ()))
F64, I64, I32, BOOL = DtypeSpec("float64"), DtypeSpec("int64"), DtypeSpec("int32"), DtypeSpec("bool")
F = "paddle.nn.functional."


def unary(made: Any = float_, name: str = "x", **further: Sequence[Any]) -> list[Group]:
    return [{name: [made(*shape) for shape in SHAPES], **further}]


def binary(first: Any = float_, second: Any = None, names: str = "x y", **further: Sequence[Any]) -> list[Group]:
    a, b = names.split()
    second = second or first
    return [{a: [first(*one)], b: [second(*two)], **further} for one, two in BROADCAST]


def whole(*shape: int) -> Drawn:
    return int_(9, *shape, low=1)


def distinct(*shape: int) -> Drawn:
    """Numbers of which no two are equal or close."""
    return Drawn(
        lambda random: (random.permutation(int(np.prod(shape, dtype=int))).astype(float) - 2.5).reshape(shape) * 0.37
    )


def shares(*shape: int) -> Drawn:
    """Numbers above 0 that add up to 1 along the last dimension."""

    def made(random: np.random.Generator) -> np.ndarray:
        values = random.uniform(0.1, 1.0, shape)
        return np.asarray(values / values.sum(-1, keepdims=True))

    return Drawn(made)


def small(*shape: int) -> Drawn:
    return Drawn(lambda random: random.uniform(-0.9, 0.9, shape))


def above_one(*shape: int) -> Drawn:
    return Drawn(lambda random: random.uniform(1.1, 4.0, shape))


def odd(*shape: int) -> Drawn:
    """With NaN and infinities."""

    def made(random: np.random.Generator) -> np.ndarray:
        values = random.standard_normal(shape)
        flat = values.reshape(-1)
        flat[::3] = np.array([np.nan, np.inf, -np.inf])[random.integers(3)]
        return values

    return Drawn(made)


def some_nan(*shape: int) -> Drawn:
    def made(random: np.random.Generator) -> np.ndarray:
        values = random.standard_normal(shape)
        values.reshape(-1)[::7] = np.nan
        return values

    return Drawn(made)


AXIS: dict[str, Sequence[Any]] = {"axis": [ABSENT, None, 0, -1, [0, 1]], "keepdim": [ABSENT, False, True]}


def reduced(made: Any = distinct, axis: str = "axis", **further: Sequence[Any]) -> list[Group]:
    found = {axis: AXIS["axis"], "keepdim": AXIS["keepdim"]}
    return [
        {"x": [made(2, 3, 4)], **found, **further},
        {"x": [made(), made(5)], axis: [ABSENT, None, 0], "keepdim": AXIS["keepdim"]},
        {"x": [made(2, 0)], axis: [1, 0], "keepdim": [ABSENT, True]},
    ]


def along(made: Any = float_, axis: str = "axis", **further: Sequence[Any]) -> list[Group]:
    return [
        {"x": [made(2, 3, 4), made(3, 2, 2)], axis: [ABSENT, 0, 1, -1, -2], **further},
        {"x": [made(5), made()], axis: [ABSENT, 0, -1], **further},
        {"x": [made(0, 3)], axis: [1, 0], **further},
    ]


REDUCTION = ["mean", "sum", "none"]


def loss(made: Any = float_, target: Any = None, names: str = "input label", **further: Sequence[Any]) -> list[Group]:
    a, b = names.split()
    target = target or made
    return [
        {a: [made(*shape)], b: [target(*shape)], "reduction": [ABSENT, *REDUCTION], **further}
        for shape in ((3, 4), (5,), (2, 3, 2), ())
    ]


_ODD_ABLE = "isnan isinf isfinite".split()
_ONE = (
    "exp expm1 sin cos tan sinh cosh tanh asinh atan floor ceil trunc frac sign erf i0 i0e i1 i1e deg2rad rad2deg neg "
    "abs square"
).split()
CASES: dict[str, Sequence[Group]] = {
    **{f"paddle.{name}": unary() for name in _ONE if name != "trunc"},
    "paddle.trunc": unary(name="input"),
    **{
        f"paddle.{name}": unary(positive)
        for name in "log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma".split()
    },
    **{f"paddle.{name}": unary(small) for name in "asin acos atanh erfinv".split()},
    "paddle.acosh": unary(above_one),
    **{f"paddle.{name}": unary(complex_) for name in "real imag".split()},
    "paddle.conj": [*unary(complex_), *unary()],
    "paddle.angle": [*unary(complex_), *unary()],
    **{f"paddle.{name}": unary(odd) for name in _ODD_ABLE},
    "paddle.isreal": [*unary(), *unary(complex_)],
    "paddle.signbit": unary(),
    "paddle.logical_not": [*unary(bool_), *unary()],
    "paddle.bitwise_not": [*unary(bool_), *unary(whole)],
    "paddle.round": unary(decimals=[ABSENT, 0, 1, 2, -1]),
    "paddle.nan_to_num": unary(odd, nan=[ABSENT, 0.0, 2.5], posinf=[ABSENT, 7.0], neginf=[ABSENT, -8.0]),
    "paddle.clip": unary(min=[ABSENT, None, -0.4, -0.1], max=[ABSENT, None, 0.3, 0.6]),
    "paddle.scale": unary(
        scale=[ABSENT, 2.5, -0.5],
        bias=[ABSENT, 0.7, -1.0],
        bias_after_scale=[ABSENT, True, False],
        act=[None, "tanh", "exp"],
    ),
    **{
        name: [*unary(dtype=[F64, I64, BOOL, I32]), *unary(whole, dtype=[F64, BOOL])]
        for name in ("paddle.cast", "paddle.Tensor.cast")
    },
    "paddle.Tensor.astype": [
        *unary(name="self", dtype=[F64, I64, BOOL, I32]),
        *unary(whole, "self", dtype=[F64, BOOL]),
    ],
    "paddle.assign": unary(),
    "paddle.clone": unary(),
    "paddle.Tensor.clone": unary(name="self"),
    "paddle.Tensor.detach": unary(name="self"),
    "paddle.Tensor.__neg__": unary(name="var"),
    "paddle.Tensor.__abs__": unary(name="var"),
    "paddle.increment": [{"x": [float_(1)], "value": [ABSENT, 2.0, -0.5]}],
    **{
        F + name: unary()
        for name in "relu relu6 sigmoid tanh silu swish mish softsign tanhshrink log_sigmoid hardswish".split()
    },
    F + "hardsigmoid": unary(slope=[ABSENT, 0.2, 0.5], offset=[ABSENT, 0.3]),
    F + "hardtanh": unary(min=[ABSENT, -0.3], max=[ABSENT, 0.4]),
    F + "hardshrink": unary(threshold=[ABSENT, 0.2, 0.9]),
    F + "softshrink": unary(threshold=[ABSENT, 0.2, 0.9]),
    F + "leaky_relu": unary(negative_slope=[ABSENT, 0.2, 0.5]),
    F + "elu": unary(alpha=[ABSENT, 0.3, 2.0]),
    F + "celu": unary(alpha=[ABSENT, 0.3, 2.0]),
    F + "selu": unary(scale=[ABSENT, 1.5], alpha=[ABSENT, 0.7]),
    F + "softplus": unary(beta=[ABSENT, 2.0, 0.5], threshold=[ABSENT, 1.0, 5.0]),
    F + "gelu": unary(approximate=[ABSENT, False, True]),
    F + "prelu": [
        {"x": [float_(2, 3, 4)], "weight": [unit(1), unit(3)], "data_format": [ABSENT, "NCHW"]},
        {"x": [float_(2, 4, 4, 3)], "weight": [unit(1), unit(3)], "data_format": ["NHWC"]},
    ],
    F + "thresholded_relu": unary(threshold=[ABSENT, 0.3, -0.2], value=[ABSENT, 0.5]),
    F + "glu": [{"x": [float_(4, 6), float_(2, 4)], "axis": [ABSENT, 0, 1, -1]}],
    "paddle.add": binary(alpha=[ABSENT, 1, 2.0]),
    "paddle.subtract": binary(alpha=[ABSENT, 1, 2.0]),
    "paddle.multiply": [*binary(), *binary(complex_)],
    "paddle.divide": binary(float_, positive, rounding_mode=[ABSENT, None, "trunc", "floor"]),
    "paddle.pow": [*binary(positive, float_), *unary(positive, y=[2, 0.5, -1.5, 3.0])],
    **{
        f"paddle.{name}": [*binary(float_, positive), *binary(whole)]
        for name in "remainder mod floor_mod floor_divide".split()
    },
    **{
        f"paddle.{name}": binary()
        for name in "maximum minimum fmax fmin atan2 hypot logaddexp heaviside copysign".split()
    },
    "paddle.lerp": [*binary(weight=[float_(1), 0.3, 0.8])],
    **{f"paddle.logical_{name}": [*binary(bool_), *binary(whole)] for name in "and or xor".split()},
    **{f"paddle.bitwise_{name}": [*binary(bool_), *binary(whole)] for name in "and or xor".split()},
    **{
        f"paddle.bitwise_{name}_shift": [
            *binary(lambda *s: int_(90, *s, low=-90), lambda *s: int_(5, *s), is_arithmetic=[ABSENT, True, False])
        ]
        for name in ("left", "right")
    },
    **{
        f"paddle.{name}": [*binary(lambda *s: int_(3, *s)), *binary()]
        for name in "equal not_equal less_than less_equal greater_than greater_equal".split()
    },
    **{
        f"paddle.{name}": [
            {
                "x": [fixed([1.0, 2.0, np.nan]), fixed([1.0, 2.0, 3.0])],
                "y": [fixed([1.0, 2.001, np.nan]), fixed([1.0, 2.0, 3.1])],
                "rtol": [ABSENT, 0.1],
                "atol": [ABSENT, 0.2],
                "equal_nan": [ABSENT, False, True],
            }
        ]
        for name in ("isclose", "allclose")
    },
    "paddle.equal_all": binary(lambda *s: int_(2, *s)),
    "paddle.add_n": [{"inputs": [[float_(2, 3)] * 3, [float_()] * 2, float_(3), [float_(0, 2)] * 2, [float_(2)]]}],
    **{
        f"paddle.Tensor.__{name}__": [*binary(), {"x": [float_(2, 3), float_()], "y": [2.0, -1.5, 3]}]
        for name in "add sub mul".split()
    },
    **{
        f"paddle.Tensor.__{name}__": [{"x": [float_(2, 3), float_(), float_(0, 2)], "y": [2.0, -1.5, 3]}]
        for name in "radd rsub rmul".split()
    },
    **{
        f"paddle.Tensor.__{name}__": [*binary(float_, positive), {"x": [float_(2, 3), float_(4)], "y": [2.0, 1.5, 3]}]
        for name in "div truediv floordiv mod".split()
    },
    **{
        f"paddle.Tensor.__{name}__": [{"x": [positive(2, 3), positive(), positive(0, 2)], "y": [2.0, 1.5, 3]}]
        for name in "rtruediv rdiv rpow".split()
    },
    "paddle.Tensor.__pow__": [*binary(positive, float_), {"x": [positive(2, 3), positive()], "y": [2.0, 1.5, 3]}],
    **{
        f"paddle.Tensor.__{name}__": [
            *binary(lambda *s: int_(3, *s)),
            {"x": [float_(2, 3), float_()], "y": [0.0, 1.5, 1]},
        ]
        for name in "eq ne lt le gt ge".split()
    },
    **{f"paddle.Tensor.__{name}__": [*binary(bool_), *binary(whole)] for name in "and or xor".split()},
    "paddle.Tensor.__invert__": [*unary(bool_), *unary(whole)],
    **{
        f"paddle.Tensor.__{name}__": binary(
            lambda *s: int_(90, *s, low=-90), lambda *s: int_(5, *s), is_arithmetic=[ABSENT, True, False]
        )
        for name in ("lshift", "rshift")
    },
    "paddle.incubate.nn.functional.swiglu": [
        {"x": [float_(2, 6), float_(4)], "y": [ABSENT, None]},
        {"x": [float_(2, 3)], "y": [float_(2, 3)]},
    ],
    F + "dropout": [
        *unary(
            p=[ABSENT, 0.3, 0.0],
            axis=[ABSENT, None],
            training=[False],
            inplace=[ABSENT, False],
            mode=[ABSENT, "upscale_in_train", "downscale_in_infer"],
        ),
        {
            "x": [float_(2, 3)],
            "p": [0.0],
            "axis": [0, [0, 1]],
            "training": [True],
            "mode": ["upscale_in_train", "downscale_in_infer"],
            "inplace": [True, False],
        },
    ],
    "paddle.incubate.nn.functional.fused_dropout_add": [
        {
            "x": [float_(2, 3)],
            "y": [float_(2, 3)],
            "p": [0.3, 0.0],
            "training": [False],
            "mode": [ABSENT, "downscale_in_infer"],
        },
        {
            "x": [float_(2, 3)],
            "y": [float_(2, 3)],
            "p": [0.0, 0],
            "training": [ABSENT, True],
            "mode": [ABSENT, "upscale_in_train"],
        },
    ],
    # Shapes.
    "paddle.concat": [
        {"x": [[float_(2, 3), float_(4, 3)], [float_(1, 2), float_(0, 2)]], "axis": [ABSENT, 0, -2]},
        {"x": [[float_(2, 3), float_(2, 1), float_(2, 2)]], "axis": [1, -1]},
    ],
    "paddle.stack": [
        {"x": [[float_(2, 3), float_(2, 3)], [float_(4, 1)] * 3], "axis": [ABSENT, 0, 1, -1]},
        {"x": [[float_()] * 2, [float_(0)] * 2]},
    ],
    **{
        f"paddle.{name}": [{"x": [[float_(2, 3), float_(2, 3)], [float_(1, 2)] * 3, [float_(2)] * 2, [float_()] * 3]}]
        for name in "hstack vstack dstack column_stack row_stack".split()
    },
    "paddle.split": [
        {"x": [float_(4, 6)], "num_or_sections": [2, [1, 3], [1, -1], [4]], "axis": [ABSENT, 0, -2]},
        {"x": [float_(4, 6)], "num_or_sections": [3, [1, 2, 3], [2, -1, 1], 6], "axis": [1, -1]},
    ],
    "paddle.chunk": [{"x": [float_(4, 6)], "chunks": [1, 2], "axis": [ABSENT, 0, 1, -1]}],
    "paddle.tensor_split": [
        {"x": [float_(5, 6), float_(3, 2)], "num_or_indices": [2, 3, [1, 2]], "axis": [ABSENT, 0, 1, -1]}
    ],
    "paddle.hsplit": [{"x": [float_(5, 6), float_(4)], "num_or_indices": [2, [1, 2]]}],
    "paddle.vsplit": [{"x": [float_(6, 2), float_(4, 3)], "num_or_indices": [2, [1, 2]]}],
    "paddle.unstack": along(),
    "paddle.unbind": [{"input": [float_(2, 3), float_(3)], "axis": [ABSENT, 0, -1]}],
    "paddle.transpose": [
        {"x": [float_(2, 3, 4), float_(0, 2, 1)], "perm": [[0, 2, 1], [2, 0, 1], [-1, 0, 1]]},
        {"x": [float_(2, 3)], "perm": [[1, 0], [0, 1]]},
        {"x": [float_()], "perm": [[]]},
    ],
    "paddle.t": [{"input": [float_(2, 3), float_(4), float_(), float_(0, 2)]}],
    "paddle.moveaxis": [
        {"x": [float_(2, 3, 4)], "source": [0, 1], "destination": [2, 1, -1]},
        {"x": [float_(2, 3, 4)], "source": [[0, 1]], "destination": [[2, 0]]},
    ],
    "paddle.swapaxes": [{"x": [float_(2, 3, 4)], "axis0": [0, 1, -1], "axis1": [2, 0]}],
    "paddle.reshape": [
        {"x": [float_(2, 3, 4)], "shape": [[-1], [4, 6], [0, -1], [2, 0, 2, 2], [1, 24]]},
        {"x": [float_(1), float_()], "shape": [[], [1], [1, 1], [-1]]},
        {"x": [float_(0, 3)], "shape": [[3, 0], [0, 5]]},
    ],
    "paddle.flatten": [
        {"x": [float_(2, 3, 4, 2), float_(2, 0, 1, 1)], "start_axis": [ABSENT, 0, 1], "stop_axis": [ABSENT, -1, 2]},
        {"x": [float_(), float_(3)]},
    ],
    "paddle.squeeze": [
        {"x": [float_(1, 3, 1), float_(1, 1, 2)], "axis": [ABSENT, None, 0, -1, [0, 2], [0, 1]]},
        {"x": [float_()]},
    ],
    "paddle.unsqueeze": [{"x": [float_(2, 3), float_(), float_(0, 2)], "axis": [0, -1, [0, 1], [0, -1]]}],
    **{
        f"paddle.{name}": [
            {"x": [float_(1, 3), float_(3), float_()], "shape": [[2, 3], [4, 2, 3], [0, 3]]},
            {"x": [float_(1, 3)], "shape": [[2, -1], [-1, 3]]},
        ]
        for name in ("expand", "broadcast_to")
    },
    "paddle.expand_as": [{"x": [float_(1, 3), float_(3), float_()], "y": [float_(2, 3), float_(4, 2, 3)]}],
    "paddle.broadcast_tensors": [
        {"input": [[float_(2, 1), float_(3)], [float_(), float_(2, 2)], [float_(4), float_(1), float_(1, 4)]]}
    ],
    "paddle.broadcast_shape": [{"x_shape": [[2, 1], [1], [3, 1, 1]], "y_shape": [[3], [2, 3], [1]]}],
    "paddle.tile": [
        {"x": [float_(2, 3), float_(3), float_(), float_(0, 2)], "repeat_times": [[2], [2, 1], [1, 2, 2], 2]}
    ],
    "paddle.repeat_interleave": [
        {"x": [float_(2, 3), float_(4)], "repeats": [1, 2, 3], "axis": [ABSENT, None, 0, -1]},
        {"x": [float_(2, 3)], "repeats": [fixed([1, 2], "int64")], "axis": [0]},
    ],
    "paddle.roll": [
        {"x": [float_(3, 4), float_(0, 2)], "shifts": [1, -2], "axis": [ABSENT, None, 0, 1]},
        {"x": [float_(3, 4)], "shifts": [[1, 2]], "axis": [[0, 1]]},
    ],
    "paddle.flip": [{"x": [float_(2, 3), float_(0, 2)], "axis": [0, 1, [0, 1], [-1]]}],
    "paddle.rot90": [{"x": [float_(2, 3, 2)], "k": [ABSENT, 1, 2, -1], "axes": [ABSENT, [0, 1], [1, 2]]}],
    **{
        f"paddle.atleast_{count}d": [
            {"*inputs": [[float_()], [float_(3)], [float_(2, 3)], [float_(), float_(2)], [float_(2, 3, 4)]]}
        ]
        for count in (1, 2, 3)
    },
    "paddle.meshgrid": [{"*args": [[float_(3), float_(4)], [float_(2)], [float_(1), float_(2), float_(3)]]}],
    "paddle.cartesian_prod": [{"x": [[float_(3), float_(2)], [float_(2)], [float_(1), float_(2), float_(3)]]}],
    **{
        f"paddle.{name}": [{"x": [float_(3, 4), float_(2, 3, 3), float_(0, 3)], "diagonal": [ABSENT, 0, 1, -2]}]
        for name in ("tril", "triu")
    },
    "paddle.diag": [{"x": [float_(3), float_(3, 4)], "offset": [ABSENT, 0, 1, -1], "padding_value": [ABSENT, 0, 0.5]}],
    "paddle.diagonal": [
        {"x": [float_(3, 4, 3)], "offset": [ABSENT, 0, 1, -1], "axis1": [ABSENT, 0, 1], "axis2": [2, -1]},
        {"x": [float_(3, 2)]},
    ],
    "paddle.diag_embed": [
        {"input": [float_(2, 3), float_(3)], "offset": [ABSENT, 0, 1, -1], "dim1": [ABSENT, -2], "dim2": [ABSENT, -1]},
        {"input": [float_(2, 3)], "dim1": [0], "dim2": [2, 1]},
    ],
    "paddle.Tensor.fill_diagonal_": [
        {"x": [float_(3, 3), float_(5, 3)], "value": [1.5, -2], "offset": [ABSENT, 0], "wrap": [ABSENT, False, True]},
        {"x": [float_(3, 4)], "value": [1.5], "offset": [1, -1]},
    ],
    "paddle.Tensor.fill_diagonal_tensor": [
        {"x": [float_(3, 3)], "y": [float_(3)], "offset": [ABSENT, 0], "dim1": [ABSENT, 0], "dim2": [ABSENT, 1]},
        {"x": [float_(3, 4, 5)], "y": [float_(5, 3)], "offset": [0], "dim1": [0], "dim2": [1]},
        {"x": [float_(3, 4, 5)], "y": [float_(3, 4)], "offset": [0], "dim1": [1], "dim2": [2]},
        {"x": [float_(3, 5)], "y": [float_(3)], "offset": [1, 2]},
    ],
    F + "pad": [
        {
            "x": [float_(2, 3)],
            "pad": [[1, 2, 0, 1], [0, 1, 2, 0]],
            "mode": [ABSENT, "constant"],
            "value": [ABSENT, 0.5, 0.0],
            "pad_from_left_axis": [ABSENT, True, False],
        },
        {
            "x": [float_(1, 2, 4, 5)],
            "pad": [[1, 2, 0, 1], [1, 0, 2, 2]],
            "mode": ["constant", "reflect", "replicate", "circular"],
            "data_format": [ABSENT, "NCHW"],
            "value": [0.5, 0.0],
        },
        {
            "x": [float_(1, 4, 5, 2)],
            "pad": [[1, 2, 0, 1]],
            "mode": ["constant", "reflect", "replicate"],
            "data_format": ["NHWC"],
            "value": [0.5],
        },
        {
            "x": [float_(1, 2, 5)],
            "pad": [[1, 2], [2, 0]],
            "mode": ["constant", "reflect", "replicate"],
            "data_format": ["NCL"],
            "value": [0.5],
        },
    ],
    F + "unfold": [
        {
            "x": [float_(1, 2, 6, 5)],
            "kernel_sizes": [2, [2, 3]],
            "strides": [ABSENT, 1, 2],
            "paddings": [ABSENT, 0, 1, [1, 0], [1, 0, 2, 1]],
            "dilations": [ABSENT, 1, 2],
        }
    ],
    F + "pixel_shuffle": [{"x": [float_(1, 8, 2, 3)], "upscale_factor": [2, 1], "data_format": [ABSENT, "NCHW"]}],
    "paddle.slice": [
        {"input": [float_(4, 5)], "axes": [[0, 1]], "starts": [[1, 0], [0, -2]], "ends": [[3, 2], [100, 5]]},
        {"input": [float_(4, 5), float_(6)], "axes": [[0]], "starts": [[1], [-3]], "ends": [[3], [-1], [3]]},
    ],
    "paddle.strided_slice": [
        {
            "x": [float_(6, 5)],
            "axes": [[0, 1]],
            "starts": [[1, 0], [0, 1]],
            "ends": [[6, 4], [5, 5]],
            "strides": [[2, 1], [1, 3]],
        },
        {"x": [float_(6)], "axes": [[0]], "starts": [[1]], "ends": [[5]], "strides": [[2]]},
    ],
    "paddle.slice_scatter": [
        {
            "x": [float_(6, 3)],
            "value": [float_(2, 3)],
            "axes": [[0]],
            "starts": [[1], [0]],
            "ends": [[5], [4]],
            "strides": [[2]],
        },
        {"x": [float_(6, 4)], "value": [float_(6, 2)], "axes": [[1]], "starts": [[1]], "ends": [[3]], "strides": [[1]]},
        {
            "x": [float_(6, 4)],
            "value": [float_(6, 1)],
            "axes": [[1]],
            "starts": [[0], [2]],
            "ends": [[3]],
            "strides": [[3]],
        },
    ],
    "paddle.gather": [
        {
            "x": [float_(4, 3), float_(5, 4)],
            "index": [int_(3, 5), int_(3, 1), int32(3, 2)],
            "axis": [ABSENT, None, 0, 1, -1],
        },
        {"x": [float_(4)], "index": [int_(4, 3), int_(4)]},
    ],
    "paddle.gather_nd": [
        {"x": [float_(3, 3, 2)], "index": [int_(2, 4, 2), int_(2, 5, 1), int32(2, 2, 3), int_(2, 2, 2, 2)]}
    ],
    "paddle.index_select": [{"x": [float_(4, 3)], "index": [int_(3, 5), int32(3, 2)], "axis": [ABSENT, 0, 1, -1]}],
    "paddle.index_add": [
        {"x": [float_(4, 3)], "index": [int_(3, 2), int32(3, 2)], "axis": [0, -2], "value": [float_(2, 3)]},
        {"x": [float_(4, 3)], "index": [int_(3, 2)], "axis": [1], "value": [float_(4, 2)]},
    ],
    "paddle.index_fill": [{"x": [float_(4, 3)], "index": [int_(3, 2)], "axis": [0, 1, -1], "value": [0.5, -1.0]}],
    "paddle.index_put": [
        {
            "x": [float_(4, 3)],
            "indices": [[fixed([0, 2, 3], "int64"), fixed([0, 1, 2], "int64")]],
            "value": [float_(3), float_(1)],
            "accumulate": [ABSENT, False, True],
        },
        {
            "x": [float_(4, 3)],
            "indices": [[fixed([1, 3], "int64")]],
            "value": [float_(2, 3)],
            "accumulate": [ABSENT, False, True],
        },
        {"x": [float_(4, 3)], "indices": [[fixed([1, 1], "int64")]], "value": [float_(2, 3)], "accumulate": [True]},
    ],
    "paddle.index_sample": [{"x": [float_(3, 4)], "index": [int_(4, 3, 2), int32(4, 3, 5)]}],
    "paddle.take_along_axis": [
        {
            "arr": [float_(3, 4)],
            "indices": [int_(3, 2, 4), int_(3, 1, 4), int_(3, 2, 1)],
            "axis": [0, -2],
            "broadcast": [ABSENT, True],
        },
        {"arr": [float_(3, 4)], "indices": [int_(4, 3, 2), int_(4, 2, 3)], "axis": [1, -1], "broadcast": [False]},
    ],
    "paddle.put_along_axis": [
        {
            "arr": [float_(3, 4)],
            "indices": [int_(3, 1, 4)],
            "values": [float_(1, 4), 0.5],
            "axis": [0, -2],
            "reduce": [ABSENT, "assign", "add"],
            "include_self": [ABSENT, True],
            "broadcast": [ABSENT, True],
        },
        {
            "arr": [float_(3, 4)],
            "indices": [fixed([[0, 2], [1, 3]], "int64")],
            "values": [float_(2, 2)],
            "axis": [1],
            "reduce": ["assign", "add"],
            "broadcast": [False],
            "include_self": [ABSENT, True],
        },
        {
            "arr": [positive(3, 4)],
            "indices": [int_(3, 1, 4)],
            "values": [positive(1, 4)],
            "axis": [0],
            "reduce": ["mul", "mean", "amax", "amin", "add"],
            "include_self": [True, False],
        },
    ],
    "paddle.scatter": [
        {
            "x": [float_(4, 3)],
            "index": [fixed([2, 0], "int64"), fixed([1, 3], "int64")],
            "updates": [float_(2, 3)],
            "overwrite": [ABSENT, True, False],
        },
        {
            "x": [float_(4)],
            "index": [fixed([2, 0], "int64"), fixed([3, 1], "int32")],
            "updates": [float_(2)],
            "overwrite": [True, False],
        },
    ],
    "paddle.scatter_nd_add": [
        {"x": [float_(4, 3)], "index": [int_(3, 5, 2)], "updates": [float_(5)]},
        {"x": [float_(4, 3)], "index": [int_(3, 5, 1)], "updates": [float_(5, 3)]},
    ],
    "paddle.masked_fill": [
        {"x": [float_(2, 3)], "mask": [bool_(2, 3), bool_(3), bool_(2, 1)], "value": [0.5, -2.0, float_()]}
    ],
    "paddle.masked_select": [
        {"x": [float_(2, 3)], "mask": [bool_(2, 3), bool_(2, 3)]},
        {"x": [float_(5)], "mask": [bool_(5)]},
    ],
    "paddle.where": [
        *[
            {"condition": [bool_(2, 3)], "x": [float_(*one)], "y": [float_(*two)]}
            for one, two in (((2, 3), (2, 3)), ((3,), (2, 1)), ((), (2, 3)))
        ],
        {"condition": [bool_(2, 3), bool_(5)], "x": [ABSENT, None], "y": [ABSENT, None]},
        {"condition": [bool_(0, 3)], "x": [float_(0, 3)], "y": [float_(3)]},
    ],
    "paddle.nonzero": [{"x": [bool_(2, 3), bool_(5), int_(2, 3, 2)], "as_tuple": [ABSENT, False, True]}],
    F + "embedding": [
        {
            "x": [int_(5, 2, 3), int_(5, 4), int_(5)],
            "weight": [float_(5, 4)],
            "padding_idx": [ABSENT, None, -1, 2, -2],
            "max_norm": [ABSENT, None],
            "norm_type": [ABSENT, 2.0],
            "sparse": [ABSENT, False],
            "scale_grad_by_freq": [ABSENT, False],
        }
    ],
    F + "one_hot": [{"x": [int_(4, 2, 3), int_(4, 5), int_(4)], "num_classes": [4, 6, ABSENT, -1]}],
    "paddle.Tensor.__getitem__": [
        {
            "self": [float_(4, 3, 5)],
            "item": [
                0,
                -1,
                slice(1, 3),
                slice(None, None, 2),
                (0, 1),
                (slice(None), 1),
                (Ellipsis, slice(1, 4)),
                (slice(None), None, 0),
                (0, Ellipsis),
                None,
                (slice(None), slice(2, None), slice(-3, None, 2)),
                slice(None, None, -1),
                (slice(None), slice(2, 0, -1)),
                (1, 2, 3),
                [0, 2],
                (slice(None), [0, 2]),
                Ellipsis,
            ],
        },
        {
            "self": [float_(4, 3)],
            "item": [
                int_(3, 2),
                int32(3, 2, 2),
                bool_(4),
                bool_(4, 3),
                (int_(4, 3), int_(3, 3)),
                (slice(None), int_(3, 2)),
            ],
        },
    ],
    "paddle.Tensor.__setitem__": [
        {
            "self": [float_(4, 3)],
            "item": [0, slice(1, 3), (slice(None), 1), (Ellipsis, 0), (0, 1), slice(None)],
            "value": [0.5, -1.0, float_()],
        },
        {
            "self": [float_(4, 3)],
            "item": [0, slice(1, 3), Ellipsis, slice(None, None, 2)],
            "value": [float_(3), float_(1, 3)],
        },
        {"self": [float_(4, 3)], "item": [bool_(4), bool_(4, 3), fixed([0, 2], "int64")], "value": [0.5, 2.0]},
    ],
    "paddle.geometric.send_ue_recv": [
        {
            "x": [float_(4, 3)],
            "y": [above_one(5, 3), above_one(5, 1)],
            "src_index": [int_(4, 5)],
            "dst_index": [int_(4, 5)],
            "message_op": [ABSENT, "add", "mul", "sub"],
            "reduce_op": [ABSENT, "sum", "mean"],
            "out_size": [ABSENT, 4, 6],
        },
        {
            "x": [float_(4, 3)],
            "y": [positive(5, 3)],
            "src_index": [int_(4, 5)],
            "dst_index": [fixed([0, 1, 2, 3, 3], "int64")],
            "message_op": ["add"],
            "reduce_op": ["max", "min"],
            "out_size": [ABSENT],
        },
    ],
    "paddle.geometric.send_u_recv": [
        {
            "x": [float_(4, 3)],
            "src_index": [fixed([0, 1, 2, 3, 1], "int64")],
            "dst_index": [fixed([0, 1, 2, 2, 3], "int64"), fixed([3, 3, 0, 0, 1], "int64")],
            "reduce_op": [ABSENT, "sum", "mean", "max", "min"],
            "out_size": [ABSENT, 4, 6],
        },
        {"x": [float_(4, 3)], "src_index": [int_(4, 5)], "dst_index": [int_(4, 5)], "reduce_op": ["sum", "mean"]},
    ],
    F + "sequence_mask": [
        {"x": [int_(5, 4), int_(5, 2, 3)], "maxlen": [ABSENT, None, 6, 3], "dtype": [ABSENT, I64, F64, BOOL]}
    ],
    "paddle.full": [
        {"shape": [[2, 3], [], [0, 2], [4]], "fill_value": [1.5, 2, True, -0.5], "dtype": [ABSENT, None, F64, I64]}
    ],
    **{
        f"paddle.{name}": [{"shape": [[2, 3], [], [0, 2], [4]], "dtype": [ABSENT, None, F64, I64, BOOL]}]
        for name in ("zeros", "ones")
    },
    "paddle.full_like": [
        {
            "x": [float_(2, 3), int_(5, 2), float_(), float_(0, 2)],
            "fill_value": [1.5, 2.0, -3],
            "dtype": [ABSENT, None, F64],
        }
    ],
    **{
        f"paddle.{name}_like": [
            {"x": [float_(2, 3), int_(5, 2), float_(), float_(0, 2)], "dtype": [ABSENT, None, F64, I64]}
        ]
        for name in ("zeros", "ones")
    },
    "paddle.arange": [
        {"start": [3, 5.5, 0], "end": [ABSENT, None], "step": [ABSENT, 1], "dtype": [ABSENT, F64]},
        {"start": [1, 2], "end": [7, 9], "step": [1, 2, ABSENT], "dtype": [ABSENT, None, I64, F64]},
        {"start": [0.5, 1.0], "end": [4.0], "step": [0.5, ABSENT], "dtype": [ABSENT, F64]},
    ],
    "paddle.linspace": [{"start": [0, 1.5, -2], "stop": [3, 7.5], "num": [1, 5, 8], "dtype": [F64, ABSENT]}],
    "paddle.eye": [{"num_rows": [2, 3, 0], "num_columns": [ABSENT, None, 4], "dtype": [ABSENT, F64, I64]}],
    "paddle.numel": unary(),
    "paddle.shape": unary(name="input"),
    "paddle.is_complex": [*unary(), *unary(complex_)],
    "paddle.is_floating_point": [*unary(), *unary(whole)],
    "paddle.Tensor.dim": unary(name="var"),
    "paddle.Tensor.__len__": [{"var": [float_(2, 3), float_(5), float_(0, 2)]}],
    "paddle.Tensor.__nonzero__": [{"self": [float_(), bool_(), int_(2, 1), float_(1, 1)]}],
    "paddle.Tensor.__bool__": [{"self": [float_(), bool_(), int_(2, 1), float_(1, 1)]}],
    "paddle.Tensor.item": [
        {"self": [float_(), float_(1), int_(5)]},
        {"self": [float_(4)], "*args": [[1], [3]]},
        {"self": [float_(2, 3)], "*args": [[1, 2], [0, 1]]},
    ],
    "paddle.Tensor.tolist": [{"x": [float_(2, 3), float_(), int_(5, 3), bool_(2)]}],
    # Reductions.
    "paddle.sum": [
        *reduced(float_, dtype=[ABSENT, None, F64]),
        {"x": [int_(9, 2, 3), bool_(2, 3)], "axis": [ABSENT, 0]},
    ],
    "paddle.mean": reduced(float_, dtype=[ABSENT, None, F64]),
    "paddle.nansum": reduced(some_nan, dtype=[ABSENT, None, F64]),
    "paddle.nanmean": [{"x": [some_nan(2, 3, 4)], **AXIS}, {"x": [float_(), float_(5)], "axis": [ABSENT, None, 0]}],
    "paddle.prod": reduced(float_, dtype=[ABSENT, None, F64]),
    **{f"paddle.{name}": reduced(bool_) for name in ("any", "all")},
    **{f"paddle.{name}": reduced() for name in "max min amax amin".split()},
    **{
        f"paddle.{name}": [
            {
                "x": [distinct(2, 3, 4)],
                "axis": [ABSENT, None, 0, -1, 1],
                "keepdim": [ABSENT, False, True],
                "dtype": [ABSENT, I64, I32],
            },
            {"x": [distinct(5), distinct()]},
        ]
        for name in ("argmax", "argmin")
    },
    "paddle.count_nonzero": reduced(lambda *s: int_(2, *s)),
    "paddle.logsumexp": reduced(float_),
    "paddle.var": [
        {
            "x": [float_(3, 4, 2)],
            "axis": [ABSENT, None, 0, -1, [0, 1]],
            "unbiased": [ABSENT, True, False, None],
            "keepdim": [ABSENT, True, False],
            "correction": [ABSENT, 1],
        },
        {"x": [float_(5)], "correction": [0, 2, 1], "axis": [ABSENT, 0], "keepdim": [ABSENT]},
    ],
    "paddle.std": [
        {
            "x": [float_(3, 4, 2)],
            "axis": [ABSENT, None, 0, -1, [0, 1]],
            "unbiased": [ABSENT, True, False],
            "keepdim": [ABSENT, True, False],
        },
        {"x": [float_(5)], "axis": [ABSENT, 0]},
    ],
    **{
        f"paddle.{name}": [
            {
                "x": [distinct(2, 5, 3)],
                "axis": [ABSENT, None, 0, 1, -1],
                "keepdim": [ABSENT, False, True],
                "mode": [ABSENT, "avg"],
            },
            {"x": [distinct(3, 5)], "axis": [0, 1, -1, ABSENT], "keepdim": [ABSENT, True], "mode": ["min"]},
        ]
        for name in ("median", "nanmedian")
    },
    "paddle.quantile": [
        {
            "x": [distinct(4, 5)],
            "q": [0.3, 0.5, 1.0, [0.1, 0.6]],
            "axis": [ABSENT, None, 0, -1, [0, 1]],
            "keepdim": [ABSENT, False, True],
            "interpolation": [ABSENT, "linear", "lower", "higher", "midpoint", "nearest"],
        }
    ],
    "paddle.cumsum": [*along(dtype=[ABSENT, None, F64]), {"x": [float_(2, 3)], "axis": [None]}],
    "paddle.cumprod": [*along(axis="dim", dtype=[ABSENT, None, F64]), {"x": [float_(2, 3)], "dim": [None]}],
    "paddle.logcumsumexp": [*along(dtype=[ABSENT, None, F64]), {"x": [float_(2, 3)], "axis": [None]}],
    "paddle.diff": [
        {
            "x": [float_(4, 5)],
            "n": [ABSENT, 1, 2],
            "axis": [ABSENT, -1, 1],
            "prepend": [ABSENT, None, float_(4, 1)],
            "append": [ABSENT, None, float_(4, 2)],
        },
        {"x": [float_(4, 5)], "axis": [0], "n": [1, 2]},
    ],
    "paddle.topk": [
        {
            "x": [distinct(3, 5), distinct(6, 4)],
            "k": [1, 2, 3],
            "axis": [ABSENT, None, 0, 1, -1],
            "largest": [ABSENT, True, False],
            "sorted": [ABSENT, True],
        },
        {"x": [distinct(5)], "k": [5], "sorted": [True, ABSENT]},
    ],
    "paddle.sort": along(distinct, descending=[ABSENT, False, True], stable=[ABSENT, False, True]),
    "paddle.argsort": along(distinct, descending=[ABSENT, False, True], stable=[ABSENT, False, True]),
    "paddle.kthvalue": [
        {"x": [distinct(3, 5)], "k": [1, 2, 3], "axis": [ABSENT, None, 0, -1], "keepdim": [ABSENT, True, False]}
    ],
    "paddle.searchsorted": [
        {
            "sorted_sequence": [fixed([-1.0, 0.0, 0.5, 2.0])],
            "values": [float_(3), float_(2, 3), fixed([0.0, 0.5])],
            "out_int32": [ABSENT, False, True],
            "right": [ABSENT, False, True],
        }
    ],
    "paddle.bucketize": [
        {
            "x": [float_(3), float_(2, 3), fixed([0.0, 0.5])],
            "sorted_sequence": [fixed([-1.0, 0.0, 0.5, 2.0])],
            "out_int32": [ABSENT, False, True],
            "right": [ABSENT, False, True],
        }
    ],
    "paddle.bincount": [{"x": [int_(5, 6)], "weights": [ABSENT, None, float_(6)], "minlength": [ABSENT, 0, 8]}],
    "paddle.unique": [
        {
            "x": [int_(4, 6), int_(3, 2, 3)],
            "return_inverse": [ABSENT, False, True],
            "return_counts": [ABSENT, False, True],
            "axis": [ABSENT, None, 0],
            "dtype": [ABSENT, I64, I32],
            "sorted": [ABSENT, True],
            "return_index": [ABSENT, False],
        }
    ],
    "paddle.isin": [
        {
            "x": [int_(5, 6), int_(5, 2, 3)],
            "test_x": [int_(5, 3), int_(5, 2, 2)],
            "assume_unique": [ABSENT, False],
            "invert": [ABSENT, False, True],
        },
        {"x": [fixed([3, 1, 2], "int64")], "test_x": [fixed([5, 1], "int64")], "assume_unique": [True]},
    ],
    F + "softmax": along(dtype=[ABSENT, None, F64]),
    F + "log_softmax": along(dtype=[ABSENT, None, F64]),
    "paddle.nn.clip._squared_l2_norm": [{"x": [float_(2, 3), float_(5), float_(2, 1, 4)]}],
    # Products.
    "paddle.matmul": [
        {
            "x": [float_(3, 3), float_(2, 3, 3)],
            "y": [float_(3, 3), float_(2, 3, 3)],
            "transpose_x": [ABSENT, False, True],
            "transpose_y": [ABSENT, False, True],
        },
        {"x": [float_(3)], "y": [float_(3), float_(3, 2)], "transpose_x": [ABSENT, True]},
        {"x": [float_(2, 3), float_(0, 3)], "y": [float_(3, 4), float_(3)]},
        {"x": [float_(2, 3)], "y": [float_(4, 3)], "transpose_y": [True]},
    ],
    "paddle.Tensor.__matmul__": [{"x": [float_(2, 3), float_(4, 2, 3), float_(3)], "y": [float_(3, 4), float_(3)]}],
    "paddle.mm": [{"input": [float_(2, 3), float_(5, 3)], "mat2": [float_(3, 4), float_(3, 1)]}],
    "paddle.bmm": [{"x": [float_(2, 3, 4)], "y": [float_(2, 4, 2), float_(2, 4, 1)]}],
    "paddle.mv": [{"x": [float_(2, 3), float_(4, 3)], "vec": [float_(3)]}],
    "paddle.dot": [{"x": [float_(4)], "y": [float_(4)]}, {"x": [float_(2, 3)], "y": [float_(2, 3)]}],
    "paddle.inner": [{"x": [float_(2, 3), float_(3)], "y": [float_(4, 3), float_(3)]}],
    "paddle.outer": [{"x": [float_(3), float_(2, 2), float_()], "y": [float_(4), float_(2, 1)]}],
    "paddle.addmm": [
        {
            "input": [float_(2, 4), float_(1, 4)],
            "x": [float_(2, 3)],
            "y": [float_(3, 4)],
            "beta": [ABSENT, 0.5, 2.0],
            "alpha": [ABSENT, 0.3],
        }
    ],
    "paddle.baddbmm": [
        {
            "input": [float_(2, 2, 4)],
            "x": [float_(2, 2, 3)],
            "y": [float_(2, 3, 4)],
            "beta": [ABSENT, 0.5, 2.0],
            "alpha": [ABSENT, 0.3],
        }
    ],
    "paddle.kron": [{"x": [float_(2, 3), float_(2)], "y": [float_(2, 2), float_(3)]}],
    "paddle.tensordot": [
        {"x": [float_(2, 3, 4)], "y": [float_(3, 4, 5)], "axes": [2, [[1, 2], [0, 1]]]},
        {"x": [float_(3, 4)], "y": [float_(4, 3), float_(4, 2)], "axes": [1, [[1], [0]]]},
        {"x": [float_(3, 3)], "y": [float_(3, 3)], "axes": [[0, 1], [[0], [1]], 0, [[0, 1]], [[1]]]},
    ],
    "paddle.einsum": [
        {"equation": ["ij,jk->ik", "ij,jk", "ij,jk->ki"], "*operands": [[float_(2, 3), float_(3, 4)]]},
        {"equation": ["bij,bjk->bik"], "*operands": [[float_(2, 2, 3), float_(2, 3, 4)]]},
        {"equation": ["ij->i", "ij->ji", "...j->..."], "*operands": [[float_(2, 3)]]},
    ],
    "paddle.trace": [
        {"x": [float_(3, 4, 3)], "offset": [ABSENT, 0, 1, -1], "axis1": [ABSENT, 0, 1], "axis2": [2]},
        {"x": [float_(3, 3)], "axis2": [ABSENT, 1]},
    ],
    "paddle.cross": [
        {"x": [float_(3, 3)], "y": [float_(3, 3)], "axis": [ABSENT, 0, 1, -1]},
        {"x": [float_(2, 3)], "y": [float_(2, 3)], "axis": [ABSENT, 1]},
    ],
    "paddle.vander": [{"x": [float_(3), float_(4)], "n": [ABSENT, None, 2, 5], "increasing": [ABSENT, False, True]}],
    F + "linear": [
        {
            "x": [float_(2, 3), float_(2, 2, 3), float_(0, 3)],
            "weight": [float_(3, 4)],
            "bias": [ABSENT, None, float_(4)],
        }
    ],
    "paddle.incubate.nn.functional.fused_linear": [
        {
            "x": [float_(2, 3)],
            "weight": [float_(3, 3)],
            "bias": [ABSENT, None, float_(3)],
            "transpose_weight": [ABSENT, False, True],
        }
    ],
    "paddle.dist": [{"x": [float_(2, 3)], "y": [float_(2, 3), float_(3)], "p": [ABSENT, 2, 1.5, 1]}],
    "paddle.linalg.norm": [
        {
            "x": [float_(3, 4)],
            "p": [ABSENT, None, 2, 1, 3.0, "fro"],
            "axis": [ABSENT, None, 0, -1, [0, 1]],
            "keepdim": [ABSENT, False, True],
            "dtype": [ABSENT, None, F64],
        },
        {"x": [float_(5)], "p": [float("inf"), float("-inf"), 0]},
    ],
    "paddle.linalg.vector_norm": [
        {
            "x": [float_(3, 4)],
            "p": [ABSENT, 2.0, 1.0, 3.0, float("inf")],
            "axis": [ABSENT, None, 0, -1, [0, 1]],
            "keepdim": [ABSENT, False, True],
            "dtype": [ABSENT, None, F64],
        }
    ],
    "paddle.linalg.cov": [
        {
            "x": [float_(3, 4), float_(4, 4)],
            "rowvar": [ABSENT, True],
            "ddof": [ABSENT, True, False],
            "fweights": [ABSENT, None, int_(4, 4, low=1)],
            "aweights": [ABSENT, None, positive(4)],
        },
        {"x": [float_(4, 3)], "rowvar": [False]},
    ],
    "paddle.linalg.inv": [{"x": [matrix(3, 3), matrix(2, 3, 3)]}],
    "paddle.linalg.pinv": [
        {"x": [float_(3, 4), float_(4, 3), matrix(3, 3)], "rcond": [ABSENT, 1e-10], "hermitian": [ABSENT, False]}
    ],
    "paddle.linalg.det": [{"x": [matrix(3, 3), matrix(2, 3, 3)]}],
    "paddle.linalg.matrix_power": [{"x": [matrix(3, 3), matrix(2, 3, 3)], "n": [0, 1, 2, 3, -1]}],
    "paddle.linalg.matrix_rank": [
        {"x": [float_(3, 4), matrix(3, 3)], "tol": [ABSENT, None, 0.5], "hermitian": [ABSENT, False]},
        {"x": [definite(3, 3)], "hermitian": [True]},
        {"x": [float_(3, 4)], "atol": [0.3, None], "rtol": [0.2, None]},
    ],
    "paddle.linalg.multi_dot": [
        {"x": [[float_(2, 3), float_(3, 4)], [float_(2, 3), float_(3, 4), float_(4, 2)], [float_(3), float_(3, 4)]]}
    ],
    "paddle.linalg.cond": [{"x": [matrix(3, 3), matrix(2, 3, 3)], "p": [ABSENT, None, 2, -2, "fro", 1, float("inf")]}],
    "paddle.linalg.cholesky": [{"x": [definite(3, 3), definite(2, 3, 3)], "upper": [ABSENT, False, True]}],
    "paddle.linalg.solve": [
        {"x": [matrix(3, 3)], "y": [float_(3, 2), float_(3, 3)], "left": [ABSENT, True]},
        {"x": [matrix(3, 3)], "y": [float_(2, 3)], "left": [False]},
    ],
    "paddle.linalg.triangular_solve": [
        {
            "x": [matrix(3, 3)],
            "y": [float_(3, 2)],
            "upper": [ABSENT, True, False],
            "transpose": [ABSENT, False, True],
            "unitriangular": [ABSENT, False],
        }
    ],
    "paddle.linalg.qr": [
        {"x": [float_(4, 3), float_(3, 3), float_(2, 4, 3)], "mode": [ABSENT, "reduced", "complete", "r"]}
    ],
    "paddle.linalg.svd": [{"x": [float_(4, 3), float_(3, 4)], "full_matrices": [ABSENT, False, True]}],
    "paddle.linalg.eigh": [{"x": [definite(3, 3), definite(4, 4)], "UPLO": [ABSENT, "L", "U"]}],
    "paddle.linalg.eigvalsh": [{"x": [definite(3, 3), definite(4, 4)], "UPLO": [ABSENT, "L", "U"]}],
    "paddle.linalg.lu": [
        {"x": [matrix(3, 3), matrix(2, 3, 3)], "pivot": [ABSENT, True], "get_infos": [ABSENT, False, True]}
    ],
    "paddle.linalg.lu_unpack": [
        {
            "x": [matrix(3, 3)],
            "y": [fixed([2, 2, 3], "int32"), fixed([1, 3, 3], "int32")],
            "unpack_ludata": [ABSENT, True],
            "unpack_pivots": [ABSENT, True],
        }
    ],
    **{
        f"paddle.fft.{name}": [
            {
                "x": [complex_(3, 4), float_(3, 4)],
                "s": [ABSENT, None],
                "axes": [ABSENT, None, [0], [0, 1]],
                "norm": [ABSENT, "backward", "ortho", "forward"],
            },
            {"x": [complex_(3, 4)], "s": [[2, 3], [4, 5]], "axes": [[0, 1]]},
        ]
        for name in ("fftn", "ifftn")
    },
}
# Layers.
_SPATIAL = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
_SIZE = {1: (7,), 2: (6, 5), 3: (4, 5, 4)}
for _rank, (_first, _last) in _SPATIAL.items():
    _size, _kernel = _SIZE[_rank], (3, 2, 2)[:_rank]
    _pairs: list[Any] = [[1, 0] * _rank, [[0, 0], [0, 0], *[[1, 0]] * _rank]]
    _options: dict[str, Any] = {
        "stride": [ABSENT, 1, 2, [2] * _rank],
        "padding": [ABSENT, 0, 1, "VALID", [1] * _rank, *_pairs],
        "dilation": [ABSENT, 1, 2],
    }
    CASES[f"{F}conv{_rank}d"] = [
        {
            "x": [float_(2, 4, *_size)],
            "weight": [float_(6, 4, *_kernel)],
            "bias": [ABSENT, None, float_(6)],
            **_options,
            "data_format": [ABSENT, _first],
            "groups": [ABSENT, 1],
        },
        {"x": [float_(2, 4, *_size)], "weight": [float_(6, 2, *_kernel)], "groups": [2], "bias": [float_(6)]},
        {
            "x": [float_(2, *_size, 4)],
            "weight": [float_(6, 4, *_kernel)],
            "bias": [float_(6)],
            "padding": [0, 1],
            "data_format": [_last],
        },
        {"x": [float_(2, 4, *_size)], "weight": [float_(6, 4, *_kernel)], "padding": ["SAME"], "stride": [1, 2]},
    ]
    CASES[f"{F}conv{_rank}d_transpose"] = [
        {
            "x": [float_(2, 4, *_size)],
            "weight": [float_(4, 6, *_kernel)],
            "bias": [ABSENT, None, float_(6)],
            "stride": [ABSENT, 1, 2],
            "padding": [ABSENT, 0, 1],
            "dilation": [ABSENT, 1, 2],
            "groups": [ABSENT, 1],
            "data_format": [ABSENT, _first],
            "output_padding": [ABSENT, 0],
        },
        {
            "x": [float_(2, 4, *_size)],
            "weight": [float_(4, 3, *_kernel)],
            "groups": [2],
            "stride": [2],
            "output_padding": [0, 1],
        },
        {"x": [float_(2, *_size, 4)], "weight": [float_(4, 6, *_kernel)], "padding": [0, 1], "data_format": [_last]},
        {
            "x": [float_(2, 4, *_size)],
            "weight": [float_(4, 6, *_kernel)],
            "stride": [2],
            "output_size": [
                [(s - 1) * 2 + k for s, k in zip(_size, _kernel, strict=True)],
                [(s - 1) * 2 + k + 1 for s, k in zip(_size, _kernel, strict=True)],
                None,
            ],
        },
    ]
    _window: dict[str, Sequence[Any]] = {
        "kernel_size": [2, 3, [2] * _rank],
        "stride": [ABSENT, None, 1, 2],
        "padding": [ABSENT, 0, 1],
    }
    _format: dict[str, Sequence[Any]] = {"data_format": [ABSENT, _first]} if _rank > 1 else {}
    CASES[f"{F}max_pool{_rank}d"] = [
        {
            "x": [distinct(2, 3, *_size)],
            **_window,
            "return_mask": [ABSENT, False, True],
            "ceil_mode": [ABSENT, False, True],
            **_format,
        },
    ] + ([{"x": [distinct(2, *_size, 3)], **_window, "data_format": [_last]}] if _rank > 1 else [])
    CASES[f"{F}avg_pool{_rank}d"] = [
        {
            "x": [float_(2, 3, *_size)],
            **_window,
            "ceil_mode": [ABSENT, False, True],
            "exclusive": [ABSENT, True, False],
            **_format,
        },
    ] + (
        [{"x": [float_(2, *_size, 3)], **_window, "data_format": [_last], "divisor_override": [ABSENT, None]}]
        if _rank > 1
        else []
    )
    if _rank > 1:
        CASES[f"{F}adaptive_avg_pool{_rank}d"] = [
            {"x": [float_(2, 3, *_size)], "output_size": [1, 2, [2] * _rank, [1, *[None] * (_rank - 1)]], **_format},
            {"x": [float_(2, *_size, 3)], "output_size": [1, 2], "data_format": [_last]},
        ]
CASES |= {
    F + "adaptive_avg_pool1d": [{"x": [float_(2, 3, 7)], "output_size": [1, 2, 3]}],
    F + "adaptive_max_pool2d": [
        {"x": [distinct(2, 3, 6, 5)], "output_size": [1, 2, [2, 3]], "return_mask": [ABSENT, False, True]}
    ],
    F + "max_unpool2d": [
        {
            "x": [float_(1, 1, 2, 2)],
            "indices": [fixed([[[[0, 3], [9, 14]]]], "int32"), fixed([[[[5, 2], [8, 15]]]], "int32")],
            "kernel_size": [2, [2, 2]],
            "stride": [ABSENT, None, 2],
            "padding": [ABSENT, 0],
            "data_format": [ABSENT, "NCHW"],
            "output_size": [ABSENT, None, [4, 4]],
        }
    ],
    F + "interpolate": [
        {
            "x": [float_(1, 2, 4, 5)],
            "size": [[6, 7], [2, 3], [8, 10]],
            "mode": [ABSENT, "nearest", "bilinear", "bicubic", "area"],
            "align_corners": [ABSENT, False],
            "align_mode": [ABSENT, 0],
            "data_format": [ABSENT, "NCHW"],
        },
        {
            "x": [float_(1, 2, 4, 5)],
            "size": [[6, 7], [2, 3]],
            "mode": ["bilinear", "bicubic"],
            "align_corners": [True, False],
        },
        {"x": [float_(1, 2, 4, 5)], "scale_factor": [2, 2.0, [2, 3], 0.5], "mode": ["nearest", "bilinear", "bicubic"]},
        {"x": [float_(1, 4, 5, 2)], "size": [[6, 7]], "mode": ["nearest", "bilinear"], "data_format": ["NHWC"]},
        {"x": [float_(1, 2, 5)], "size": [[7], [3]], "mode": ["linear"], "data_format": ["NCW"]},
        {"x": [float_(1, 2, 3, 4, 5)], "size": [[4, 5, 6]], "mode": ["trilinear", "nearest"], "data_format": ["NCDHW"]},
        {"x": [float_(1, 2, 4, 5)], "size": [[6, 7]], "mode": ["nearest"], "align_mode": [1, 0]},
    ],
    F + "grid_sample": [
        {
            "x": [float_(1, 2, 4, 5)],
            "grid": [small(1, 3, 2, 2), float_(1, 3, 2, 2)],
            "mode": [ABSENT, "bilinear", "nearest"],
            "padding_mode": [ABSENT, "zeros", "border", "reflection"],
            "align_corners": [ABSENT, True, False],
        }
    ],
    F + "layer_norm": [
        {
            "x": [float_(2, 3, 4)],
            "normalized_shape": [[4], 4],
            "weight": [ABSENT, None, float_(4)],
            "bias": [ABSENT, None, float_(4)],
            "epsilon": [ABSENT, 1e-3],
        },
        {"x": [float_(2, 3, 4)], "normalized_shape": [[3, 4]], "weight": [float_(3, 4), None], "bias": [float_(3, 4)]},
    ],
    F + "batch_norm": [
        {
            "x": [float_(4, 3, 2, 2), float_(4, 3), float_(4, 3, 5)],
            "running_mean": [float_(3)],
            "running_var": [positive(3)],
            "weight": [float_(3)],
            "bias": [float_(3)],
            "training": [ABSENT, False, True],
            "momentum": [ABSENT, 0.5],
            "epsilon": [ABSENT, 1e-2],
            "use_global_stats": [ABSENT, None, True],
        },
        {
            "x": [float_(4, 2, 2, 3)],
            "running_mean": [float_(3)],
            "running_var": [positive(3)],
            "weight": [float_(3), None],
            "bias": [float_(3), None],
            "training": [False, True],
            "data_format": ["NHWC"],
        },
        {
            "x": [float_(4, 3, 2, 2)],
            "running_mean": [float_(3)],
            "running_var": [positive(3)],
            "data_format": ["NCHW"],
            "training": [True, False],
        },
    ],
    F + "instance_norm": [
        {
            "x": [float_(2, 3, 4), float_(2, 3, 2, 3)],
            "weight": [float_(3)],
            "bias": [float_(3)],
            "eps": [ABSENT, 1e-2],
            "running_mean": [ABSENT, None],
            "running_var": [ABSENT, None],
            "use_input_stats": [ABSENT, True],
            "momentum": [ABSENT, 0.5],
            "data_format": [ABSENT, "NCHW"],
        },
        {"x": [float_(2, 3, 4)], "eps": [ABSENT, 0.25], "weight": [ABSENT, None], "bias": [ABSENT, None]},
    ],
    F + "group_norm": [
        {
            "x": [float_(2, 4, 3), float_(2, 4, 2, 3)],
            "num_groups": [1, 2, 4],
            "epsilon": [ABSENT, 1e-2],
            "weight": [float_(4)],
            "bias": [ABSENT, None, float_(4)],
            "data_format": [ABSENT, "NCHW"],
        },
        {
            "x": [float_(2, 2, 3, 4)],
            "num_groups": [2],
            "data_format": ["NHWC"],
            "weight": [float_(4)],
            "bias": [float_(4)],
        },
    ],
    F + "normalize": [
        {
            "x": [float_(3, 4), float_(2, 3, 2)],
            "p": [ABSENT, 2, 1, 3.0],
            "axis": [ABSENT, 0, 1, -1],
            "epsilon": [ABSENT, 1e-12, 5.0],
        }
    ],
    "paddle._C_ops.layer_norm": [
        {
            "x": [float_(2, 3, 4)],
            "weight": [float_(4), None],
            "bias": [float_(4), None],
            "epsilon": [1e-5, 1e-3],
            "begin_norm_axis": [2],
        },
        {
            "x": [float_(2, 3, 4)],
            "weight": [float_(12)],
            "bias": [float_(12)],
            "epsilon": [1e-5],
            "begin_norm_axis": [1],
        },
    ],
    F + "scaled_dot_product_attention": [
        {
            "query": [float_(2, 5, 4, 8)],
            "key": [float_(2, 6, 4, 8), float_(2, 6, 2, 8)],
            "value": [float_(2, 6, 4, 8)],
            "attn_mask": [ABSENT, None, float_(2, 1, 5, 6), float_(2, 4, 5, 6)],
            "dropout_p": [ABSENT, 0.0],
            "training": [ABSENT, True, False],
            "is_causal": [ABSENT, False],
        },
        {
            "query": [float_(2, 5, 4, 8)],
            "key": [float_(2, 5, 4, 8)],
            "value": [float_(2, 5, 4, 8)],
            "is_causal": [True, False],
            "dropout_p": [0.0, 0],
            "scale": [ABSENT, None],
            "enable_gqa": [ABSENT, True],
        },
        {
            "query": [float_(2, 5, 4, 8)],
            "key": [float_(2, 5, 4, 8)],
            "value": [float_(2, 5, 4, 8)],
            "attn_mask": [fixed(np.tri(5)[None, None], "bool"), None],
        },
    ],
    F + "cross_entropy": [
        {
            "input": [float_(4, 3)],
            "label": [int_(3, 4), int_(3, 4, 1)],
            "weight": [ABSENT, None, positive(3)],
            "ignore_index": [ABSENT, -100, 1],
            "reduction": [ABSENT, *REDUCTION],
            "soft_label": [ABSENT, False],
            "axis": [ABSENT, -1, 1],
            "use_softmax": [ABSENT, True],
            "label_smoothing": [ABSENT, 0.0],
        },
        {"input": [float_(2, 3, 4)], "label": [int_(3, 2, 4), int_(3, 2, 1, 4)], "axis": [1], "reduction": REDUCTION},
        {
            "input": [float_(4, 3)],
            "label": [shares(4, 3)],
            "soft_label": [True],
            "reduction": [ABSENT, *REDUCTION],
            "label_smoothing": [ABSENT, 0.0],
        },
        {"input": [unit(4, 3)], "label": [int_(3, 4)], "use_softmax": [False], "reduction": [ABSENT, *REDUCTION]},
        {"input": [float_(4, 3)], "label": [int_(3, 4)], "label_smoothing": [0.0], "reduction": [ABSENT, *REDUCTION]},
    ],
    F + "softmax_with_cross_entropy": [
        {
            "logits": [float_(4, 3)],
            "label": [int_(3, 4, 1)],
            "ignore_index": [ABSENT, -100, 1],
            "numeric_stable_mode": [ABSENT, True],
            "return_softmax": [ABSENT, False, True],
            "axis": [ABSENT, -1, 1],
            "soft_label": [ABSENT, False],
        },
        {"logits": [float_(4, 3)], "label": [shares(4, 3)], "soft_label": [True], "return_softmax": [ABSENT, True]},
        {"logits": [float_(4, 3)], "label": [int_(3, 4, 1)], "numeric_stable_mode": [False]},
    ],
    # With a class that is ignored Paddle's kernel writes where no memory is its own.
    F + "nll_loss": [
        {
            "input": [float_(4, 3)],
            "label": [int_(3, 4)],
            "weight": [ABSENT, None, positive(3)],
            "ignore_index": [ABSENT, -100, 9],
            "reduction": [ABSENT, *REDUCTION],
        },
        {"input": [float_(2, 3, 4, 5)], "label": [int_(3, 2, 4, 5)], "reduction": REDUCTION},
    ],
    F + "mse_loss": loss(),
    F + "l1_loss": loss(),
    F + "smooth_l1_loss": loss(delta=[ABSENT, 0.3, 2.0], is_huber=[ABSENT, True, False]),
    F + "square_error_cost": binary(names="input label"),
    F + "kl_div": [
        *loss(float_, unit, log_target=[ABSENT, False, True]),
        {"input": [float_(3, 4)], "label": [unit(3, 4)], "reduction": ["batchmean"], "log_target": [False, True]},
    ],
    F + "binary_cross_entropy": [
        {
            "input": [unit(3, 4)],
            "label": [unit(3, 4)],
            "weight": [ABSENT, None, positive(3, 4), positive(4)],
            "reduction": [ABSENT, *REDUCTION],
        }
    ],
    F + "binary_cross_entropy_with_logits": [
        {
            "logit": [float_(3, 4)],
            "label": [unit(3, 4)],
            "weight": [ABSENT, None, positive(3, 4), positive(4)],
            "reduction": [ABSENT, *REDUCTION],
            "pos_weight": [ABSENT, None, positive(4)],
        }
    ],
    F + "sigmoid_focal_loss": [
        {
            "logit": [float_(3, 4)],
            "label": [int_(2, 3, 4), unit(3, 4)],
            "normalizer": [ABSENT, None, positive(1)],
            "alpha": [ABSENT, 0.4],
            "gamma": [ABSENT, 1.0, 3.0],
            "reduction": [ABSENT, *REDUCTION],
        }
    ],
    F + "margin_ranking_loss": [
        {
            "input": [float_(3, 4)],
            "other": [float_(3, 4)],
            "label": [fixed([[1.0, -1.0, 1.0, -1.0]] * 3)],
            "margin": [ABSENT, 0.3],
            "reduction": [ABSENT, *REDUCTION],
        }
    ],
    F + "soft_margin_loss": [
        {"input": [float_(2, 2)], "label": [fixed([[1.0, -1.0], [-1.0, 1.0]])], "reduction": [ABSENT, *REDUCTION]}
    ],
    F + "hinge_embedding_loss": [
        {
            "input": [float_(2, 2)],
            "label": [fixed([[1.0, -1.0], [-1.0, 1.0]])],
            "margin": [ABSENT, 0.5],
            "reduction": [ABSENT, *REDUCTION],
        }
    ],
    F + "poisson_nll_loss": loss(
        positive, positive, log_input=[ABSENT, True, False], full=[ABSENT, False, True], epsilon=[ABSENT, 1e-3]
    ),
    F + "cosine_similarity": [
        {
            "x1": [float_(3, 4), float_(2, 3, 4)],
            "x2": [float_(3, 4)],
            "axis": [ABSENT, 0, 1, -1],
            "eps": [ABSENT, 1e-8, 2.0],
        }
    ],
    F + "pairwise_distance": [
        {
            "x": [float_(3, 4)],
            "y": [float_(3, 4), float_(4)],
            "p": [ABSENT, 2.0, 1.0, 3.0],
            "epsilon": [ABSENT, 1e-2],
            "keepdim": [ABSENT, False, True],
        }
    ],
    F + "label_smooth": [{"label": [unit(3, 4)], "prior_dist": [ABSENT, None, unit(1, 4)], "epsilon": [ABSENT, 0.3]}],
}
# Nothing fills them: only shapes and dtypes are compared.
UNINITIALISED = ("paddle.empty", "paddle.empty_like")
CASES |= {name: CASES[name.replace("empty", "zeros")] for name in UNINITIALISED}
# Vectors of either sign are right: they are compared without it, and gradients are those of these outputs.
SIGNED: Mapping[str, tuple[str, ...]] = {"paddle.linalg.svd": ("output.1",), "paddle.linalg.eigh": ("output.0",)}

_POOLED = "the gradient has one over the number of elements in float32"
_NORMS = "the gradient divides by the norm plus 1e-12, and has one over p in float32"
# APIs whose float64 kernels compute something less exactly: within what their proof agrees, and why.
LOOSER: Mapping[str, tuple[float, str]] = {
    **{f"{F}avg_pool{rank}d": (1e-7, _POOLED) for rank in (1, 2, 3)},
    **{f"{F}adaptive_avg_pool{rank}d": (1e-7, _POOLED) for rank in (1, 2, 3)},
    F + "selu": (1e-6, "the product of scale and alpha is in float32"),
    "paddle.digamma": (1e-9, "the gradient's series ends early"),
    F + "interpolate": (1e-6, "the weights of bicubic are in float32"),
    **dict.fromkeys(
        (F + "normalize", F + "pairwise_distance", "paddle.dist", "paddle.linalg.norm", "paddle.linalg.vector_norm"),
        (1e-6, _NORMS),
    ),
}
