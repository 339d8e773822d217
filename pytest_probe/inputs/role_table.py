"""Which argument of which API has which role: one table of index rules, and the roles of tensors in a subscript, as in
x[index], x[mask], x[:, rows, mask] = values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pytest_probe.inputs import role_rules as rules
from pytest_probe.inputs.generated import kind_of
from pytest_probe.inputs.role_rules import RoleCall, RoleRule, RoleRules
from pytest_probe.inputs.roles import (
    Count,
    Divisor,
    Index,
    Invertible,
    Mask,
    PositiveDefinite,
    Role,
    Signs,
    Size,
    Sorted,
    Symmetric,
    Triangle,
)
from pytest_probe.model.dump import Argument, Call, TensorSpec, named_tensors
from pytest_probe.model.run import BoundCall


class _Item(NamedTuple):
    """One item of a subscript: its path, how many dimensions it takes from the tensor and adds to the selection.

    Advanced items (tensors, lists) are broadcast together and add their dimensions once, all together.
    """

    value: Argument
    path: str
    takes: int
    adds: int
    advanced: bool


def _subscript_roles(
    tensor: Argument, subscript: Argument, path: str, selection: Argument, overwrites: bool
) -> Iterator[tuple[str, TensorSpec, Role]]:
    """Path, tensor and role of each tensor in a subscript.

    selection is what was read from the places or is written to them; as a tensor of full rank it fixes the number of
    True in a mask. overwrites: the places must be distinct for the result to be defined.
    """
    if not isinstance(tensor, TensorSpec):
        return
    if isinstance(subscript, (list, tuple)):
        parts = [(value, f"{path}.{place}") for place, value in enumerate(subscript)]
    else:
        parts = [(subscript, path)]
    rest = len(tensor.shape) - sum(_takes(value) for value, _ in parts)
    items = [_item(value, where, max(rest, 0)) for value, where in parts]
    chosen = _selected_count(tensor, items, selection)
    spread = overwrites and isinstance(selection, TensorSpec)
    axis = 0
    for item in items:
        if isinstance(item.value, TensorSpec):
            if not _is_mask(item.value) and axis < len(tensor.shape):
                # Negative indices where they were recorded. Where places must be distinct, only where all were
                # negative: mixed signs may name one place twice.
                extent, decisive = tensor.shape[axis], item.value.max if spread else item.value.min
                low = -extent if decisive is not None and decisive < 0 else 0
                yield item.path, item.value, Index(extent, low=low, axis="all" if spread else None)
            elif _is_mask(item.value) and chosen is not None:
                yield item.path, item.value, Count(chosen)
        axis += item.takes


def _item(value: Argument, path: str, rest: int) -> _Item:
    if value is Ellipsis:
        return _Item(value, path, rest, rest, advanced=False)
    if value is None:
        return _Item(value, path, 0, 1, advanced=False)
    advanced = isinstance(value, (TensorSpec, list, tuple, range))
    return _Item(value, path, _takes(value), 1 if isinstance(value, slice) else 0, advanced)


def _takes(value: Argument) -> int:
    if value is None or value is Ellipsis or isinstance(value, bool):
        return 0
    return len(value.shape) if isinstance(value, TensorSpec) and _is_mask(value) else 1


def _is_mask(spec: TensorSpec) -> bool:
    return spec.dtype == "bool"


def _selected_count(tensor: TensorSpec, items: list[_Item], selection: Argument) -> int | None:
    """How many elements the masks select, None where the selection does not say."""
    advanced = [place for place, item in enumerate(items) if item.advanced]
    if not advanced or not isinstance(selection, TensorSpec):
        return None
    untouched = len(tensor.shape) - sum(item.takes for item in items)
    # Those of a tensor of indices; what else stands there has one.
    values = (items[place].value for place in advanced)
    together = max(len(v.shape) if isinstance(v, TensorSpec) and not _is_mask(v) else 1 for v in values)
    if not together or len(selection.shape) != untouched + sum(item.adds for item in items) + together:
        return None
    # NumPy's rule: the common dimensions come in place of the items if those are neighbours, else first.
    adjacent = advanced[-1] - advanced[0] + 1 == len(advanced)
    before = sum(item.adds for item in items[: advanced[0]]) if adjacent else 0
    return selection.shape[before + together - 1]


def roles(bound: BoundCall, call: Call) -> dict[str, Role]:
    """The roles in one call by the path of their argument ("input.1", "kwargs.index", "input.1.0")."""
    if bound.name not in ROLES:
        return {}
    asked = RoleCall(bound, call)
    return {
        path: role
        for name, rule in ROLES[bound.name].items()
        for path, spec, role in _apply_rule(asked, name, rule)
        if kind_of(spec.dtype) in role.kinds
    }


def _apply_rule(asked: RoleCall, name: str, rule: RoleRule) -> Iterator[tuple[str, TensorSpec, Role]]:
    value, path = asked.get(name), asked.bound.paths.get(name, "")
    if rule is rules.size:
        yield from ((place, spec, Size()) for place, spec in named_tensors(value, path))
    elif rule is rules.subscript:
        values = asked.get("values")
        overwrites = values is not None and not asked.get("accumulate")
        shaped = asked.output if values is None else values
        yield from _subscript_roles(asked.get("input"), value, path, shaped, overwrites)
    elif isinstance(value, TensorSpec):
        role = rule(asked, value)
        if role is not None:
            yield path, value, role


# By canonical API and parameter.
ROLES: Mapping[str, RoleRules] = {
    # Indices.
    "embedding": {"input": rules.below("weight", 0)},
    "embedding_bag": {"input": rules.below("weight", 0), "offsets": rules.offsets},
    **{
        name: {"index": rules.along()}
        for name in "gather scatter_add scatter_reduce index_select index_add index_reduce index_fill".split()
    },
    "scatter": {"index": rules.along(rules.overwrites)},
    "index_copy": {"index": rules.along(lambda asked: True)},
    "take": {"index": rules.flat()},
    "put": {"index": rules.flat(distinct=True)},
    "take_along_dim": {"indices": rules.take_along_dim},
    **{name: {"index": rules.subscript} for name in "getitem setitem index index_put _index_put_impl".split()},
    "unravel_index": {"indices": rules.unravel},
    "max_unpool1d": {"indices": rules.unpool(1)},
    "max_unpool2d": {"indices": rules.unpool(2)},
    "max_unpool3d": {"indices": rules.unpool(3)},
    "one_hot": {"input": rules.one_hot},
    "gather_nd": {"index": rules.coordinates},
    "gather_tree": {"parents": rules.below("input", -1)},
    "scatter_nd": {"index": rules.coordinates, "size": rules.size},
    "scatter_nd_add": {"index": rules.coordinates},
    **{name: {"boxes": rules.corners, "boxes_num": rules.boxes} for name in ("roi_align", "roi_pool", "psroi_pool")},
    "multiplex": {"index": rules.among("inputs")},
    **{
        name: {"segment_ids": rules.always(Sorted())}
        for name in "segment_sum segment_mean segment_max segment_min".split()
    },
    **{
        name: {"src_index": rules.below("input", 0), "dst_index": rules.below("input", 0)}
        for name in ("send_u_recv", "send_ue_recv", "send_uv")
    },
    "bincount": {"input": rules.bin},
    "repeat_interleave": {"repeats": rules.repeats},
    **{name: {"batch_sizes": rules.running} for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    # Labels and targets of losses.
    **{
        name: {"target": rules.label}
        for name in "cross_entropy cross_entropy_loss nll_loss nll_loss2d nll_loss_nd".split()
    },
    "adaptive_log_softmax_with_loss": {"target": rules.cut_offs},
    **{name: {"target": rules.last_class(0)} for name in ("margin_cross_entropy", "multi_margin_loss")},
    "hsigmoid_loss": {
        "target": rules.classes,
        "path_table": rules.below("weight", 0),
        "path_code": rules.always(Index(2)),
    },
    "multilabel_margin_loss": {"target": rules.last_class(-1)},
    "ctc_loss": {
        "targets": rules.not_blank("log_probs"),
        "input_lengths": rules.ctc_input_lengths,
        "target_lengths": rules.ctc_target_lengths,
    },
    "warpctc": {
        "targets": rules.not_blank("log_probs"),
        "input_lengths": rules.ctc_input_lengths,
        "target_lengths": rules.ctc_target_lengths_from_one,
    },
    "rnnt_loss": {
        "target": rules.not_blank("input"),
        "input_lengths": rules.rnnt_input_lengths,
        "target_lengths": rules.rnnt_target_lengths,
    },
    **{
        name: {"target": rules.always(Signs())}
        for name in "margin_ranking_loss cosine_embedding_loss hinge_embedding_loss soft_margin_loss".split()
    },
    **{
        name: {"input": rules.probability, "target": rules.probability} for name in ("binary_cross_entropy", "log_loss")
    },
    **{
        name: {"target": rules.probability}
        for name in "binary_cross_entropy_with_logits sigmoid_focal_loss multi_label_soft_margin_loss".split()
    },
    "dice_loss": {"input": rules.probability, "target": rules.last_class(0)},
    "kl_div": {"target": rules.divergence_target},
    "poisson_nll_loss": {"target": rules.positive},
    "gaussian_nll_loss": {"var": rules.positive},
    # Probabilities, variances, rates.
    "bernoulli": {"input": rules.probability, "p": rules.probability},
    **{name: {"p": rules.probability} for name in ("dropout", "dropout2d", "dropout3d")},
    "cov": {"fweights": rules.always(Index(10, low=1)), "aweights": rules.positive},
    "multinomial": {"input": rules.drawn},
    "normal": {"std": rules.positive, "size": rules.size},
    "poisson": {"input": rules.positive},
    **{name: {"input": rules.positive, "input.1": rules.positive} for name in ("gammainc", "gammaincc")},
    **{name: {"running_var": rules.positive} for name in ("batch_norm", "native_batch_norm", "instance_norm")},
    # Masks.
    "masked_select": {"mask": rules.masked_select},
    "masked_scatter": {"mask": rules.masked_scatter},
    **{name: {"input": rules.nonzero} for name in ("nonzero", "argwhere")},
    "where": {"condition": rules.where},
    "scaled_dot_product_attention": {"attn_mask": rules.always(Mask(attends=True))},
    "multi_head_attention_forward": {
        "key_padding_mask": rules.always(Mask(attends=False)),
        "attn_mask": rules.always(Mask(attends=False)),
    },
    "npu_scaled_masked_softmax": {"mask": rules.always(Mask(attends=False))},
    "npu_fusion_attention": {"mask": rules.hidden_keys},
    "npu_grouped_matmul": {"group_list": rules.groups},
    **{name: {"offs": rules.ends} for name in ("grouped_mm", "scaled_grouped_mm")},
    # Matrices.
    **{name: {"input": rules.always(PositiveDefinite())} for name in ("cholesky", "cholesky_ex")},
    **{name: {"input": rules.always(Symmetric())} for name in ("eigh", "eigvalsh")},
    **{
        name: dict.fromkeys(("input", "A"), rules.always(Invertible()))
        for name in "solve solve_ex inv inv_ex inverse det slogdet logdet".split()
    },
    "cholesky_inverse": {"input": rules.always(Triangle())},
    "cholesky_solve": {"input2": rules.always(Triangle())},
    **{name: {"A": rules.always(Triangle())} for name in ("triangular_solve", "solve_triangular")},
    "lu_solve": {"LU": rules.always(Triangle()), "pivots": rules.pivots("LU")},
    "lu_unpack": {"pivots": rules.pivots("LU")},
    # Sizes that tensors give.
    **{
        name: {"size": rules.size}
        for name in (
            "zeros ones empty full rand randn uniform randint randperm log_normal reshape view expand broadcast_to "
            "tile pad split tensor_split affine_grid interpolate upsample"
        ).split()
    },
    "narrow": {"size": rules.size, "offsets": rules.size, "starts": rules.size, "ends": rules.size},
    **dict.fromkeys(("arange", "linspace", "logspace"), dict.fromkeys(("start", "end", "step"), rules.size)),
    "eye": {"rows": rules.size, "columns": rules.size},
    "topk": {"k": rules.size},
    # Order, and what must not be zero.
    "searchsorted": {"sorted_sequence": rules.always(Sorted())},
    "bucketize": {"boundaries": rules.always(Sorted())},
    **{name: {"other": rules.always(Divisor())} for name in "floor_divide remainder fmod div divide".split()},
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
