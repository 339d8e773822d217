"""PyTorch: what a process may have set that changes what a call computes, or how it ends; the modes that flags allow.

Threads are none of it: runs in the steps of the CPU's own kernels split their sums as the device under test does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from typing import Any

import torch
import torch.overrides
import torch.utils._python_dispatch as dispatch
from torch.utils._device import DeviceContext

from pytest_probe.frameworks.python.framework import FixedState, Owner, ProcessState, Setting, UsersState, in_words
from pytest_probe.frameworks.torch import own

_SUBNORMAL = 5e-324
# Where torch keeps the precision of float32 products, the wider setting first.
_PRECISIONS = (("generic", "all"), ("mkldnn", "all"), ("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn"))

_C: Any = torch._C
_hooks_on_top: Callable[[bool], Any] = getattr(_C._autograd, "_top_saved_tensors_default_hooks", lambda _: None)
_function_stack: Callable[[], list[Any]] = torch.overrides._get_current_function_mode_stack


def _function_modes(contexts: bool) -> tuple[Any, ...]:
    """The default devices, which torch keeps as modes below all others, or those others."""
    if not _C._len_torch_function_stack():
        return ()
    return tuple(mode for mode in _function_stack() if isinstance(mode, DeviceContext) is contexts)


def _set_function_modes(contexts: bool, modes: Sequence[Any]) -> None:
    others = _function_modes(not contexts)
    while _C._len_torch_function_stack():
        torch.overrides._pop_mode()  # type: ignore[no-untyped-call]
    for mode in (*modes, *others) if contexts else (*others, *modes):
        torch.overrides._push_mode(mode)  # type: ignore[no-untyped-call]


def _dispatch_modes() -> tuple[Any, ...]:
    return tuple(dispatch._get_current_dispatch_mode_stack()) if _C._len_torch_dispatch_stack() else ()


def _set_dispatch_modes(modes: Sequence[Any]) -> None:
    while _C._len_torch_dispatch_stack():
        dispatch._pop_mode()
    for mode in modes:
        dispatch._push_mode(mode)


def _saving_hooks() -> tuple[Any, ...]:
    """What packs the tensors that autograd saves, the innermost last."""
    found = []
    while (pair := _hooks_on_top(True)) is not None:
        found.append(pair)
        _C._autograd._pop_saved_tensors_default_hooks()
    pairs = tuple(reversed(found))
    _set_saving_hooks(pairs)
    return pairs


def _set_saving_hooks(pairs: Sequence[Any]) -> None:
    while _hooks_on_top(True) is not None:
        _C._autograd._pop_saved_tensors_default_hooks()
    for pack, unpack in pairs:
        _C._autograd._push_saved_tensors_default_hooks(pack, unpack)


@cache
def _kinds() -> tuple[str, ...]:
    """The kinds of device that an autocast may be on for."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return ("cpu", "cuda") if found is None else tuple(dict.fromkeys(["cpu", "cuda", found.type]))


def _autocasts() -> tuple[str, ...]:
    return tuple(filter(torch.is_autocast_enabled, _kinds())) if _C._is_any_autocast_enabled() else ()


def _set_autocasts(kinds: Sequence[str]) -> None:
    for kind in _kinds():
        torch.set_autocast_enabled(kind, kind in kinds)


def _deterministic() -> tuple[bool, bool]:
    """On, and to warn only, which says nothing where it is off."""
    on = _C._get_deterministic_algorithms()
    return on, on and _C._get_deterministic_algorithms_warn_only()


def _precisions() -> Iterator[Setting]:
    """Each way to let products of float32 be computed in less. Read raw: torch's own functions refuse to read where
    two of them disagree."""
    read, write = getattr(_C, "_get_fp32_precision_getter", None), getattr(_C, "_set_fp32_precision_setter", None)
    if read is None or write is None:  # before torch 2.9
        get, put = torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
        yield Setting("float32_matmul_precision", "process", get, put, "highest")
        return
    for backend, operator in _PRECISIONS:
        name = f"fp32_precision of {backend} {operator}"
        full = partial(_precision, read, backend, operator)
        yield Setting(name, "process", full, partial(write, backend, operator), "none")


