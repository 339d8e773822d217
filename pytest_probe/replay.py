"""One record made runnable: which call it is, on which arguments, and what both sides give."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from pytest_probe.blame import frames, guarded, said
from pytest_probe.errors import HookFailed, NoKernel, NoReference, ProbeError, ReplayDiffers, Unsupported
from pytest_probe.frameworks.base import Device, Framework, Leaf, Run, Wanted, Way
from pytest_probe.inputs import Arguments
from pytest_probe.numerics.dtypes import AnyArray, is_complex, is_floating, numpy_dtype, round_to, widen
from pytest_probe.records.model import Call, DtypeSpec, Lost, Record, TensorSpec

Origin: TypeAlias = Literal["run", "test", "dump"]

REFERENCE = Way(dtype="float64")
NO_CALL = Call((), {}, None, None)
NARROW = ("bfloat16", "float16")
# Fused APIs that draw random numbers unless this argument is 0: keyword and position.
FUSED_DROPOUT: Mapping[str, tuple[str, int]] = {
    "scaled_dot_product_attention": ("dropout_p", 4),
    "multi_head_attention_forward": ("dropout_p", 10),
    "lstm": ("dropout", 5),
    "gru": ("dropout", 5),
    "rnn_tanh": ("dropout", 5),
    "rnn_relu": ("dropout", 5),
}


class DeviceRaised(ProbeError):
    """The device raised where the reference did not."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One reading of the record: a function for each side, and the arguments, lists as tuples or not."""

    path: str
    on_device: Callable[..., Any]
    reference: Callable[..., Any]
    arguments: Arguments
    inplace: bool
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Replay:
    """A record's forward run on the device and in the reference, kept for its backward item.

    leaves holds the arguments' arrays by name ("input.0", "kwargs.weight"); autocast is the dtype of the autocast
    that the recorded dtypes call for, "" for none; narrow tells that it rounds wider inputs. rounded is another reading
    of the call: some kernels round a Python float to the 16-bit dtype of the tensors (x > 0.1 on a CPU), others don't.
    origin tells where the device's side comes from: a run made here, a call that a test made, a dump's stored outputs.
    """

    framework: Framework
    device: Device
    candidate: Candidate
    call: Call
    leaves: dict[str, Leaf]
    actual: Run
    expected: Run
    wanted: Wanted | None
    autocast: str = ""
    narrow: bool = False
    notes: tuple[str, ...] = ()
    rounded: tuple[Candidate, Run] | None = None
    origin: Origin = "run"
    _changed: frozenset[str] | None = None
    seeds: dict[str, AnyArray] = field(default_factory=dict)

    def readings(self) -> Iterator[Replay]:
        """Itself, and the other reading. The device's results tell which one it is, in each direction."""
        yield self
        if self.rounded is not None:
            notes = (*self.notes, "Python floats rounded to the tensors' dtype, as the device does")
            candidate, expected = self.rounded
            other = (self.candidate, self.expected)
            yield replace(self, candidate=candidate, expected=expected, notes=notes, rounded=other, _changed=None)

    @property
    def changed(self) -> frozenset[str]:
        """The arguments that the reference changed: not every kernel that writes to one says so."""
        if self._changed is None:
            silent = (
                name
                for name, leaf in self.leaves.items()
                if name not in self.expected.changed
                and not same_bytes(self.expected.after(name), reference_array(leaf))
            )
            self._changed = self.expected.changed.union(silent)
        return self._changed

    def reference_run(self, leaves: Mapping[str, Leaf], way: Way, wanted: Wanted | None) -> Run:
        """The reference's call again, on other values of the same arguments."""
        arguments = with_leaves(self.candidate.arguments, leaves)
        return self.framework.run(self.candidate.reference, arguments.args, arguments.kwargs, way, wanted)

    def device_run(self, device: Device, wanted: Wanted | None = None) -> Run:
        """The call in the case's own dtypes on a device."""
        return self._run(self.candidate.on_device, device, wanted)

    def witness_run(self, device: Device, wanted: Wanted | None = None) -> Run:
        """The reference's call in the case's own dtypes on a device: what users put in the device's place stays out."""
        return self._run(self.candidate.reference, device, wanted)

    def _run(self, function: Callable[..., Any], device: Device, wanted: Wanted | None) -> Run:
        arguments = self.candidate.arguments
        way = Way(device=device, autocast=self.autocast)
        return self.framework.run(function, arguments.args, arguments.kwargs, way, wanted)


