"""What the table does not say of an API's sizes, found by trial: which of them the reference takes otherwise."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_probe.features.fuzz.from_records import around
from pytest_probe.features.fuzz.patterns import Sizes
from pytest_probe.features.fuzz.templates import Template
from pytest_probe.features.fuzz.trial import Trials


def fitted(trials: Trials, template: Template) -> Template | None:
    """The template with the sizes fixed that the call needs as they are; None where the reference does not even take
    the record's own."""
    if template.arguments is None or _rejected(trials, template, template.anchors):
        return None if template.arguments is not None else template
    needed = set(template.fixed)
    for symbol, size in template.anchors.items():
        if isinstance(size, int) and size > 1 and symbol.startswith("d"):
            others = ({**template.anchors, symbol: other} for other in (size + 1, size - 1))
            if any(_rejected(trials, template, sizes) for sizes in others):
                needed.add(symbol)
    return replace(template, fixed=frozenset(needed))


def _rejected(trials: Trials, template: Template, sizes: Sizes) -> str:
    drawn = around(template, sizes)
    call = drawn.call()
    return trials.judged(call, drawn.arguments(call), drawn.with_seed).rejected
