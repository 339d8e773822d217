"""torch's calls as entries: a mode that sees every function of torch's, whatever name the caller has for it.

A capture is a `TorchFunctionMode`, and changes no function of torch's.
"""

from __future__ import annotations

import base64
import functools
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import FrameType, SimpleNamespace
from typing import Any, TypeVar

import torch
from msgspec import UNSET
from torch.overrides import TorchFunctionMode

from pytest_probe.capture import kernel
from pytest_probe.capture.bindings import patched
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import ASKING_CODE, Calling, CallStacks, remove_our_frames
from pytest_probe.capture.hooks import CallHooks, functions, modules
from pytest_probe.capture.recorder import Recorder, Scope
from pytest_probe.capture.snapshot import ForwardEntry, NamedEntry, PlainEntry, Seen, Tree, seen_tensors
from pytest_probe.frameworks.torch import own
from pytest_probe.frameworks.torch.arrays import FLOAT4
from pytest_probe.frameworks.torch.capture.functions import TAKEN, Uninitialised, wrapped
from pytest_probe.frameworks.torch.capture.gradients import (
    ACCUMULATE,
    Border,
    Fire,
    Gradient,
    Modules,
    Seats,
    Wanting,
    Watched,
    wanting,
)
from pytest_probe.frameworks.torch.capture.modes import Presence, transforming, unseen
from pytest_probe.frameworks.torch.capture.names import (
    ALIASING,
    HANDING_OVER,
    Inside,
    RecordedFunction,
    RecordedFunctions,
    ScaledProduct,
    by_operator,
)
from pytest_probe.frameworks.torch.capture.scaled import Blocks, of_operands, of_results
from pytest_probe.frameworks.torch.capture.values import Values

_Taken = TypeVar("_Taken")

# Asked at every call.
_grads = torch.is_grad_enabled
_set_grads = torch._C._set_grad_enabled
_nodes = torch._C._autograd._get_sequence_nr
_autocasts = torch._C._is_any_autocast_enabled
_default = torch.get_default_dtype
_dispatching = torch._C._len_torch_dispatch_stack
_seeing = torch._C._len_torch_function_stack
_Plain = torch._C.DisableTorchFunction
_Tensor = torch.Tensor
# Methods without arguments name torch's own class among those that may see a call.
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
ASKING_CODE.add(HANDING_OVER)


