"""Calls drawn at random: APIs by name, shapes, layouts, sizes and arguments from a table of generators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from benchmarks.quality.samples import LeftOut, Sample, Samples, Wish, named, of_function, seed_of

Arguments: TypeAlias = "tuple[Sequence[Any], Mapping[str, Any]]"


class Draw:
    """Random tensors in one dtype, and random extents."""

    def __init__(self, seed: int, dtype: Any) -> None:
        self.random = np.random.default_rng(seed)
        self.dtype = dtype

    def extent(self, low: int = 1, high: int = 48) -> int:
        """Small ones are as likely as large ones."""
        return int(np.exp(self.random.uniform(np.log(low), np.log(high + 1))))

    def shape(self, low: int = 1, high: int = 3) -> tuple[int, ...]:
        return tuple(self.extent(2, 24) for _ in range(self.random.integers(low, high + 1)))

    def pick(self, *values: Any) -> Any:
        return values[self.random.integers(len(values))]

    def tensor(self, values: Any) -> Any:
        """In the dtype, and one time in four laid out the other way around."""
        made = torch.from_numpy(np.asarray(values)).to(self.dtype)
        if made.ndim > 1 and self.random.random() < 0.25:
            return made.transpose(0, 1).contiguous().transpose(0, 1)
        return made

    def plain(self, values: Any) -> Any:
        """In the values' own dtype."""
        return torch.from_numpy(np.asarray(values))

    def normal(self, *shape: int) -> Any:
        """Normal numbers of a random size, at times off centre, sparse or with equal ones."""
        values = self.random.standard_normal(shape) * 10.0 ** self.random.uniform(-1.5, 1.0)
        kind = self.random.integers(6)
        if kind == 0:
            values = values + 3 * values.std()
        elif kind == 1:
            values = np.maximum(values, 0.0)
        elif kind == 2:
            values = np.round(values, 1)
        return self.tensor(values)

    def positive(self, *shape: int) -> Any:
        return self.tensor(self.random.gamma(2.0, size=shape) + 0.01)

    def inside(self, *shape: int, low: float = 0.02, high: float = 0.98) -> Any:
        return self.tensor(self.random.uniform(low, high, shape))

    def indices(self, bound: int, *shape: int) -> Any:
        return self.plain(self.random.integers(bound, size=shape))

    def mask(self, *shape: int) -> Any:
        return self.plain(self.random.random(shape) < 0.4)

    def dim(self, shape: Sequence[int]) -> int:
        return int(self.random.integers(-len(shape), len(shape)))


Generator: TypeAlias = Callable[[Draw], Arguments]


def unary(d: Draw) -> Arguments:
    return (d.normal(*d.shape()),), {}


def unary_positive(d: Draw) -> Arguments:
    return (d.positive(*d.shape()),), {}


def unary_inside(d: Draw) -> Arguments:
    return (d.inside(*d.shape()),), {}


def binary(d: Draw) -> Arguments:
    shape = d.shape()
    other = shape if d.random.random() < 0.6 else (1,) * (len(shape) - 1) + shape[-1:]
    return (d.normal(*shape), d.normal(*other)), {}


def with_divisor(d: Draw) -> Arguments:
    (first, second), _ = binary(d)
    return (first, second.abs() + 0.1), {}


def with_number(d: Draw) -> Arguments:
    return (d.normal(*d.shape()), float(d.random.uniform(-3, 3))), {}


def power(d: Draw) -> Arguments:
    return (d.positive(*d.shape()), d.pick(2, 3, 0.5, -1.5, 1.7)), {}


def along(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape),), {"dim": d.dim(shape)}


def reduction(d: Draw) -> Arguments:
    shape = d.shape()
    kwargs = {"dim": d.dim(shape), "keepdim": d.pick(True, False)} if d.random.random() < 0.7 else {}
    return (d.normal(*shape),), kwargs


def products(d: Draw) -> Arguments:
    return (d.inside(*d.shape(), low=0.5, high=1.5),), {"dim": 0}


def norm(d: Draw) -> Arguments:
    return (d.normal(*d.shape()), d.pick(1, 2, 3, float("inf"))), {"dim": 0}


def linear(d: Draw) -> Arguments:
    k, m = d.extent(1, 300), d.extent()
    x, bias = d.normal(*d.shape(1, 2), k), [d.normal(m)] if d.pick(True, False) else []
    return (x, d.normal(m, k), *bias), {}


