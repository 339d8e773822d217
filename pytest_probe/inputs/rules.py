"""Which argument of which API has which role: one table of index rules, and the like.

An API is looked up by its name without namespace, in-place underscore dropped ("Tensor.scatter_" is "scatter"), and
where the framework's functional API has another signature by that of "Functional.x" first. A submodule that a dump
lost ("Torch.cholesky" for torch.linalg.cholesky) makes no difference: both names have the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from pytest_probe.inputs.generated import kind_of
from pytest_probe.inputs.roles import (
    Count,
    Divisor,
    Index,
    Mask,
    Offsets,
    Parts,
    Pivots,
    PositiveDefinite,
    Role,
    Running,
    Signs,
    Sorted,
    Symmetric,
    Triangle,
    Weights,
    Within,
)
from pytest_probe.inputs.subscripts import subscript_roles
from pytest_probe.records.model import Argument, Call, TensorSpec, tensors


class Bound:
    """A call with its arguments by parameter name."""

    def __init__(self, call: Call, parameters: tuple[str, ...]) -> None:
        self.call = call
        self._places = {name: place for place, name in enumerate(parameters[: len(call.args)])}

    def get(self, name: str, default: Any = None) -> Argument:
        if name in self._places:
            return self.call.args[self._places[name]]
        return self.call.kwargs.get(name, default)

    def path(self, name: str) -> str:
        return f"args.{self._places[name]}" if name in self._places else f"kwargs.{name}"

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor argument; () where it is none."""
        value = self.get(name)
        return value.shape if isinstance(value, TensorSpec) else ()

    @property
    def output(self) -> TensorSpec | None:
        """The first tensor that the call returned, as far as the dump has it."""
        return next((spec for _, spec in tensors(self.call.outputs)), None)


Rule: TypeAlias = Callable[[Bound, TensorSpec], "Role | None"]
Entry: TypeAlias = "tuple[tuple[str, ...], Mapping[str, Rule]]"


def roles(api: str, call: Call) -> dict[str, Role]:
    """The roles in one call by the path of their argument ("args.1", "kwargs.index", "args.1.0")."""
    found = _lookup(api)
    if found is None:
        return {}
    parameters, rules = found
    bound = Bound(call, parameters)
    return {
        path: role
        for name, rule in rules.items()
        for path, spec, role in _applied(bound, name, rule)
        if kind_of(spec.dtype) in role.kinds
    }


def _lookup(api: str) -> Entry | None:
    namespace, _, name = api.partition(".")
    plain = name if name.endswith("__") else name.removesuffix("_")
    last = plain.rpartition(".")[2]
    functional = (f"Functional.{plain}",) if "functional" in namespace.lower() else ()
    return next((TABLE[key] for key in (*functional, plain, last) if key in TABLE), None)


def _applied(bound: Bound, name: str, rule: Rule) -> Iterator[tuple[str, TensorSpec, Role]]:
    value = bound.get(name)
    if rule is _subscript:
        values = bound.get("values")
        overwrites = values is not None and not bound.get("accumulate", False)
        shaped = bound.output if values is None else values
        yield from subscript_roles(bound.get("input"), value, bound.path(name), shaped, overwrites)
    elif isinstance(value, TensorSpec):
        role = rule(bound, value)
        if role is not None:
            yield bound.path(name), value, role


def _subscript(bound: Bound, spec: TensorSpec) -> Role | None:
    """Stands for `subscript_roles`: what is indexed with is a tensor or a nest of them."""
    raise AssertionError("handled by _applied")


def _always(role: Role) -> Rule:
    return lambda bound, spec: role


def _below(name: str, axis: int) -> Rule:
    """An index along a fixed axis of another argument."""

    def rule(bound: Bound, spec: TensorSpec) -> Role | None:
        shape = bound.shape(name)
        return Index(shape[axis]) if -len(shape) <= axis < len(shape) else None

    return rule


def _along(distinct: Callable[[Bound], bool] = lambda bound: False) -> Rule:
    """An index along the axis `dim` of `input`; distinct where the result depended on the order of writes."""

    def rule(bound: Bound, spec: TensorSpec) -> Role | None:
        shape, axis = bound.shape("input"), bound.get("dim")
        if isinstance(axis, bool) or not isinstance(axis, int) or not -len(shape) <= axis < max(len(shape), 1):
            return None
        within = axis % len(shape) if shape else 0
        role = Index(shape[within] if shape else 1)
        if not distinct(bound):
            return role
        return replace(role, axis=within if len(spec.shape) == len(shape) > 0 else "all")

    return rule


