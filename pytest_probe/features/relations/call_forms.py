"""One API in other forms: in place, into a tensor that is given, on one tensor in two places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.check.call_again import DifferingOutput, Results, kept, outputs_of, parameters
from pytest_probe.errors import DeviceRaised, UnknownAPI
from pytest_probe.features.relations.table import Call, Found, Relation, left_out, of_methods, of_out
from pytest_probe.model.run import Leaf, Run, Wanted, with_leaves, with_value
from pytest_probe.numerics.dtypes import AnyArray, is_complex, is_inexact
from pytest_probe.user_errors import first_line, guarded

_FIRST, _OUTPUT, _OUT = "input.0", "output.0", "kwargs.out"


def _function(call: Call, namespace: str, api: str) -> Callable[..., Any] | None:
    """The device's function of a name: a project's, else the framework's; None where nothing has the name."""
    registry = call.registry
    own = guarded("the call", registry.calls, f"{namespace}.{api}")
    if own is not None:
        return own
    try:
        found = call.framework.candidates(namespace, api, registry.namespaces)[0]
    except UnknownAPI:
        return None
    return (found.on_device or found.lookup)()


def _without_other_form(call: Call) -> str:
    """Is it an operator, whose arguments may be in the other order, or does it write itself?"""
    operator = call.case.record.api.rpartition(".")[2].startswith("__")
    unlike = call.replay.reference.candidate.in_place or call.backward or operator
    return "the call is an operator, a gradient or in place itself" if unlike else ""


class InPlace(Relation):
    name = "inplace"

    def unfit(self, call: Call) -> str:
        if not call.row.inplace or self._twin(call) is None:
            return "no function is known that is the same in place; api= names the API whose twin is asked"
        return _without_other_form(call)

    def find(self, call: Call) -> Found:
        if list(call.base) != [_OUTPUT] or _FIRST not in call.leaves:
            left_out("the call has more than one output, or no first tensor")
        before, after = call.leaves[_FIRST].array, call.base[_OUTPUT]
        if is_complex(before.dtype):
            left_out("complex products have other kernels in place, which round otherwise")
        if (before.dtype, before.shape) != (after.dtype, after.shape):
            left_out(f"its output is {after.dtype.name}{list(after.shape)}, its argument has another dtype or shape")
        state = call.wanted
        wanted = None if state is None else replace(state, copies=True)
        # `inplace` says of a function whether it is its own twin.
        arguments, pair, lookup = call.arguments, call.case.pair, call.replay.reference.candidate.lookup
        kwargs = {name: value for name, value in arguments.kwargs.items() if name != "inplace"}
        function = pair.function if pair is not None else None if lookup is None else lookup()
        names = [] if function is None else parameters(function)
        args = arguments.args[: names.index("inplace")] if "inplace" in names else arguments.args
        run = call.run(replace(arguments, args=args, kwargs=kwargs), self._twin(call), wanted=wanted)
        found = {_OUTPUT: np.asarray(run.outputs.get(_OUTPUT))}
        apart = next(call.apart(found), None) or next(call.apart({_OUTPUT: run.after(_FIRST)}), None)
        if apart is not None:
            return Found(f"in place, {apart.description}", apart, 1)
        if run.returned.get(_OUTPUT) != _FIRST:
            return Found("in place, it returns a copy of its argument", runs=1)
        return Found(runs=1)

    def _twin(self, call: Call) -> Callable[..., Any] | None:
        record = call.case.record
        if not record.api:
            return None
        found = (_function(call, each, f"{record.api}_") for each in (record.namespace, of_methods(record.namespace)))
        return next(filter(None, found), None)


