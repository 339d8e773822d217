"""Calls of products, convolutions, losses, normalisations, pooling and scattering."""

from __future__ import annotations

from typing import Any

import torch

from tests.support.calls.making import Call, Maker, Making, Table, call, varied

PRODUCTS: Table = {
    "linear": (
        lambda m: call("Functional.linear", m.x(m.rows, 7), m.x(m.cols, 7), m.x(m.cols)),
        lambda m: call("Functional.linear", m.x(2, m.rows, 7), m.x(m.cols, 7)),
    ),
    "matmul": (
        lambda m: call("Torch.matmul", m.x(3, m.rows, 7), m.x(7, m.cols)),
        lambda m: call("Torch.matmul", m.x(2, 3, m.rows, 7), m.x(3, 7, m.cols)),
    ),
    "mm": (lambda m: call("Torch.mm", m.x(m.rows, 7), m.x(7, m.cols)),),
    "bmm": (lambda m: call("Torch.bmm", m.x(4, m.rows, 7), m.x(4, 7, m.cols)),),
    "mv": (lambda m: call("Torch.mv", m.x(), m.x(m.cols)),),
    "dot": (lambda m: call("Torch.dot", m.x(m.cols), m.x(m.cols)),),
    "inner": (lambda m: call("Torch.inner", m.x(m.rows, 7), m.x(m.cols, 7)),),
    "addmm": (
        lambda m: call("Torch.addmm", m.x(m.rows, 7), m.x(), m.x(m.cols, 7)),
        lambda m: call("Torch.addmm", m.x(m.rows, 7), m.x(), m.x(m.cols, 7), beta=0.7, alpha=0.3),
    ),
    "addmv": (
        lambda m: call("Torch.addmv", m.x(m.rows), m.x(), m.x(m.cols)),
        lambda m: call("Torch.addmv", m.x(m.rows), m.x(), m.x(m.cols), beta=0.7, alpha=0.3),
    ),
    "addr": (
        lambda m: call("Torch.addr", m.x(), m.x(m.rows), m.x(m.cols)),
        lambda m: call("Torch.addr", m.x(), m.x(m.rows), m.x(m.cols), beta=0.7, alpha=0.3),
    ),
    "addbmm": (
        lambda m: call("Torch.addbmm", m.x(m.rows, 7), m.x(4, m.rows, m.cols), m.x(4, m.cols, 7)),
        lambda m: call("Torch.addbmm", m.x(m.rows, 7), m.x(4, m.rows, m.cols), m.x(4, m.cols, 7), beta=0.7, alpha=0.3),
    ),
    "baddbmm": (
        lambda m: call("Torch.baddbmm", m.x(4, m.rows, 7), m.x(4, m.rows, m.cols), m.x(4, m.cols, 7)),
        lambda m: call(
            "Torch.baddbmm", m.x(4, m.rows, 7), m.x(4, m.rows, m.cols), m.x(4, m.cols, 7), beta=0.7, alpha=0.3
        ),
    ),
    "matrix_exp": (lambda m: call("Torch.matrix_exp", m.between(-0.2, 0.2, min(m.rows, 40), min(m.rows, 40))),),
    "cross": (lambda m: call("Torch.cross", m.x(m.rows, 3), m.x(m.rows, 3), dim=1),),
    "bilinear": (
        lambda m: call("Functional.bilinear", m.x(m.rows, 9), m.x(m.rows, 5), m.x(6, 9, 5), m.x(6)),
        lambda m: call("Functional.bilinear", m.x(m.rows, 33), m.x(m.rows, 17), m.x(20, 33, 17)),
    ),
    "conv1d": (lambda m: call("Functional.conv1d", m.x(2, 3, m.cols + 2), m.x(8, 3, 3), m.x(8), padding=1),),
    "conv2d": (
        lambda m: call("Functional.conv2d", m.x(2, 3, m.rows, m.rows), m.x(8, 3, 3, 3), m.x(8), padding=1),
        lambda m: call("Functional.conv2d", m.x(2, 16, m.rows, 12), m.x(8, 16, 1, 1), stride=2),
    ),
    "conv3d": (lambda m: call("Functional.conv3d", m.x(2, 3, 5, 6, m.rows), m.x(4, 3, 3, 3, 3), m.x(4), padding=1),),
    "conv_transpose1d": (
        lambda m: call("Functional.conv_transpose1d", m.x(2, 3, m.cols), m.x(3, 8, 3), m.x(8)),
        lambda m: call("Functional.conv_transpose1d", m.x(2, 32, m.cols), m.x(32, 8, 4), stride=2),
    ),
    "conv_transpose2d": (
        lambda m: call("Functional.conv_transpose2d", m.x(2, 3, m.rows, m.rows), m.x(3, 8, 3, 3), m.x(8), padding=1),
        lambda m: call("Functional.conv_transpose2d", m.x(2, 32, m.rows, 10), m.x(32, 8, 4, 4), stride=2, padding=1),
    ),
    "conv_transpose3d": (
        lambda m: call("Functional.conv_transpose3d", m.x(2, 3, 5, 6, min(m.rows, 64)), m.x(3, 4, 3, 3, 3), m.x(4)),
    ),
    "scaled_dot_product_attention": (
        lambda m: call("Functional.scaled_dot_product_attention", *(m.x(2, 3, m.rows, 16) for _ in range(3))),
        lambda m: call(
            "Functional.scaled_dot_product_attention", *(m.x(2, 3, m.rows, 64) for _ in range(3)), is_causal=True
        ),
        lambda m: call(
            "Functional.scaled_dot_product_attention",
            *(m.x(2, 2, m.rows, 32) for _ in range(3)),
            attn_mask=m.x(m.rows, m.rows),
        ),
    ),
    "dist": varied(lambda m, p: call("Torch.dist", m.x(), m.x(), p), (2.0,), (3.0,), (4.0,)),
    "cdist": (lambda m: call("Torch.cdist", m.x(), m.x()),),
    "renorm": (lambda m: call("Torch.renorm", m.x(), 2, 0, 1.0), lambda m: call("Tensor.renorm_", m.x(), 2, 0, 1.0)),
    "histc": (lambda m: call("Torch.histc", m.x(), 50), lambda m: call("Torch.histc", m.x(), 20, -1.3, 0.9)),
    "prod": (
        lambda m: call("Torch.prod", m.between(0.8, 1.2), -1),
        lambda m: call("Torch.prod", m.between(0.8, 1.2), 0),
        lambda m: call("Torch.prod", m.between(0.99, 1.01, m.cols)),
        lambda m: call("Torch.prod", m.between(0.99, 1.01)),
        lambda m: call("Torch.prod", m.between(0.99, 1.01).t(), 0, keepdim=True),
        lambda m: call("Torch.prod", m.between(0.99, 1.01, m.rows, 2 * m.cols)[:, : m.cols]),
        lambda m: call("Torch.prod", m.between(0.99, 1.01, m.rows, 2 * m.cols)[:, ::2]),
        lambda m: call("Torch.prod", m.between(0.6, 1.4).round(decimals=1) - 1, 1),
    ),
    "logsumexp": (lambda m: call("Torch.logsumexp", m.x(), -1), lambda m: call("Torch.logsumexp", m.x(), 0)),
    "softmax": (
        lambda m: call("Functional.softmax", m.x(), -1),
        lambda m: call("Functional.softmax", m.x(), 0),
        lambda m: call("Functional.softmax", m.x(3, m.rows, m.cols), 1),
    ),
    "log_softmax": (
        lambda m: call("Functional.log_softmax", m.x(), -1),
        lambda m: call("Functional.log_softmax", m.x(), 0),
        lambda m: call("Functional.log_softmax", m.x(3, m.rows, m.cols), 1),
    ),
    "softmin": (lambda m: call("Functional.softmin", m.x(), -1), lambda m: call("Functional.softmin", m.x(), 0)),
}


