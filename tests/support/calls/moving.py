"""Calls that copy, choose, compare and make tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.support.calls.making import Call, Maker, Making, Table, call, place_of, varied


def each(names: str, make: Callable[[Maker, str], Call]) -> dict[str, tuple[Making, ...]]:
    """One call for each of the APIs named, which take the same arguments."""
    return {name: varied(make, (place_of(name),)) for name in names.split()}


UNARY: Table = {
    **each(
        "abs absolute neg negative positive relu relu6 hardtanh nan_to_num sgn sign angle frac square clone contiguous "
        "detach signbit isnan isinf isfinite isposinf isneginf isreal real conj resolve_conj resolve_neg sin cos tan "
        "asinh sinh tanh sigmoid exp exp2 expm1 atan erf erfc gelu silu mish elu celu selu leaky_relu "
        "hardsigmoid hardswish hardshrink softshrink tanhshrink softsign softplus logsigmoid sinc deg2rad rad2deg i0 "
        "i0e floor ceil round trunc fix ravel flatten t adjoint mT squeeze numel data logical_not nonzero argwhere all "
        "any argsort sort msort argmax argmin median nanmedian max min amax amin aminmax "
        "zeros_like ones_like cpu float double half bfloat16 cosh fliplr flipud tolist dim frexp atleast_1d "
        "atleast_2d atleast_3d block_diag rand_like randn_like empty_like",
        lambda m, api: call(api, m.x()),
    ),
    **each(
        "rsqrt sqrt reciprocal log log2 log10 log1p lgamma digamma acosh", lambda m, api: call(api, m.between(1.1, 4))
    ),
    **each("logit acos asin atanh erfinv", lambda m, api: call(api, m.unit())),
    **each("cummax cummin", lambda m, api: call(api, m.x(), 1)),
    **each("mode", lambda m, api: call(api, m.x(), 1)),
    **each("int long short char byte", lambda m, api: call(api, m.positive())),
    "bool": (lambda m: call("Tensor.bool", m.x() * m.mask()),),
    "item": (lambda m: call("Tensor.item", m.x(1)),),
    "imag": (lambda m: call("Torch.imag", m.complex()),),
    "view_as_real": (lambda m: call("Torch.view_as_real", m.complex()),),
    "view_as_complex": (lambda m: call("Torch.view_as_complex", m.wide(m.rows, 2)),),
    "complex": (lambda m: call("Torch.complex", m.wide(), m.wide()),),
    "polar": (lambda m: call("Torch.polar", m.wide().abs(), m.wide()),),
    "bitwise_not": (lambda m: call("Torch.bitwise_not", m.index(9)),),
    "invert": (lambda m: call("Tensor.__invert__", m.index(9)),),
    "one_hot": (lambda m: call("Functional.one_hot", m.index(9)),),
    "diag": (lambda m: call("Torch.diag", m.x()), lambda m: call("Torch.diag", m.x(m.rows))),
    "diag_embed": (lambda m: call("Torch.diag_embed", m.x()),),
    "diagflat": (lambda m: call("Torch.diagflat", m.x(m.cols)),),
    "diagonal_scatter": (lambda m: call("Torch.diagonal_scatter", m.x(m.cols, m.cols), m.x(m.cols)),),
    "select_scatter": (lambda m: call("Torch.select_scatter", m.x(), m.x(m.cols), 0, 1),),
    "slice_scatter": (lambda m: call("Torch.slice_scatter", m.x(6, 4), m.x(2, 4), 0, 1, 3),),
    "fill_diagonal": (lambda m: call("Tensor.fill_diagonal_", m.x(m.cols, m.cols), 0.5),),
    "diagonal": (lambda m: call("Torch.diagonal", m.x()),),
    "size": (lambda m: call("Tensor.size", m.x()),),
}

BINARY: Table = {
    **each(
        "maximum minimum fmax fmin copysign eq ne gt ge lt le equal greater greater_equal less less_equal not_equal "
        "logical_and logical_or logical_xor add sub subtract mul multiply rsub atan2 arctan2 hypot logaddexp "
        "logaddexp2 heaviside nextafter",
        lambda m, api: call(api, m.x(), m.x()),
    ),
    **each("div divide true_divide fmod remainder floor_divide", lambda m, api: call(api, m.x(), m.positive())),
    **each("bitwise_and bitwise_or bitwise_xor", lambda m, api: call(api, m.index(9), m.index(9))),
    "xor": (lambda m: call("Tensor.__xor__", m.index(9), m.index(9)),),
    "pow": (lambda m: call("Torch.pow", m.positive(), m.x()), lambda m: call("Torch.pow", m.x(), 2)),
    "float_power": (lambda m: call("Torch.float_power", m.positive(), 1.5),),
    "xlogy": (lambda m: call("Torch.xlogy", m.x(), m.positive()),),
    "ldexp": (lambda m: call("Torch.ldexp", m.x(), m.index(5)),),
    "prelu": (lambda m: call("Functional.prelu", m.x(), m.x(m.cols)),),
    "polygamma": (lambda m: call("Torch.polygamma", 1, m.positive()),),
    **each("addcmul", lambda m, api: call(api, m.x(), m.x(), m.x(), value=0.3)),
    **each("addcdiv", lambda m, api: call(api, m.x(), m.x(), m.positive(), value=0.3)),
    **each("lerp", lambda m, api: call(api, m.x(), m.x(), 0.3)),
    "rrelu": (lambda m: call("Functional.rrelu", m.wide(), 0.1, 0.3),),
    "glu": (lambda m: call("Functional.glu", m.x(m.rows, 2 * m.cols)),),
}

CHOOSING: Table = {
    **each("clamp clip", lambda m, api: call(api, m.x(), -0.5, 0.5)),
    **each("clamp_max clamp_min", lambda m, api: call(api, m.x(), 0.25)),
    **each("threshold", lambda m, api: call(api, m.x(), 0.25, 0.5)),
    **each("view_as reshape_as", lambda m, api: call(api, m.x(), m.x(m.cols, m.rows))),
    "unflatten": (lambda m: call("Tensor.unflatten", m.x(m.rows, 6), 1, (2, 3)),),
    "view": (lambda m: call("Tensor.view", m.x(), m.cols, m.rows),),
    "reshape": (lambda m: call("Torch.reshape", m.x(), (m.cols, m.rows)),),
    **each("transpose movedim moveaxis swapaxes swapdims", lambda m, api: call(api, m.x(), 0, 1)),
    **each("permute", lambda m, api: call(api, m.x(), (1, 0))),
    **each("unsqueeze", lambda m, api: call(api, m.x(), 1)),
    "expand": (lambda m: call("Tensor.expand", m.x(1, m.cols), m.rows, m.cols),),
    "expand_as": (lambda m: call("Tensor.expand_as", m.x(1, m.cols), m.x()),),
    "broadcast_to": (lambda m: call("Torch.broadcast_to", m.x(1, m.cols), (m.rows, m.cols)),),
    "narrow": (lambda m: call("Torch.narrow", m.x(), 1, 1, 3),),
    "select": (lambda m: call("Torch.select", m.x(), 1, 2),),
    "getitem": (
        lambda m: call("Tensor.__getitem__", m.x(), 1),
        lambda m: call("Tensor.__getitem__", m.x(), m.order(m.rows)),
    ),
    "setitem": (lambda m: call("Tensor.__setitem__", m.x(), 1, 0.5),),
    "split": (lambda m: call("Torch.split", m.x(), 2, 1),),
    "split_with_sizes": (lambda m: call("Torch.split_with_sizes", m.x(), (1, m.cols - 1), 1),),
    **each("chunk tensor_split", lambda m, api: call(api, m.x(), 3, 1)),
    "hsplit": (lambda m: call("Torch.hsplit", m.x(m.rows, 6), 3),),
    "vsplit": (lambda m: call("Torch.vsplit", m.x(6, m.cols), 3),),
    "dsplit": (lambda m: call("Torch.dsplit", m.x(2, m.cols, 6), 3),),
    "unbind": (lambda m: call("Torch.unbind", m.x()),),
    "unfold": (
        lambda m: call("Tensor.unfold", m.x(), 1, 4, 1),
        lambda m: call("Functional.unfold", m.x(2, 3, m.rows, 9), 3),
    ),
    "as_strided": (lambda m: call("Torch.as_strided", m.x(), (m.rows, 3), (2, 1)),),
    **each(
        "cat concat concatenate stack hstack vstack dstack column_stack row_stack",
        lambda m, api: call(api, [m.x(), m.x(), m.x()]),
    ),
    **each("broadcast_tensors meshgrid", lambda m, api: call(api, m.x(m.rows), m.x(m.rows))),
    **each("repeat tile", lambda m, api: call(api, m.x(), (2, 3))),
    "repeat": (lambda m: call("Tensor.repeat", m.x(), 2, 3),),
    "repeat_interleave": (lambda m: call("Torch.repeat_interleave", m.x(), 3, 1),),
    "flip": (lambda m: call("Torch.flip", m.x(), (0, 1)),),
    **each("roll", lambda m, api: call(api, m.x(), 2, 1)),
    **each("rot90 tril triu", lambda m, api: call(api, m.x())),
    "pad": varied(
        lambda m, mode: call("Functional.pad", m.x(2, 3, m.rows, m.cols), (2, 1, 1, 1), mode=mode),
        *(("constant",), ("reflect",), ("replicate",), ("circular",)),
    ),
    "copy": (lambda m: call("Tensor.copy_", m.x(), m.x()),),
    "to": (lambda m: call("Tensor.to", m.x(), torch.float32),),
    "type": (lambda m: call("Tensor.type", m.x(), torch.float32),),
    "type_as": (lambda m: call("Tensor.type_as", m.x(), m.wide()),),
    "where": (lambda m: call("Torch.where", m.mask(), m.x(), m.x()),),
    "masked_fill": (lambda m: call("Tensor.masked_fill", m.x(), m.mask(), 0.5),),
    "masked_scatter": (lambda m: call("Torch.masked_scatter", m.x(), m.mask(), m.x()),),
    "masked_select": (lambda m: call("Torch.masked_select", m.x(), m.mask()),),
    "gather": (lambda m: call("Torch.gather", m.x(), 1, m.index(m.cols)),),
    "take_along_dim": (lambda m: call("Torch.take_along_dim", m.x(), m.index(m.cols), 1),),
    "take": (lambda m: call("Torch.take", m.x(), m.index(m.rows)),),
    "index_select": (lambda m: call("Torch.index_select", m.x(), 0, m.index(m.rows, 9)),),
    "index": (lambda m: call("Tensor.__getitem__", m.x(), m.index(m.rows, 9)),),
    "index_fill": (lambda m: call("Torch.index_fill", m.x(), 0, m.order(m.rows)[:2], 0.5),),
    "index_copy": (lambda m: call("Torch.index_copy", m.x(), 0, m.order(m.rows)[:2], m.x(2, m.cols)),),
    "index_put": (lambda m: call("Torch.index_put", m.x(), (m.order(m.rows)[:2],), m.x(2, m.cols)),),
    "scatter": (lambda m: call("Torch.scatter", m.x(), 0, m.order(m.rows)[:, None].repeat(1, m.cols), m.x()),),
    "put": (lambda m: call("Torch.put", m.x(), m.order(m.rows)[:2], m.x(2)),),
    "embedding": (lambda m: call("Functional.embedding", m.index(m.rows, 9), m.x()),),
    "fill": (lambda m: call("Tensor.fill_", m.x(), 0.5),),
    "pixel_shuffle": (lambda m: call("Functional.pixel_shuffle", m.x(2, 4, m.rows, m.cols), 2),),
    "pixel_unshuffle": (lambda m: call("Functional.pixel_unshuffle", m.x(2, 3, 4, 6), 2),),
    "channel_shuffle": (lambda m: call("Functional.channel_shuffle", m.x(2, 6, m.rows, m.cols), 3),),
    "max_pool1d": (lambda m: call("Functional.max_pool1d", m.x(2, 3, m.cols), 3, 1),),
    "max_pool2d": (lambda m: call("Functional.max_pool2d", m.x(2, 3, m.rows, m.cols), 3, 1),),
    "max_pool3d": (lambda m: call("Functional.max_pool3d", m.x(2, 3, 4, m.rows, m.cols), 3, 1),),
    "adaptive_max_pool1d": (lambda m: call("Functional.adaptive_max_pool1d", m.x(2, 3, m.cols), 3),),
    "adaptive_max_pool2d": (lambda m: call("Functional.adaptive_max_pool2d", m.x(2, 3, m.rows, m.cols), (2, 3)),),
    "adaptive_max_pool3d": (lambda m: call("Functional.adaptive_max_pool3d", m.x(2, 3, 4, m.rows, m.cols), 2),),
    "max_unpool1d": (lambda m: call("Functional.max_unpool1d", m.x(2, 3, 4), m.corners(2, 3, 4, step=2), 2),),
    "max_unpool2d": (
        lambda m: call("Functional.max_unpool2d", m.x(2, 3, 1, 4), m.corners(2, 3, 1, 4, step=2), (1, 2)),
    ),
    "max_unpool3d": (
        lambda m: call("Functional.max_unpool3d", m.x(2, 3, 1, 1, 4), m.corners(2, 3, 1, 1, 4, step=2), (1, 1, 2)),
    ),
    **each("topk", lambda m, api: call(api, m.x(), 3)),
    **each("kthvalue", lambda m, api: call(api, m.x(), 3)),
}


STEPS: Table = {
    "fake_quantize_per_tensor_affine": (
        lambda m: call("Torch.fake_quantize_per_tensor_affine", m.wide(), 0.1, 0, -128, 127),
    ),
    "bucketize": (lambda m: call("Torch.bucketize", m.x(), m.x(9).sort().values),),
    "searchsorted": (lambda m: call("Torch.searchsorted", m.x(9).sort().values, m.x()),),
    "histc": (lambda m: call("Torch.histc", m.wide(), 10, -2, 2),),
    "histogram": (lambda m: call("Torch.histogram", m.wide(), 10, range=(-2.0, 2.0)),),
    "bincount": (lambda m: call("Torch.bincount", m.index(9, 50)),),
}
MADE: Table = {
    **each("zeros ones empty rand randn", lambda m, api: call(api, m.rows, m.cols, dtype=m.dtype)),
    "eye": (lambda m: call("Torch.eye", m.rows, dtype=m.dtype),),
    "full": (lambda m: call("Torch.full", (m.rows, m.cols), 0.3, dtype=m.dtype),),
    "full_like": (lambda m: call("Torch.full_like", m.x(), 0.3),),
    "zero": (lambda m: call("Tensor.zero_", m.x()),),
    **each("new_zeros new_ones new_empty", lambda m, api: call(api, m.x(), (3, 4))),
    "new_full": (lambda m: call("Tensor.new_full", m.x(), (3, 4), 0.3),),
    **each("tril_indices triu_indices", lambda m, api: call(api, m.rows, m.cols)),
    "arange": (lambda m: call("Torch.arange", 0.0, 3.0, 0.3, dtype=m.dtype),),
    "range": (lambda m: call("Torch.range", 0.0, 3.0, 0.25, dtype=m.dtype),),
    "linspace": (lambda m: call("Torch.linspace", -1.0, 1.0, 33, dtype=m.dtype),),
    "logspace": (lambda m: call("Torch.logspace", -1.0, 1.0, 33, dtype=m.dtype),),
    **each(
        "hann_window hamming_window blackman_window bartlett_window kaiser_window",
        lambda m, api: call(api, 33, dtype=m.dtype),
    ),
    "randint": (lambda m: call("Torch.randint", 100, (m.rows, m.cols)),),
    "randperm": (lambda m: call("Torch.randperm", 100),),
    "randint_like": (lambda m: call("Torch.randint_like", m.x(), 100),),
    "empty_strided": (lambda m: call("Torch.empty_strided", (3, 4), (4, 1), dtype=m.dtype),),
    "new_empty_strided": (lambda m: call("Tensor.new_empty_strided", m.x(), (3, 4), (4, 1)),),
    "empty_permuted": (lambda m: call("Torch.empty_permuted", (3, 4), (1, 0), dtype=m.dtype),),
    "resize": (lambda m: call("Tensor.resize_", m.x(), 3, 4),),
    "resize_as": (lambda m: call("Tensor.resize_as_", m.x(), m.x(3, 4)),),
}

RANDOM: Table = {
    **each(
        "dropout dropout1d feature_dropout alpha_dropout feature_alpha_dropout",
        lambda m, api: call(api, m.x(), 0.5, True),
    ),
    "dropout1d": (lambda m: call("Functional.dropout1d", m.x(40, 6, m.cols)),),
    "dropout2d": (lambda m: call("Functional.dropout2d", m.x(40, 6, 3, m.cols)),),
    "dropout3d": (lambda m: call("Functional.dropout3d", m.x(40, 6, 2, 3, m.cols)),),
    "bernoulli": (lambda m: call("Torch.bernoulli", m.unit()),),
    "multinomial": (lambda m: call("Torch.multinomial", m.unit(), 3),),
    "normal": (lambda m: call("Torch.normal", m.x(), m.positive()),),
    "uniform": (lambda m: call("Tensor.uniform_", m.x()),),
    "random": (lambda m: call("Tensor.random_", m.x()),),
    "exponential": (lambda m: call("Tensor.exponential_", m.x()),),
    "geometric": (lambda m: call("Tensor.geometric_", m.x(), 0.3),),
    "cauchy": (lambda m: call("Tensor.cauchy_", m.x()),),
    "log_normal": (lambda m: call("Tensor.log_normal_", m.x()),),
    "poisson": (lambda m: call("Torch.poisson", m.positive()),),
    "binomial": (lambda m: call("Torch.binomial", m.positive().ceil(), m.unit()),),
    "_standard_gamma": (lambda m: call("Torch._standard_gamma", m.positive()),),
    "_sample_dirichlet": (lambda m: call("Torch._sample_dirichlet", m.positive()),),
    "native_dropout": (lambda m: call("Torch.native_dropout", m.x(), 0.5, True),),
    "rrelu": (lambda m: call("Functional.rrelu", m.wide(), 0.1, 0.3, True),),
    "gumbel_softmax": (lambda m: call("Functional.gumbel_softmax", m.x()),),
    "fractional_max_pool2d": (lambda m: call("Functional.fractional_max_pool2d", m.x(2, 3, 20, 20), 2, output_size=9),),
    "fractional_max_pool3d": (
        lambda m: call("Functional.fractional_max_pool3d", m.x(2, 3, 10, 10, 10), 2, output_size=4),
    ),
    "fractional_max_pool2d_with_indices": (
        lambda m: call("Functional.fractional_max_pool2d_with_indices", m.x(2, 3, 20, 20), 2, output_size=9),
    ),
    "fractional_max_pool3d_with_indices": (
        lambda m: call("Functional.fractional_max_pool3d_with_indices", m.x(2, 3, 10, 10, 10), 2, output_size=4),
    ),
    "svd_lowrank": (lambda m: call("Torch.svd_lowrank", m.wide(20, 12), 3),),
    "pca_lowrank": (lambda m: call("Torch.pca_lowrank", m.wide(20, 12), 3),),
}

FACTORS: Table = {
    "svd": (lambda m: call("linalg.svd", m.wide(6, 5)),),
    "eigh": (lambda m: call("linalg.eigh", m.symmetric(6)),),
    "eig": (lambda m: call("linalg.eig", m.wide(6, 6)),),
    "eigvals": (lambda m: call("linalg.eigvals", m.wide(6, 6)),),
    "qr": (lambda m: call("linalg.qr", m.wide(6, 5)),),
}

# Where equal values are at a kink.
LABELS: Table = {
    "hinge_embedding_loss": (lambda m: call("Functional.hinge_embedding_loss", m.x(), (m.x() + 0.5).sign()),),
    "cosine_embedding_loss": (
        lambda m: call("Functional.cosine_embedding_loss", m.x(), m.x(), (m.x(m.rows) + 0.5).sign()),
    ),
}
KINKS: Table = {
    "l1_loss": (lambda m: call("Functional.l1_loss", m.x(), m.x()),),
    "smooth_l1_loss": (lambda m: call("Functional.smooth_l1_loss", m.x(), m.x(), beta=0.0),),
    "margin_ranking_loss": (
        lambda m: call("Functional.margin_ranking_loss", m.x(m.rows), m.x(m.rows), (m.x(m.rows) + 0.5).sign()),
    ),
    "multi_margin_loss": (
        lambda m: call("Functional.multi_margin_loss", m.wide(), m.index(m.cols, m.rows), margin=0.0),
    ),
    **each("quantile nanquantile", lambda m, api: call(api, m.wide(), 0.3, 1)),
    "cdist": (lambda m: call("Torch.cdist", m.wide(), m.wide(), 1.0),),
    "dist": (lambda m: call("Torch.dist", m.x(), m.x(), 1.0),),
}

# Later tables win.
MOVING: Table = {**RANDOM, **UNARY, **BINARY, **CHOOSING, **STEPS, **MADE, **FACTORS}
