"""PyTorch: what its APIs and their parameters are called elsewhere. torch is not imported.

Judges and index roles ask for an argument by its canonical name ("dim"), and for an API by its canonical name
("softmax"); here is where torch has an argument, and what torch calls it. APIs that nobody asks an argument of
are not listed: their first argument is `input`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_probe.frameworks.python.binding import Signature, bound_call, by_name, operator_name, unbound_call
from pytest_probe.model.dump import SizeSpec
from pytest_probe.model.run import BoundCall

# How torch spells what a dump calls by its prefix; the longest comes first.
_SPELLINGS = (
    ("torch.nn.functional.", "Functional."),
    ("torch.Tensor.", "Tensor."),
    ("torch.ops.aten.", "Aten."),
    ("torch._VF.", "VF."),
    ("torch_npu.", "NPU."),
    ("torch.", "Torch."),
)
# Namespaces of torch's own, in which a name means what it means there.
_NATIVE = ("Torch", "Functional", "Tensor")
# APIs by another name.
_ALIASES = by_name({
    "grid_sampler_2d grid_sampler_3d": "grid_sample",
    "_scaled_mm _scaled_mm_v2": "scaled_mm",
    "_grouped_mm": "grouped_mm",
    "_scaled_grouped_mm _scaled_grouped_mm_v2": "scaled_grouped_mm",
    "npu_linear": "linear",
    "npu_bmmV2": "matmul",
    "npu_mish": "mish",
    "npu_layer_norm_eval": "layer_norm",
    "npu_transpose": "permute",
    "npu_broadcast": "expand",
    "npu_dtype_cast": "to",
    "npu_pad": "pad",
    "npu_slice": "narrow",
    "npu_max": "max",
    "npu_sort_v2": "sort",
    "npu_fast_gelu": "fast_gelu",
    "one": "ones",
})  # fmt: skip
# Parameters that several APIs have alike.
_PACKED = "data batch_sizes hx params has_biases num_layers dropout=0.0"
_NORM = "input running_mean running_var weight bias training=False momentum=0.1 eps=1e-05"
_NATIVE_NORM = "input weight bias running_mean running_var training momentum eps"
_RECIPES = "scale_a recipe_a swizzle_a scale_b recipe_b swizzle_b"
_SCALED_MATRICES = (
    "input/mat_a mat2/mat_b scale_a recipe_a/scale_recipe_a scale_b recipe_b/scale_recipe_b swizzle_a swizzle_b"
)
# Parameters in their order, as canonical names: "name/alias=default". An alias is what torch calls it where that is
# another name. Names are canonical; with a namespace or a submodule where torch has two functions of one name.
SIGNATURES = by_name({
    # Products and what is added to them.
    "linear": "input weight bias",
    "matmul inner": "input other",
    "mm bmm": "input other/mat2",
    "mv": "input vec",
    "dot": "input other/tensor",
    "chain_matmul": "input",
    "addmm": "input mat1 mat2",
    "addmv": "input mat vec",
    "addbmm baddbmm": "input mat1/batch1 mat2/batch2",
    "einsum": "equation *operands",
    "_scaled_mm": "input mat2 scale_a scale_b bias scale_result out_dtype use_fast_accum=False",
    "_scaled_mm_v2": f"input/self mat2 {_RECIPES} bias out_dtype contraction_dim use_fast_accum=False",
    "scaled_mm": f"{_SCALED_MATRICES} bias out_dtype/output_dtype contraction_dim use_fast_accum=False",
    "_scaled_grouped_mm": "input mat2 scale_a scale_b offs bias scale_result out_dtype use_fast_accum=False",
    "_scaled_grouped_mm_v2": f"input/self mat2 {_RECIPES} offs bias out_dtype contraction_dim use_fast_accum=False",
    "scaled_grouped_mm": f"{_SCALED_MATRICES} bias offs out_dtype/output_dtype contraction_dim use_fast_accum=False",
    "_grouped_mm": "input mat2 offs bias out_dtype",
    "grouped_mm": "input/mat_a mat2/mat_b | offs bias out_dtype",
    "conv1d conv2d conv3d": "input weight bias stride=1 padding=0 dilation=1 groups=1",
    "conv_transpose1d conv_transpose2d conv_transpose3d": "input weight bias stride=1 padding=0 output_padding=0 "
    "groups=1 dilation=1",
    # Elements that an index names.
    "Functional.embedding": "input weight padding_idx max_norm",
    "embedding": "weight input/indices padding_idx=-1",
    "Functional.embedding_bag": "input weight offsets max_norm norm_type=2 scale_grad_by_freq=False mode='mean' "
    "sparse=False per_sample_weights include_last_offset=False",
    "embedding_bag": "weight input/indices offsets scale_grad_by_freq=False mode=0 sparse=False per_sample_weights "
    "include_last_offset=False",
    "gather index_select": "input dim index",
    "scatter": "input dim index source/src/value reduce",
    "scatter_add": "input dim index src",
    "scatter_reduce": "input dim index src reduce",
    "index_add index_copy": "input dim index source",
    "index_reduce": "input dim index source reduce",
    "index_fill": "input dim index value",
    "take getitem": "input index",
    "put": "input index source accumulate=False",
    "take_along_dim": "input indices dim",
    "setitem": "input index/key values/value",
    "index": "input index/indices",
    "index_put _index_put_impl": "input index/indices values accumulate=False",
    "unravel_index": "indices shape",
    "one_hot": "input num_classes=-1",
    "bincount": "input weights minlength=0",
    "repeat_interleave": "input repeats dim",
    "max_unpool1d max_unpool2d max_unpool3d": "input indices",
    "searchsorted": "sorted_sequence input",
    "segment_reduce": "input/data reduce lengths indices offsets axis=0 unsafe=False initial",
    "bucketize": "input boundaries",
    # Optimisers over lists.
    "_fused_adam _fused_adamw": "input/self grads exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps",
    "_fused_adagrad": "input/self grads state_sums state_steps",
    "_fused_sgd": "input/self grads momentum_buffer_list",
    # Choices among equal values.
    "sort argsort": "input dim/axis=-1",
    # It has no such parameter, and sorts along that dimension.
    "msort": "input dim=0",
    "topk": "input k dim=-1 largest=True sorted=True",
    "kthvalue": "input k dim=-1",
    "mode": "input dim=-1",
    "median nanmedian max min amax amin aminmax argmax argmin cummax cummin": "input dim/axis",
    "max_pool1d max_pool2d max_pool3d": "input kernel_size stride padding=0 dilation=1 ceil_mode=False",
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d": "input output_size",
    # Masks.
    "masked_select": "input mask",
    "masked_scatter": "input mask source",
    "where": "condition input other",
    "Tensor.where": "input condition other",
    "scaled_dot_product_attention": "query key value attn_mask dropout_p=0.0",
    "multi_head_attention_forward": "query key value embed_dim_to_check num_heads in_proj_weight in_proj_bias bias_k "
    "bias_v add_zero_attn dropout_p=0.0 out_proj_weight out_proj_bias training=True key_padding_mask "
    "need_weights=True attn_mask",
    # Losses.
    "cross_entropy Functional.nll_loss": "input target weight size_average ignore_index=-100",
    "cross_entropy_loss nll_loss nll_loss2d nll_loss_nd": "input target weight reduction=1 ignore_index=-100",
    "multi_margin_loss multilabel_margin_loss hinge_embedding_loss soft_margin_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits poisson_nll_loss": "input target",
    "margin_ranking_loss cosine_embedding_loss": "input1 input2 target",
    "ctc_loss": "log_probs targets input_lengths target_lengths blank=0",
    "Functional.kl_div": "input target size_average reduce reduction='mean' log_target=False",
    "kl_div": "input target reduction=1 log_target=False",
    "gaussian_nll_loss": "input target var",
    # Norms and activations.
    "Functional.batch_norm": _NORM,
    "Functional.instance_norm": _NORM.replace("training=False", "use_input_stats=True"),
    "batch_norm native_batch_norm": _NATIVE_NORM,
    "batch_norm_update_stats": "input running_mean running_var momentum",
    "instance_norm": _NATIVE_NORM.replace("training", "use_input_stats"),
    "layer_norm": "input normalized_shape weight bias eps=1e-05",
    "native_layer_norm": "input normalized_shape weight bias eps",
    "group_norm": "input num_groups weight bias eps=1e-05",
    "native_group_norm": "input weight bias N C HxW group eps",
    "rms_norm": "input normalized_shape weight eps",
    "npu_rms_norm": "input/self weight/gamma epsilon=1e-06",
    "npu_add_rms_norm": "input/x1 residual/x2 weight/gamma epsilon=1e-06",
    "npu_group_norm_silu": "input weight bias num_groups/group eps=1e-05",
    "normalize": "input p=2.0 dim=1 eps=1e-12",
    "cosine_similarity": "x1 x2 dim=1 eps=1e-08",
    "gelu": "input | approximate='none'",
    "alpha_dropout feature_alpha_dropout": "input p=0.5 training/train=False",
    "dropout dropout1d dropout2d dropout3d feature_dropout": "input p=0.5 training/train=True",
    "rrelu": "input lower=0.125 upper=0.3333333333333333 training=False",
    "lstm gru rnn_tanh rnn_relu": "input hx params has_biases num_layers dropout=0.0",
    # Interpolation.
    "interpolate": "input size scale_factor mode='nearest' align_corners recompute_scale_factor",
    "upsample": "input size scale_factor mode='nearest'",
    "upsample_nearest": "input size scale_factor",
    # Steps and counts.
    "round": "input decimals=0",
    "div divide": "input other rounding_mode",
    "floor_divide remainder fmod": "input other",
    "Tensor.__rfloordiv__ Tensor.__rmod__ Tensor.__rmatmul__": "other input",
    "histogram": "input bins=100 range weight density=False",
    # Arithmetic, sums and what goes along a dimension.
    "add sub mul maximum minimum atan2 hypot": "input other",
    "pow": "input other/exponent",
    "lerp": "input other/end third/weight",
    "addcmul addcdiv": "input other/tensor1 third/tensor2 value=1",
    "clamp": "input min max",
    "softmax log_softmax cumsum": "input dim",
    "sum mean prod logsumexp": "input dim keepdim=False",
    "var std": "input dim/axis",
    "vector_norm": "input/x ord=2.0 dim keepdim=False",
    "cat": "input/tensors dim=0",
    "masked_fill": "input mask value",
    "transpose": "input dim0 dim1",
    "flip": "input dims",
    "avg_pool1d avg_pool2d avg_pool3d": "input kernel_size stride padding=0",
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d": "input output_size",
    "mse_loss l1_loss smooth_l1_loss": "input target",
    # torch_npu's fused operators.
    "npu_bmmV2": "input/self other/mat2 output_sizes",
    "npu_max": "input/self dim keepdim=False",
    "npu_sort_v2": "input/self dim=-1 descending=False",
    "npu_swiglu": "input/self dim=-1",
    "npu_rotary_mul": "input/self r1 r2 rotary_mode='half' rotate",
    "npu_scaled_masked_softmax": "input/x mask scale=1.0 fixed_triu_mask=False",
    "npu_moe_gating_top_k_softmax": "input/x finished k=1",
    "npu_fusion_attention": "query key value head_num input_layout pse padding_mask mask/atten_mask scale=1.0 "
    "keep_prob=1.0 pre_tockens=2147483647 next_tockens=2147483647 inner_precise=0 prefix actual_seq_qlen "
    "actual_seq_kvlen sparse_mode=0",
    "npu_grouped_matmul": "input/x weight | bias group_list split_item=0 group_type group_list_type=0",
    # What is drawn.
    "bernoulli geometric": "input p",
    "Tensor.bernoulli_": "input p=0.5",
    "multinomial": "input num_samples=1 replacement=False",
    "normal": "mean=0.0 std=1.0",
    "Tensor.normal": "input mean=0.0 std=1.0",
    "poisson": "input",
    "uniform": "input from=0.0 to=1.0",
    "log_normal": "input mean=1.0 std=2.0",
    "exponential": "input lambd=1.0",
    "cauchy": "input median=0.0 sigma=1.0",
    "randint": "low=0 high size",
    "randint_like": "input low=0 high",
    # Factors and matrices.
    "svd": "input some=True compute_uv=True",
    "linalg.svd": "input/A full_matrices=True",
    "cholesky cholesky_ex eig eigvals eigvalsh qr": "input/A",
    "eigh": "input/A UPLO='L'",
    "cholesky_solve": "input input2",
    "triangular_solve": "input A",
    "solve_triangular": "A B",
    "linalg.lu_solve": "LU pivots B",
    "lu_solve": "B/b LU/LU_data pivots/LU_pivots",
    "lu_unpack": "LU/LU_data pivots/LU_pivots",
})  # fmt: skip
# Of an API in no list nothing is asked but its first argument.
_UNLISTED = "input"


def spelled(glob: str) -> str:
    """A glob with torch's own spelling replaced by the dump's: `torch.nn.functional.x` is `Functional.x`."""
    for spelling, prefix in _SPELLINGS:
        if glob.startswith(spelling):
            return prefix + glob[len(spelling) :]
    return glob


def written(dtype: str) -> tuple[str, str, str]:
    """As msprobe writes them: with torch's prefix."""
    return "torch.Tensor", "torch.dtype", f"torch.{dtype}"