REDUCTIONS = (("mean",), ("sum",), ("none",))


def _loss(name: str, target: str = "x", values: str = "x") -> tuple[Making, ...]:
    def made(m: Maker, reduction: str) -> Call:
        return call(f"Functional.{name}", getattr(m, values)(), getattr(m, target)(), reduction=reduction)

    return varied(made, *REDUCTIONS)


def _classes(name: str, **kwargs: Any) -> tuple[Making, ...]:
    def made(m: Maker, reduction: str) -> Call:
        return call(f"Functional.{name}", m.x(), m.index(m.cols, m.rows), reduction=reduction, **kwargs)

    return varied(made, *REDUCTIONS)


def _logs(m: Maker) -> torch.Tensor:
    return m.x().double().log_softmax(-1).to(m.dtype)


LOSSES: Table = {
    "mse_loss": _loss("mse_loss"),
    "huber_loss": _loss("huber_loss"),
    "smooth_l1_loss": _loss("smooth_l1_loss"),
    "soft_margin_loss": varied(
        lambda m, reduction: call("Functional.soft_margin_loss", m.x(), m.x().sign(), reduction=reduction), *REDUCTIONS
    ),
    "binary_cross_entropy": _loss("binary_cross_entropy", "unit", "unit"),
    "binary_cross_entropy_with_logits": _loss("binary_cross_entropy_with_logits", "unit"),
    "kl_div": (
        lambda m: call("Functional.kl_div", _logs(m), m.unit(), reduction="batchmean"),
        lambda m: call("Functional.kl_div", _logs(m), m.unit(), reduction="none"),
        lambda m: call("Functional.kl_div", _logs(m), _logs(m), log_target=True, reduction="sum"),
    ),
    "nll_loss": varied(
        lambda m, reduction: call("Functional.nll_loss", _logs(m), m.index(m.cols, m.rows), reduction=reduction),
        *REDUCTIONS,
    ),
    "cross_entropy": (
        *_classes("cross_entropy"),
        *_classes("cross_entropy", label_smoothing=0.1)[:1],
        lambda m: call("Functional.cross_entropy", m.x(), m.index(m.cols, m.rows), m.positive(m.cols)),
        lambda m: call("Functional.cross_entropy", m.x(), m.unit()),
        lambda m: call("Functional.cross_entropy", m.x(2, m.rows, m.cols), m.index(m.rows, 2, m.cols)),
    ),
    "linear_cross_entropy": (
        lambda m: call("Functional.linear_cross_entropy", m.x(), m.x(11, m.cols), m.index(11, m.rows)),
    ),
}