def named_leaves(arguments: Arguments) -> dict[str, Leaf]:
    """All tensor arguments by name."""
    found = dict(_walk(list(arguments.args), "input"))
    for key, value in arguments.kwargs.items():
        found.update(_walk(value, f"kwargs.{key}"))
    return found


def _walk(tree: Any, name: str) -> Iterator[tuple[str, Leaf]]:
    if isinstance(tree, Leaf):
        yield name, tree
    elif isinstance(tree, (list, tuple)):
        for index, value in enumerate(tree):
            yield from _walk(value, f"{name}.{index}")
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _walk(value, f"{name}.{key}")


def mapped(arguments: Arguments, change: Callable[[Any, str], Any]) -> Arguments:
    """The arguments with every leaf of the tree (tensor or not) replaced by change(leaf, name)."""
    args = tuple(_map(value, f"input.{index}", change) for index, value in enumerate(arguments.args))
    kwargs = {key: _map(value, f"kwargs.{key}", change) for key, value in arguments.kwargs.items()}
    return replace(arguments, args=args, kwargs=kwargs)


def _map(tree: Any, name: str, change: Callable[[Any, str], Any]) -> Any:
    if isinstance(tree, (list, tuple)):
        return type(tree)(_map(value, f"{name}.{index}", change) for index, value in enumerate(tree))
    if isinstance(tree, dict):
        return {key: _map(value, f"{name}.{key}", change) for key, value in tree.items()}
    return change(tree, name)


def with_leaves(arguments: Arguments, leaves: Mapping[str, Leaf]) -> Arguments:
    return mapped(arguments, lambda value, name: leaves[name] if isinstance(value, Leaf) else value)


def tuples(arguments: Arguments) -> Arguments:
    """Top-level lists as tuples, which dumps cannot tell apart."""
    args = tuple(tuple(value) if isinstance(value, list) else value for value in arguments.args)
    kwargs = {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.kwargs.items()}
    return replace(arguments, args=args, kwargs=kwargs)


def floats_of(leaves: Mapping[str, Leaf]) -> dict[str, np.dtype[Any]]:
    return {
        name: leaf.array.dtype
        for name, leaf in leaves.items()
        if is_floating(leaf.array.dtype) or is_complex(leaf.array.dtype)
    }