class TorchHooks(CallHooks):
    """Sees torch's calls, the outermost ones, and the gradients that go through them."""

    framework = "pytorch"
    distributed = torch.distributed if torch.distributed.is_available() else None

    def __init__(self, config: CaptureConfig, model: Any = None) -> None:
        self._values = Values(config)
        stacks = CallStacks(
            _OURS, lambda code: code.co_filename.endswith(_CHECKPOINT), lambda: torch._C._current_graph_task_id() >= 0
        )
        super().__init__(config, self._values, stacks)
        self._take: Callable[[Any], Tree] = (self._values.compiled or self._values).take
        self._uninitialised = Uninitialised()
        self._alone = self._begin, self._end
        # Modes of the program's own do not see what these do.
        self._aside = self._begin_aside, functools.partial(_aside, self._end)
        self._rules = RecordedFunctions(Scope(config).wants_api if self._calls else lambda name: False, self._lose)
        self._fired: Fire = self._fire
        mode, eager = _Mode(self, self._rules.table), config.compiled == "eager"
        self._presence = Presence(mode, self._entered_compiled, eager=eager)
        self._modules = Modules(config, self._presence, self._values, self.stacks, self._fire)
        if kernel.compiled is not None and Scope(config).whole and not self._overflow:
            # The mode's method, for torch as for Python.
            vars(mode)["__torch_function__"] = calls = kernel.compiled.Calls(self._needs(mode))
            self._fired = calls.fire
        if model is not None:
            self.follow(model)
        self._namespaces = modules(config.namespaces, TAKEN)
        self._prefixes = tuple(f"{prefix}." for prefix, _ in self._namespaces)
        self._functions = ExitStack()

    def _needs(self, mode: _Mode) -> SimpleNamespace:
        """What the kernel's Calls work with, kernel/torch_calls.c."""
        stacks, values, functorch = self.stacks, self._values, torch._C._functorch
        return SimpleNamespace(
            mode=mode, hooks=self, values=values.compiled, table=self._rules.table, learn=self.learn,
            slow=self.call, clean=remove_our_frames, asking=HANDING_OVER, asked=self._asked, aliasing=ALIASING,
            numbers=self._numbers, stacks=stacks.numbers, stack_number=stacks.number,
            checkpoints=stacks.checkpoints, recomputes=stacks.recomputes, place=self._modules.place,
            taken=values.taken, distrust=values.distrust, by_operator=by_operator, wanting=wanting,
            grads=_grads, set_grads=_set_grads, nodes=_nodes, autocasts=_autocasts, default_dtype=_default,
            float32=torch.float32, dispatching=_dispatching, modes=_seeing, mode_at=torch._C._get_function_stack_at,
            level=functorch.maybe_current_level, tracing=torch._C._get_tracing_state,
            surroundings=_surroundings, without_gradients=_WITHOUT_GRADIENTS, watch=self._watch, accumulate=ACCUMULATE,
            unseen=_Plain, task=torch._C._current_graph_task_id, complete=self._complete, slow_fire=self._fire,
            ForwardEntry=ForwardEntry, NamedEntry=NamedEntry, UNSET=UNSET, Seen=Seen, PlainEntry=PlainEntry,
            Tensor=_Tensor, Parameter=torch.nn.Parameter, Size=torch.Size, copies=values.copies,
            inputs=self._inputs, outputs=self._outputs, forward=self._forward, backward=self._backward,
            stacked=self._stacked, RecordedFunction=RecordedFunction, Inside=Inside,
        )  # fmt: skip

    def _asked(self, frame: FrameType) -> Calling:
        """What calls from the line behind a function of torch's that asks for modes."""
        return self._sites.of(_beyond(frame))

    def _watch(
        self,
        entry: NamedEntry,
        asking: list[Wanting],
        outputs: Sequence[Wanting],
        start: int,
        border: Border | None = None,
    ) -> None:
        """Wait for the gradients that go through a call."""
        watched = Watched(f"{entry.name[:-7]}backward", entry.parent)
        watched.watch(asking, outputs, start, self._fired, border=border)

    def install(self, recorder: Recorder) -> None:
        super().install(recorder)
        self._presence.begin()
        self._modules.begin(recorder)
        self._functions.enter_context(patched(torch.cuda.CUDAGraph, "replay", self._replay))
        if self._calls:
            self._wrap_functions()

    def _replay(self, original: Callable[..., None], graph: Any) -> None:
        """Torch does not count what a graph writes."""
        self._values.others_wrote()
        original(graph)

    def _wrap_functions(self) -> None:
        def record(name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            # Only where the mode is on. It is off inside: what the function calls is not recorded.
            with self._presence.away() as was_on:
                if not was_on:
                    return function(*args, **kwargs)
                rule = self._rules.named(name)
                rule.writes = True
                # Above: record, and Wrapped.__call__.
                return self.call(rule, function, args, kwargs, above=3)

        for prefix, module in self._namespaces:
            self._functions.enter_context(wrapped(module, prefix, functions(module), record))
        if torch.distributed.is_available():
            from pytest_probe.frameworks.torch.capture.collectives import Collectives, encodings

            self._values.leaves.update(encodings(self._values.take))
            collectives = Collectives(self, self._presence)
            collectives.begin()
            self._functions.callback(collectives.end)

    def begin_collective(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], frame: FrameType
    ) -> NamedEntry | None:
        """The entry of a call with what it is given, as it is now; None where it is not recorded."""
        recorder, rule = self._recorder, self._rules.named(name)
        if recorder is None or not self._seeing or not rule.wanted:
            return None
        call = f"{name}.{next(self._numbers[name])}"
        if not (recorder.scope.whole or recorder.scope.wants(call)) or (transforming() and self._transforms(recorder)):
            return None
        begin = self._begin_aside if _dispatching() else self._begin
        return begin(recorder, call, rule, args, kwargs, frame, [] if _grads() else None)

    def end_collective(self, entry: NamedEntry | None, written: Any, tensors: Sequence[Any]) -> None:
        """Record what a call has written, None where that is not known; tensors may have been written to, entry None:
        by a call that is not recorded."""
        self._values.distrust(tensors)
        recorder = self._recorder
        if recorder is not None and entry is not None:
            end = functools.partial(_aside, self._end) if _dispatching() else self._end
            if end(recorder, entry, [], written, 0, _grads()):
                recorder.overflowed(entry.name)

    def remove_forward(self) -> None:
        super().remove_forward()
        self._functions.close()
        self._presence.end()

    def learn(self, function: Any) -> RecordedFunction | Inside | None:
        """The rule of a function that was not met before, or that is none of torch's."""
        frame = sys._getframe().f_back  # None where no Python code calls
        return self._rules.learn(function, frame.f_back if frame is not None and frame.f_code is _MODE else frame)

    def _lose(self, function: Any) -> None:
        if self._recorder is not None and self._seeing and self._calls:
            self._recorder.lost(own.origin(function), getattr(function, "__qualname__", type(function).__qualname__))

    def describe(self) -> Mapping[str, str]:
        return {"torch": torch.__version__, "threads": str(torch.get_num_threads())}

    def overflown(self, tree: Tree) -> bool:
        """Does a floating tensor of this snapshot hold NaN or inf? Waits once for each device."""
        finite: defaultdict[torch.device, list[torch.Tensor]] = defaultdict(list)
        for _, seen in seen_tensors(tree, ""):
            data = seen.data
            # A pair of float4 has neither, and no kernel that looks for them.
            if data is not UNSET and data.dtype is not FLOAT4 and (data.is_floating_point() or data.is_complex()):
                # float8 has no such kernel.
                finite[data.device].append((data.float() if data.itemsize == 1 else data).isfinite().all())
        return any(not bool(torch.stack(flags).all()) for flags in finite.values())

    def call(
        self,
        rule: RecordedFunction | None,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        overridden: bool = False,
        above: int = 2,
    ) -> Any:
        """Make a call of the program's, and record it; rule None: nothing is recorded of the function. overridden: a
        class of the program's sees what torch is asked of its tensors. above: how many frames are above that of the
        caller of torch's function; by default this method's and the mode's. Raises what the call raises, and
        OverflowFound."""
        try:
            frame = sys._getframe(above)
        except ValueError:  # no Python code calls, as at the end of a process
            frame = sys._getframe()
        calling = self._sites.of(frame if frame.f_code is not HANDING_OVER else _beyond(frame))
        recorder = self._recorder
        if recorder is None or rule is None or rule is ALIASING or not self._seeing:
            if rule is ALIASING:
                self._values.distrust(args[0])
            return calling(function, args, kwargs)
        if self._overflow and self._uninitialised.holds(rule.name, args, kwargs):
            result = self._made(rule.writes, calling, function, args, kwargs)
            self._uninitialised.add(result)
            return result
        if rule.operator is not None and by_operator(frame.f_code, frame.f_lasti):
            rule = rule.operator
        if not rule.wanted:
            return self._made(rule.writes, calling, function, args, kwargs)
        name = f"{rule.name}.{next(self._numbers[rule.name])}"
        if not (recorder.scope.whole or recorder.scope.wants(name)) or (transforming() and self._transforms(recorder)):
            return self._made(rule.writes, calling, function, args, kwargs)
        grads = _grads()
        asking: list[Wanting] = []
        # Are modes of the program's own on, or classes, which would see what torch is asked for?
        begin, end = self._aside if overridden or _dispatching() or _seeing() else self._alone
        entry = begin(recorder, name, rule, args, kwargs, frame, asking if grads else None)
        start = _nodes() if asking else 0
        result = calling(function, args, kwargs)
        if rule.writes:
            self._values.distrust([*args, *kwargs.values()])
        if entry is not None and end(recorder, entry, asking, result, start, grads):
            recorder.overflowed(entry.name)
        return result

    def _begin(
        self,
        recorder: Recorder,
        name: str,
        rule: RecordedFunction,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        frame: FrameType,
        asking: list[Wanting] | None,
    ) -> NamedEntry | None:
        """What a call is given, as it is now, since the call may write to it. asking, None where gradients are off,
        gets the tensors that want them."""
        try:
            if asking is not None:
                _set_grads(False)
            leaves, other = self._values.leaves, self._values.other
            trees = [leaves.get(type(value), other)(value) for value in args]
            named = {key: leaves.get(type(value), other)(value) for key, value in kwargs.items()} if kwargs else {}
            if kwargs and type(kwargs.get("device")) in (str, int):
                # As msprobe's dumps: its checker, and a replay elsewhere, look for a device at this keyword. The call
                # itself says where there is none of that name.
                with suppress(RuntimeError):
                    named["device"] = leaves[torch.device](torch.device(kwargs["device"]))
            probe: Any = UNSET
            if rule.draws or _autocasts() or _default() is not torch.float32:
                probe = _surroundings(rule, asking is not None)
            elif asking is None:
                probe = _WITHOUT_GRADIENTS
            if asking is not None and self._backward:
                _find_wanting(asking, args, trees, kwargs)
            if type(rule) is ScaledProduct and self._inputs and self._values.counts_blocks:
                self._add_blocks(recorder, lambda: of_operands(rule.name, args, kwargs), trees, named)
            return self._entry(name, trees, named, frame, probe)
        except Exception as error:
            recorder.failed(f"{name}.forward", error)
            return None
        finally:
            if asking is not None:
                _set_grads(True)

    def _add_blocks(
        self, recorder: Recorder, count: Callable[[], dict[str, Blocks]], trees: list[Tree], named: dict[str, Tree]
    ) -> None:
        """Put what blocks hold into the snapshots of their tensors, by their places. Without it a record is whole."""
        try:
            found = count()
        except Exception as error:
            first, _, _ = str(error).partition("\n")  # torch's messages may go on with a trace of its own code
            reason = f"{type(error).__name__}: {first}"
            recorder.tell(reason, "pytest-probe: what blocks hold is not recorded (%s)", reason)
            return
        for place, blocks in found.items():
            half, _, key = place.partition(".")
            among: Any = named if half == "kwargs" else trees
            at = key if half == "kwargs" else int(key)
            among[at] = self._values.with_blocks(among[at], blocks)

    def _begin_aside(self, *args: Any) -> NamedEntry | None:
        self._presence.take_off_all()
        return _aside(self._begin, *args)

    def _end(
        self, recorder: Recorder, entry: NamedEntry, asking: list[Wanting], result: Any, start: int, grads: bool
    ) -> bool:
        """Record what a call gave. Did it overflow?"""
        overflows = False
        try:
            if grads:
                _set_grads(False)
            kind = type(result)
            several = kind is not _Tensor and isinstance(result, (list, tuple)) and kind is not torch.Size
            outputs: Sequence[Any] = result if several else (result,)
            leaves, other = self._values.leaves, self._values.other
            trees = [leaves.get(type(value), other)(value) for value in outputs]
            if self._outputs:
                if entry.name.startswith(self._prefixes) and self._values.counts_blocks:
                    self._add_blocks(recorder, lambda: of_results(outputs), trees, {})
                entry.body.output = trees
            if asking:
                self._watch(entry, asking, list(wanting(outputs, "output")), start)
            overflows = self._overflow and self.overflown(trees)
            if self._overflow:
                self._uninitialised.written(outputs)
            if self._forward and (overflows or not self._overflow):
                recorder.put(entry, self._values.taken())
        except Exception as error:
            recorder.failed(entry.name, error)
        finally:
            if grads:
                _set_grads(True)
        return overflows

    def _fire(
        self, watched: Watched, outs: Seats, ins: Seats, in_grads: tuple[Gradient, ...], out_grads: tuple[Gradient, ...]
    ) -> None:
        """Autograd's hook: gradients went through a node. Of several backwards the first counts."""
        recorder = self._recorder
        if recorder is None or not watched.missing:
            return
        overflows = False
        grads = _grads()
        with unseen() if _dispatching() else _Plain():
            try:
                if grads:
                    _set_grads(False)
                if watched.again():
                    watched.missing = 0
                else:
                    watched.came(outs, ins, out_grads, in_grads, self._take)
                if watched.missing:
                    self._open[watched] = None
                else:
                    overflows = self._complete(recorder, watched)
            except Exception as error:
                # vmap's have no values of their own; a backward with such as have may follow.
                if not any(map(torch._C._functorch.is_legacy_batchedtensor, filter(torch.is_tensor, out_grads))):
                    recorder.failed(watched.name, error)
            finally:
                if grads:
                    _set_grads(True)
        if overflows:
            recorder.overflowed(watched.name)

    def _transforms(self, recorder: Recorder) -> bool:
        """What is called here has no values of its own. Always true."""
        if torch._C._functorch.maybe_current_level() is not None:
            recorder.tell(
                "functorch", "pytest-probe: calls inside torch.func's transforms (vmap, grad) are not recorded"
            )
        return True

    def _entered_compiled(self) -> None:
        if self._recorder is not None:
            self._recorder.missed_compiled()
            self._recorder.tell(
                "torch.compile",
                "pytest-probe: what runs inside torch.compile regions is not recorded; --compiled=eager, or "
                'compiled="eager" in a script, runs them eagerly while it records',
            )


