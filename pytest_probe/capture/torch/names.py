"""Which functions are recorded, and under which names: the names that a replay finds again."""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Hashable, Mapping
from types import CodeType, FrameType, MethodWrapperType
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload, OpOverloadPacket

from pytest_probe.capture.hooks import Rule
from pytest_probe.frameworks import COMPILED
from pytest_probe.frameworks.torch import own
from pytest_probe.frameworks.torch.scaled_products import SCALED, SCALED_GROUPED

# What nn.LSTM and the like call by way of torch._VF, under whose name captures have them.
_RECURRENT = frozenset("lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell".split())

# They ask about a tensor, or take its value out: nothing is computed.
_ASKING = frozenset(
    "size dim ndimension numel nelement stride storage_offset storage item tolist is_contiguous is_complex "
    "is_floating_point is_signed is_conj is_neg is_inference is_coalesced is_nonzero is_same_size is_tensor is_storage "
    "requires_grad_ detach_ has_names names rename refine_names align_as align_to data element_size get_device "
    "result_type can_cast promote_types __len__ __bool__ __float__ __int__ __long__ __complex__ __index__ "
    "__contains__ __reversed__ __array__ qscheme q_scale q_zero_point sym_size sym_numel sym_stride "
    "sym_storage_offset unsafe_chunk_".split()
)
# Operator namespaces of torch's own machinery.
_MACHINERY = frozenset("prim prims profiler inductor rngprims streams _test".split())

# Their records keep the generator's state: without it nobody can draw the same again.
_DRAWING = frozenset(
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout rand randn randint "
    "randperm rand_like randn_like randint_like bernoulli multinomial normal uniform random exponential geometric "
    "cauchy log_normal poisson rrelu gumbel_softmax fractional_max_pool2d fractional_max_pool3d "
    "scaled_dot_product_attention lstm gru rnn_tanh rnn_relu multi_head_attention_forward".split()
)

# What operators arrive as, and their names.
_OPERATORS = {
    **{name: f"__{name}__" for name in "add sub mul matmul neg abs lt le gt ge eq ne".split()},
    **{f"{name}_": f"__i{name}__" for name in "add sub mul".split()},
    **{"div": "__truediv__", "div_": "__itruediv__", "remainder": "__mod__", "remainder_": "__imod__"},
    **{"floor_divide": "__floordiv__", "floor_divide_": "__ifloordiv__", "pow": "__pow__", "pow_": "__ipow__"},
    "bitwise_not": "__invert__",
}
# How the names of bytecodes begin that are operators.
_OPERATING = ("BINARY", "INPLACE", "COMPARE", "UNARY")


# Namespaces in which the name of a scaled product means torch's.
_OF_TORCH = frozenset(("Functional", "Torch", "Aten"))
# They write to arguments without raising versions: running statistics, parameters and the optimizer's state.
_WRITING = ("batch_norm", "_fused_", "fused_moving_avg_obs")


class Inside(NamedTuple):
    """What torch asks for by the name of a function that the program has put in its place: the function of torch's,
    which is called, and its rule. torch itself would call the program's once more."""

    function: Callable[..., Any]
    rule: Rule | None


class ScaledProduct(Rule):
    """Of a function whose operands have blocks: what those hold is recorded as well."""


# By this torch's functions that are written in Python call a mode.
HANDING_OVER = torch.overrides.handle_torch_function.__code__
# What nobody but torch makes: functions in C, and functions that read a property.
_MADE_BY_TORCH = (*COMPILED, MethodWrapperType, OpOverload, OpOverloadPacket)
# The rule of functions that hand out memory: they are not recorded, but their tensor is distrusted.
ALIASING = Rule("", False)
# What these return may be written to without torch counting it.
_ALIASING: tuple[Any, ...] = (
    *(torch.Tensor.data.__get__, torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.data_ptr),  # type: ignore[attr-defined]
    *(torch.Tensor.untyped_storage, torch.Tensor.storage, torch.Tensor.__dlpack__),
)


class RecordedFunctions:
    """The rules of one capture, by function."""

    def __init__(self, wants: Callable[[str], bool], lost: Callable[[Any], None] = lambda function: None) -> None:
        """lost is called with a function in the place of one of torch's, which one nobody can tell."""
        self._wants = wants
        self._lost = lost
        self._named: dict[str, Rule] = {}
        self._functions = _functions()
        # The functions met so far: programs call few of all. Functions that are not recorded are here as well.
        self.table: dict[Hashable, Rule | None] = dict.fromkeys(_ALIASING, ALIASING)

    def named(self, name: str) -> Rule:
        rule = self._named.get(name)
        if rule is None:
            space, _, api = name.partition(".")
            kind = ScaledProduct if space in _OF_TORCH and api in SCALED | SCALED_GROUPED else Rule
            writes, draws = any(part in name for part in _WRITING), name.rpartition(".")[2].rstrip("_") in _DRAWING
            rule = self._named[name] = kind(name, self._wants(name), writes, draws)
        return rule

    def learn(self, function: Any, frame: FrameType | None) -> Rule | Inside | None:
        """The rule of a function that is not in the table, which has it from now on, unless the function stands in the
        place of torch's. frame is what called the mode."""
        if not isinstance(function, _MADE_BY_TORCH) and not own.is_one(function):
            asking = frame.f_back if frame is not None and frame.f_code is HANDING_OVER else None
            known = own.inside(function, asking)
            if known is not None:
                key, called = known
                return Inside(called, self.table[key] if key in self.table else key and self._rule(key))
            if asking is None and not own.is_of_torch(function):
                self._lost(function)
                return None
        return self._rule(function)

    def _rule(self, function: Any) -> Rule | None:
        try:
            name = self._functions.get(function)
        except TypeError:  # it has no hash
            return None
        rule = self._of_operator(function) if name is None else self.named(name)
        space, _, api = (name or "").partition(".")
        if rule is not None and space == "Tensor" and api in _OPERATORS:
            rule.operator = self.named(f"Tensor.{_OPERATORS[api]}")
        self.table[function] = rule
        return rule

    def _of_operator(self, function: Any) -> Rule | None:
        if isinstance(function, OpOverload):
            space, name = function.namespace, str(function).partition(".")[2].removesuffix(".default")
        elif isinstance(function, OpOverloadPacket):
            space, _, name = function._qualified_op_name.partition("::")
        else:
            return None
        if space in _MACHINERY:
            return None
        rule = self.named(f"{'Aten' if space == 'aten' else space}.{name}")
        # Extensions say what they write to; few raise its version.
        rule.writes |= space != "aten"
        return rule


@functools.cache
def _functions() -> Mapping[Hashable, str]:
    """All functions that may be recorded, each once, with its name."""
    found: dict[Hashable, str] = {own.FUNCTIONS["torch"][name]: f"VF.{name}" for name in _RECURRENT}
    for function, place, name in own.named():
        if name not in _ASKING:
            found.setdefault(function, own.record(place, name))
    return found


_written: dict[tuple[int, int], bool] = {}
_pinned: list[CodeType] = []


def by_operator(code: CodeType, instruction: int) -> bool:
    """Is this instruction of the caller an operator, rather than a call? torch gives both one function."""
    key = (id(code), instruction)
    known = _written.get(key)
    if known is None:
        known = _written[key] = dis.opname[code.co_code[instruction]].startswith(_OPERATING)
        _pinned.append(code)
    return known