def _overwrites(bound: Bound) -> bool:
    return isinstance(bound.get("src"), TensorSpec) and bound.get("reduce") is None


def _flat(distinct: bool = False) -> Rule:
    """An index into all elements of `input`."""

    def rule(bound: Bound, spec: TensorSpec) -> Role | None:
        overwrites = distinct and not bound.get("accumulate", False)
        return Index(math.prod(bound.shape("input")), axis="all" if overwrites else None)

    return rule


def _take_along_dim(bound: Bound, spec: TensorSpec) -> Role | None:
    return (_flat() if bound.get("dim") is None else _along())(bound, spec)


def _label(bound: Bound, spec: TensorSpec) -> Role | None:
    """A class of `input`: (C), (N, C) or (N, C, ...)."""
    shape = bound.shape("input")
    ignored = bound.get("ignore_index", -100)
    if not shape:
        return None
    return Index(shape[1] if len(shape) > 1 else shape[0], ignored=ignored if isinstance(ignored, int) else None)


def _last_class(low: int) -> Rule:
    return lambda bound, spec: Index(bound.shape("input")[-1], low=low) if bound.shape("input") else None


def _one_hot(bound: Bound, spec: TensorSpec) -> Role | None:
    classes = bound.get("num_classes", -1)
    if isinstance(classes, int) and classes > 0:
        return Index(classes)
    return Index(bound.output.shape[-1] if bound.output is not None and bound.output.shape else None)


def _bin(bound: Bound, spec: TensorSpec) -> Role | None:
    return Index(bound.output.shape[0] if bound.output is not None and bound.output.shape else None)


def _unpool(dimensions: int) -> Rule:
    def rule(bound: Bound, spec: TensorSpec) -> Role | None:
        if bound.output is None:
            return Index(None)
        return Index(math.prod(bound.output.shape[-dimensions:]))

    return rule


def _unravel(bound: Bound, spec: TensorSpec) -> Role | None:
    shape = bound.get("shape")
    extents = getattr(shape, "shape", shape)
    return Index(math.prod(extents) if isinstance(extents, (list, tuple)) else None)


def _offsets(bound: Bound, spec: TensorSpec) -> Role | None:
    return Offsets(math.prod(bound.shape("input")), closed=bool(bound.get("include_last_offset", False)))


def _ctc_targets(bound: Bound, spec: TensorSpec) -> Role | None:
    shape, blank = bound.shape("log_probs"), bound.get("blank", 0)
    if not shape:
        return None
    return Index(shape[-1] - (blank == shape[-1] - 1), low=int(blank == 0))


