"""Calls of Paddle's drawn at random: APIs by name, shapes, layouts, sizes and arguments from a table of generators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from benchmarks.quality import calls
from benchmarks.quality.calls import Arguments, Draw, Generator
from benchmarks.quality.samples import LeftOut, Sample, Samples, Wish, seed_of
from pytest_probe.check import Case, Checker
from pytest_probe.frameworks.paddle.arrays import to_tensor
from pytest_probe.numerics.dtypes import numpy_dtype

# Exponents of the ends of a range: PaddleAPEX rounds them to powers of ten.
EXPONENTS = (-3, -1, 0, 0, 1, 1, 2, 3, 4, 10)


class PaddleDraw(Draw):
    """As Draw, with Paddle's tensors, and with ranges as PaddleAPEX has them."""

    def tensor(self, values: Any) -> Any:
        made = to_tensor(np.asarray(values).astype(numpy_dtype(self.dtype)))
        if made.ndim > 1 and self.random.random() < 0.25:
            order = [1, 0, *range(2, made.ndim)]
            return made.transpose(order).contiguous().transpose(order)
        return made

    def plain(self, values: Any) -> Any:
        return to_tensor(np.asarray(values))

    def normal(self, *shape: int) -> Any:
        if self.random.random() < 0.6:
            return super().normal(*shape)
        high = 10.0 ** self.pick(*EXPONENTS)
        low = self.pick(0.0, -high, -(10.0 ** self.pick(*EXPONENTS)))
        return self.tensor(self.random.uniform(low, high, shape))


def drawn(generator: Callable[[Any], tuple[Any, ...]]) -> Generator:
    """Positional arguments by a function of the draw."""
    return lambda d: (generator(d), {})


def axis(generator: Generator) -> Generator:
    """With what Paddle calls axis."""

    def arguments(d: Draw) -> Arguments:
        args, kwargs = generator(d)
        return args, {{"dim": "axis"}.get(name, name): value for name, value in kwargs.items()}

    return functools.update_wrapper(arguments, generator)


def moderate(d: Draw) -> Arguments:
    """Beyond 88 the gradients of these are NaN: the kernels divide, or multiply by zero, what has overflowed."""
    return (d.inside(*d.shape(), low=d.pick(-1, -8, -80), high=d.pick(1, 8, 80)),), {}


def with_divisor(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape), d.positive(*shape)), {}


def same(count: int) -> Generator:
    """So many tensors of one shape."""

    def arguments(d: Draw) -> Arguments:
        shape = d.shape()
        return tuple(d.normal(*shape) for _ in range(count)), {}

    return arguments


def two_along(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape), d.normal(*shape)), {"axis": d.dim(shape)}


def scaled(d: Draw) -> Arguments:
    return (d.normal(*d.shape()),), {"scale": d.pick(0.125, 2.0, -1.5), "bias": d.pick(0.0, 1.0)}


def quantile(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape), d.pick(0.25, 0.5, [0.1, 0.9])), {"axis": d.dim(shape)}


def norm(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape),), {"p": d.pick(1, 2, 3.0, float("inf")), "axis": d.dim(shape)}


def affine(d: Draw) -> Arguments:
    k, m = d.extent(1, 300), d.extent()
    bias = [d.normal(m)] if d.pick(True, False) else []
    return (d.normal(*d.shape(1, 2), k), d.normal(k, m), *bias), {}


def transposed(d: Draw) -> Arguments:
    n, k, m, x, y = d.extent(), d.extent(1, 400), d.extent(), d.pick(True, False), d.pick(True, False)
    first, second = (k, n) if x else (n, k), (m, k) if y else (k, m)
    return (d.normal(*first), d.normal(*second)), {"transpose_x": x, "transpose_y": y}


def tensordot(d: Draw) -> Arguments:
    k = d.extent(1, 30)
    return (d.normal(d.extent(), k, 3), d.normal(k, 3, d.extent())), {"axes": 2}


def layer_norm(d: Draw) -> Arguments:
    (x, shape, *weights), _ = calls.layer_norm(d)
    return (x, list(shape), *weights), {}


def batch_norm(d: Draw) -> Arguments:
    args, kwargs = calls.batch_norm(d)
    return args, {"training": kwargs["training"], "momentum": 0.9}