NORMALISATIONS: Table = {
    "batch_norm": (
        lambda m: call("Functional.batch_norm", m.x(), None, None, m.x(m.cols), m.x(m.cols), training=True),
        lambda m: call(
            "Functional.batch_norm", m.x(2, 3, m.rows, m.cols), m.x(3), m.positive(3), m.x(3), m.x(3), training=True
        ),
        lambda m: call(
            "Functional.batch_norm", m.x(2, 3, m.rows, m.cols), m.x(3), m.positive(3), m.x(3), m.x(3), training=False
        ),
        *(
            (
                lambda m, training=training: call(
                    "Functional.batch_norm",
                    m.x(3, 2, m.rows, m.cols).transpose(0, 1),
                    *(m.x(3), m.positive(3), m.x(3), m.x(3)),
                    training=training,
                )
            )
            for training in (True, False)
        ),
        lambda m: call(
            "Functional.batch_norm", m.x(2, 3, m.rows, 2 * m.cols)[..., ::2], m.x(3), m.positive(3), training=True
        ),
    ),
    "native_batch_norm": (
        lambda m: call(
            "Torch.native_batch_norm", m.x(2, 3, m.rows, m.cols), m.x(3), m.x(3), m.x(3), m.positive(3), True, 0.1, 1e-5
        ),
    ),
    "instance_norm": (
        lambda m: call("Functional.instance_norm", m.x(2, 3, m.rows, m.cols), None, None, m.x(3), m.x(3)),
    ),
    "rms_norm": (lambda m: call("Functional.rms_norm", m.x(), [m.cols], m.x(m.cols)),),
    "group_norm": (lambda m: call("Functional.group_norm", m.x(3, 6, m.cols), 2, m.x(6), m.x(6)),),
    "layer_norm": (lambda m: call("Functional.layer_norm", m.x(), [m.cols], m.x(m.cols), m.x(m.cols)),),
}


def _grid(mode: str, padding: str, align: bool = False) -> Making:
    return lambda m: call(
        "Functional.grid_sample",
        m.x(2, 3, m.rows, 9),
        m.between(-1.1, 1.1, 2, 8, m.rows, 2),
        mode=mode,
        padding_mode=padding,
        align_corners=align,
    )