def matmul(d: Draw) -> Arguments:
    n, k, m = d.extent(), d.extent(1, 400), d.extent()
    batch = d.pick((), (d.extent(1, 4),))
    return (d.normal(*batch, n, k), d.normal(*batch, k, m)), {}


def mm(d: Draw) -> Arguments:
    k = d.extent(1, 400)
    return (d.normal(d.extent(), k), d.normal(k, d.extent())), {}


def bmm(d: Draw) -> Arguments:
    b, k = d.extent(1, 6), d.extent(1, 200)
    return (d.normal(b, d.extent(), k), d.normal(b, k, d.extent())), {}


def addmm(d: Draw) -> Arguments:
    (a, b), _ = mm(d)
    return (d.normal(a.shape[0], b.shape[1]), a, b), {"beta": d.pick(1.0, 0.5), "alpha": d.pick(1.0, 2.5)}


def baddbmm(d: Draw) -> Arguments:
    (a, b), _ = bmm(d)
    return (d.normal(a.shape[0], a.shape[1], b.shape[2]), a, b), {}


def mv(d: Draw) -> Arguments:
    n, k = d.extent(), d.extent(1, 300)
    return (d.normal(n, k), d.normal(k)), {}


def dot(d: Draw) -> Arguments:
    k = d.extent(1, 300)
    return (d.normal(k), d.normal(k)), {}


def einsum(d: Draw) -> Arguments:
    b, n, k, m = d.extent(1, 4), d.extent(), d.extent(), d.extent()
    return ("bnk,bkm->bnm", d.normal(b, n, k), d.normal(b, k, m)), {}


def convolution(dims: int, transposed: bool = False) -> Generator:
    def arguments(d: Draw) -> Arguments:
        groups = d.pick(1, 1, 2)
        size, inner, outer = d.pick(1, 3), groups * d.extent(1, 6), groups * d.extent(1, 6)
        extents = [d.extent(4, 20 if dims < 3 else 8) for _ in range(dims)]
        weight = (inner, outer // groups) if transposed else (outer, inner // groups)
        how = {"stride": d.pick(1, 2), "padding": size // 2, "groups": groups}
        x, w = d.normal(d.extent(1, 4), inner, *extents), d.normal(*weight, *[size] * dims)
        return (x, w, d.pick(None, d.normal(outer))), how

    return arguments


def layer_norm(d: Draw) -> Arguments:
    shape = (*d.shape(1, 2), d.extent(2, 128))
    return (d.normal(*shape), shape[-1:], d.normal(shape[-1]), d.normal(shape[-1])), {}


def rms_norm(d: Draw) -> Arguments:
    shape = (*d.shape(1, 2), d.extent(2, 128))
    return (d.normal(*shape), shape[-1:], d.normal(shape[-1])), {"eps": 1e-6}


def batch_norm(d: Draw) -> Arguments:
    c = d.extent(1, 8)
    x, mean, variance = d.normal(d.extent(2, 8), c, d.extent(2, 12), d.extent(2, 12)), d.normal(c), d.positive(c)
    return (x, mean, variance, d.normal(c), d.normal(c)), {"training": d.pick(True, False), "momentum": 0.1}


def group_norm(d: Draw) -> Arguments:
    groups = d.extent(1, 4)
    c = groups * d.extent(1, 4)
    return (d.normal(d.extent(1, 4), c, d.extent(2, 10), d.extent(2, 10)), groups, d.normal(c), d.normal(c)), {}


def instance_norm(d: Draw) -> Arguments:
    return (d.normal(d.extent(1, 4), d.extent(1, 6), d.extent(3, 12), d.extent(3, 12)),), {}


def images(d: Draw) -> Any:
    return d.normal(d.extent(1, 3), d.extent(1, 4), d.extent(6, 16), d.extent(6, 16))


def pooling(d: Draw) -> Arguments:
    return (images(d), d.pick(2, 3)), {"stride": d.pick(1, 2)}


def adaptive(d: Draw) -> Arguments:
    return (images(d), d.pick(1, 2, (3, 2))), {}


def interpolation(d: Draw) -> Arguments:
    mode = d.pick("nearest", "bilinear", "bicubic")
    kwargs = {} if mode == "nearest" else {"align_corners": d.pick(True, False)}
    return (images(d),), {"scale_factor": d.pick(2.0, 1.5), "mode": mode, **kwargs}


def attention(d: Draw) -> Arguments:
    b, h, n, e = d.extent(1, 3), d.extent(1, 3), d.extent(2, 24), d.pick(4, 8, 16)
    return tuple(d.normal(b, h, n, e) for _ in range(3)), {"is_causal": d.pick(True, False)}


def embedding(d: Draw) -> Arguments:
    rows = d.extent(2, 50)
    return (d.indices(rows, *d.shape(1, 2)), d.normal(rows, d.extent())), {}


def two_alike(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape), d.normal(*shape)), {"reduction": d.pick("mean", "sum", "none")}


def logits(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape), d.inside(*shape)), {"reduction": d.pick("mean", "sum", "none")}


