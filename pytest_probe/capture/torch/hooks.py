"""torch's calls as entries: a mode that sees every function of torch's, whatever name the caller has for it.

A capture is a `TorchFunctionMode`, and changes no function of torch's.
"""

from __future__ import annotations

import base64
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from types import FrameType, SimpleNamespace
from typing import Any, TypeVar

import torch
from msgspec import UNSET

from pytest_probe.capture import kernel
from pytest_probe.capture.bindings import Function, patched
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import ASKING_CODE, Args, Calling, CallStacks, Kwargs, remove_our_frames
from pytest_probe.capture.hooks import CallHooks, Rule, functions, modules
from pytest_probe.capture.recorder import Recorder
from pytest_probe.capture.scope import Scope
from pytest_probe.capture.snapshot import ForwardEntry, Json, NamedEntry, PlainEntry, Seen, Tree, seen_tensors
from pytest_probe.capture.torch.functions import TAKEN, Uninitialised, wrapped
from pytest_probe.capture.torch.gradients import (
    ACCUMULATE,
    Border,
    Fire,
    Modules,
    Wanting,
    WatchedNodes,
    wanting,
)
from pytest_probe.capture.torch.modes import Watcher, aside, transforming, unseen
from pytest_probe.capture.torch.names import (
    ALIASING,
    HANDING_OVER,
    Inside,
    RecordedFunctions,
    ScaledProduct,
    by_operator,
)
from pytest_probe.capture.torch.scaled import Blocks, of_operands, of_results
from pytest_probe.capture.torch.values import Values
from pytest_probe.frameworks.torch import own
from pytest_probe.frameworks.torch.arrays import FLOAT4
from pytest_probe.frameworks.torch.state import allowed

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
ASKING_CODE.add(HANDING_OVER)


