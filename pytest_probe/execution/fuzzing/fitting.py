"""What the table does not say of an API's sizes, found by trial: which of them the reference takes otherwise."""

from __future__ import annotations

from dataclasses import replace

from pytest_probe.execution.checker import Checker
from pytest_probe.execution.fuzzing.trial import Target, judged
from pytest_probe.inputs.fuzz.learnt import around
from pytest_probe.inputs.fuzz.patterns import Sizes
from pytest_probe.inputs.fuzz.templates import Template


def fitted(checker: Checker, target: Target, template: Template) -> Template | None:
    """The template with the sizes fixed that the call needs as they are; None where the reference does not even take
    the record's own."""
    if template.arguments is None or _rejected(checker, target, template, template.anchors):
        return None if template.arguments is not None else template
    needed = set(template.fixed)
    for symbol, size in template.anchors.items():
        if isinstance(size, int) and size > 1 and symbol.startswith("d"):
            others = ({**template.anchors, symbol: other} for other in (size + 1, size - 1))
            if any(_rejected(checker, target, template, sizes) for sizes in others):
                needed.add(symbol)
    return replace(template, fixed=frozenset(needed))


def _rejected(checker: Checker, target: Target, template: Template, sizes: Sizes) -> str:
    drawn = around(template, sizes)
    call = drawn.call()
    return judged(checker, target, call, drawn.arguments(call)).rejected
