"""PaddlePaddle: which recorded names may be called, and the functions that they lead to.

What a dump names is judged by name: what Paddle's modules list as public, methods of its tensors, and numeric
operators. Nothing is imported for a dump.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType, ModuleType
from typing import Any

import paddle

from pytest_probe.errors import UnknownAPI
from pytest_probe.frameworks.base import API
from pytest_probe.frameworks.paddle.signatures import NATIVE
from pytest_probe.frameworks.python.binding import is_operator, works_in_place

# Modules whose __all__ lists what computes; paddle.special is one of 3.3.
PUBLIC = frozenset(
    module
    for module in "paddle paddle.nn.functional paddle.linalg paddle.fft paddle.signal paddle.special paddle.geometric "
    "paddle.incubate paddle.incubate.nn.functional paddle.vision.ops paddle.nn.quant paddle.sparse "
    "paddle.sparse.nn.functional paddle.audio.functional".split()
    if importlib.util.find_spec(module)
)
# Listed as public, and no computation: they read and write files, run code that they are given, or set what the
# process has.
_NO_COMPUTATION = frozenset(
    "save load summary flops batch seed manual_seed grad set_flags get_flags set_printoptions set_default_dtype "
    "get_default_dtype get_rng_state set_rng_state get_cuda_rng_state set_cuda_rng_state enable_static disable_static "
    "in_dynamic_mode disable_signal_handler create_parameter from_dlpack to_dlpack from_numpy check_shape autocast "
    "enable_compat disable_compat is_grad_enabled is_autocast_enabled get_autocast_dtype get_autocast_cpu_dtype "
    "get_autocast_gpu_dtype read_file decode_jpeg inference iinfo finfo".split()
)
# Functions of tensors that say how one is stored, attach something to it, run what they are given, or take memory and
# files from elsewhere.
_KEEPING = frozenset(
    "apply apply_ backward clear_grad clear_gradient copy_ create_parameter create_tensor cuda data_ptr element_size "
    "get_device get_map_tensor get_selected_rows get_strides get_tensor gradient numpy pin_memory reconstruct_from_ "
    "register_hook requires_grad_ retain_grads rows set_ set_string_list set_tensor set_value set_vocab stride value "
    "to_sparse_coo to_sparse_csr".split()
)
# Operators below the public functions that compute what their name says, as captures of calls inside layers have them.
OPERATORS = frozenset(
    "abs acos acosh add add_n addmm affine_grid all allclose amax amin angle any arange argmax argmin argsort "
    "as_complex as_real asin asinh assign atan atan2 atanh baddbmm batch_norm bce_loss bernoulli bicubic_interp "
    "bilinear bilinear_interp bincount bitwise_and bitwise_not bitwise_or bitwise_xor bmm broadcast_tensors cast ceil "
    "celu channel_shuffle cholesky cholesky_solve clip clip_by_norm complex concat conj conv2d conv2d_transpose "
    "conv3d conv3d_transpose copysign cos cosh crop cross cross_entropy_with_softmax cummax cummin cumprod cumsum "
    "depthwise_conv2d depthwise_conv2d_transpose det diag diag_embed diagonal digamma dist divide dot dropout eig "
    "eigh eigvals eigvalsh einsum elementwise_pow elu embedding empty empty_like equal equal_all erf erfinv exp "
    "expand expand_as expm1 eye fft_c2c fft_c2r fft_r2c flatten flip floor floor_divide fmax fmin fold frobenius_norm "
    "full full_like fused_gemm_epilogue fused_softmax_mask fused_softmax_mask_upper_triangle gammaincc gammaln gather "
    "gather_nd gaussian gelu greater_equal greater_than grid_sample group_norm gumbel_softmax hardshrink hardsigmoid "
    "hardswish hardtanh heaviside hinge_loss histogram huber_loss i0 i0e i1 i1e imag increment index_add index_put "
    "index_sample index_select instance_norm inverse is_empty isclose isfinite isinf isnan kldiv_loss kron kthvalue "
    "label_smooth layer_norm leaky_relu lerp less_equal less_than lgamma linear_interp linspace log log10 log1p log2 "
    "log_loss log_softmax logcumsumexp logical_and logical_not logical_or logical_xor logit logsigmoid logspace "
    "logsumexp lstsq lu lu_unpack masked_fill masked_select matmul matrix_power matrix_rank max max_pool2d_with_index "
    "max_pool3d_with_index maximum maxout mean mean_all meshgrid min minimum mish mode multi_dot multinomial "
    "multiplex multiply mv nanmedian nansum nearest_interp nextafter nll_loss nonzero not_equal numel one_hot ones "
    "ones_like p_norm pad pad3d pixel_shuffle pixel_unshuffle poisson polygamma pool2d pool3d pow prelu prod "
    "put_along_axis qr randint randperm real reciprocal relu relu6 remainder renorm repeat_interleave reshape reverse "
    "rms_norm roll round rrelu rsqrt scale scatter scatter_nd_add searchsorted selu shape sigmoid "
    "sigmoid_cross_entropy_with_logits sign silu sin sinh slice slogdet softmax softplus softshrink softsign solve "
    "spectral_norm split split_with_num sqrt square squared_l2_norm squeeze stack stanh std strided_slice subtract "
    "sum svd svdvals swiglu swish take_along_axis tan tanh tanh_shrink thresholded_relu tile topk trace transpose "
    "triangular_solve tril tril_indices trilinear_interp triu triu_indices trunc unbind unfold uniform unique "
    "unsqueeze unstack var where zeros zeros_like "
    # Those of optimizers and of recurrent layers.
    "adadelta adagrad adam adamax adamw asgd lamb merged_adam merged_momentum momentum nadam radam rmsprop rnn rprop "
    "sgd".split()
)
# Functions that compute and that no module lists, by module.
OTHERS: Mapping[str, str] = {
    "paddle": "acosh_ asin_ asinh_ atanh_ bartlett_window blackman_window cholesky cosh_ eigvalsh hamming_window "
    "hann_window inverse kaiser_window log1p_ logical_xor_ norm not_equal_ sigmoid",
    "paddle.nn.clip": "_squared_l2_norm",
    "paddle.nn.functional": "diag_embed pdist",
    "paddle.nn.functional.flash_attention": "flash_attention flash_attn_unpadded scaled_dot_product_attention",
    "paddle.incubate.nn.functional": "fused_dot_product_attention fused_gate_attention fused_partial_rope swiglu",
    "paddle.signal": "frame overlap_add",
}
_UNLISTED = frozenset(f"{module}.{name}" for module, names in OTHERS.items() for name in names.split())


def candidates(namespace: str, api: str, namespaces: Mapping[str, str]) -> tuple[API, ...]:
    """What a recorded name may mean; see Framework.candidates. namespaces are the user's."""
    if namespace in namespaces:
        place, allowed = namespaces[namespace], _added(namespaces[namespace], api)
        listed = "a function there"
    elif namespace == NATIVE:
        place, allowed, listed = NATIVE, is_api(api), "among what Paddle lists as public, and no numeric operator"
    else:
        raise UnknownAPI(
            f"{namespace}.{api}: {namespace} is not {NATIVE}; allow it with probe_namespaces "
            f"({namespace}=python.module)"
        )
    if not allowed:
        raise UnknownAPI(f"{namespace}.{api}: {place}.{api} is not {listed}")
    return (API(f"{place}.{api}", functools.partial(_lookup, place, api), works_in_place(api)),)