def group_norm(d: Draw) -> Arguments:
    (x, groups, weight, bias), _ = calls.group_norm(d)
    return (x, groups, 1e-5, weight, bias), {}


def interpolation(d: Draw) -> Arguments:
    mode = d.pick("nearest", "bilinear", "bicubic")
    kwargs = {} if mode == "nearest" else {"align_corners": d.pick(True, False)}
    return (calls.images(d),), {"scale_factor": d.pick(2, 1.5), "mode": mode, **kwargs}


def attention(d: Draw) -> Arguments:
    b, h, n, e = d.extent(1, 3), d.extent(1, 3), d.extent(2, 24), d.pick(4, 8, 16)
    return tuple(d.normal(b, n, h, e) for _ in range(3)), {"is_causal": d.pick(True, False)}


def soft_labels(d: Draw) -> Arguments:
    n, c = d.extent(2), d.extent(2)
    labels = d.inside(n, c)
    return (d.normal(n, c), labels), {"soft_label": True, "reduction": d.pick("mean", "sum", "none")}


def hard_labels(d: Draw) -> Arguments:
    n, c = d.extent(2), d.extent(2)
    return (d.normal(n, c), d.indices(c, n, 1)), {}


def log_probabilities(d: Draw) -> Arguments:
    n, c = d.extent(2), d.extent(2)
    values = d.random.dirichlet(np.ones(c), n)
    return (d.tensor(np.log(values + 1e-6)), d.indices(c, n)), {"reduction": d.pick("mean", "sum", "none")}


def divergence(d: Draw) -> Arguments:
    (logs, _), _ = log_probabilities(d)
    return (logs, d.inside(*logs.shape)), {"reduction": d.pick("batchmean", "mean", "sum", "none")}


def ctc(d: Draw) -> Arguments:
    steps, batch, classes, length = d.extent(8, 20), d.extent(1, 4), d.extent(3, 9), 3
    labels = d.plain(d.random.integers(1, classes, (batch, length)).astype(np.int32))
    lengths = [d.plain(np.full(batch, value)) for value in (steps, length)]
    return (d.normal(steps, batch, classes), labels, *lengths), {}


def signs(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape), d.tensor(d.random.choice([-1.0, 1.0], shape))), {}


def ranking(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape), d.normal(*shape), d.tensor(d.random.choice([-1.0, 1.0], shape))), {"margin": 0.1}


def focal(d: Draw) -> Arguments:
    shape = (d.extent(2), d.extent(2))
    return (d.normal(*shape), d.tensor(d.random.integers(0, 2, shape))), {"reduction": d.pick("mean", "sum", "none")}


def put(d: Draw) -> Arguments:
    shape, rows = (d.extent(2), d.extent(2)), d.extent(2)
    how = d.pick("add", "mul", "amax", "mean")
    rows = min(rows, shape[0])
    return (d.normal(*shape), d.indices(shape[0], rows, shape[1]), d.normal(rows, shape[1]), 0), {"reduce": how}


def take(d: Draw) -> Arguments:
    shape = (d.extent(2), d.extent(2))
    return (d.normal(*shape), d.indices(shape[0], *shape), 0), {}


def gather(d: Draw) -> Arguments:
    shape = d.shape(2, 3)
    return (d.normal(*shape), d.indices(shape[0], d.extent())), {}


def gather_nd(d: Draw) -> Arguments:
    shape = d.shape(2, 3)
    return (d.normal(*shape), d.indices(min(shape[:2]), d.extent(), 2)), {}


def scatter(d: Draw) -> Arguments:
    shape, rows = d.shape(2, 2), d.extent(2)
    return (d.normal(*shape), d.indices(shape[0], rows), d.normal(rows, shape[1])), {"overwrite": False}


def scatter_nd_add(d: Draw) -> Arguments:
    shape, rows = d.shape(2, 2), d.extent(2)
    return (d.normal(*shape), d.indices(shape[0], rows, 1), d.normal(rows, shape[1])), {}


def index_add(d: Draw) -> Arguments:
    shape, rows = d.shape(2, 2), d.extent(2)
    return (d.normal(*shape), d.indices(shape[0], rows), 0, d.normal(rows, shape[1])), {}


def sampled(d: Draw) -> Arguments:
    shape = (d.extent(2), d.extent(2))
    return (d.normal(*shape), d.indices(shape[1], shape[0], d.extent())), {}


