"""What is different in the entries of a dump of MindSpore: names of types and dtypes, and whose the gradients are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from msgspec.structs import replace

from pytest_probe.model.dump import Call, DtypeSpec, TensorSpec, named_tensors
from pytest_probe.records.fields import LeafReader
from pytest_probe.records.msprobe.entries import Entry, tensor

FRAMEWORK = "mindspore"
# Entries that no item replays, by their first part; those of cells are counted as those of modules are.
NO_CALLS = ("Jit", "Distributed", "MintDistributed")
# How an entry tells that the dump is MindSpore's, where an old file does not name the framework.
_OWN_TYPE = re.compile(rb'"type"\s*:\s*"mindspore\.')
# MindSpore's names of dtypes ("BFloat16") are the usual ones with capitals, but for these.
_FLOAT8 = {"Float8E4M3FN": "float8_e4m3fn", "Float8E5M2": "float8_e5m2"}


def is_of_mindspore(entries: Iterable[Any]) -> bool:
    """Do the raw entries name types of MindSpore's?"""
    return any(_OWN_TYPE.search(memoryview(raw)) for raw in entries)


class MindSporeEntry(Entry):
    """A backward entry has one gradient for each output, and one for each positional argument that is a tensor, in
    their order; null where there was none. msprobe 1.2.2 writes null for a list of tensors as well."""

    leaves: ClassVar[Mapping[str, LeafReader]] = {
        **Entry.leaves,
        "mindspore.Tensor": tensor,
        "mindspore.dtype": lambda fields, value, field: DtypeSpec(fields.dtype(value, "value", field)),
    }

    @staticmethod
    def bare(text: str) -> str:
        return _FLOAT8.get(text, text.lower())

    def assigned(self, call: Call) -> Call:
        if "inputs" in self.probe:
            return super().assigned(call)
        gradients, outgoing = self.gradients("input"), self.gradients("output")
        outputs = tuple(name for name, value in call.returned() if isinstance(value, TensorSpec))
        tensors = [place for place, value in enumerate(call.args) if isinstance(value, TensorSpec)]
        with_lists = [place for place, value in enumerate(call.args) if any(named_tensors(value))]
        places = next((found for found in (tensors, with_lists) if len(found) == len(outgoing)), None)
        if len(gradients) != len(outputs) or places is None:
            found = f"{len(gradients)} incoming gradients and {len(outgoing)} of arguments"
            wanted = f"one for each of {len(outputs)} outputs and of {len(tensors)} tensors among the arguments"
            return replace(call, gradients=(), unrecorded=str(self.error("", found, wanted)))
        named = {f"input.{place}": spec for place, spec in zip(places, outgoing, strict=True) if place in tensors}
        return replace(call, gradients=gradients, seeded=outputs, outgoing=named or None)