def probabilities(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.inside(*shape), d.inside(*shape)), {"reduction": d.pick("mean", "sum", "none")}


def classes(d: Draw) -> Arguments:
    n, c = d.extent(2), d.extent(2)
    return (d.normal(n, c), d.indices(c, n)), {"reduction": d.pick("mean", "sum", "none")}


def divergence(d: Draw) -> Arguments:
    shape = (d.extent(2), d.extent(2))
    return (torch.log_softmax(d.normal(*shape).float(), -1).to(d.dtype), d.inside(*shape)), {"reduction": "batchmean"}


def cosine(d: Draw) -> Arguments:
    shape = d.shape(2, 3)
    return (d.normal(*shape), d.normal(*shape)), {"dim": -1}


def distances(d: Draw) -> Arguments:
    k = d.extent(1, 30)
    return (d.normal(d.extent(), k), d.normal(d.extent(), k)), {}


def gather(d: Draw) -> Arguments:
    shape = (d.extent(2), d.extent(2))
    return (d.normal(*shape), 0, d.indices(shape[0], *shape)), {}


def scatter_add(d: Draw) -> Arguments:
    shape, rows = (d.extent(2), d.extent(2)), d.extent(2)
    return (d.normal(*shape), 0, d.indices(shape[0], rows, shape[1]), d.normal(rows, shape[1])), {}


def index_select(d: Draw) -> Arguments:
    shape = d.shape(2, 3)
    return (d.normal(*shape), 0, d.indices(shape[0], d.extent())), {}


def index_add(d: Draw) -> Arguments:
    shape, rows = d.shape(2, 2), d.extent(2)
    return (d.normal(*shape), 0, d.indices(shape[0], rows), d.normal(rows, shape[1])), {}


def masked_fill(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape), d.mask(*shape), float("-inf")), {}


def where(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.mask(*shape), d.normal(*shape), d.normal(*shape)), {}


def topk(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape), d.extent(1, shape[-1])), {}


def listed(d: Draw) -> Arguments:
    shape = d.shape()
    return ([d.normal(*shape) for _ in range(d.extent(1, 4))], 0), {}


def clamp(d: Draw) -> Arguments:
    return (d.normal(*d.shape()), -0.7, 1.1), {}


def glu(d: Draw) -> Arguments:
    return (d.normal(*d.shape(), 2 * d.extent()),), {"dim": -1}


def lerp(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape), d.normal(*shape), d.pick(0.3, d.inside(*shape))), {}


def three(d: Draw) -> Arguments:
    shape = d.shape()
    return (d.normal(*shape), d.normal(*shape), d.positive(*shape)), {"value": d.pick(1.0, 0.5)}


def dropout(d: Draw) -> Arguments:
    return (d.normal(d.extent(8), d.extent(8)), d.pick(0.1, 0.5)), {}


def square(d: Draw) -> torch.Tensor:
    n = d.extent(1, 12)
    return d.normal(n, n) + 3 * torch.eye(n, dtype=d.dtype)


def matrix(d: Draw) -> Arguments:
    return (square(d),), {}


def system(d: Draw) -> Arguments:
    left = square(d)
    return (left, d.normal(left.shape[-1], d.extent())), {}


