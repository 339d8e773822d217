"""Calls of which a dump has positional arguments only: which call it was, the stored outputs tell.

A record runs where float64 on its stored inputs gives its stored outputs, with the arguments as they stand, or with
values for what is missing. What the dump stored of the output is then no proof of the kernel that wrote it: such a case
checks the kernel that runs now. Other dumps have all arguments, and pass through.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks, inputs
from pytest_probe.check.reference import ReferenceRuns
from pytest_probe.check.resolve import Resolver
from pytest_probe.check.stored_outputs import AFTER_THE_CALL, NOT_STORED
from pytest_probe.errors import LostArgument, NoKernel, OutOfMemory, TooLarge, UnknownAPI, Unsupported
from pytest_probe.inputs import StoredTensors
from pytest_probe.model.case import Case
from pytest_probe.model.dump import Call, DtypeSpec, Lost, TensorSpec, named_tensors
from pytest_probe.model.run import Arguments, Device, Leaf, Run, map_tree, mapped, with_value
from pytest_probe.numerics.arrays import widened_dtype
from pytest_probe.numerics.dtypes import float_format, is_complex, is_floating, round_to, widen

# Of an output's largest number: two implementations of a call lie nearer, other arguments seldom do. Four roundoffs of
# a 16-bit output are more.
NEAR, ROUNDOFFS = 1e-3, 4.0
# Values that are tried for what is missing.
TRIES = 64
# How many records before a call that wrote to its input are looked at for that.
LOOKED_BACK = 64
# Of the values, how many a message tells.
_TOLD = 6
# These say that no value at all would run.
_ALWAYS = (UnknownAPI, NoKernel, TooLarge, OutOfMemory)


def check_complete(case: Case, call: Call) -> None:
    """Raises Unsupported where it is known without a run that a call's arguments cannot be found."""
    if not call.partial:
        return
    if _writes(case, call) and next(earlier_tensors(case, call), None) is None:
        raise Unsupported(
            "what the call wrote to was stored after it, and no earlier record stored a tensor of its shape and dtype",
            AFTER_THE_CALL,
        )
    if not case.dump.data_dirs:
        raise Unsupported(
            "keyword arguments were never recorded, and only stored tensors can tell whether there were any", NOT_STORED
        )
    if not call.returned():
        raise Unsupported(
            "keyword arguments were never recorded, and no stored output tells whether there were any",
            LostArgument.kind,
        )


class _Guess(Struct, frozen=True):
    """A call as it may have been. description names what was not recorded, "" for the arguments as they stand; computed
    tells that an input, or a number, was found by the stored output."""

    call: Call
    arguments: Arguments
    description: str
    computed: bool


class Completing(Struct, frozen=True):
    """Finds the arguments of partial calls; device says where what raises is asked again: the CPU. judges_stored: the
    stored outputs are judged, which no input or number may that was found by them."""

    resolver: Resolver
    references: ReferenceRuns
    device: Device
    files: StoredTensors
    seed: int
    judges_stored: bool = False

    def completed(self, case: Case, call: Call) -> Call:
        """The call with the arguments that give its stored outputs. Raises Unsupported without any, and
        RecordError for a file that cannot be used."""
        if not call.partial:
            return call
        check_complete(case, call)
        entry = f"{case.record.name}.forward"
        stored = {
            name: self.files.array(value, entry, name) if isinstance(value, TensorSpec) else value
            for name, value in call.returned()
        }
        troubles: list[Unsupported] = []
        tried: list[str] = []
        for guess in itertools.islice(self._guesses(case, call, stored), TRIES):
            tried.append(guess.description)
            try:
                run = self._run(case, guess.call, guess.arguments)
            except Unsupported as error:
                troubles.append(error)
                continue
            if all(name in run.outputs and _is_near(run.outputs[name], value) for name, value in stored.items()):
                if guess.computed and self.judges_stored:
                    wanted = f"{guess.description} was found by the stored output, and so cannot judge it"
                    raise Unsupported(f"only positional arguments were recorded, and {wanted}", LostArgument.kind)
                # The call may have outputs that the dump lacks.
                outputs = call.outputs if stored.keys() == run.outputs.keys() else None
                tried_with = (
                    f"{guess.description}, which was not recorded and"
                    if guess.description
                    else "them as they stand, which"
                )
                note = f"only positional arguments were recorded: run with {tried_with} gives the stored output"
                return replace(guess.call, outputs=outputs, notes=(note,))
        always = next((error for error in troubles if isinstance(error, _ALWAYS)), None)
        if always is not None and len(troubles) == len(tried):
            raise always
        values = ", ".join(filter(None, tried[: _TOLD + 1]))
        more = f" and {len(tried) - 1 - _TOLD} more" if len(tried) > _TOLD + 1 else ""
        words = f"neither with them as they stand, nor with {values}{more}" if values else "with them as they stand"
        found = "float64 on the stored inputs does not give the stored output"
        raise Unsupported(f"only positional arguments were recorded, and {found}, {words}", LostArgument.kind)

    def _guesses(self, case: Case, call: Call, stored: Mapping[str, Any]) -> Iterator[_Guess]:
        """The call with each input that it may have had, and each of those with the values that may be missing."""
        # What it may have got as its first argument: as it stands, or, where the call wrote to it before it was stored,
        # a tensor of that shape and dtype which an earlier record stored. The last one comes first.
        inputs: Iterable[tuple[TensorSpec | None, str]] = [(None, "")]
        if _writes(case, call):
            inputs = ((spec, f"the tensor of {name} as input.0") for name, spec in earlier_tensors(case, call))
        for input, source in inputs:
            begun = call if input is None else replace(call, args=(input, *call.args[1:]))
            given = self._arguments(case, begun)
            made = replace(begun, outputs=None, args=tuple(map_tree(value, "", _filled) for value in begun.args))
            for values in self._values(case, begun, given, stored):
                words = [source] if source else []
                words += [
                    f"{path.partition('.')[2]}={value.name if isinstance(value, DtypeSpec) else repr(value)}"
                    for path, value in values.items()
                ]
                completed, arguments = made, mapped(given, _filled)
                for path, value in values.items():
                    completed = _with_value(completed, path, value)
                    arguments = with_value(arguments, path, value)
                computed = bool(source) or any(isinstance(value, float) for value in values.values())
                yield _Guess(completed, arguments, ", ".join(words), computed)

    def _values(
        self, case: Case, call: Call, given: Arguments, stored: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Any]]:
        """Nothing, for the arguments as they stand, then one value after the other, and what the stored output leads
        to. Where the output's dtype is none of the inputs', a dtype comes first: in float64 both give the same
        numbers."""
        record, dtype = case.record, next((spec.dtype for spec in call.output_specs()), None)
        api = self.resolver.framework.candidates(record.namespace, record.api, self.resolver.namespaces)[0]
        single = [{path: value} for path, value in self.resolver.framework.completions(api, call.args, dtype)]
        first = [] if dtype in {spec.dtype for _, spec in named_tensors(call.args)} else single
        dtypes = [values for values in first if isinstance(next(iter(values.values())), DtypeSpec)]
        yield from dtypes
        yield {}
        output = next((value for value in stored.values() if isinstance(value, np.ndarray)), None)
        if output is not None:
            args = mapped(given, lambda leaf, _: leaf.array if isinstance(leaf, Leaf) else leaf).args
            yield from self.resolver.framework.solved(api, args, output)
        yield from (values for values in single if values not in dtypes)

    def _run(self, case: Case, call: Call, arguments: Arguments) -> Run:
        resolved = self.resolver.record(case.record, call, arguments, as_recorded=False)
        reference = self.references.of(resolved, self.device)
        # A call that is too large for a reference in full is run once in its own dtypes.
        return reference.run if not reference.is_partial else reference.in_own_dtypes(self.device)

    def _arguments(self, case: Case, call: Call) -> Arguments:
        return inputs.build(
            call,
            bound=frameworks.signatures(case.dump.framework).bind(case.api, call.args, call.kwargs),
            record=case.record.name,
            dtype=None,
            seed=self.seed,
            kind="auto",
            files=self.files,
        )