class Replayer:
    """Makes replays of records on one device."""

    def __init__(
        self,
        framework: Framework,
        device: Device,
        calls: Mapping[str, Callable[..., Any]],
        references: Mapping[str, Callable[..., Any]],
        namespaces: Mapping[str, str],
    ) -> None:
        self.framework = framework
        self.device = device
        self.calls = calls
        self.references = references
        self.namespaces = namespaces

    def replay(self, record: Record, call: Call, arguments: Arguments, *, as_recorded: bool) -> Replay:
        """Run both sides. Raises Unsupported for what cannot be decided, DeviceRaised where only the device raises."""
        replayed, autocast = self._with_reference(record, call, arguments, as_recorded)
        self._run_device(replayed, call, as_recorded, autocast)
        replayed.rounded = self._rounded(replayed)
        return replayed

    def expect(self, record: Record, call: Call, arguments: Arguments, *, as_recorded: bool, origin: Origin) -> Replay:
        """Run the reference alone, for a device side that comes from elsewhere. Raises Unsupported.

        Only where the recorded dtypes are mixed the call is made on the CPU, to see whether it ran under autocast.
        """
        replayed, autocast = self._with_reference(record, call, arguments, as_recorded)
        if autocast:
            self._run_on_cpu(replayed, call, autocast)
        replayed.origin = origin
        replayed.rounded = self._rounded(replayed)
        return replayed

    def _run_on_cpu(self, replayed: Replay, call: Call, autocast: str) -> None:
        on_device = replayed.candidate.on_device
        replayed.device = self.framework.device("cpu")
        replayed.candidate = replace(replayed.candidate, on_device=replayed.candidate.reference)
        try:
            self._run_device(replayed, call, True, autocast)
        except DeviceRaised as error:
            raise Unsupported(f"whether it ran under autocast cannot be seen: {error}") from error
        replayed.device = self.device
        replayed.candidate = replace(replayed.candidate, on_device=on_device)

    def pair(
        self,
        name: str,
        function: Callable[..., Any],
        reference: Callable[..., Any],
        arguments: Arguments,
        *,
        with_gradient: bool,
    ) -> Replay:
        """Run a function on the device and another as its reference. Raises NoReference where that one raises."""
        candidate = Candidate(name, function, reference, _with_float32(arguments), False)
        try:
            expected, wanted = self._reference(candidate, with_gradient)
        except Exception as error:
            raise NoReference(f"the reference raised {type(error).__name__}: {first_line(error)}") from error
        _check_wide(expected)
        leaves = named_leaves(candidate.arguments)
        replayed = Replay(self.framework, self.device, candidate, NO_CALL, leaves, expected, expected, wanted)
        if not expected.outputs and not replayed.changed:
            raise NoReference("the reference returns nothing and changes no argument: there is nothing to judge")
        replayed.actual = self.again(replayed)
        replayed.rounded = self._rounded(replayed)
        return replayed

    def _with_reference(
        self, record: Record, call: Call, arguments: Arguments, as_recorded: bool
    ) -> tuple[Replay, str]:
        """A replay with the reference's side, and the dtype of an autocast that it may have run under."""
        arguments, notes = _prepared(record, call, arguments)
        candidates = self._candidates(record, arguments)
        autocast = _autocast(call, arguments) if as_recorded else ""
        found = self._fitting(candidates, call, record, as_recorded and not autocast)
        candidate, expected, wanted = found
        if expected.outputs and all(isinstance(value, str) for value in expected.outputs.values()):
            raise Unsupported(f"{candidate.path} returns text, which no dtype can be judged by", "no numbers")
        replayed = Replay(
            self.framework, self.device, candidate, call, named_leaves(arguments), expected, expected, wanted,
            notes=(*notes, *candidate.notes),
        )  # fmt: skip
        return replayed, autocast

    def _run_device(self, replayed: Replay, call: Call, as_recorded: bool, autocast: str) -> None:
        """Fill in the device's side: plain, or under autocast where only that gives the recorded dtypes."""
        try:
            replayed.actual = self.again(replayed)
            if not as_recorded or dtypes_fit(replayed.actual, call):
                return
        except (Unsupported, DeviceRaised):
            if not autocast:
                raise
        if not autocast:
            raise DeviceRaised(f"the device gave {described(replayed.actual)}, recorded: {recorded(call)}")
        replayed.autocast = autocast
        replayed.narrow = any(spec.dtype == autocast for spec in _output_specs(call))
        replayed.notes += (f"under autocast to {autocast}",)
        if replayed.narrow:
            self._round_inputs(replayed, numpy_dtype(autocast))
        replayed.actual = self.again(replayed)
        if not dtypes_fit(replayed.actual, call):
            gave = f"{replayed.candidate.path} gave {described(replayed.actual)} under autocast"
            raise ReplayDiffers(f"{gave}, recorded: {recorded(call)}")

    def _round_inputs(self, replayed: Replay, dtype: np.dtype[Any]) -> None:
        """Autocast rounds wider inputs inside: round them before, so that both sides see the same values."""
        replayed.leaves = {
            name: replace(leaf, array=round_to(widen(leaf.array), dtype).astype(leaf.array.dtype))
            if is_floating(leaf.array.dtype)
            else leaf
            for name, leaf in replayed.leaves.items()
        }
        replayed.candidate = replace(
            replayed.candidate, arguments=with_leaves(replayed.candidate.arguments, replayed.leaves)
        )
        replayed.expected = replayed.reference_run(replayed.leaves, REFERENCE, replayed.wanted)

    def _rounded(self, replayed: Replay) -> tuple[Candidate, Run] | None:
        """The reference with Python floats rounded to the tensors' 16-bit dtype; None where that changes nothing."""
        candidate, narrow = replayed.candidate, _narrow_dtype(replayed.leaves)
        if narrow is None or not _has_inexact_floats(candidate.arguments, narrow):
            return None
        rounding = functools.partial(_with_rounded_floats, narrow, candidate.reference)
        arguments = candidate.arguments
        try:
            run = self.framework.run(rounding, arguments.args, arguments.kwargs, REFERENCE, replayed.wanted)
        except Exception:
            return None  # beyond the call's domain there (a probability that rounds to 1)
        return replace(candidate, reference=rounding), run

    def again(self, replayed: Replay) -> Run:
        """The device's run. Raises NoKernel, or DeviceRaised, whose cause is the device's error."""
        try:
            return replayed.device_run(replayed.device, replayed.wanted)
        except Exception as error:
            raise self.device_trouble(error) from error

    def device_trouble(self, error: Exception) -> ProbeError:
        """What an error of the device means: it has no kernel, or it is wrong."""
        if isinstance(error, ProbeError):
            return error
        if self.framework.has_no_kernel(error):
            return NoKernel(f"{self.device.name}: {first_line(error)}")
        return DeviceRaised("\n".join([f"{self.device.name} raised {said(error)}", *frames(error)[-1:]]))

    def _candidates(self, record: Record, arguments: Arguments) -> list[Candidate]:
        key = f"{record.namespace}.{record.api}"
        call, reference = self.calls.get(key), guarded("the reference", self.references, key)
        if call is not None and reference is not None:
            return [Candidate(key, call, reference, arguments, False)]
        apis = self.framework.candidates(record.namespace, record.api, self.namespaces)
        made = []
        for api in apis:
            function = functools.partial(_call_anew, api.lookup)
            made.append(
                Candidate(
                    api.path,
                    call or function,
                    reference or function,
                    arguments,
                    api.inplace,
                    _renamed(record, api.path),
                )
            )
        lists = any(isinstance(value, list) for value in (*arguments.args, *arguments.kwargs.values()))
        return made + [replace(item, arguments=tuples(item.arguments)) for item in made] if lists else made

    def _fitting(
        self, candidates: Sequence[Candidate], call: Call, record: Record, check_dtypes: bool
    ) -> tuple[Candidate, Run, Wanted | None]:
        """The candidate whose reference run is like the record. Raises where none is, or several that differ."""
        troubles: list[Exception] = []
        misfits: list[str] = []
        fitting: list[tuple[Candidate, Run, Wanted | None]] = []
        for candidate in candidates:
            if any(item.path == candidate.path for item, _, _ in fitting):
                continue
            try:
                run, wanted = self._reference(candidate, with_gradient=record.backward is not None)
                self._check_registered(record, call, run)
            except Exception as error:
                troubles.append(error)
                continue
            if shapes_fit(run, call) and (not check_dtypes or widened_dtypes_fit(run, call)):
                fitting.append((candidate, run, wanted))
            else:
                misfits.append(f"{candidate.path} gives {described(run)}")
        if not fitting:
            raise self._nothing_fits(candidates[0], call, troubles, misfits)
        if any(not same_results(fitting[0][1], other) for _, other, _ in fitting[1:]):
            paths = " and ".join(candidate.path for candidate, _, _ in fitting)
            raise ReplayDiffers(f"{record.name} may be {paths}: the record fits both", "ambiguous name")
        return fitting[0]

    def _check_registered(self, record: Record, call: Call, run: Run) -> None:
        """Raises HookFailed where a registered reference gave no tensor and the record has one."""
        key = f"{record.namespace}.{record.api}"
        if key not in self.references or not _output_specs(call):
            return
        if not any(isinstance(value, np.ndarray) for value in run.outputs.values()):
            raise HookFailed(f"the reference registered for {key} gave {described(run)}, recorded: {recorded(call)}")

    def _nothing_fits(
        self, candidate: Candidate, call: Call, troubles: Sequence[Exception], misfits: Sequence[str]
    ) -> Exception:
        hook = next((trouble for trouble in troubles if isinstance(trouble, HookFailed)), None)
        if hook is not None:
            return hook
        if misfits:
            return ReplayDiffers(f"{'; '.join(misfits)}; recorded: {recorded(call)}")
        trouble = troubles[0]
        if isinstance(trouble, Unsupported):
            return trouble
        said = f"{type(trouble).__name__}: {first_line(trouble)}"
        try:
            arguments = candidate.arguments
            self.framework.run(candidate.on_device, arguments.args, arguments.kwargs, Way(device=self.device), None)
        except Exception as error:
            return Unsupported(
                f"{self.device.name} raised {type(error).__name__}: {first_line(error)}; the reference raised {said}",
                "device and reference both raise",
            )
        return NoReference(f"float64 on the CPU raised {said}")

    def _reference(self, candidate: Candidate, with_gradient: bool) -> tuple[Run, Wanted | None]:
        """A reference run, able to give gradients of as many arguments as the framework can differentiate."""
        arguments = candidate.arguments
        leaves = named_leaves(arguments)
        every = frozenset(floats_of(leaves))
        if with_gradient:
            run = self._differentiable(candidate, [Wanted(every, candidate.inplace), Wanted(every, True)])
            if run is not None:
                return run
        plain = self.framework.run(candidate.reference, arguments.args, arguments.kwargs, REFERENCE, None)
        if not with_gradient:
            return plain, None
        # Running statistics and the like, which the call updates, have no gradient.
        kept = frozenset(name for name in every if same_bytes(plain.after(name), reference_array(leaves[name])))
        marked = frozenset(name for name in every if leaves[name].requires_grad)
        return self._differentiable(candidate, [Wanted(kept, True), Wanted(marked, True)]) or (plain, None)

    def _differentiable(self, candidate: Candidate, tries: Sequence[Wanted]) -> tuple[Run, Wanted] | None:
        """The first run that can give gradients."""
        arguments = candidate.arguments
        for wanted in tries:
            try:
                run = self.framework.run(candidate.reference, arguments.args, arguments.kwargs, REFERENCE, wanted)
            except (RuntimeError, ValueError, HookFailed):
                continue
            if run.differentiable:
                return run, wanted
        return None