def apis() -> Iterator[str]:
    """The names that `candidates` admits, but for operators, and those in namespaces that a user adds."""
    modules = {module: _module(module).__all__ for module in sorted(PUBLIC)} | {"paddle.Tensor": dir(paddle.Tensor)}
    named = (f"{module}.{name}" for module, names in modules.items() for name in names)
    yield from (name for name in (*named, *sorted(_UNLISTED)) if is_api(name.partition(".")[2]))


def _module(place: str) -> ModuleType:
    """The module of that name, from our lists or from the user. Nothing is kept: a notebook may import it anew. Raises
    UnknownAPI where it is not there."""
    try:
        return importlib.import_module(place)
    except ImportError as error:
        raise UnknownAPI(f"{place} cannot be imported: {error}") from error


def _lookup(place: str, api: str) -> Any:
    """The function of that name now."""
    module, _, name = api.rpartition(".")
    if place == NATIVE and module == "_C_ops":
        return operator(name)
    return functools.reduce(getattr, api.split("."), _module(place))


def _added(place: str, api: str) -> bool:
    """Is it a function inside a module that the user added? What hangs below another module that it imported is not."""
    owner: Any = _module(place)
    *parents, name = api.split(".")
    for part in parents:
        owner = getattr(owner, part, None)
        if not isinstance(owner, ModuleType) or not owner.__name__.startswith(f"{place}."):
            return False
    return not name.startswith("_") and callable(getattr(owner, name, None))