def _precision(read: Callable[[str, str], str], backend: str, operator: str) -> str:
    """ "none", too, where it was asked for in words ("ieee")."""
    found = read(backend, operator)
    return "none" if found == "ieee" else found


def flushes() -> bool:
    """Does arithmetic take subnormal numbers for zero? There is no flag to read."""
    return _SUBNORMAL == 0.0


def _names(modes: Sequence[Any]) -> str:
    return ", ".join(type(mode).__name__ for mode in modes)


_PRECISION_SETTINGS = tuple(_precisions())
_PRECISION_READS = [setting.read for setting in _PRECISION_SETTINGS]
_PRECISE = [setting.fixed for setting in _PRECISION_SETTINGS]
# Modes come first: they would see what sets the others.
SETTINGS = (
    Setting(
        "default device",
        "call",
        partial(_function_modes, True),
        partial(_set_function_modes, True),
        (),
        lambda modes: str(modes[-1].device),
    ),
    Setting(
        "TorchFunctionMode", "process", partial(_function_modes, False), partial(_set_function_modes, False), (), _names
    ),
    Setting("TorchDispatchMode", "process", _dispatch_modes, _set_dispatch_modes, (), _names),
    Setting("saved_tensors_hooks", "process", _saving_hooks, _set_saving_hooks, (), lambda pairs: str(len(pairs))),
    Setting("grad mode", "run", torch.is_grad_enabled, _C._set_grad_enabled, True, lambda _: "off"),
    Setting(
        "anomaly mode",
        "run",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda value: torch.set_anomaly_enabled(*value),
        (False, True),
        lambda _: "on",
    ),
    Setting(
        "default dtype",
        "call",
        torch.get_default_dtype,
        torch.set_default_dtype,
        torch.float32,
        lambda dtype: str(dtype).removeprefix("torch."),
    ),
    Setting(
        "autocast",
        "call",
        _autocasts,
        _set_autocasts,
        (),
        lambda kinds: ", ".join(f"{kind} {torch.get_autocast_dtype(kind)}".replace("torch.", "") for kind in kinds),
    ),
    Setting(
        "deterministic algorithms",
        "process",
        _deterministic,
        lambda value: _C._set_deterministic_algorithms(value[0], warn_only=value[1]),
        (False, False),
        lambda value: "warn" if value[1] else "on",
    ),
    *_PRECISION_SETTINGS,
    Setting("flush_denormal", "process", flushes, torch.set_flush_denormal, False, lambda _: "on"),
    Setting("warn_always", "process", torch.is_warn_always_enabled, torch.set_warn_always, False, lambda _: "on"),
    Setting("functions of its own", "process", own.replaced, own.put, (), own.describe),
)


def differing() -> str:
    """In words, what is set to something else than torch's own default; "" for nothing."""
    return ", ".join([*in_words(SETTINGS), *(["inference mode on"] if torch.is_inference_mode_enabled() else [])])


@cache
def _seeded() -> torch.Tensor:
    """The state of a generator that references begin with."""
    return torch.Generator(device="cpu").manual_seed(0).get_state()


def _untouched() -> bool:
    """Is every setting as torch has it? A few calls of C show that, where all settings, one by one,
    would take ten times as long. Asked twice an item."""
    return not (
        _C._len_torch_function_stack()
        or _C._len_torch_dispatch_stack()
        or _hooks_on_top(True)
        or not torch.is_grad_enabled()
        or torch.is_anomaly_enabled()
        or torch.is_inference_mode_enabled()
        or torch.get_default_dtype() is not torch.float32
        or _C._is_any_autocast_enabled()
        or _C._get_deterministic_algorithms()
        or _SUBNORMAL == 0.0
        or torch.is_warn_always_enabled()
        or own.replaced()
        or [read() for read in _PRECISION_READS] != _PRECISE
    )