def _check_wide(run: Run) -> None:
    """Raises NoReference where a reference of float64 tensors gave narrower ones: it has a dtype written into it."""
    for name, value in run.outputs.items():
        if isinstance(value, np.ndarray) and value.dtype != widened_dtype(value.dtype):
            raise NoReference(
                f"the reference gave {name} as {value.dtype.name} where its arguments are float64; "
                "take dtypes from the arguments instead of writing them down"
            )


def _call_anew(lookup: Callable[[], Callable[..., Any]], *args: Any, **kwargs: Any) -> Any:
    return lookup()(*args, **kwargs)


def _renamed(record: Record, path: str) -> tuple[str, ...]:
    """A note where a capture lost the submodule and another one was found."""
    return (f"taken as {path}",) if record.namespace == "Torch" and path != f"torch.{record.api}" else ()


def _prepared(record: Record, call: Call, arguments: Arguments) -> tuple[Arguments, tuple[str, ...]]:
    """The arguments with lost ones filled in, dropout of fused APIs off, and Python floats rounded."""
    notes: list[str] = []
    arguments = _filled(call, arguments, notes)
    arguments = _without_dropout(record, arguments, notes)
    return _with_float32(arguments), tuple(notes)


def _with_float32(arguments: Arguments) -> Arguments:
    """Python floats rounded to float32, which kernels of tensors that are no wider compute in."""
    floats = floats_of(named_leaves(arguments))
    if not floats or any(dtype.itemsize > (8 if dtype.kind == "c" else 4) for dtype in floats.values()):
        return arguments
    return mapped(arguments, lambda value, _: _as_float32(value) if type(value) is float else value)