_GRIDS = (
    _grid("bilinear", "zeros"),
    _grid("bilinear", "reflection"),
    _grid("nearest", "border"),
    _grid("bicubic", "zeros"),
    _grid("bilinear", "border", align=True),
    _grid("bicubic", "reflection", align=True),
    lambda m: call(
        "Functional.grid_sample",
        m.x(2, 3, m.rows, 9),
        m.between(-1.1, 1.1, 2, 2, 8, m.rows).permute(0, 2, 3, 1),
        align_corners=False,
    ),
    lambda m: call(
        "Functional.grid_sample",
        m.x(2, 3, 4, 5, m.rows),
        m.between(-1.3, 1.3, 2, 3, 4, m.rows, 3),
        padding_mode="reflection",
        align_corners=False,
    ),
    lambda m: call(
        "Functional.grid_sample",
        m.x(2, 3, 4, 5, m.rows),
        m.between(-1.3, 1.3, 2, 3, 4, m.rows, 3),
        mode="nearest",
        padding_mode="border",
        align_corners=True,
    ),
)

POOLING: Table = {
    "adaptive_avg_pool1d": (lambda m: call("Functional.adaptive_avg_pool1d", m.x(2, m.rows, m.cols), 3),),
    "adaptive_avg_pool2d": (lambda m: call("Functional.adaptive_avg_pool2d", m.x(2, 3, m.rows, m.cols), (3, 4)),),
    "adaptive_avg_pool3d": (lambda m: call("Functional.adaptive_avg_pool3d", m.x(2, 3, 7, m.rows, 9), (2, 3, 4)),),
    "avg_pool1d": (lambda m: call("Functional.avg_pool1d", m.x(2, m.rows, m.cols), 3, 2, 1),),
    "avg_pool2d": (
        lambda m: call("Functional.avg_pool2d", m.x(2, 3, m.rows, m.cols), 3, 2, 1),
        lambda m: call("Functional.avg_pool2d", m.x(2, 3, m.rows, m.cols), 3, 1),
    ),
    "avg_pool3d": (lambda m: call("Functional.avg_pool3d", m.x(2, 3, 7, m.rows, 9), 3, 2, 1),),
    "max_pool3d": (lambda m: call("Functional.max_pool3d", m.x(2, 3, 7, m.rows, 9), 3, 1),),
    "grid_sample": _GRIDS,
    "grid_sampler_2d": (
        lambda m: call(
            "Torch.grid_sampler_2d", m.x(2, 3, m.rows, 9), m.between(-1.1, 1.1, 2, 8, m.rows, 2), 0, 0, False
        ),
    ),
    "grid_sampler_3d": (
        lambda m: call(
            "Torch.grid_sampler_3d", m.x(2, 3, m.rows, 5, 6), m.between(-1.1, 1.1, 2, 4, 5, m.rows, 3), 0, 0, False
        ),
    ),
    "interpolate": varied(
        lambda m, shape, kwargs: call(
            "Functional.interpolate", m.x(2, 3, *(m.rows if n is None else n for n in shape)), **kwargs
        ),
        *(
            ((None,), {"scale_factor": 2.0, "mode": "linear"}),
            ((None,), {"scale_factor": 1.7, "mode": "linear"}),
            ((None,), {"size": 10, "mode": "linear", "align_corners": True}),
            ((None, 11), {"scale_factor": 2.0, "mode": "bilinear"}),
            ((None, 11), {"size": (7, 30), "mode": "bilinear", "align_corners": True}),
            ((None, 11), {"scale_factor": 1.7, "mode": "bicubic"}),
            ((None, 11), {"scale_factor": 2.0, "mode": "nearest"}),
            ((None, 11), {"size": (3, 4), "mode": "area"}),
            ((None, 4, 5), {"scale_factor": 2.0, "mode": "trilinear"}),
            ((None, 4, 5), {"size": (3, 7, 4), "mode": "trilinear"}),
            ((None, 11), {"scale_factor": 0.6, "mode": "bilinear", "antialias": True}),
        ),
    ),
}

