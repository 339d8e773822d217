"""Which argument of which API has which role: one table of index rules, and the like."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from pytest_probe.core.arguments import BoundCall
from pytest_probe.core.dump import Call, TensorSpec, named_tensors
from pytest_probe.inputs.generated import kind_of
from pytest_probe.inputs.indexing import subscript_roles
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


class RoleCall:
    """A recorded call as rules ask it: arguments by parameter, and what the call returned."""

    def __init__(self, bound: BoundCall, call: Call) -> None:
        self.get = bound.argument
        self.bound = bound
        self.call = call

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor argument; () where it is none."""
        value = self.get(name)
        return value.shape if isinstance(value, TensorSpec) else ()

    @property
    def output(self) -> TensorSpec | None:
        """The first tensor that the call returned, as far as the dump has it."""
        return next((spec for _, spec in named_tensors(self.call.outputs)), None)


RoleRule: TypeAlias = Callable[[RoleCall, TensorSpec], "Role | None"]
RoleRules: TypeAlias = Mapping[str, RoleRule]


def roles(bound: BoundCall, call: Call) -> dict[str, Role]:
    """The roles in one call by the path of their argument ("input.1", "kwargs.index", "input.1.0")."""
    asked = RoleCall(bound, call)
    return {
        path: role
        for name, rule in ROLES.get(bound.name, {}).items()
        for path, spec, role in _applied(asked, name, rule)
        if kind_of(spec.dtype) in role.kinds
    }


def _applied(asked: RoleCall, name: str, rule: RoleRule) -> Iterator[tuple[str, TensorSpec, Role]]:
    value, path = asked.get(name), asked.bound.paths.get(name, "")
    if rule is _subscript:
        values = asked.get("values")
        overwrites = values is not None and not asked.get("accumulate")
        shaped = asked.output if values is None else values
        yield from subscript_roles(asked.get("input"), value, path, shaped, overwrites)
    elif isinstance(value, TensorSpec):
        role = rule(asked, value)
        if role is not None:
            yield path, value, role