class Out(Relation):
    name = "out"

    def unfit(self, call: Call) -> str:
        known = bool(of_out(call.case.record.namespace)) or call.case.api in call.registry.relations
        if not (call.row.out and known) or "out" in call.arguments.kwargs:
            return "no function is known that takes out=; api= names the API whose twin is asked"
        return _without_other_form(call)

    def find(self, call: Call) -> Found:
        names = [name for name in call.base if name.startswith("output.")]
        if len(names) != len(call.base) or not all(value.ndim for value in call.base.values()):
            left_out("an output is a number, or an argument")
        namespace = call.case.record.namespace
        function = None
        if of_out(namespace) not in ("", namespace):
            function = _function(call, of_out(namespace), call.case.record.api)
        # An out has no gradient, and kernels are chosen by whether there is one.
        plain = kept(outputs_of(call.run()))
        for words, make in (("", _full), (" of size 0", lambda value: np.empty(0, value.dtype))):
            # Kernels are chosen by strides, too: a plain call's result may lie as its argument does.
            laid = [tuple(each // plain[name].itemsize for each in plain[name].strides) for name in names]
            given = [
                Leaf(make(plain[name]), strides=None if words else strides)
                for name, strides in zip(names, laid, strict=True)
            ]
            value = given[0] if len(given) == 1 else tuple(given)
            try:
                run = call.run(with_value(call.arguments, _OUT, value), function)
            except DeviceRaised as error:
                if not words:  # it takes none at all
                    raise
                return Found(f"with an out{words}, it raises: {first_line(error)}", runs=3)
            broken = self._broken(call, plain, run, words)
            if broken is not None:
                return broken
        return Found(runs=3)

    def _broken(self, call: Call, plain: Results, run: Run, words: str) -> Found | None:
        places = [_OUT] if len(plain) == 1 else [f"{_OUT}.{place}" for place in range(len(plain))]
        named = dict(zip(plain, places, strict=True))
        written = {name: run.after(place) for name, place in named.items()}
        changed = next((name for name in outputs_of(run) if name not in plain and name not in places), None)
        if changed is not None:
            return Found(f"with an out{words}, it changes {changed}", runs=2)
        apart = next(call.apart(outputs_of(run), plain), None) or next(call.apart(written, plain), None)
        if apart is not None:
            return Found(f"into an out{words}, {apart.description}", apart, 2)
        if any(run.returned.get(name) != place for name, place in named.items()):
            return Found(f"with an out{words}, it returns another tensor", runs=2)
        return None


def _full(like: AnyArray) -> AnyArray:
    """What is not written shows."""
    floating = is_inexact(like.dtype)
    return np.full_like(like, np.nan) if floating else np.ones_like(like)


class Alias(Relation):
    name = "alias"

    def unfit(self, call: Call) -> str:
        fits = self._pair(call) is not None and not call.backward
        return "" if fits else "no two arguments are known that may be one tensor, or they are not alike"

    def find(self, call: Call) -> Found:
        pair = self._pair(call)
        assert pair is not None
        first, second = pair
        leaf = call.leaves[first]
        arguments = with_leaves(call.arguments, {**call.leaves, second: leaf})
        shared: dict[str, Any] = {}

        def one(name: str, tensor: Any) -> Any:
            if name not in pair:
                return tensor
            return shared.setdefault("tensor", tensor)

        state: Wanted | None = call.wanted
        wanted = None if state is not None and state.copies else state
        two = kept(outputs_of(call.run(arguments, wanted=wanted)))
        found = outputs_of(call.run(arguments, placing=one, wanted=wanted))
        if not shared:
            left_out("the framework does not let its arguments be one tensor here")
        changed = next((name for name in found if name not in two), None)
        if changed is not None and not call.replay.reference.candidate.in_place:
            return Found(f"with {first} as {second}, too, it changes {changed}", runs=2)
        apart: DifferingOutput | None = next(call.apart(found, two), None)
        if apart is None:
            return Found(runs=2)
        return Found(f"with {first} as {second}, too, {apart.description}", apart, 2)

    def _pair(self, call: Call) -> tuple[str, str] | None:
        """The two arguments, where they are alike."""
        places = [call.paths.get(name, "") for name in call.row.alias]
        leaves = [call.leaves[place] for place in places if place in call.leaves]
        if len(leaves) != 2:
            return None
        one, other = (leaf.array for leaf in leaves)
        alike = one.dtype == other.dtype and one.shape == other.shape and leaves[0].strides == leaves[1].strides
        return (places[0], places[1]) if alike else None
