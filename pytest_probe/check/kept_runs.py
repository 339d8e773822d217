"""A run of the reference as numbers, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_probe.check.kept import Kept
from pytest_probe.model.arguments import Leaf
from pytest_probe.model.run import Run, Wanted
from pytest_probe.numerics.closeness import reference_array, same_bytes
from pytest_probe.numerics.dtypes import AnyArray

OUTPUT, AFTER = "output of ", "after the call "


def kept_run(run: Run, leaves: Mapping[str, Leaf], wanted: Wanted | None) -> Kept:
    """Outputs, and those of the arguments that are others afterwards."""
    after = {name: run.after(name) for name in leaves}
    changed = [
        name
        for name, value in after.items()
        if name in run.changed or not same_bytes(value, reference_array(leaves[name].array))
    ]
    values: dict[str, Any] = {f"{OUTPUT}{name}": value for name, value in run.outputs.items()}
    values |= {f"{AFTER}{name}": after[name] for name in changed}
    told = {
        "changed": changed,
        "returned": run.returned,
        "differentiable": run.differentiable,
        "wanted": None if wanted is None else [sorted(wanted.names), wanted.copies, wanted.grad],
    }
    return Kept(values, told)


def taken_run(kept: Kept, leaves: Mapping[str, Leaf]) -> tuple[Run, Wanted | None]:
    """The run without a graph: gradients are kept for themselves."""

    def after(name: str) -> AnyArray:
        found = kept.values.get(f"{AFTER}{name}")
        return reference_array(leaves[name].array) if found is None else found

    told = kept.told
    outputs = {name.removeprefix(OUTPUT): value for name, value in kept.values.items() if name.startswith(OUTPUT)}
    wanted = None if told["wanted"] is None else Wanted(frozenset(told["wanted"][0]), *told["wanted"][1:])
    run = Run(outputs, frozenset(told["changed"]), after, told["returned"], tuple(told["differentiable"]))
    return run, wanted