def _filled(value: Any, _: str) -> Any:
    """None where a value was not recorded: mostly it was that."""
    return None if isinstance(value, Lost) else value


def earlier_tensors(case: Case, call: Call) -> Iterator[tuple[str, TensorSpec]]:
    """The stored tensors of records before this one that are like its first argument, with the names of the records."""
    first = call.args[0] if call.args else None
    if not isinstance(first, TensorSpec):
        return
    place, known = case.dump.records.index(case.record), {first.data_name, None}
    for record in reversed(case.dump.records[max(place - LOOKED_BACK, 0) : place]):
        if (earlier := case.dump.readable(record)) is None:
            continue
        specs = [spec for _, spec in (*named_tensors(earlier.outputs), *named_tensors(earlier.args))]
        for spec in specs:
            if spec.data_name not in known and (spec.shape, spec.dtype) == (first.shape, first.dtype):
                known.add(spec.data_name)
                yield record.name, spec


def _writes(case: Case, call: Call) -> bool:
    """Does the call write to an argument, which was stored after it?"""
    return frameworks.signatures(case.dump.framework).bind(case.api, call.args, call.kwargs).in_place


def _with_value(call: Call, path: str, value: Any) -> Call:
    root, _, name = path.partition(".")
    if root == "kwargs":
        return replace(call, kwargs={**call.kwargs, name: value})
    return call if not path else replace(call, args=(*call.args[: int(name)], value, *call.args[int(name) + 1 :]))


def _is_near(found: Any, stored: Any) -> bool:
    if not isinstance(stored, np.ndarray) or not isinstance(found, np.ndarray):
        numbers = all(isinstance(value, (bool, int, float)) for value in (found, stored))
        return numbers and _is_near(np.asarray(found, np.float64), np.asarray(stored, np.float64))
    if found.shape != stored.shape or widened_dtype(found.dtype) != widened_dtype(stored.dtype):
        return False
    if is_complex(stored.dtype) or is_complex(found.dtype):
        parts = ((found.real, stored.real), (found.imag, stored.imag))
        return all(_is_near(np.asarray(one), np.asarray(other)) for one, other in parts)
    share = NEAR
    if is_floating(stored.dtype):
        share = max(share, ROUNDOFFS * float_format(stored.dtype).roundoff)
        found = np.asarray(round_to(widen(found), stored.dtype))
    one, other = (widen(each) if is_floating(each.dtype) else each.astype(np.float64) for each in (found, stored))
    finite = np.isfinite(other)
    scale = float(np.max(np.abs(other), initial=0.0, where=finite))
    # What a device left as inf or NaN is its own affair where the other half of the elements tells which call it was.
    if 2 * np.count_nonzero(finite) >= other.size:
        one, other = one[finite], other[finite]
    with np.errstate(all="ignore"):
        return bool(np.allclose(one, other, rtol=0.0, atol=share * scale, equal_nan=True))