def _as_float32(value: float) -> float:
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    return rounded if np.isfinite(rounded) else value


def _narrow_dtype(leaves: Mapping[str, Leaf]) -> np.dtype[Any] | None:
    """The dtype of the tensors where all floating ones share one narrower than float32."""
    dtypes = set(floats_of(leaves).values())
    only = next(iter(dtypes)) if len(dtypes) == 1 else None
    return only if only is not None and only.itemsize < 4 else None


def _has_inexact_floats(arguments: Arguments, dtype: np.dtype[Any]) -> bool:
    return mapped(arguments, lambda value, _: _rounded_float(value, dtype)) != arguments


def _with_rounded_floats(dtype: np.dtype[Any], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    def change(value: Any, _: str) -> Any:
        return _rounded_float(value, dtype)

    return function(*_map(args, "", change), **_map(kwargs, "", change))


def _rounded_float(value: Any, dtype: np.dtype[Any]) -> Any:
    return float(widen(round_to(value, dtype))) if type(value) is float else value


def _filled(call: Call, arguments: Arguments, notes: list[str]) -> Arguments:
    """A lost positional argument is a dtype, or a device where the call then changes no dtype: the recorded output's
    dtype gives the recorded result either way."""
    outputs = _output_specs(call)

    def fill(value: Any, name: str) -> Any:
        if not isinstance(value, Lost):
            return value
        if not outputs:
            raise Unsupported(f"{name} was not recorded and no output tells what it was", "lost argument")
        notes.append(f"{name} was lost; {outputs[0].dtype} gives the recorded output")
        return DtypeSpec(outputs[0].dtype)

    return mapped(arguments, fill)


def _without_dropout(record: Record, arguments: Arguments, notes: list[str]) -> Arguments:
    keyword, position = FUSED_DROPOUT.get(record.api.rsplit(".", 1)[-1], ("", -1))
    found = arguments.kwargs.get(keyword, arguments.args[position] if 0 <= position < len(arguments.args) else 0.0)
    if not keyword or not isinstance(found, float) or found == 0.0:
        return arguments
    notes.append(f"run with {keyword} = 0, recorded: {found:g}")
    if keyword in arguments.kwargs:
        return replace(arguments, kwargs={**arguments.kwargs, keyword: 0.0})
    return replace(arguments, args=(*arguments.args[:position], 0.0, *arguments.args[position + 1 :]))


def _autocast(call: Call, arguments: Arguments) -> str:
    """The 16-bit dtype of an autocast, where the recorded floating dtypes are mixed."""
    names = {dtype.name for dtype in floats_of(named_leaves(arguments)).values()}
    names |= {spec.dtype for spec in _output_specs(call) if is_floating(spec.dtype)}
    narrow = [name for name in NARROW if name in names]
    return narrow[0] if narrow and len(names) > 1 else ""


def _output_specs(call: Call) -> list[TensorSpec]:
    return [value for _, value in recorded_leaves(call) if isinstance(value, TensorSpec)]


def recorded_leaves(call: Call) -> list[tuple[str, Any]]:
    def walk(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
        if isinstance(tree, (list, tuple)):
            for index, value in enumerate(tree):
                yield from walk(value, f"{name}.{index}")
        elif isinstance(tree, Mapping):
            for key, value in tree.items():
                yield from walk(value, f"{name}.{key}")
        elif tree is not None:
            yield name, tree

    return list(walk(call.outputs, "output")) if call.outputs is not None else []


def shapes_fit(run: Run, call: Call) -> bool:
    """Has the run the recorded number of outputs, names and shapes?"""
    if call.outputs is None:
        return True
    wanted = dict(recorded_leaves(call))
    if set(wanted) != set(run.outputs):
        return False
    return all(
        not isinstance(spec, TensorSpec) or np.shape(run.outputs[name]) == spec.shape for name, spec in wanted.items()
    )


def _dtype_pairs(run: Run, call: Call) -> Iterator[tuple[np.dtype[Any], np.dtype[Any]]]:
    for name, spec in recorded_leaves(call):
        value = run.outputs.get(name)
        if isinstance(spec, TensorSpec) and isinstance(value, np.ndarray):
            yield value.dtype, numpy_dtype(spec.dtype)


def dtypes_fit(run: Run, call: Call) -> bool:
    """Has a run in the recorded dtypes the recorded output dtypes?"""
    return all(found == wanted for found, wanted in _dtype_pairs(run, call))


def widened_dtypes_fit(run: Run, call: Call) -> bool:
    """Has a reference run the recorded output dtypes, floats taken as float64?"""
    return all(widened_dtype(found) == widened_dtype(wanted) for found, wanted in _dtype_pairs(run, call))


def reference_array(leaf: Leaf) -> AnyArray:
    """An argument's values as the reference takes them."""
    return leaf.array.astype(widened_dtype(leaf.array.dtype), copy=False)


def same_bytes(first: AnyArray, second: AnyArray) -> bool:
    """Have two arrays the same dtype, shape and bits?"""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    return (
        first.tobytes() == second.tobytes() if first.size < 4096 else bool(np.array_equal(_bits(first), _bits(second)))
    )


def _bits(array: AnyArray) -> AnyArray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def widened_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if is_complex(dtype):
        return np.dtype(np.complex128)
    return np.dtype(np.float64) if is_floating(dtype) else dtype


def same_results(first: Run, second: Run) -> bool:
    """Do two reference runs agree to float64's precision?"""
    for name, value in first.outputs.items():
        other = second.outputs.get(name)
        if not isinstance(value, np.ndarray) or not isinstance(other, np.ndarray):
            if value != other:
                return False
        elif not np.allclose(value, other, rtol=1e-9, atol=1e-12, equal_nan=True):
            return False
    return True


def apart(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """The sum of the absolute differences between two sides' numbers; inf where NaN or shapes differ."""
    total = 0.0
    for name in first.keys() & second.keys():
        if not all(isinstance(side[name], (np.ndarray, float)) for side in (first, second)):
            continue
        one, other = widen(first[name]), widen(second[name])
        if one.shape != other.shape:
            return np.inf
        with np.errstate(invalid="ignore", over="ignore"):
            same = (one == other) | (np.isnan(one) & np.isnan(other))
            distance = np.where(same, 0.0, np.abs(one - other))
        total += float(np.sum(np.where(np.isnan(distance), np.inf, distance)))
    return total


def described(run: Run) -> str:
    """The outputs of a run in words: "float32[2, 3], int64[2]"."""
    words = [
        f"{value.dtype.name}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        for value in itertools.islice(run.outputs.values(), 6)
    ]
    return ", ".join(words) + (", ..." if len(run.outputs) > 6 else "") or "nothing"


def recorded(call: Call) -> str:
    """The recorded outputs in words."""
    words = [
        f"{value.dtype}{list(value.shape)}" if isinstance(value, TensorSpec) else type(value).__name__
        for _, value in recorded_leaves(call)[:6]
    ]
    return ", ".join(words) or "nothing"


def first_line(error: BaseException) -> str:
    """What a framework's error says, in one line of at most 300 characters."""
    return (str(error).strip().split("\n", 1)[0] or type(error).__name__)[:300]