@functools.cache
def canonical(api: str) -> str:
    """The API's name without namespace, dunders, in-place mark and foreach prefix."""
    name = api.rsplit(".", 1)[-1]
    operator = operator_name(name)
    if operator is not None:
        return operator
    bare = name.removeprefix("_foreach_").rstrip("_")
    return _ALIASES.get(bare, bare)


def bind(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BoundCall:
    """The arguments of a call by the names of its API's parameters; api as a dump has it, "" for no known one.

    The values are whatever represents tensors there.
    """
    name = canonical(api) if api else ""
    native = api.partition(".")[0] in _NATIVE
    return bound_call(api, name, native, Signature.parsed(_text(api, args, kwargs)), args, kwargs)


def call(api: str, given: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and keyword arguments by which an API takes values that are given by canonical names."""
    return unbound_call(Signature.parsed(_text(api, (), {})), given)


def signature(api: str) -> Signature:
    """The parameters of an API, in the form that a name alone tells."""
    return Signature.parsed(_usual(api))


def _text(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The signature of a name, or of one of the forms in which torch takes its arguments."""
    own = canonical(api) if api else ""
    form = _FORMS[own](args, kwargs) if own in _FORMS else ""
    return form or _usual(api)


@functools.cache
def _usual(api: str) -> str:
    """The signature of a name."""
    namespace, _, name = api.partition(".")
    own = canonical(api) if api else ""
    plain = name if name.endswith("__") else name.rstrip("_")
    own_namespace = "Functional" if "functional" in namespace.lower() else namespace
    places = (f"{own_namespace}.{name}", f"{own_namespace}.{plain}")
    return next((SIGNATURES[key] for key in (*places, plain, own) if key in SIGNATURES), _UNLISTED)


def _packed(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """lstm(data, batch_sizes, ...): the second argument of a packed batch holds integers."""
    dtype = str(getattr(getattr(args[1], "array", args[1]), "dtype", "")) if len(args) > 1 else ""
    return _PACKED if dtype.startswith("int") else ""


def _one_end(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """randint(high, size): without a lower end. Ends may be tensors, or whatever represents them."""
    ends = [value for value in args if not isinstance(value, (list, tuple, SizeSpec))]
    return "high size" if len(ends) == 1 and "high" not in kwargs else ""


# APIs that take their arguments in more than one form: the arguments decide which it is.
_FORMS: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any]], str]] = {
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _packed),
    "randint": _one_end,
    "randint_like": lambda args, kwargs: "input high" if len(args) == 2 and "high" not in kwargs else "",
}