def masked(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape), d.mask(*shape)), {}


def embedding(d: Draw) -> Arguments:
    args, _ = calls.embedding(d)
    return args, {"padding_idx": d.pick(None, 0)}


def segments(d: Draw) -> Arguments:
    rows = d.extent(2)
    ids = np.sort(d.random.integers(0, 5, rows))
    ids -= ids[0]
    return (d.normal(rows, d.extent()), d.plain(np.unique(ids, return_inverse=True)[1].astype(np.int64))), {}


def messages(d: Draw) -> Arguments:
    nodes, edges = d.extent(2), d.extent(2)
    return (d.normal(nodes, d.extent()), d.indices(nodes, edges), d.indices(nodes, edges)), {
        "reduce_op": d.pick("sum", "mean", "max")
    }


def grid(d: Draw) -> Arguments:
    n = d.extent(1, 3)
    x = d.normal(n, d.extent(1, 4), d.extent(4, 10), d.extent(4, 10))
    points = d.inside(n, d.extent(3, 8), d.extent(3, 8), 2, low=-1.2, high=1.2)
    return (x, points), {"mode": d.pick("bilinear", "nearest"), "align_corners": d.pick(True, False)}


def regions(d: Draw) -> Arguments:
    x = d.normal(1, d.extent(1, 4), 12, 12)
    corners = d.random.uniform(0, 5, (3, 2))
    boxes = np.concatenate([corners, corners + d.random.uniform(1, 6, (3, 2))], 1)
    return (x, d.tensor(boxes), d.plain(np.array([3], np.int32))), {"output_size": d.pick(2, 3)}


def repeated(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape), d.pick(2, 3)), {"axis": d.dim(shape)}


def padded(d: Draw) -> Arguments:
    mode = d.pick("constant", "reflect", "replicate", "circular")
    return (calls.images(d), [1, 2, 2, 1]), {"mode": mode}


def listed(d: Draw) -> Arguments:
    shape = d.shape()
    return ([d.normal(*shape) for _ in range(d.extent(1, 4))],), {}


def positive_definite(d: Draw) -> Arguments:
    n = d.extent(1, 12)
    root = d.random.standard_normal((n, n)) * 10.0 ** d.random.uniform(-1, 1)
    return (d.tensor(root @ root.T + np.eye(n)),), {}


def square(d: Draw) -> Arguments:
    n = d.extent(1, 12)
    return (d.tensor(d.random.standard_normal((n, n)) * 10.0 ** d.random.uniform(-1, 1) + 3 * np.eye(n)),), {}


def matrix(d: Draw) -> Arguments:
    return (d.normal(d.extent(2, 16), d.extent(2, 16)),), {}


def system(d: Draw) -> Arguments:
    (left,), _ = square(d)
    return (left, d.normal(left.shape[-1], d.extent())), {}


def triangular(d: Draw) -> Arguments:
    (left,), _ = square(d)
    return (left, d.normal(left.shape[-1], d.extent())), {"upper": d.pick(True, False)}


def transform(d: Draw) -> Arguments:
    return (d.normal(*d.shape(1, 2), d.extent(4, 48)),), {"norm": d.pick("backward", "ortho", "forward")}


def image_transform(d: Draw) -> Arguments:
    return (d.normal(d.extent(1, 3), d.extent(4, 16), d.extent(4, 16)),), {}


def pooling(d: Draw) -> Arguments:
    return (calls.images(d), d.pick(2, 3)), {"stride": d.pick(1, 2), "padding": d.pick(0, 1)}


def pooling_1d(d: Draw) -> Arguments:
    return (d.normal(d.extent(1, 3), d.extent(1, 4), d.extent(6, 30)), d.pick(2, 3)), {"stride": d.pick(1, 2)}


def channels(d: Draw) -> Arguments:
    return (d.normal(d.extent(1, 3), 4 * d.extent(1, 3), 2 * d.extent(2, 4), 2 * d.extent(2, 4)), 2), {}


def windows(d: Draw) -> Arguments:
    return (calls.images(d),), {"kernel_sizes": d.pick(2, 3)}


def prelu(d: Draw) -> Arguments:
    x = calls.images(d)
    return (x, d.inside(x.shape[1])), {}