SCATTERING: Table = {
    "embedding": (
        lambda m: call("Functional.embedding", m.index(m.rows, 3, m.cols), m.x(m.rows, 16)),
        lambda m: call("Functional.embedding", m.order(m.rows), m.x(m.rows, 16)),
        lambda m: call("Functional.embedding", m.index(5, 3, m.cols), m.x(5, 33), padding_idx=0),
        lambda m: call("Functional.embedding", m.index(5, 3, m.cols), m.x(5, 33), scale_grad_by_freq=True),
        lambda m: call("Functional.embedding", m.index(5, m.cols), m.x(5, 33), max_norm=1.0),
    ),
    "embedding_bag": (
        lambda m: call("Functional.embedding_bag", m.index(m.rows, m.cols, 6), m.x(m.rows, 16), mode="mean"),
        lambda m: call("Functional.embedding_bag", m.index(m.rows, m.cols, 6), m.x(m.rows, 16), mode="sum"),
        lambda m: call("Functional.embedding_bag", m.index(6, m.cols, 6), m.x(6, 16), scale_grad_by_freq=True),
        lambda m: call(
            "Functional.embedding_bag", m.index(6, m.cols, 6), m.x(6, 16), mode="sum", per_sample_weights=m.x(m.cols, 6)
        ),
    ),
    "index_put": (
        lambda m: call("Torch.index_put", m.x(), (m.order(m.rows)[: m.rows // 2 + 1],), m.x(m.rows // 2 + 1, m.cols)),
        lambda m: call("Torch.index_put", m.x(5, 7), (m.index(5, m.cols),), m.x(m.cols, 7), accumulate=True),
        lambda m: call("Torch.index_put", m.x(), (m.order(m.rows),), m.x(m.rows, m.cols), accumulate=True),
    ),
    "scatter": (
        lambda m: call("Torch.scatter", m.x(), 0, m.order(m.rows)[:, None].expand(m.rows, m.cols).contiguous(), m.x()),
        lambda m: call("Torch.scatter", m.x(), 0, m.index(m.rows), m.x(), reduce="add"),
        lambda m: call("Torch.scatter", m.x(), 0, m.index(m.rows), m.x(), reduce="multiply"),
    ),
    "scatter_add": (lambda m: call("Torch.scatter_add", m.x(), 0, m.index(m.rows), m.x()),),
    "add": (lambda m: call("Torch.add", m.x(24), m.x(24), alpha=2.5),),
    "index_add": (lambda m: call("Torch.index_add", m.x(), 0, m.index(m.rows, m.rows), m.x()),),
    "index_reduce": varied(
        lambda m, how, own: call(
            "Tensor.index_reduce", m.positive(5, m.cols), 0, m.index(5, m.rows), m.positive(), how, include_self=own
        ),
        *(("prod", True), ("mean", True), ("amax", True), ("prod", False), ("mean", False)),
    ),
    "as_strided": (
        lambda m: call("Torch.as_strided", m.x(), (m.rows, m.cols - 1), (m.cols - 1, 1)),
        lambda m: call("Torch.as_strided", m.x(), (m.rows, m.cols, 4), (1, 1, 1)),
    ),
    "pad": (
        lambda m: call("Functional.pad", m.x(2, 3, m.rows + 4, m.cols + 4), (2, 3, 1, 2)),
        lambda m: call("Functional.pad", m.x(2, 3, m.rows + 4, m.cols + 4), (2, 3, 1, 2), mode="reflect"),
        lambda m: call("Functional.pad", m.x(2, 3, m.rows + 4, m.cols + 4), (2, 3, 1, 2), mode="replicate"),
        lambda m: call("Functional.pad", m.x(2, 3, m.rows + 4, m.cols + 4), (2, 3, 1, 2), mode="circular"),
    ),
    "unfold": (
        lambda m: call("Tensor.unfold", m.x(), 1, 4, 1),
        lambda m: call("Functional.unfold", m.x(2, 3, m.rows + 4, 9), 3, padding=1),
    ),
    "fold": (lambda m: call("Functional.fold", m.x(2, 27, 11 * m.rows), (m.rows, 11), 3, padding=1),),
}

SCALARS: Table = {
    "linspace": (lambda m: call("Torch.linspace", -1.0, 1.0, m.cols, dtype=m.dtype),),
    "logspace": (lambda m: call("Torch.logspace", -1.0, 1.0, m.cols, dtype=m.dtype),),
}

POINTWISE: Table = {
    "entr": (lambda m: call("special.entr", m.positive()),),
    "i0e": (lambda m: call("special.i0e", m.x()),),
    "i1": (lambda m: call("special.i1", m.x()),),
    "i1e": (lambda m: call("special.i1e", m.x()),),
    "gammainc": (lambda m: call("special.gammainc", m.positive(), m.positive()),),
    "gammaincc": (lambda m: call("special.gammaincc", m.positive(), m.positive()),),
    "logit": (
        lambda m: call("Torch.logit", m.unit()),
        lambda m: call("Torch.logit", m.unit(), 0.1),
        lambda m: call("Tensor.logit_", m.unit()),
    ),
    "mvlgamma": (lambda m: call("Torch.mvlgamma", m.between(2, 9), 3),),
    "polygamma": (
        lambda m: call("Torch.polygamma", 1, m.positive()),
        lambda m: call("Torch.polygamma", 2, m.positive()),
        lambda m: call("Torch.polygamma", 3, m.positive()),
    ),
    "xlog1py": (lambda m: call("special.xlog1py", m.x(), m.positive()),),
    "xlogy": (lambda m: call("Torch.xlogy", m.x(), m.positive()),),
    "ldexp": (lambda m: call("Torch.ldexp", m.x(), m.index(5)), lambda m: call("Torch.ldexp", m.x(), m.x())),
    "pow": varied(lambda m, n: call("Torch.pow", m.positive(), n), (2,), (3,), (-1,), (-2,), (0.7,)),
    "glu": (
        lambda m: call("Functional.glu", m.x(m.rows, 2 * m.cols)),
        lambda m: call("Functional.glu", m.x(2 * m.rows, m.cols), 0),
    ),
    "fmod": (lambda m: call("Torch.fmod", m.x(), m.positive()),),
    "rsqrt": (lambda m: call("Torch.rsqrt", m.positive()),),
    "sigmoid": (lambda m: call("Torch.sigmoid", m.x()),),
}

REDUCING: Table = {
    "index": (lambda m: call("Tensor.__getitem__", m.x(), m.index(m.rows, 3, m.cols)),),
    "index_select": (lambda m: call("Torch.index_select", m.x(), 0, m.index(m.rows, 3 * m.rows)),),
    "gather": (lambda m: call("Torch.gather", m.x(), 1, m.index(m.cols)),),
    "take": (lambda m: call("Torch.take", m.x(), m.index(m.rows)),),
    "repeat_interleave": (lambda m: call("Torch.repeat_interleave", m.x(), 5, 0),),
    "max_pool1d": (lambda m: call("Functional.max_pool1d", m.x(2, 3, m.cols), 3, 1),),
    "max_pool2d": (lambda m: call("Functional.max_pool2d", m.x(2, 3, m.rows, m.cols), 3, 1),),
    "adaptive_max_pool2d": (lambda m: call("Functional.adaptive_max_pool2d", m.x(2, 3, m.rows, m.cols), (5, 4)),),
    "scatter_reduce": (
        lambda m: call("Torch.scatter_reduce", m.x(), 0, m.index(m.rows), m.x(), "sum"),
        lambda m: call("Torch.scatter_reduce", m.x(), 0, m.index(m.rows), m.x(), "mean"),
    ),
    "sum": (lambda m: call("Torch.sum", m.x(), 0),),
    "mean": (lambda m: call("Torch.mean", m.x(), 1),),
    "cumsum": (lambda m: call("Torch.cumsum", m.x(), 1), lambda m: call("Torch.cumsum", m.x(), 0)),
    "segment_reduce": varied(
        lambda m, how, more: call(
            "Torch.segment_reduce",
            m.between(0.5, 1.5, m.rows, 4),
            how,
            lengths=torch.tensor([1, 0, m.rows - 1]),
            **more,
        ),
        *(("sum", {}), ("mean", {"initial": 0.3}), ("prod", {}), ("max", {})),
    ),
    "cumprod": (lambda m: call("Torch.cumprod", m.between(0.9, 1.1), 1),),
}

COMPUTING: Table = {**PRODUCTS, **LOSSES, **NORMALISATIONS, **POOLING, **SCATTERING, **SCALARS, **POINTWISE, **REDUCING}