TABLE: Mapping[Generator, str] = {
    unary: "Torch.exp Torch.sin Torch.cos Torch.tanh Torch.sigmoid Torch.erf Torch.atan Torch.asinh Torch.expm1 "
    "Torch.abs Torch.neg Torch.square Torch.floor Torch.round Torch.sign Torch.sinh Torch.isfinite "
    "Functional.relu Functional.gelu Functional.silu Functional.mish Functional.elu Functional.selu "
    "Functional.softplus Functional.hardswish Functional.leaky_relu Functional.logsigmoid Functional.softsign "
    "Functional.tanhshrink Functional.relu6 Tensor.flatten Tensor.clone Tensor.exp_ Tensor.relu_",
    unary_positive: "Torch.log Torch.log2 Torch.log1p Torch.sqrt Torch.rsqrt Torch.reciprocal Torch.lgamma "
    "Torch.digamma Tensor.sqrt_ Tensor.log_",
    unary_inside: "Torch.asin Torch.acos Torch.atanh Torch.logit Torch.erfinv Torch.special.entr",
    binary: "Torch.add Torch.sub Torch.mul Torch.maximum Torch.minimum Torch.atan2 Torch.hypot Torch.logaddexp "
    "Tensor.__iadd__ Tensor.__mul__ Tensor.mul_ Torch.eq Torch.lt Torch.copysign",
    with_divisor: "Torch.div Torch.fmod Torch.remainder Torch.floor_divide Torch.xlogy Tensor.div_ Tensor.__truediv__",
    with_number: "Torch.add Torch.mul Torch.div Tensor.__rsub__ Torch.gt Tensor.add_ Tensor.__imul__",
    power: "Torch.pow Tensor.__pow__",
    along: "Functional.softmax Functional.log_softmax Torch.cumsum Torch.logsumexp Functional.normalize Torch.sort "
    "Torch.argsort Torch.cummax Torch.logcumsumexp Torch.median",
    reduction: "Torch.sum Torch.mean Torch.var Torch.std Torch.amax Torch.max Torch.argmax Torch.nansum "
    "Torch.count_nonzero Torch.all",
    products: "Torch.prod Torch.cumprod",
    norm: "Torch.norm Torch.linalg.vector_norm",
    linear: "Functional.linear",
    matmul: "Torch.matmul Tensor.__matmul__",
    mm: "Torch.mm",
    bmm: "Torch.bmm Tensor.bmm",
    addmm: "Torch.addmm Tensor.addmm_",
    baddbmm: "Torch.baddbmm",
    mv: "Torch.mv",
    dot: "Torch.dot Torch.outer",
    einsum: "Torch.einsum",
    convolution(1): "Functional.conv1d",
    convolution(2): "Functional.conv2d",
    convolution(3): "Functional.conv3d",
    convolution(2, transposed=True): "Functional.conv_transpose2d",
    layer_norm: "Functional.layer_norm",
    rms_norm: "Functional.rms_norm",
    batch_norm: "Functional.batch_norm",
    group_norm: "Functional.group_norm",
    instance_norm: "Functional.instance_norm",
    pooling: "Functional.avg_pool2d Functional.max_pool2d",
    adaptive: "Functional.adaptive_avg_pool2d Functional.adaptive_max_pool2d",
    interpolation: "Functional.interpolate",
    attention: "Functional.scaled_dot_product_attention",
    embedding: "Functional.embedding",
    two_alike: "Functional.mse_loss Functional.l1_loss Functional.smooth_l1_loss Functional.huber_loss",
    logits: "Functional.binary_cross_entropy_with_logits",
    probabilities: "Functional.binary_cross_entropy",
    classes: "Functional.cross_entropy Functional.multi_margin_loss",
    divergence: "Functional.kl_div",
    cosine: "Functional.cosine_similarity Functional.pairwise_distance",
    distances: "Torch.cdist",
    gather: "Torch.gather",
    scatter_add: "Torch.scatter_add Tensor.scatter_add_",
    index_select: "Torch.index_select",
    index_add: "Torch.index_add",
    masked_fill: "Torch.masked_fill Tensor.masked_fill_",
    where: "Torch.where",
    topk: "Torch.topk",
    listed: "Torch.cat Torch.stack",
    clamp: "Torch.clamp",
    glu: "Functional.glu",
    lerp: "Torch.lerp",
    three: "Torch.addcmul Torch.addcdiv",
    dropout: "Functional.dropout",
    matrix: "Torch.inverse Torch.linalg.det Torch.linalg.svd Torch.linalg.qr",
    system: "Torch.linalg.solve",
}


def samples(wish: Wish) -> Samples:
    """So many calls of every API of the table."""
    for generator, names in TABLE.items():
        for api in names.split():
            if wish.takes(api):
                for number in range(wish.count):
                    yield _drawn(generator, api, f"{api} {number}", wish)


def _drawn(generator: Generator, api: str, label: str, wish: Wish) -> Sample | LeftOut:
    args, kwargs = generator(Draw(seed_of(label), getattr(torch, wish.dtype)))
    return of_function(label, named(api), args, kwargs, api=api, backward=True, tiny=wish.tiny)