class TorchHooks(CallHooks, Watcher):
    """Sees torch's calls, the outermost ones, and the gradients that go through them."""

    framework = "pytorch"
    shapes = (torch.Size,)
    distributed = torch.distributed if torch.distributed.is_available() else None

    def __init__(self, config: CaptureConfig, model: Any = None) -> None:
        self._values = Values(config)
        stacks = CallStacks(
            lambda code: code.co_filename.endswith(_CHECKPOINT), lambda: torch._C._current_graph_task_id() >= 0
        )
        CallHooks.__init__(self, config, self._values, stacks)
        rules = RecordedFunctions(Scope(config).wants_api if self._calls else lambda name: False, self._lose)
        Watcher.__init__(self, rules, eager=config.compiled == "eager")
        self._take = (self._values.compiled or self._values).take
        self._uninitialised = Uninitialised()
        # Modes of the program's own do not see what these do.
        self._apart = self._before_apart, self._after_apart
        self._alone = self.before, self.after
        self._fire: Fire = self.gradient
        self._modules = Modules(config, self)
        if kernel.compiled is not None and Scope(config).whole and not self._overflow:
            # For torch as for Python.
            vars(self)["__torch_function__"] = calls = kernel.compiled.Calls(self._needs())
            self._fire = calls.fire
        if model is not None:
            self.follow(model)
        self._namespaces = modules(config.namespaces, TAKEN)
        self._prefixes = tuple(f"{prefix}." for prefix, _ in self._namespaces)
        self._functions = ExitStack()

    def _needs(self) -> SimpleNamespace:
        """What the kernel's Calls work with, kernel/torch_calls.c."""
        stacks, values, functorch = self.stacks, self._values, torch._C._functorch
        return SimpleNamespace(
            mode=self, hooks=self, values=values.compiled, table=self.rules.table, learn=self.learn,
            slow=self.call, clean=remove_our_frames, asking=HANDING_OVER, asked=self._asked, aliasing=ALIASING,
            numbers=self._numbers, stacks=stacks.numbers, stack_number=stacks.number,
            checkpoints=stacks.checkpoints, recomputes=stacks.recomputes, place=self._modules.place,
            taken=values.taken, distrust=values.distrust, by_operator=by_operator, wanting=wanting,
            grads=_grads, set_grads=_set_grads, nodes=_nodes, autocasts=_autocasts, default_dtype=_default,
            float32=torch.float32, dispatching=_dispatching, modes=_seeing, mode_at=torch._C._get_function_stack_at,
            level=functorch.maybe_current_level, tracing=torch._C._get_tracing_state,
            surroundings=_surroundings, without_gradients=_WITHOUT_GRADIENTS, watch=self._watch, accumulate=ACCUMULATE,
            unseen=_Plain, task=torch._C._current_graph_task_id, complete=self._complete, slow_fire=self.gradient,
            ForwardEntry=ForwardEntry, NamedEntry=NamedEntry, UNSET=UNSET, Seen=Seen, PlainEntry=PlainEntry,
            Tensor=_Tensor, Parameter=torch.nn.Parameter, Size=torch.Size, copies=values.copies,
            inputs=self._inputs, outputs=self._outputs, forward=self._forward, backward=self._backward,
            stacked=self._stacked, RecordedFunction=Rule, Inside=Inside,
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
        WatchedNodes(f"{entry.name[:-7]}backward", entry.parent).watch(
            asking, outputs, start, self._fire, border=border
        )

    def install(self, recorder: Recorder) -> None:
        super().install(recorder)
        self.begin()
        self._modules.begin(recorder)
        self._functions.enter_context(patched(torch.cuda.CUDAGraph, "replay", self._replay))
        if self._calls:
            self._wrap_functions()

    def _replay(self, original: Callable[..., None], graph: Any) -> None:
        """Torch does not count what a graph writes."""
        self._values.others_wrote()
        original(graph)

    def _wrap_functions(self) -> None:
        def record(name: str, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
            # Only where the mode is on. It is off inside: what the function calls is not recorded.
            with self.away() as was_on:
                if not was_on:
                    return function(*args, **kwargs)
                rule = self.rules.named(name)
                rule.writes = True
                # Above: record, and Wrapped.__call__.
                return self.call(rule, function, args, kwargs, above=3)

        for prefix, module in self._namespaces:
            self._functions.enter_context(wrapped(module, prefix, functions(module), record))
        if torch.distributed.is_available():
            from pytest_probe.capture.torch.collectives import Collectives, encodings

            self._values.leaves.update(encodings(self._values.take))
            collectives = Collectives(self)
            collectives.begin()
            self._functions.callback(collectives.end)

    def begin_collective(self, name: str, args: Args, kwargs: Kwargs, frame: FrameType) -> NamedEntry | None:
        """The entry of a call with what it is given, as it is now; None where it is not recorded."""
        recorder, rule = self._recorder, self.rules.named(name)
        if recorder is None or not self._seeing or not rule.wanted:
            return None
        call = f"{name}.{next(self._numbers[name])}"
        if not (recorder.scope.whole or recorder.scope.wants(call)) or (transforming() and self._transforms(recorder)):
            return None
        return self._before_apart(recorder, call, rule, args, kwargs, frame, [] if _grads() else None)

    def end_collective(self, entry: NamedEntry | None, written: Any, tensors: Sequence[Any]) -> None:
        """Record what a call has written, None where that is not known; tensors may have been written to, entry None:
        by a call that is not recorded."""
        self._values.distrust(tensors)
        recorder = self._recorder
        if recorder is not None and entry is not None and self._after_apart(recorder, entry, written, [], 0):
            recorder.overflowed(entry.name)

    def remove_forward(self) -> None:
        super().remove_forward()
        self._functions.close()
        self.end()

    def _lose(self, function: Any) -> None:
        if self._recorder is not None and self._seeing and self._calls:
            self._recorder.lost(own.origin(function), getattr(function, "__qualname__", type(function).__qualname__))

    def watches(self) -> bool:
        return _grads()

    def describe(self) -> Mapping[str, str]:
        found = {"torch": torch.__version__, "threads": str(torch.get_num_threads())}
        modes = ", ".join(_modes())
        return {**found, "modes": modes} if modes else found

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
        self, rule: Rule | None, function: Function, args: Args, kwargs: Kwargs, *,
        overridden: bool = False, above: int = 2,
    ) -> Any:  # fmt: skip
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
        asking: list[Wanting] = []
        # Are modes of the program's own on, or classes, which would see what torch is asked for?
        apart = overridden or _dispatching() or _seeing()
        before, after = self._apart if apart else self._alone
        grads = _grads()
        switch = grads and not apart
        try:
            if switch:
                _set_grads(False)
            entry = before(recorder, name, rule, args, kwargs, frame, asking if grads else None)
        finally:
            if switch:
                _set_grads(True)
        start = _nodes() if asking else 0
        result = calling(function, args, kwargs)
        if rule.writes:
            self._values.distrust([*args, *kwargs.values()])
        if entry is None:
            return result
        try:
            if switch:
                _set_grads(False)
            overflows = after(recorder, entry, result, asking, start)
        finally:
            if switch:
                _set_grads(True)
        if overflows:
            recorder.overflowed(entry.name)
        return result

    def given(
        self, rule: Rule, args: Args, kwargs: Kwargs, trees: list[Tree], named: dict[str, Tree], asking: Any
    ) -> Json:
        if kwargs and type(kwargs.get("device")) in (str, int):
            # As msprobe's dumps: its checker, and a replay elsewhere, look for a device at this keyword. The call
            # itself says if it has none of that name.
            with suppress(RuntimeError):
                named["device"] = self._values.leaves[torch.device](torch.device(kwargs["device"]))
        if asking is not None and self._backward:
            _find_wanting(asking, args, trees, kwargs)
        if type(rule) is ScaledProduct and self._inputs and self._values.counts_blocks:
            self._add_blocks(lambda: of_operands(rule.name, args, kwargs), trees, named)
        if rule.draws or _autocasts() or _default() is not torch.float32:
            return _surroundings(rule, asking is not None)
        return UNSET if asking is not None else _WITHOUT_GRADIENTS

    def gave(self, entry: NamedEntry, outputs: Sequence[Any], trees: list[Tree], asking: Any, start: int) -> None:
        if self._outputs and entry.name.startswith(self._prefixes) and self._values.counts_blocks:
            self._add_blocks(lambda: of_results(outputs), trees, {})
        if asking:
            self._watch(entry, asking, wanting(outputs, "output"), start)
        if self._overflow:
            self._uninitialised.written(outputs)

    def _add_blocks(self, count: Callable[[], dict[str, Blocks]], trees: list[Tree], named: dict[str, Tree]) -> None:
        """Put what blocks hold into the snapshots of their tensors, by their places. Without it a record is whole."""
        try:
            found = count()
        except Exception as error:
            first, _, _ = str(error).partition("\n")  # torch's messages may go on with a trace of its own code
            reason = f"{type(error).__name__}: {first}"
            if self._recorder is not None:
                self._recorder.tell(reason, "pytest-probe: what blocks hold is not recorded (%s)", reason)
            return
        for place, blocks in found.items():
            half, _, key = place.partition(".")
            among: Any = named if half == "kwargs" else trees
            at = key if half == "kwargs" else int(key)
            among[at] = self._values.with_blocks(among[at], blocks)

    def _before_apart(self, *args: Any) -> NamedEntry | None:
        self.take_off_all()
        with aside():
            return self.before(*args)

    def _after_apart(self, *args: Any) -> bool:
        with aside():
            return self.after(*args)

    def aside(self) -> AbstractContextManager[object]:
        if _grads():
            return aside()
        return unseen() if _dispatching() else _Plain()

    def have_values(self, gradients: Sequence[Any]) -> bool:
        # vmap's have none; a backward with such as have may follow.
        return not any(map(torch._C._functorch.is_legacy_batchedtensor, filter(torch.is_tensor, gradients[-1])))

    def _transforms(self, recorder: Recorder) -> bool:
        """What is called here has no values of its own. Always true."""
        if torch._C._functorch.maybe_current_level() is not None:
            recorder.tell(
                "functorch", "pytest-probe: calls inside torch.func's transforms (vmap, grad) are not recorded"
            )
        return True

    def entered_compiled(self) -> None:
        if self._recorder is not None:
            self._recorder.missed_compiled()
            self._recorder.tell(
                "torch.compile",
                "pytest-probe: what runs inside torch.compile regions is not recorded; --compiled=eager, or "
                'compiled="eager" in a script, runs them eagerly while it records',
            )


def _beyond(frame: FrameType) -> FrameType:
    """The caller of a function in Python, which asks for modes itself, by the function of torch's that runs here."""
    function = frame.f_back
    caller = None if function is None else function.f_back
    return frame if caller is None else caller


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


def _surroundings(rule: Rule, grads: bool) -> dict[str, Any]:
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


# Ends of the file's name, with either separator.
_CHECKPOINT = ("torch/utils/checkpoint.py", "torch\\utils\\checkpoint.py")


def _modes() -> Iterator[str]:
    """What torch's flags allow on the accelerator that the program has begun to use: a look for one that it has not
    would initialise it, which a fork of the program does not survive."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return
    is_initialized = getattr(getattr(torch, accelerator.type, None), "is_initialized", lambda: True)
    if is_initialized():
        yield from allowed(accelerator.type)
