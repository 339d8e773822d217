"""Which calls a record may be: the functions that its name leads to, on arguments that float64 takes. Nothing runs. And
which API a test means by the name that it gives."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check.both_sides import NO_CALL, Candidate
from pytest_probe.check.engines import Engines
from pytest_probe.check.large.contractions import Contraction, contraction, cut
from pytest_probe.check.prepare import (
    as_tuples,
    cast_first,
    prepared,
    sizes_by_float,
    with_float32,
    within_float32,
)
from pytest_probe.errors import SettingsError, UnknownAPI
from pytest_probe.frameworks.base import API, Framework, LookedUp
from pytest_probe.model.case import Demands, Pair
from pytest_probe.model.dump import Call, Record
from pytest_probe.model.run import Arguments, BoundCall, with_leaves
from pytest_probe.numerics.dtypes import float_format
from pytest_probe.standards.tables import classes_of, details, names
from pytest_probe.user_errors import guarded

# Places of each index in the corner of a large contraction, which tells what the record is as well as the whole does.
CORNER = 2


class Resolved(Struct, frozen=True):
    """What a case may be, likeliest first. record names it, backward tells that it has one; registered: the reference
    is the project's, and trusted.

    contraction is the call where that is too large for a reference in full. autocast is the dtype of the autocast that
    it may have run under, "" for none; as_recorded: its results have the recorded dtypes. demands: what is asked of
    results besides. dtype: what its floating tensors were cast to, None: as recorded.
    """

    record: str
    call: Call
    candidates: list[Candidate]
    backward: bool
    registered: bool = False
    contraction: Contraction | None = None
    autocast: str = ""
    as_recorded: bool = True
    notes: tuple[str, ...] = ()
    demands: Demands | None = None
    dtype: str | None = None

    def corner(self) -> Resolved:
        """Of a large call that on the first places of each index, which shows the function as well; else itself."""
        if self.contraction is None:
            return self
        large = self.contraction
        places = {index: np.arange(min(extent, CORNER)) for index, extent in large.extents.items()}
        leaves = {
            name: replace(leaf, array=cut(leaf.array, large.indices(name), places), strides=None, offset=0)
            for name, leaf in self.candidates[0].arguments.tensors.items()
        }
        specs = [
            replace(spec, shape=np.shape(cut(np.broadcast_to(0, spec.shape), large.output, places)))
            for spec in self.call.output_specs()
        ]
        candidates = [replace(item, arguments=with_leaves(item.arguments, leaves)) for item in self.candidates]
        return replace(self, call=replace(self.call, outputs=tuple(specs) or None), candidates=candidates)


class Resolver(Struct, frozen=True):
    """Finds the calls of records. calls and references are the functions that a project registered, by API; namespaces
    the allowed ones; budget is the FLOP of a contraction from which on only samples of it are computed.
    reference_framework makes the calls of the reference, where that is another one."""

    framework: Framework
    calls: Mapping[str, Callable[..., Any]]
    references: Mapping[str, Callable[..., Any]]
    namespaces: Mapping[str, str]
    budget: float = math.inf
    reference_framework: Framework | None = None

    def record(
        self, record: Record, call: Call, arguments: Arguments, *, as_recorded: bool, autocast: str = ""
    ) -> Resolved:
        """What a record may be. Raises Unsupported, as for arguments that a kernel would not check, or HookFailed."""
        api = f"{record.namespace}.{record.api}"
        registered = api in self.references
        arguments, notes = prepared(self._bound(api, arguments), call, arguments)
        bound = self._bound(api, arguments)
        if not registered:  # what a project registered is trusted
            self.framework.check_arguments(bound)
        large = None
        # A tensor that the contraction does not know of would not be cut with the others.
        found = contraction(bound) if details(classes_of(bound.name), "contraction") else None
        if found is not None and found.flops > self.budget and found.tensors == arguments.tensors.keys():
            specs = call.output_specs()
            large = found if not specs or (len(specs) == 1 and found.fits(specs[0].shape)) else None
        candidates = self._candidates(record, arguments, listed=call.surroundings is not None)
        return Resolved(
            record.name,
            call,
            candidates,
            backward=record.backward is not None,
            registered=registered,
            contraction=large,
            autocast=autocast,
            as_recorded=as_recorded,
            notes=(*call.notes, *notes),
        )

    def pair(self, pair: Pair, api: str, label: str) -> Resolved:
        """A function that another one is compared with; api is the one that says whose judge decides, "" for none,
        label names the function."""
        name = frameworks.signatures(self.framework.name).canonical(api) if api else ""
        arguments = cast_first(name, pair.arguments if sizes_by_float(name) else with_float32(pair.arguments))
        widened = self.framework.widened(pair.reference)
        reference = self._reference_of(name, widened, arguments)
        borders = None if pair.borders is None else self.framework.widened(pair.borders)
        candidate = Candidate(
            api,
            name,
            api or label,
            pair.function,
            reference,
            arguments,
            False,
            constant=pair.constant,
            widened=widened,
            borders=borders and self._reference_of(name, borders, arguments),
            inferred=pair.inferred,
        )
        return Resolved(label, NO_CALL, [candidate], pair.with_gradient, demands=pair.demands)

    def _bound(self, api: str, arguments: Arguments) -> BoundCall:
        return arguments.bound(api, frameworks.signatures(self.framework.name).bind)

    def _candidates(self, record: Record, arguments: Arguments, listed: bool) -> list[Candidate]:
        """What the record may be; listed: what looks like a list is one, and no tuple."""
        key = f"{record.namespace}.{record.api}"
        name = frameworks.signatures(self.framework.name).canonical(key)
        # In the record's own framework: another one's tensors what the project registered cannot take.
        call = None if self.framework.translates else self.calls.get(key)
        reference = None if self._of_reference.translates else guarded("the reference", self.references, key)
        replaced = "" if call is None else _qualified_name(call)
        widened = None if reference is None else self._of_reference.widened(reference)
        formula = self._of_reference.reference(key, self._bound(key, arguments)) if reference is None else None
        if call is not None and reference is not None:
            wide = self._reference_of(name, widened or reference, arguments)
            return [Candidate(key, name, key, call, wide, arguments, False, replaced, widened=widened)]
        # One kernel, which rounds once, at its end.
        scaled = "scaled_products" in classes_of(name)
        # Names that a capture shortened may mean several functions; the record tells which fits.
        made = []
        for api, of_reference in self._apis(record):
            wide = self._reference_of(name, widened or formula or LookedUp(of_reference.lookup), arguments)
            notes = (f"taken as {api.path}",) if api.elsewhere else ()
            lookup = of_reference.lookup if formula is None else lambda: formula
            own = LookedUp(api.lookup) if api.on_device is None else LookedUp(api.on_device)
            under_test = call or own
            made.append(
                Candidate(
                    key,
                    name,
                    api.path,
                    under_test,
                    wide,
                    arguments,
                    api.in_place,
                    replaced or api.replaced,
                    notes,
                    lookup=lookup if reference is None else None,
                    widened=widened,
                    composed=formula is not None and not scaled,
                    shared=of_reference.shared if call is None and reference is None and formula is None else "",
                )
            )
        lists = not listed and any(isinstance(value, list) for value in (*arguments.args, *arguments.kwargs.values()))
        return made + [replace(item, arguments=as_tuples(item.arguments)) for item in made] if lists else made

    @property
    def _of_reference(self) -> Framework:
        return self.reference_framework or self.framework

    def _apis(self, record: Record) -> list[tuple[API, API]]:
        """What the name may mean, for the device and for the reference."""
        own = self.framework.candidates(record.namespace, record.api, self.namespaces)
        if self._of_reference is self.framework:
            return [(each, each) for each in own]
        other = self._of_reference.candidates(record.namespace, record.api, self.namespaces)
        return list(zip(own, other, strict=True))

    def _reference_of(self, name: str, reference: Callable[..., Any], arguments: Arguments) -> Callable[..., Any]:
        """The device takes what it is not given from its own dtype: so must float64, there."""
        if not within_float32(arguments):
            return reference
        floats = arguments.dtypes.values()
        return self._of_reference.as_single(reference, max(float_format(dtype).max for dtype in floats), name)


def _qualified_name(function: Callable[..., Any]) -> str:
    """Where a function comes from, "my_kernels.gelu"; of an object without a name its type."""
    while isinstance(function, functools.partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    if "::" in (operator := frameworks.own_name(function)):
        return operator
    return f"{named.__module__}.{named.__qualname__}"


def known_api(engines: Engines, given: str) -> str:
    """An API as dumps call it ("Functional.softmax" for "torch.nn.functional.softmax"); "" for none. Raises
    SettingsError where nothing is known of it, with the API that is meant."""
    registry, signatures = engines.registry, frameworks.signatures(engines.framework.name)
    api = signatures.spelled(given)
    if not api or api in registry.calls or api in registry.references:
        return api
    namespace, _, name = api.partition(".")
    try:
        engines.framework.candidates(namespace, name, registry.namespaces)
    except UnknownAPI:
        # What a table says of a name counts in vendors' namespaces, too.
        if name and not signatures.bind(api, (), {}).native and signatures.canonical(api) in names():
            return api
        raise SettingsError("api", given, _advice(api, {*engines.framework.apis(), *registry.references})) from None
    return api


def _advice(api: str, apis: Iterable[str]) -> str:
    by_name: dict[str, str] = {}
    for each in sorted(apis):
        by_name.setdefault(each.partition(".")[2], each)
        by_name[each] = each
    short = api.rpartition(".")[2]
    close = [short] if short in by_name else [*get_close_matches(api, by_name), *get_close_matches(short, by_name)]
    # Swapped letters are the commonest typing error, and no measure of what two words share knows them.
    likeliest = sorted(close, key=lambda name: sorted(name.rpartition(".")[2]) != sorted(short))
    meant = f"; did you mean {by_name[likeliest[0]]}?" if close else ""
    return f"give an API as dumps call it, such as Functional.softmax, or leave it out{meant}"