def is_api(api: str) -> bool:
    """Is paddle.<api> a function that computes? Judged by name, so that one that a user patched stays allowed."""
    module, _, name = f"{NATIVE}.{api}".rpartition(".")
    if module == "paddle.Tensor":
        known = name not in _KEEPING and callable(getattr(paddle.Tensor, name, None))
        return known and (not name.startswith("_") or is_operator(name))
    if module == "paddle._C_ops":
        return name.rstrip("_") in OPERATORS and callable(getattr(paddle._C_ops, name, None))
    if f"{module}.{name}" in _UNLISTED:
        return True
    if module not in PUBLIC or name in _NO_COMPUTATION:
        return False
    owner = _module(module)
    function = getattr(owner, name, None)
    return name in owner.__all__ and callable(function) and not isinstance(function, (type, ModuleType))


# Most operators read as many arguments as they have parameters, also from memory behind the given ones: they
# get more of them than any has.
_NOTHING = (None,) * 64
_COUNTED = "Has too many arguments"
# The place of the dtype: anything else there would end the process.
_DTYPES: Mapping[str, int] = {
    **dict.fromkeys("cast empty empty_like ones ones_like randperm uniform zeros zeros_like".split(), 1),
    **dict.fromkeys("cummax cummin eye full full_like".split(), 2),
    **dict.fromkeys("arange full_ linspace randint".split(), 3),
    "logspace": 4,
}


def operator(name: str) -> Callable[..., Any]:
    """paddle._C_ops.<name> as it is now, for any arguments. It raises TypeError for anything but a dtype."""
    place = _DTYPES.get(name, _DTYPES.get(name.rstrip("_"), len(_NOTHING)))
    function: Any = getattr(paddle._C_ops, name)
    # What a user has put there stays; while steps are rounded, it is a function that gets the operator.
    if isinstance(function, BuiltinFunctionType):
        function = _padded(function, place)
    elif isinstance(function, functools.partial) and isinstance(function.args[-1], BuiltinFunctionType):
        *given, found = function.args
        function = functools.partial(function.func, *given, _padded(found, place))
    return functools.partial(_recurrent, function) if name == "rnn" else function


def _padded(function: Callable[..., Any], dtype: int) -> Callable[..., Any]:
    """Most operators read as many arguments as they have parameters, and where fewer were given memory that is not
    theirs. Here they find None; what is too much they don't read, unless they count their arguments. dtype is the place
    of one."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if dtype < len(args) and not isinstance(args[dtype], (paddle.dtype, type(None))):
            raise TypeError(f"{type(args[dtype]).__name__} in the place of a dtype")
        try:
            return function(*args, *_NOTHING, **kwargs)
        except ValueError as error:
            if _COUNTED not in str(error):
                raise
        return function(*args, **kwargs)

    return call


def _recurrent(function: Callable[..., Any], x: Any, states: Any, weights: Any, *others: Any, **kwargs: Any) -> Any:
    """rnn(x, states, weights, ...): it computes no gradient unless it computes those of all weights."""
    tensors = _tensors(weights)
    wanting = [
        one for one in (x, *_tensors(states), *tensors) if isinstance(one, paddle.Tensor) and not one.stop_gradient
    ]
    frozen = [one for one in tensors if one.stop_gradient]
    if wanting and frozen:
        trainable = iter(_WithGradient.apply(wanting[0], *frozen))
        weights = [next(trainable) if one.stop_gradient else one for one in tensors]
    return function(x, states, weights, *others, **kwargs)


class _WithGradient(paddle.autograd.PyLayer):  # type: ignore[misc]
    """Tensors whose gradients are computed where that of another is asked for, to which they add nothing."""

    @staticmethod
    def forward(context: Any, wanting: Any, *tensors: Any) -> tuple[Any, ...]:
        context.save_for_backward(wanting)
        return tuple(one.clone() for one in tensors)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> tuple[Any, ...]:
        (wanting,) = context.saved_tensor()
        return (paddle.zeros_like(wanting), *(None for _ in gradients))


def _tensors(value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        return ()
    return [one for one in value if isinstance(one, paddle.Tensor)]