def _ctc_input_lengths(bound: Bound, spec: TensorSpec) -> Role | None:
    """Long enough for every target with a blank after each label, which repeated labels need."""
    steps, targets = bound.shape("log_probs")[:1], bound.shape("targets")
    if not steps or not targets:
        return None
    lengths = spec.size if len(targets) == 1 and spec.shape else 1
    return Index(steps[0] + 1, low=min(steps[0], 2 * -(-targets[-1] // max(lengths, 1))))


def _ctc_target_lengths(bound: Bound, spec: TensorSpec) -> Role | None:
    targets, steps = bound.shape("targets"), bound.shape("log_probs")[:1]
    if len(targets) == 1 and spec.shape:
        return Parts(targets[0])
    return Index(min(*targets[-1:], *steps) + 1) if targets and steps else None


def _pivots(matrix: str) -> Rule:
    return lambda bound, spec: Pivots(bound.shape(matrix)[-2]) if len(bound.shape(matrix)) > 1 else None


def _masked_select(bound: Bound, spec: TensorSpec) -> Role | None:
    if bound.output is None or not bound.output.shape:
        return None
    everything = math.prod(np.broadcast_shapes(bound.shape("input"), spec.shape))
    return Count(bound.output.shape[0] * spec.size // everything) if everything else None


def _masked_scatter(bound: Bound, spec: TensorSpec) -> Role | None:
    copies = math.prod(np.broadcast_shapes(bound.shape("input"), spec.shape)) // max(spec.size, 1)
    available = math.prod(bound.shape("source")) // max(copies, 1)
    return Count(min(available, spec.size // 2)) if isinstance(bound.get("source"), TensorSpec) else None


def _nonzero(bound: Bound, spec: TensorSpec) -> Role | None:
    return Count(bound.output.shape[0]) if bound.output is not None and bound.output.shape else None


def _where(bound: Bound, spec: TensorSpec) -> Role | None:
    """With one argument it is nonzero."""
    return _nonzero(bound, spec) if len(bound.call.args) + len(bound.call.kwargs) == 1 else None


def _repeats(bound: Bound, spec: TensorSpec) -> Role | None:
    if bound.output is None or not bound.output.shape or spec.size < 2:
        return None
    axis = bound.get("dim")
    if not isinstance(axis, int):
        return Parts(bound.output.size)
    return Parts(bound.output.shape[axis]) if -len(bound.output.shape) <= axis < len(bound.output.shape) else None


def _running(bound: Bound, spec: TensorSpec) -> Role | None:
    """Of a packed batch; otherwise the hidden state stands there."""
    packed = bound.shape("data")
    return Running(packed[0]) if packed else None


def _drawn(bound: Bound, spec: TensorSpec) -> Role | None:
    count = bound.get("num_samples", 1)
    return Weights(1 if bound.get("replacement", False) or not isinstance(count, int) else count)


def _divergence_target(bound: Bound, spec: TensorSpec) -> Role | None:
    return None if bound.get("log_target", False) else Within()


def _api(parameters: str, **rules: Rule) -> Entry:
    return tuple(parameters.split()), rules


_probability = _always(Within(0.0, 1.0))
_positive = _always(Within())
_signs = _always(Signs())
_divisor = _always(Divisor())
_definite = _api("input", input=_always(PositiveDefinite()))
_symmetric = _api("input", input=_always(Symmetric()))
_quotient = _api("input other", other=_divisor)
_reversed_quotient = _api("input other", input=_divisor)
_count = _api("input", input=_nonzero)
_recurrent = _api("data batch_sizes", batch_sizes=_running)
_class_loss = _api("input target weight size_average ignore_index", target=_label)
_attention = (
    "query key value embed_dim_to_check num_heads in_proj_weight in_proj_bias bias_k bias_v add_zero_attn dropout_p "
    "out_proj_weight out_proj_bias training key_padding_mask need_weights attn_mask"
)

TABLE: Mapping[str, Entry] = {
    # Indices.
    "Functional.embedding": _api("input weight", input=_below("weight", 0)),
    "embedding": _api("weight indices", indices=_below("weight", 0)),
    "Functional.embedding_bag": _api(
        "input weight offsets max_norm norm_type scale_grad_by_freq mode sparse per_sample_weights include_last_offset",
        input=_below("weight", 0),
        offsets=_offsets,
    ),
    "embedding_bag": _api(
        "weight input offsets scale_grad_by_freq mode sparse per_sample_weights include_last_offset",
        input=_below("weight", 0),
        offsets=_offsets,
    ),
    "gather": _api("input dim index", index=_along()),
    "scatter": _api("input dim index src reduce", index=_along(_overwrites)),
    "scatter_add": _api("input dim index src", index=_along()),
    "scatter_reduce": _api("input dim index src reduce", index=_along()),
    "index_select": _api("input dim index", index=_along()),
    "index_add": _api("input dim index source", index=_along()),
    "index_reduce": _api("input dim index source reduce", index=_along()),
    "index_copy": _api("input dim index source", index=_along(lambda bound: True)),
    "index_fill": _api("input dim index value", index=_along()),
    "take": _api("input index", index=_flat()),
    "put": _api("input index source accumulate", index=_flat(distinct=True)),
    "take_along_dim": _api("input indices dim", indices=_take_along_dim),
    "__getitem__": _api("input index", index=_subscript),
    "__setitem__": _api("input index values", index=_subscript),
    "index": _api("input indices", indices=_subscript),
    "index_put": _api("input indices values accumulate", indices=_subscript),
    "_index_put_impl": _api("input indices values accumulate", indices=_subscript),
    "unravel_index": _api("indices shape", indices=_unravel),
    "max_unpool1d": _api("input indices", indices=_unpool(1)),
    "max_unpool2d": _api("input indices", indices=_unpool(2)),
    "max_unpool3d": _api("input indices", indices=_unpool(3)),
    "one_hot": _api("input num_classes", input=_one_hot),
    "bincount": _api("input weights minlength", input=_bin),
    "repeat_interleave": _api("input repeats dim", repeats=_repeats),
    "lstm": _recurrent,
    "gru": _recurrent,
    "rnn_tanh": _recurrent,
    "rnn_relu": _recurrent,
    # Labels and targets of losses.
    "cross_entropy": _class_loss,
    "cross_entropy_loss": _class_loss,
    "nll_loss": _class_loss,
    "nll_loss2d": _class_loss,
    "nll_loss_nd": _class_loss,
    "multi_margin_loss": _api("input target", target=_last_class(0)),
    "multilabel_margin_loss": _api("input target", target=_last_class(-1)),
    "ctc_loss": _api(
        "log_probs targets input_lengths target_lengths blank",
        targets=_ctc_targets,
        input_lengths=_ctc_input_lengths,
        target_lengths=_ctc_target_lengths,
    ),
    "margin_ranking_loss": _api("input1 input2 target", target=_signs),
    "cosine_embedding_loss": _api("input1 input2 target", target=_signs),
    "hinge_embedding_loss": _api("input target", target=_signs),
    "soft_margin_loss": _api("input target", target=_signs),
    "binary_cross_entropy": _api("input target", input=_probability, target=_probability),
    "binary_cross_entropy_with_logits": _api("input target", target=_probability),
    "kl_div": _api("input target size_average reduce reduction log_target", target=_divergence_target),
    "poisson_nll_loss": _api("input target", target=_positive),
    "gaussian_nll_loss": _api("input target var", var=_positive),
    # Probabilities, variances, rates.
    "bernoulli": _api("input p", input=_probability, p=_probability),
    "multinomial": _api("input num_samples replacement", input=_drawn),
    "normal": _api("mean std", std=_positive),
    "poisson": _api("input", input=_positive),
    "Functional.batch_norm": _api("input running_mean running_var", running_var=_positive),
    "Functional.instance_norm": _api("input running_mean running_var", running_var=_positive),
    "batch_norm": _api("input weight bias running_mean running_var", running_var=_positive),
    "native_batch_norm": _api("input weight bias running_mean running_var", running_var=_positive),
    "instance_norm": _api("input weight bias running_mean running_var", running_var=_positive),
    # Masks.
    "masked_select": _api("input mask", mask=_masked_select),
    "masked_scatter": _api("input mask source", mask=_masked_scatter),
    "nonzero": _count,
    "argwhere": _count,
    "where": _api("condition", condition=_where),
    "scaled_dot_product_attention": _api("query key value attn_mask", attn_mask=_always(Mask(attends=True))),
    "multi_head_attention_forward": _api(
        _attention, key_padding_mask=_always(Mask(attends=False)), attn_mask=_always(Mask(attends=False))
    ),
    # Matrices.
    "cholesky": _definite,
    "cholesky_ex": _definite,
    "eigh": _symmetric,
    "eigvalsh": _symmetric,
    "cholesky_inverse": _api("input", input=_always(Triangle())),
    "cholesky_solve": _api("input input2", input2=_always(Triangle())),
    "triangular_solve": _api("input A", A=_always(Triangle())),
    "solve_triangular": _api("A B", A=_always(Triangle())),
    "linalg.lu_solve": _api("LU pivots B", LU=_always(Triangle()), pivots=_pivots("LU")),
    "lu_solve": _api("b LU_data LU_pivots", LU_data=_always(Triangle()), LU_pivots=_pivots("LU_data")),
    "lu_unpack": _api("LU_data LU_pivots", LU_pivots=_pivots("LU_data")),
    # Order, and what must not be zero.
    "searchsorted": _api("sorted_sequence input", sorted_sequence=_always(Sorted())),
    "bucketize": _api("input boundaries", boundaries=_always(Sorted())),
    "floor_divide": _quotient,
    "remainder": _quotient,
    "fmod": _quotient,
    "div": _quotient,
    "divide": _quotient,
    "__floordiv__": _quotient,
    "__ifloordiv__": _quotient,
    "__mod__": _quotient,
    "__imod__": _quotient,
    "__rfloordiv__": _reversed_quotient,
    "__rmod__": _reversed_quotient,
}
