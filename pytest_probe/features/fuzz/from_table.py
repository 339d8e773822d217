"""Templates by the table alone: of an API that nobody recorded."""

from __future__ import annotations

from typing import Any

from pytest_probe.features.fuzz.patterns import Pattern
from pytest_probe.features.fuzz.table import Entry, TensorText, table
from pytest_probe.features.fuzz.templates import Choice, DimOf, SizeOf, Template, TensorSlot
from pytest_probe.frameworks.base import Signatures

# What a call without a record is drawn in.
DTYPES = ("float32", "float16", "bfloat16", "float64")


def entry_of(api: str, signatures: Signatures) -> Entry | None:
    """What the table says of an API ("Functional.softmax"); None where it does not have it."""
    return table().get(signatures.canonical(api))


def tabled(api: str, signatures: Signatures, dtypes: tuple[str, ...] = DTYPES) -> Template:
    """The template of an API that the table has."""
    entry = entry_of(api, signatures)
    assert entry is not None
    slots: dict[str, Any] = {name: tensor_slot(text) for name, text in entry.tensors.items()}
    slots |= {name: plain_slot(rule) for name, rule in entry.plain.items()}
    return Template(api, signatures, slots, choices=entry.sizes, dtypes=dtypes, **entry.limits)


def tensor_slot(text: str) -> TensorSlot:
    """Of "int64 *b"."""
    parsed = TensorText.parsed(text)
    return TensorSlot(Pattern.of(parsed.pattern), parsed.dtype, parsed.many, parsed.optional)


def plain_slot(rule: Any) -> Any:
    """Of a list, "dim input", "= g", "sizes *n"."""
    if isinstance(rule, list):
        return Choice(tuple(rule))
    word, name = rule.split()
    if word in ("dim", "dims", "some"):
        return DimOf(name, word)
    return SizeOf(name, as_list=word == "sizes")