class Fixed(FixedState):
    process = ProcessState(SETTINGS, lambda: torch.default_generator, _seeded)

    def __init__(self) -> None:
        super().__init__()
        self._guards: list[Any] = []

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        while self._outermost and self._guards:
            self._guards.pop().__exit__(None, None, None)

    def fix(self, owners: Sequence[Owner]) -> None:
        if _untouched() and not self._changed:
            self.swap_generators()
            return
        if torch.is_inference_mode_enabled():
            self._guards.append(_C._InferenceMode(False))
            self._guards[-1].__enter__()
        super().fix(owners)


OfUser = partial(UsersState, Fixed.process)


def described() -> dict[str, str]:
    """What changes the numbers that an accelerator gives."""
    names = ("cuda.matmul.allow_tf32", "cudnn.allow_tf32")
    return {name: str(value) for name in names if (value := flag_of(torch.backends, name)) is not None}


def plain_convolutions(dtype: str) -> bool:
    """Are the CPU's convolutions of a 16-bit dtype torch's own? Without AVX512 oneDNN takes none; it may be off."""
    name = {"bfloat16": "bf16", "float16": "fp16"}.get(dtype)
    # torch looks for an operator that is not there anew each time.
    takes = None if name is None else flag_of(torch.ops, f"mkldnn._is_mkldnn_{name}_supported")
    return name is not None and not (torch.backends.mkldnn.enabled and takes is not None and takes())


def flag_of(owner: Any, path: str) -> Any:
    """A flag's value; None where this version has none of that name, or refuses to read it."""
    try:
        for name in path.split("."):
            owner = getattr(owner, name)
    except (AttributeError, RuntimeError):
        return None
    return owner


# model.device_modes splits a mode's name there.
_IN_MATMUL, _IN_CONVOLUTION = " in matmul", " in convolution"


def allowed(device: str) -> Iterator[str]:
    """The modes that torch's flags allow on this kind of device ("cuda"), each as far as the flag reaches."""
    if device == "cpu":
        found = (flag_of(torch.backends, f"mkldnn.{operator}.fp32_precision") for operator in ("matmul", "conv"))
        # Any other word asks for all bits of float32.
        yield from _of_scopes(*(precision if precision in ("tf32", "bf16") else None for precision in found))
        if flushes():
            yield "ftz"
    elif device == "cuda":
        flags = ("cuda.matmul.allow_tf32", "cudnn.allow_tf32")
        yield from _of_scopes(*("tf32" if flag_of(torch.backends, flag) else None for flag in flags))
        names = ("fp16_reduced_precision_reduction", "bf16_reduced_precision_reduction", "fp16_accumulation")
        if any(flag_of(torch.backends, f"cuda.matmul.allow_{name}") for name in names):
            yield "reduced-reduction"
    elif device == "npu":
        found = (flag_of(_npu(), f"{name}.allow_hf32") for name in ("matmul", "conv"))
        yield from _of_scopes(*("hf32" if flag else None for flag in found))


@contextmanager
def all_bits() -> Iterator[None]:
    """See base.Kernels.all_bits."""
    owners = ((torch.backends.cuda, "matmul"), (torch.backends, "cudnn"), (_npu(), "matmul"), (_npu(), "conv"))
    found = [getattr(owner, name, None) for owner, name in owners]
    flags = [(owner, flag) for owner in found for flag in ("allow_tf32", "allow_hf32") if flag_of(owner, flag)]
    with unfrozen():
        for owner, flag in flags:
            setattr(owner, flag, False)
    try:
        yield
    finally:
        with unfrozen():
            for owner, flag in flags:
                setattr(owner, flag, True)


def unfrozen() -> AbstractContextManager[None]:
    """Inside, torch's flags can be set. torch.testing._internal, which tests of kernels import, forbids that."""
    allowing: AbstractContextManager[None] = getattr(torch.backends, "__allow_nonbracketed_mutation")()
    return allowing


def _npu() -> Any:
    return getattr(sys.modules.get("torch_npu"), "npu", None)


def _of_scopes(matmul: str | None, convolution: str | None) -> Iterator[str]:
    """The modes of two flags; one mode without a scope where both name it."""
    if matmul == convolution:
        yield from () if matmul is None else (matmul,)
        return
    if matmul is not None:
        yield matmul + _IN_MATMUL
    if convolution is not None:
        yield convolution + _IN_CONVOLUTION
