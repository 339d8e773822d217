"""What the arguments of MindSpore's APIs may be in a proof: what those of Paddle's may be that the same function of
torch's makes, by MindSpore's names, and what else there is below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.mapping.drawing import ABSENT, Drawn, DrawnCall, Group, bool_, float_, int32, int_, positive, unit
from benchmarks.mapping.paddle_cases import CASES as PADDLE_CASES
from benchmarks.mapping.paddle_cases import F64, binary, distinct, reduced, unary
from benchmarks.mapping.proof import How
from pytest_probe.frameworks.mapping import Mapping as Entry
from pytest_probe.frameworks.mapping.table import packaged
from pytest_probe.model.dump import DtypeSpec, leaves
from pytest_probe.model.run import Leaf, map_tree

OPS, MINT = "mindspore.ops.", "mindspore.mint."
F32 = DtypeSpec("float32")
_LIMIT, _SINGLE = 1e-12, 1e-5
_IN_SINGLE = (
    "mint.nn.functional.nll_loss ops.baddbmm ops.celu ops.leaky_relu ops.mish ops.softplus ops.mse_loss "
    "ops.l1_loss ops.addcdiv ops.addcmul ops.clamp ops.clip_by_value ops.var ops.std ops.masked_fill ops.gelu "
    "ops.hardsigmoid ops.log_softmax ops.cross_entropy ops.selu"
).split()
# Their kernels take float32, and no float64.
_SINGLE_ALONE = (
    "Tensor.norm ops.lerp ops.relu6 ops.hardshrink ops.softshrink ops.dot ops.prelu ops.conv2d ops.batch_norm "
    "ops.avg_pool2d ops.binary_cross_entropy ops.binary_cross_entropy_with_logits "
    "mint.nn.functional.binary_cross_entropy mint.nn.functional.binary_cross_entropy_with_logits"
).split()
# Arguments of which the CPU's kernels take one value, and functions that they do not have.
_FIXED = {OPS + "elu": ("alpha",), OPS + "round": ("decimals",), OPS + "max_pool2d": ("dilation",)}
_NO_KERNEL = frozenset(
    f"mindspore.{name}"
    for name in (
        "ops.roll ops.layer_norm mint.scatter_add Tensor.scatter_add mint.nn.functional.cross_entropy "
        "mint.nn.functional.one_hot"
    ).split()
)
# By API: within which share of the scale both sides agree, and why not closer.
LOOSER: Mapping[str, tuple[float, str]] = {
    **{f"mindspore.{name}": (_SINGLE, "the kernel computes in float32") for name in _IN_SINGLE},
    **{f"mindspore.{name}": (_SINGLE, "the kernel takes float32, and no float64") for name in _SINGLE_ALONE},
}


def how_of(api: str) -> How:
    dtype = "float32" if api.removeprefix("mindspore.") in _SINGLE_ALONE else "float64"
    limit, _ = LOOSER.get(api, (_LIMIT, ""))
    return How(limit, dtype=dtype, fixed=_FIXED.get(api, ()), kernel=api not in _NO_KERNEL)


def turned(api: str, call: DrawnCall) -> DrawnCall | None:
    """The call as MindSpore takes it. None where a tensor is empty: some kernels then divide by zero, which ends the
    process."""
    if any(isinstance(value, Leaf) and not value.array.size for _, value in leaves([call.args, call.kwargs], "")):
        return None
    if how_of(api).dtype == "float64":
        return call

    def leaf(value: Any, name: str) -> Any:
        double = isinstance(value, Leaf) and value.array.dtype == np.float64
        return Leaf(value.array.astype(np.float32), value.requires_grad) if double else value

    return DrawnCall(map_tree(call.args, "", leaf), map_tree(call.kwargs, "", leaf), call.shown)


def _permutation(size: int, dtype: Any) -> Drawn:
    """An index in which no place comes twice."""
    return Drawn(lambda random: np.argsort(random.random((size, size)), 0).astype(dtype))


def _variance(name: str) -> list[Group]:
    return [{name: [float_(3, 4)], "axis": [ABSENT, None, 0, -1], "ddof": [ABSENT, 0, 1], "keepdims": [ABSENT, True]}]


def _extreme(name: str) -> list[Group]:
    return [{"input": [distinct(3, 4)], "axis": [ABSENT, 0, -1], "keepdims": [ABSENT, False, True]}]


def _limits(name: str, low: str, high: str) -> list[Group]:
    return [{name: [float_(3, 4), float_(5)], low: [ABSENT, None, -0.4, -0.1], high: [0.3, 0.6, ABSENT]}]


def _softmax(name: str, **further: Sequence[Any]) -> list[Group]:
    return [{name: [float_(3, 4), float_(2, 3, 4), float_(5)], "axis": [ABSENT, 0, -1], **further}]


def _where(first: str = "condition") -> list[Group]:
    return [
        {first: [bool_(2, 3)], "input": [float_(2, 3)], "other": [float_(2, 3)]},
        {first: [bool_(2, 3)], "input": [float_(2, 1)], "other": [float_(3)]},
    ]


def _norm(**further: Sequence[Any]) -> list[Group]:
    return [{**further, "weight": [ABSENT, None, float_(4)], "bias": [ABSENT, float_(4)], "eps": [ABSENT, 1e-3]}]


def _pairs(names: str, made: Any = float_, target: Any = None, **further: Sequence[Any]) -> list[Group]:
    a, b = names.split()
    shapes = ((3, 4), (5,), (2, 3, 4))
    return [{a: [made(*shape)], b: [(target or made)(*shape)], **further} for shape in shapes]


_REDUCTION: Group = {"reduction": [ABSENT, "mean", "sum", "none"]}
_ADDED: list[Group] = [
    {"input": [float_(2, 3)], "tensor1": [float_(2, 3), float_(3)], "tensor2": [positive(2, 3)], "value": [ABSENT, 2.5]}
]


def _along(name: str) -> list[Group]:
    return [{name: [float_(2, 3)], "dim": [0, 1, -1], "index": [int_(2, 2, 3), int32(2, 1, 3)]}]


def _scattered(axis: str) -> list[Group]:
    index = [_permutation(3, np.int64), _permutation(3, np.int32)]
    return [{"input": [float_(3, 3)], axis: [0, -2], "index": index, "src": [float_(3, 3)]}]


def _classes(name: str, **further: Sequence[Any]) -> list[Group]:
    return [
        {
            name: [float_(6, 4)],
            "target": [int_(4, 6), int32(4, 6)],
            "weight": [ABSENT, None, positive(4)],
            "ignore_index": [ABSENT, 1],
            "reduction": [ABSENT, "mean", "sum", "none"],
            **further,
        }
    ]


def _binary(scores: str, target: str, **further: Sequence[Any]) -> list[Group]:
    given = {"weight": [ABSENT, None, positive(3, 4)], **_REDUCTION, **further}
    return [{scores: [unit(3, 4)], target: [unit(3, 4)], **given}]


_OWN: Mapping[str, list[Group]] = {
    "mindspore.Tensor.var": _variance("input"),
    "mindspore.Tensor.std": _variance("input"),
    "mindspore.Tensor.norm": [
        {
            "self": [float_(3, 4)],
            "ord": [ABSENT, None, 2, 1, "fro"],
            "dim": [ABSENT, (0, 1)],
            "keepdim": [ABSENT, True],
        },
        {"self": [float_(3, 4)], "ord": [1, 2, 3.0], "dim": [0, -1], "keepdim": [False, True], "dtype": [F32, None]},
    ],
    "mindspore.Tensor.unfold": [
        {
            "self": [float_(2, 3, 6, 7)],
            "kernel_size": [2, 3],
            "dilation": [ABSENT, 2],
            "padding": [ABSENT, 1],
            "stride": [ABSENT, 2],
        }
    ],
    "mindspore.Tensor.equal": [
        {"self": [int_(3, 2, 3)], "other": [int_(3, 2, 3), int_(3, 3)]},
        {"self": [float_(4)], "other": [float_(4), 1.0]},
    ],
    OPS + "erfc": unary(name="input"),
    OPS + "subtract": binary(names="input other", alpha=[ABSENT, 2, 0.5]),
    OPS + "pow": binary(positive, float_, names="input exponent"),
    OPS + "fmod": binary(float_, positive, names="input other"),
    OPS + "dot": [
        {"input": [float_(2, 3)], "other": [float_(3, 4), float_(2, 3, 4)]},
        {"input": [float_(4, 2, 3)], "other": [float_(3, 5)]},
    ],
    OPS + "outer": [{"input": [float_(3), float_(1)], "vec2": [float_(4), float_(2)]}],
    OPS + "div": binary(float_, positive, names="input other", rounding_mode=[ABSENT, None, "floor", "trunc"]),
    OPS + "addcdiv": _ADDED,
    OPS + "addcmul": _ADDED,
    OPS + "lerp": [{"input": [float_(2, 3)], "end": [float_(2, 3), float_(3)], "weight": [float_(2, 3), 0.25]}],
    OPS + "clamp": _limits("input", "min", "max"),
    OPS + "clip_by_value": _limits("x", "clip_value_min", "clip_value_max"),
    OPS + "round": [{"input": [float_(3, 4), float_(5)], "decimals": [ABSENT, 0, 1, 2]}],
    OPS + "reduce_sum": reduced(float_, "axis"),
    OPS + "all": [{"input": [bool_(3, 4)], "axis": [ABSENT, None, 0, -1], "keep_dims": [ABSENT, True]}],
    OPS + "any": [{"input": [bool_(3, 4)], "axis": [ABSENT, None, 0, -1], "keep_dims": [ABSENT, True]}],
    OPS + "logsumexp": [{"input": [float_(3, 4)], "dim": [0, -1, (0, 1)], "keepdim": [ABSENT, True]}],
    OPS + "max": _extreme("input"),
    OPS + "min": _extreme("input"),
    OPS + "argmax": [{"input": [distinct(3, 4)], "dim": [ABSENT, None, 0, -1], "keepdim": [ABSENT, True]}],
    OPS + "var": _variance("input"),
    OPS + "std": _variance("input"),
    OPS + "cumsum": [{"x": [float_(3, 4), int_(9, 3, 4)], "axis": [0, 1, -1], "dtype": [ABSENT, None, F64]}],
    OPS + "cumprod": [{"input": [float_(3, 4)], "dim": [0, 1, -1], "dtype": [ABSENT, None, F64]}],
    OPS + "split": [{"tensor": [float_(4, 6)], "split_size_or_sections": [2, 3], "axis": [ABSENT, 1, -1]}],
    OPS + "expand_dims": [{"input_x": [float_(2, 3), float_(4)], "axis": [0, 1, -1]}],
    OPS + "unsqueeze": [{"input": [float_(2, 3), float_(4)], "dim": [0, 1, -1]}],
    OPS + "flip": [{"input": [float_(2, 3), float_(2, 3, 4)], "dims": [(0,), (1,), (0, -1)]}],
    OPS + "reshape": [{"input": [float_(2, 6), int_(9, 3, 4)], "shape": [(3, 4), (-1,), (2, -1)]}],
    OPS + "broadcast_to": [{"input": [float_(3), float_(2, 1)], "shape": [(2, 3), (4, 2, 3)]}],
    OPS + "tile": [{"input": [float_(2, 3), float_(4)], "dims": [(2, 1), (1, 3), (2, 1, 2)]}],
    OPS + "narrow": [{"input": [float_(4, 5)], "axis": [0, 1, -1], "start": [0, 1], "length": [1, 3]}],
    OPS + "repeat_interleave": [{"input": [float_(2, 3)], "repeats": [2, 3], "axis": [ABSENT, None, 0, 1, -1]}],
    OPS + "pad": [
        {
            "input_x": [float_(3, 4)],
            "padding": [(1, 2), (1, 0, 2, 1)],
            "mode": [ABSENT, "constant"],
            "value": [ABSENT, 2.5],
        },
        {"input_x": [float_(2, 3, 4)], "padding": [(1, 2)], "mode": ["reflect", "replicate", "circular"]},
    ],
    OPS + "where": _where(),
    OPS + "select": _where(),
    OPS + "masked_fill": [{"input_x": [float_(2, 3)], "mask": [bool_(2, 3), bool_(3)], "value": [1.5, -2.0]}],
    OPS + "gather": [
        {
            "input_params": [float_(3, 4), float_(3, 3, 2)],
            "input_indices": [int_(3, 2), int_(3, 2, 3), int_(3)],
            "axis": [0, 1, -2],
            "batch_dims": [ABSENT, 0],
        }
    ],
    OPS + "gather_elements": _along("input"),
    OPS + "gather_d": _along("x"),
    MINT + "gather": _along("input"),
    "mindspore.Tensor.gather": _along("input"),
    OPS + "scatter": _scattered("axis"),
    MINT + "scatter": _scattered("dim"),
    "mindspore.Tensor.scatter": _scattered("axis"),
    MINT + "scatter_add": _scattered("dim"),
    "mindspore.Tensor.scatter_add": _scattered("dim"),
    OPS + "relu": [{"input": [float_(3, 4), float_(5)], "inplace": [ABSENT, False]}],
    OPS + "elu": [{"input_x": [float_(3, 4), float_(5)], "alpha": [ABSENT, 1.0]}],
    OPS + "selu": [{"input_x": [positive(3, 4), positive(5)]}],
    OPS + "gelu": [{"input": [float_(3, 4), float_(5)], "approximate": [ABSENT, "none", "tanh"]}],
    OPS + "mish": [{"x": [float_(3, 4), float_(5)]}],
    OPS + "hardsigmoid": [{"input": [float_(3, 4), float_(5)]}],
    OPS + "prelu": [{"input": [float_(2, 3, 4)], "weight": [float_(3), float_(1)]}],
    OPS + "softmax": _softmax("input", dtype=[ABSENT, None, F64]),
    OPS + "softmin": _softmax("x", dtype=[ABSENT, None, F64]),
    OPS + "log_softmax": _softmax("logits"),
    OPS + "dense": [
        {"input": [float_(2, 3), float_(4, 2, 3)], "weight": [float_(5, 3)], "bias": [ABSENT, None, float_(5)]}
    ],
    OPS + "conv2d": [
        {
            "input": [float_(2, 4, 7, 8)],
            "weight": [float_(6, 4, 3, 2)],
            "bias": [ABSENT, None, float_(6)],
            "stride": [ABSENT, 2, (1, 3)],
            "pad_mode": [ABSENT, "valid", "same"],
            "dilation": [ABSENT, 2],
            "groups": [ABSENT, 1],
        },
        {
            "input": [float_(2, 4, 7, 8)],
            "weight": [float_(6, 2, 3, 2)],
            "pad_mode": ["pad"],
            "padding": [0, 1, (2, 1)],
            "groups": [2],
        },
    ],
    OPS + "layer_norm": _norm(input=[float_(2, 3, 4)], normalized_shape=[(4,), (4,)]),
    OPS + "group_norm": _norm(input=[float_(2, 4, 5), float_(3, 4, 2)], num_groups=[2, 1]),
    OPS + "batch_norm": [
        {
            "input_x": [float_(3, 4, 2, 2)],
            "running_mean": [float_(4)],
            "running_var": [positive(4)],
            "weight": [float_(4)],
            "bias": [float_(4)],
            "training": [ABSENT, False, True],
            "momentum": [ABSENT, 0.3],
            "eps": [ABSENT, 1e-3],
        }
    ],
    OPS + "avg_pool2d": [
        {
            "input_x": [float_(2, 3, 7, 8)],
            "kernel_size": [2, 3, (2, 3)],
            "stride": [ABSENT, 2, (1, 2)],
            "padding": [ABSENT, 1],
            "ceil_mode": [ABSENT, True],
            "count_include_pad": [ABSENT, False],
        }
    ],
    OPS + "max_pool2d": [
        {
            "x": [distinct(2, 3, 7, 8)],
            "kernel_size": [2, 3],
            "stride": [ABSENT, None, 1, 2],
            "padding": [ABSENT, 1],
            "dilation": [ABSENT, 1],
            "return_indices": [ABSENT, False, True],
            "ceil_mode": [ABSENT, False, True],
        }
    ],
    OPS + "cross_entropy": _classes("input", label_smoothing=[ABSENT, 0.1]),
    OPS + "nll_loss": _classes("inputs"),
    MINT + "nn.functional.cross_entropy": _classes("input", label_smoothing=[ABSENT, 0.1]),
    MINT + "nn.functional.nll_loss": _classes("input"),
    MINT + "nn.functional.one_hot": [{"tensor": [int_(3, 4), int32(3, 2, 3)], "num_classes": [ABSENT, 4]}],
    OPS + "smooth_l1_loss": _pairs("input target", beta=[ABSENT, 0.5, 2.0], **_REDUCTION),
    OPS + "binary_cross_entropy": _binary("logits", "labels"),
    MINT + "nn.functional.binary_cross_entropy": _binary("input", "target"),
    OPS + "binary_cross_entropy_with_logits": _binary("input", "target", pos_weight=[ABSENT, None, positive(3, 4)]),
    MINT + "nn.functional.binary_cross_entropy_with_logits": _binary(
        "input", "target", pos_weight=[ABSENT, None, positive(3, 4)]
    ),
}


def _cases() -> dict[str, Sequence[Group]]:
    paddle = {
        entry.path: (api, entry)
        for api, entry in packaged("paddle_torch").entries.items()
        if entry.function is None and api in PADDLE_CASES and not entry.values
    }
    found: dict[str, Sequence[Group]] = dict(_OWN)
    for api, entry in packaged("mindspore_torch").entries.items():
        if api not in found and entry.function is None and entry.path in paddle:
            other, theirs = paddle[entry.path]
            found[api] = list(_renamed(PADDLE_CASES[other], theirs, entry))
    return found


def _renamed(groups: Sequence[Group], theirs: Entry, entry: Entry) -> Iterator[Group]:
    """The groups by the names that another entry of the same function has, without what that does not take."""
    own = {name: alias for alias, name in entry.takes.aliases.items()}
    for group in groups:
        named: dict[str, Any] = {}
        for name, values in group.items():
            common = theirs.takes.aliases.get(name, name)
            if common in entry.takes.parameters and common not in entry.only:
                named[own.get(common, common)] = values
        yield named


CASES = _cases()