def gated(d: Draw) -> Arguments:
    return (d.normal(*d.shape(1, 2), 2 * d.extent()),), {}


def triplet(d: Draw) -> Arguments:
    shape = (d.extent(2), d.extent(2))
    return tuple(d.normal(*shape) for _ in range(3)), {"reduction": d.pick("mean", "sum", "none")}


def gaussian(d: Draw) -> Arguments:
    shape = (d.extent(2), d.extent(2))
    return (d.normal(*shape), d.normal(*shape), d.positive(*shape)), {"full": d.pick(True, False)}


def selection(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape),), {"k": d.extent(1, shape[-1]), "axis": -1}


def clip(d: Draw) -> Arguments:
    return (d.normal(*d.shape()),), {"min": d.pick(-0.7, None), "max": d.pick(1.1, 100.0)}


def mean_of(d: Draw) -> Arguments:
    shape = d.shape(2, 3)
    return (d.normal(*shape),), {"axis": d.pick([0, 1], [-1], None), "keepdim": d.pick(True, False)}


def with_weight(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape), d.normal(*shape), d.pick(0.3, 0.9)), {}


def covariance(d: Draw) -> Arguments:
    return (d.normal(d.extent(2, 12), d.extent(3, 40)),), {}


F, LINALG = "nn.functional.", "linalg."


def _of(module: str, names: str) -> str:
    return " ".join(f"{module}{name}" for name in names.split())