class _Mode(TorchFunctionMode):
    def __init__(self, hooks: TorchHooks, table: Mapping[Hashable, RecordedFunction | None]) -> None:
        super().__init__()
        self._hooks = hooks
        self._table = table

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        rule: RecordedFunction | Inside | None
        try:
            rule = self._table[function]
        except (KeyError, TypeError):
            rule = self._hooks.learn(function)
        if isinstance(rule, Inside):
            function, rule = rule
        try:
            return self._hooks.call(rule, function, args, kwargs or {}, overridden=not _PLAIN.issuperset(types))
        except BaseException as error:
            remove_our_frames(error)
            raise


_MODE = _Mode.__torch_function__.__code__


def _beyond(frame: FrameType) -> FrameType:
    """The caller of a function in Python, which asks for modes itself, by the function of torch's that runs here."""
    function = frame.f_back
    caller = None if function is None else function.f_back
    return frame if caller is None else caller


def _aside(take: Callable[..., _Taken], *args: Any) -> _Taken:
    with unseen():
        return take(*args)


# Made once, since every call needs them; calls of more arguments are rare.
_PLACES = tuple(f"input.{index}" for index in range(64))


def _find_wanting(found: list[Wanting], args: Sequence[Any], trees: Sequence[Tree], kwargs: Mapping[str, Any]) -> None:
    """The arguments that want gradients."""
    places = _PLACES if len(args) <= len(_PLACES) else [f"input.{index}" for index in range(len(args))]
    for place, value, tree in zip(places, args, trees, strict=False):
        kind = type(tree)
        if kind is Seen:
            if tree.requires_grad:
                found.append((place, value, value.grad_fn, value.output_nr))
        elif kind is list or kind is tuple:
            found.extend(wanting(value, place))
    for key, value in kwargs.items():
        if value is not None:
            found.extend(wanting(value, f"kwargs.{key}"))


# One for all such calls, since `tell` makes another.
_WITHOUT_GRADIENTS = {"grad": False}


def _surroundings(rule: RecordedFunction, grads: bool) -> dict[str, Any]:
    """What the outcome, and the kernel, depend on apart from the arguments."""
    found: dict[str, Any] = {} if grads else {**_WITHOUT_GRADIENTS}
    if _autocasts():
        # The dtype that autocast gives, for each kind of device where it is on.
        kinds = {"cpu", torch.accelerator.current_accelerator().type} if torch.accelerator.is_available() else {"cpu"}  # type: ignore[union-attr]
        on = (kind for kind in sorted(kinds) if torch.is_autocast_enabled(kind))
        found["autocast"] = {kind: str(torch.get_autocast_dtype(kind)).removeprefix("torch.") for kind in on}
    if _default() is not torch.float32:
        found["default_dtype"] = str(_default())
    if rule.draws:
        state: Any = torch.get_rng_state().numpy()
        found["rng"] = base64.b64encode(state).decode()
    return found


_OURS = os.path.join(os.path.dirname(__file__), "")
# Ends of the file's name, with either separator.
_CHECKPOINT = ("torch/utils/checkpoint.py", "torch\\utils\\checkpoint.py")