def _subscript(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """Stands for `subscript_roles`: what is indexed with is a tensor or a nest of them."""
    raise AssertionError("handled by _applied")


def _always(role: Role) -> RoleRule:
    return lambda asked, spec: role


def _below(name: str, axis: int) -> RoleRule:
    """An index along a fixed axis of another argument."""

    def rule(asked: RoleCall, spec: TensorSpec) -> Role | None:
        shape = asked.shape(name)
        return Index(shape[axis]) if -len(shape) <= axis < len(shape) else None

    return rule


def _along(distinct: Callable[[RoleCall], bool] = lambda asked: False) -> RoleRule:
    """An index along the axis `dim` of `input`; distinct where the result depended on the order of writes."""

    def rule(asked: RoleCall, spec: TensorSpec) -> Role | None:
        shape, axis = asked.shape("input"), asked.get("dim")
        if isinstance(axis, bool) or not isinstance(axis, int) or not -len(shape) <= axis < max(len(shape), 1):
            return None
        within = axis % len(shape) if shape else 0
        role = Index(shape[within] if shape else 1)
        if not distinct(asked):
            return role
        return replace(role, axis=within if len(spec.shape) == len(shape) > 0 else "all")

    return rule


def _overwrites(asked: RoleCall) -> bool:
    return isinstance(asked.get("source"), TensorSpec) and asked.get("reduce") is None


def _flat(distinct: bool = False) -> RoleRule:
    """An index into all elements of `input`."""

    def rule(asked: RoleCall, spec: TensorSpec) -> Role | None:
        overwrites = distinct and not asked.get("accumulate")
        return Index(math.prod(asked.shape("input")), axis="all" if overwrites else None)

    return rule


def _take_along_dim(asked: RoleCall, spec: TensorSpec) -> Role | None:
    return (_flat() if asked.get("dim") is None else _along())(asked, spec)


def _label(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """A class of `input`: (C), (N, C) or (N, C, ...)."""
    shape = asked.shape("input")
    ignored = asked.get("ignore_index")
    if not shape:
        return None
    return Index(shape[1] if len(shape) > 1 else shape[0], ignored=ignored if isinstance(ignored, int) else None)


def _last_class(low: int) -> RoleRule:
    return lambda asked, spec: Index(asked.shape("input")[-1], low=low) if asked.shape("input") else None


def _one_hot(asked: RoleCall, spec: TensorSpec) -> Role | None:
    classes = asked.get("num_classes")
    if isinstance(classes, int) and classes > 0:
        return Index(classes)
    return Index(asked.output.shape[-1] if asked.output is not None and asked.output.shape else None)


def _bin(asked: RoleCall, spec: TensorSpec) -> Role | None:
    return Index(asked.output.shape[0] if asked.output is not None and asked.output.shape else None)


def _unpool(dimensions: int) -> RoleRule:
    def rule(asked: RoleCall, spec: TensorSpec) -> Role | None:
        if asked.output is None:
            return Index(None)
        return Index(math.prod(asked.output.shape[-dimensions:]))

    return rule


def _unravel(asked: RoleCall, spec: TensorSpec) -> Role | None:
    shape = asked.get("shape")
    extents = getattr(shape, "shape", shape)
    return Index(math.prod(extents) if isinstance(extents, (list, tuple)) else None)


def _offsets(asked: RoleCall, spec: TensorSpec) -> Role | None:
    return Offsets(math.prod(asked.shape("input")), closed=bool(asked.get("include_last_offset")))


def _ctc_targets(asked: RoleCall, spec: TensorSpec) -> Role | None:
    shape, blank = asked.shape("log_probs"), asked.get("blank")
    if not shape:
        return None
    # A blank in a target is undefined; it can be left out at either end only.
    return Index(shape[-1] - (blank == shape[-1] - 1), low=int(blank == 0))


def _ctc_input_lengths(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """Long enough for every target with a blank after each label, which repeated labels need."""
    steps, targets = asked.shape("log_probs")[:1], asked.shape("targets")
    if not steps or not targets:
        return None
    lengths = spec.size if len(targets) == 1 and spec.shape else 1
    return Index(steps[0] + 1, low=min(steps[0], 2 * -(-targets[-1] // max(lengths, 1))))


def _ctc_target_lengths(asked: RoleCall, spec: TensorSpec) -> Role | None:
    targets, steps = asked.shape("targets"), asked.shape("log_probs")[:1]
    if len(targets) == 1 and spec.shape:
        return Parts(targets[0])
    return Index(min(*targets[-1:], *steps) + 1) if targets and steps else None


def _pivots(matrix: str) -> RoleRule:
    return lambda asked, spec: Pivots(asked.shape(matrix)[-2]) if len(asked.shape(matrix)) > 1 else None


def _masked_select(asked: RoleCall, spec: TensorSpec) -> Role | None:
    if asked.output is None or not asked.output.shape:
        return None
    # The mask is broadcast: each True of it selects as many elements as there are copies.
    everything = math.prod(np.broadcast_shapes(asked.shape("input"), spec.shape))
    return Count(asked.output.shape[0] * spec.size // everything) if everything else None


def _masked_scatter(asked: RoleCall, spec: TensorSpec) -> Role | None:
    copies = math.prod(np.broadcast_shapes(asked.shape("input"), spec.shape)) // max(spec.size, 1)
    available = math.prod(asked.shape("source")) // max(copies, 1)
    return Count(min(available, spec.size // 2)) if isinstance(asked.get("source"), TensorSpec) else None


def _nonzero(asked: RoleCall, spec: TensorSpec) -> Role | None:
    return Count(asked.output.shape[0]) if asked.output is not None and asked.output.shape else None


def _where(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """With one argument it is nonzero."""
    return _nonzero(asked, spec) if len(asked.bound.given) == 1 else None


def _repeats(asked: RoleCall, spec: TensorSpec) -> Role | None:
    if asked.output is None or not asked.output.shape or spec.size < 2:
        return None
    axis = asked.get("dim")
    if not isinstance(axis, int):
        return Parts(asked.output.size)
    return Parts(asked.output.shape[axis]) if -len(asked.output.shape) <= axis < len(asked.output.shape) else None


def _running(asked: RoleCall, spec: TensorSpec) -> Role | None:
    """Of a packed batch; otherwise the hidden state stands there."""
    packed = asked.shape("data")
    return Running(packed[0]) if packed else None


def _drawn(asked: RoleCall, spec: TensorSpec) -> Role | None:
    count = asked.get("num_samples")
    return Weights(1 if asked.get("replacement") or not isinstance(count, int) else count)


def _divergence_target(asked: RoleCall, spec: TensorSpec) -> Role | None:
    return None if asked.get("log_target") else Within()


_probability = _always(Within(0.0, 1.0))
_positive = _always(Within())
_signs = _always(Signs())
_divisor = _always(Divisor())
_definite = {"input": _always(PositiveDefinite())}
_symmetric = {"input": _always(Symmetric())}
_quotient = {"other": _divisor}
_count = {"input": _nonzero}
_recurrent = {"batch_sizes": _running}
_class_loss = {"target": _label}
_positive_variance = {"running_var": _positive}

# By canonical API and parameter.
ROLES: Mapping[str, RoleRules] = {
    # Indices.
    "embedding": {"input": _below("weight", 0)},
    "embedding_bag": {"input": _below("weight", 0), "offsets": _offsets},
    "gather": {"index": _along()},
    "scatter": {"index": _along(_overwrites)},
    "scatter_add": {"index": _along()},
    "scatter_reduce": {"index": _along()},
    "index_select": {"index": _along()},
    "index_add": {"index": _along()},
    "index_reduce": {"index": _along()},
    "index_copy": {"index": _along(lambda asked: True)},
    "index_fill": {"index": _along()},
    "take": {"index": _flat()},
    "put": {"index": _flat(distinct=True)},
    "take_along_dim": {"indices": _take_along_dim},
    "getitem": {"index": _subscript},
    "setitem": {"index": _subscript},
    "index": {"index": _subscript},
    "index_put": {"index": _subscript},
    "_index_put_impl": {"index": _subscript},
    "unravel_index": {"indices": _unravel},
    "max_unpool1d": {"indices": _unpool(1)},
    "max_unpool2d": {"indices": _unpool(2)},
    "max_unpool3d": {"indices": _unpool(3)},
    "one_hot": {"input": _one_hot},
    "bincount": {"input": _bin},
    "repeat_interleave": {"repeats": _repeats},
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
    "multi_margin_loss": {"target": _last_class(0)},
    "multilabel_margin_loss": {"target": _last_class(-1)},
    "ctc_loss": {
        "targets": _ctc_targets,
        "input_lengths": _ctc_input_lengths,
        "target_lengths": _ctc_target_lengths,
    },
    "margin_ranking_loss": {"target": _signs},
    "cosine_embedding_loss": {"target": _signs},
    "hinge_embedding_loss": {"target": _signs},
    "soft_margin_loss": {"target": _signs},
    "binary_cross_entropy": {"input": _probability, "target": _probability},
    "binary_cross_entropy_with_logits": {"target": _probability},
    "kl_div": {"target": _divergence_target},
    "poisson_nll_loss": {"target": _positive},
    "gaussian_nll_loss": {"var": _positive},
    # Probabilities, variances, rates.
    "bernoulli": {"input": _probability, "p": _probability},
    "multinomial": {"input": _drawn},
    "normal": {"std": _positive},
    "poisson": {"input": _positive},
    "batch_norm": _positive_variance,
    "native_batch_norm": _positive_variance,
    "instance_norm": _positive_variance,
    # Masks.
    "masked_select": {"mask": _masked_select},
    "masked_scatter": {"mask": _masked_scatter},
    "nonzero": _count,
    "argwhere": _count,
    "where": {"condition": _where},
    "scaled_dot_product_attention": {"attn_mask": _always(Mask(attends=True))},
    "multi_head_attention_forward": {
        "key_padding_mask": _always(Mask(attends=False)),
        "attn_mask": _always(Mask(attends=False)),
    },
    # Matrices.
    "cholesky": _definite,
    "cholesky_ex": _definite,
    "eigh": _symmetric,
    "eigvalsh": _symmetric,
    "cholesky_inverse": {"input": _always(Triangle())},
    "cholesky_solve": {"input2": _always(Triangle())},
    "triangular_solve": {"A": _always(Triangle())},
    "solve_triangular": {"A": _always(Triangle())},
    "lu_solve": {"LU": _always(Triangle()), "pivots": _pivots("LU")},
    "lu_unpack": {"pivots": _pivots("LU")},
    # Order, and what must not be zero.
    "searchsorted": {"sorted_sequence": _always(Sorted())},
    "bucketize": {"boundaries": _always(Sorted())},
    "floor_divide": _quotient,
    "remainder": _quotient,
    "fmod": _quotient,
    "div": _quotient,
    "divide": _quotient,
}

# APIs in which nothing is planted: zero is a pole of the value or of the gradient, or makes
# all of a product zero; an exchange of equal pivots gives other factors; how many numbers differ decides the shape.
_POLES = (
    "reciprocal rsqrt sqrt log log2 log10 logit pow float_power prod cumprod logdet true_divide addcdiv atan2 arctan2 "
    "digamma psi lgamma gammaln polygamma mvlgamma multigammaln zeta igamma igammac gammainc gammaincc det slogdet inv "
    "inv_ex inverse pinv solve solve_ex lstsq lu lu_factor lu_factor_ex qr geqrf svd svdvals eig eigvals ldl_factor "
    "ldl_factor_ex matrix_rank cond tensorinv tensorsolve cholesky cholesky_ex mode unique unique_consecutive"
)
# By canonical API the parameters in which nothing is planted; "*": all.
UNPLANTED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_POLES.split(), frozenset({"*"})),
    **dict.fromkeys(("div", "divide", "floor_divide", "remainder", "fmod"), frozenset({"other"})),
    "xlogy": frozenset({"other", "input.1"}),
}


def is_planted(bound: BoundCall, path: str) -> bool:
    """May zeros and ties be planted in the argument at a path ("input.1.0")?"""
    names = UNPLANTED.get(bound.name)
    if names is None:
        return True
    # A quotient by a number may be a reflected one, 1 / x.
    if "*" in names or not isinstance(bound.argument("other"), TensorSpec | list | tuple):
        return False
    places = [bound.paths[name] for name in names if name in bound.paths]
    return not any(path == place or path.startswith(f"{place}.") for place in places)