TABLE: Mapping[Generator, str] = {
    calls.unary: "exp sin cos tan tanh erf atan asinh expm1 abs neg square floor ceil round trunc sign sinh cosh sinc "
    "isfinite rad2deg deg2rad i0 i0e i1 i1e frac nan_to_num sgn signbit stanh flatten clone numel "
    "Tensor.exp_ Tensor.tanh_ Tensor.square Tensor.abs Tensor.__neg__ Tensor.sin "
    + _of(
        F,
        "relu gelu mish elu selu softplus hardswish hardsigmoid leaky_relu log_sigmoid softsign tanhshrink "
        "relu6 sigmoid swish hardshrink softshrink hardtanh thresholded_relu softmax log_softmax",
    ),
    moderate: F + "silu " + F + "celu",
    calls.unary_positive: "log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma gammaln Tensor.sqrt_ Tensor.log",
    calls.unary_inside: "asin acos atanh erfinv",
    calls.binary: "add subtract multiply maximum minimum fmax fmin atan2 hypot logaddexp Tensor.__add__ Tensor.__mul__ "
    "Tensor.__sub__ Tensor.add_ Tensor.multiply_ equal less_than greater_equal not_equal copysign",
    with_divisor: "divide remainder floor_divide floor_mod Tensor.__truediv__ Tensor.__mod__",
    calls.with_number: "Tensor.__rsub__ Tensor.__truediv__ Tensor.__add__ Tensor.__mul__ Tensor.__gt__",
    calls.power: "pow Tensor.__pow__",
    axis(calls.along): "cumsum logsumexp sort argsort median cummax cummin logcumsumexp nansum amax amin diff "
    "trapezoid mode Tensor.argmax nn.functional.normalize",
    axis(calls.reduction): "sum mean var std max min argmax argmin nansum nanmean count_nonzero all any Tensor.sum "
    "Tensor.mean Tensor.max",
    mean_of: "sum mean max prod logsumexp",
    axis(calls.products): "prod",
    drawn(lambda d: (d.inside(*d.shape(), low=0.5, high=1.5), 0)): "cumprod",
    drawn(lambda d: (d.normal(*d.shape(1, 2)), 0)): "cumprod",
    norm: "norm linalg.vector_norm",
    two_along: "linalg.vecdot nn.functional.cosine_similarity",
    scaled: "scale",
    with_weight: "lerp",
    quantile: "quantile nanquantile",
    affine: F + "linear",
    calls.matmul: "matmul Tensor.__matmul__ Tensor.matmul",
    transposed: "matmul",
    calls.mm: "mm",
    calls.bmm: "bmm",
    calls.addmm: "addmm",
    calls.mv: "mv",
    calls.dot: "dot outer inner",
    calls.einsum: "einsum",
    tensordot: "tensordot",
    same(2): "dist inner nn.functional.pairwise_distance nn.functional.mse_loss nn.functional.l1_loss "
    "nn.functional.smooth_l1_loss nn.functional.square_error_cost",
    calls.convolution(1): F + "conv1d",
    calls.convolution(2): F + "conv2d",
    calls.convolution(3): F + "conv3d",
    calls.convolution(2, transposed=True): F + "conv2d_transpose",
    layer_norm: F + "layer_norm",
    batch_norm: F + "batch_norm",
    group_norm: F + "group_norm",
    calls.instance_norm: F + "instance_norm",
    drawn(lambda d: (calls.images(d), 3)): F + "local_response_norm",
    pooling: F + "avg_pool2d " + F + "max_pool2d",
    pooling_1d: F + "avg_pool1d " + F + "max_pool1d",
    calls.adaptive: F + "adaptive_avg_pool2d " + F + "adaptive_max_pool2d",
    channels: F + "pixel_shuffle " + F + "pixel_unshuffle " + F + "channel_shuffle " + F + "maxout",
    windows: F + "unfold",
    interpolation: F + "interpolate " + F + "upsample",
    grid: F + "grid_sample",
    regions: "vision.ops.roi_align",
    padded: F + "pad",
    attention: F + "scaled_dot_product_attention",
    embedding: F + "embedding",
    calls.logits: F + "binary_cross_entropy_with_logits",
    calls.probabilities: F + "binary_cross_entropy",
    calls.classes: F + "cross_entropy " + F + "multi_margin_loss",
    soft_labels: F + "cross_entropy",
    hard_labels: F + "softmax_with_cross_entropy",
    log_probabilities: F + "nll_loss",
    divergence: F + "kl_div",
    ctc: F + "ctc_loss",
    signs: F + "soft_margin_loss " + F + "hinge_embedding_loss",
    ranking: F + "margin_ranking_loss",
    focal: F + "sigmoid_focal_loss",
    triplet: F + "triplet_margin_loss",
    gaussian: F + "gaussian_nll_loss",
    calls.distances: "cdist",
    put: "put_along_axis",
    take: "take_along_axis",
    gather: "gather index_select",
    gather_nd: "gather_nd",
    scatter: "scatter",
    scatter_nd_add: "scatter_nd_add",
    index_add: "index_add",
    sampled: "index_sample",
    masked: "masked_select",
    calls.masked_fill: "masked_fill",
    calls.where: "where",
    segments: "geometric.segment_sum geometric.segment_mean geometric.segment_max",
    messages: "geometric.send_u_recv",
    repeated: "repeat_interleave roll",
    selection: "topk kthvalue",
    clip: "clip",
    listed: "concat stack add_n",
    gated: F + "glu " + F + "swiglu",
    prelu: F + "prelu",
    calls.dropout: F + "dropout",
    covariance: LINALG + "cov " + LINALG + "corrcoef",
    square: "linalg.inv linalg.det linalg.slogdet linalg.qr trace inverse",
    drawn(lambda d: (square(d)[0][0], d.pick(2, 3, -1))): "linalg.matrix_power",
    positive_definite: "linalg.cholesky linalg.eigh linalg.eigvalsh",
    matrix: "linalg.svd linalg.pinv linalg.svdvals linalg.matrix_norm t tril triu",
    system: "linalg.solve",
    triangular: "linalg.triangular_solve",
    transform: "fft.fft fft.rfft fft.irfft",
    image_transform: "fft.fft2 fft.rfft2 fft.fftn",
}


def named(api: str) -> Callable[..., Any]:
    return functools.reduce(getattr, api.split("."), paddle)


def samples(wish: Wish) -> Samples:
    """So many calls of every API of the table."""
    for place, (generator, names) in enumerate(TABLE.items()):
        for api in names.split():
            if wish.takes(f"paddle.{api}"):
                for number in range(wish.count):
                    yield _drawn(generator, api, f"paddle.{api} {place}.{number}", wish)


def _drawn(generator: Generator, api: str, label: str, wish: Wish) -> Sample | LeftOut:
    args, kwargs = generator(PaddleDraw(seed_of(label), wish.dtype))

    def cases(checker: Checker) -> Sequence[Case]:
        return checker.pairs(named(api), named(api), args, kwargs, api=f"paddle.{api}", backward=True, key=label)

    return Sample(label, cases, paddle.seed)
