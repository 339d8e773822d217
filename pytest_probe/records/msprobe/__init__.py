"""The dumps of msprobe for PyTorch and MindSpore, versions 1.0 to 26.2, and what can be read of a damaged one.

In: dump.json, with stack.json, construct.json and dump_tensor_data in the same folder. Out: a `Dump` of undecoded
records, and each as a `Call`.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from pytest_probe.model.device_modes import is_mode
from pytest_probe.model.dump import TENSOR_FOLDER, Call, DtypeSpec, Dump, Record, TensorSpec, named_tensors
from pytest_probe.records import raw_json
from pytest_probe.records.fields import UNNAMED, LeafReader, quoted
from pytest_probe.records.msprobe.call_sites import ConstructFile, StackFile
from pytest_probe.records.msprobe.entries import MODULES, Entry, decode, gradients, is_of_parameters, tensor
from pytest_probe.system import archive
from pytest_probe.system.process import paused_gc
from pytest_probe.system.text import printable_line

# What is different in the entries of a dump of MindSpore: names of types and dtypes, and whose the gradients are.
FRAMEWORK = "mindspore"
# Entries that no item replays, by their first part; those of cells are counted as those of modules are.
NO_CALLS = ("Jit", "Distributed", "MintDistributed")
# How an entry tells that the dump is MindSpore's, where an old file does not name the framework.
_OWN_TYPE = re.compile(rb'"type"\s*:\s*"mindspore\.')
# MindSpore's names of dtypes ("BFloat16") are the usual ones with capitals, but for these.
_FLOAT8 = {"Float8E4M3FN": "float8_e4m3fn", "Float8E5M2": "float8_e5m2"}


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


# Other tasks and levels are read with a note, since their meaning is unknown.
_KNOWN_TASKS = ("statistics", "tensor", "structure", "overflow_check", "acc_check")
_KNOWN_LEVELS = ("L0", "L1", "L2", "mix", "debug")

# Known top-level keys; others get a note.
_KEYS = ("task", "level", "framework", "dump_data_dir", "data", "probe")
_OTHER = {"forward": "backward", "backward": "forward"}
# Any JSON may have a key "data": the header, or an entry's name, must be there too.
_DATA = re.compile(rb'"data"\s*:\s*\{')
_TASK, _LEVEL = re.compile(rb'"task"\s*:'), re.compile(rb'"level"\s*:')
# How an entry of an API or a module begins: its key and the opening brace.
_ENTRY = re.compile(r'"[^"\\\s]+\.(?:forward|backward|parameters_grad)(?:\.\d+)?"\s*:\s*\{')
_ENTRY_BYTES = re.compile(_ENTRY.pattern.encode())
_NAMED = "--probe-data-dir=DIR names a folder of tensors that may lie anywhere"


class MsprobeReader:
    """Reads dump.json as every version of msprobe writes it. Entries stay raw until they are decoded."""

    name = "msprobe"

    def sniff(self, path: Path, head: bytes) -> bool:
        """Is this a JSON object with entries under "data"?"""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        task = _TASK.search(head)
        has_header = task is not None and _LEVEL.search(head, task.end()) is not None
        return start == b"{" and bool(_DATA.search(head)) and (has_header or bool(_ENTRY_BYTES.search(head)))

    def read(self, path: Path) -> Dump:
        """Read the dump. Raises DumpError where no entry can be found in it."""
        loaded = raw_json.load(path, _ENTRY, "data")
        header, entries, notes = loaded.header, loaded.entries, list(loaded.notes)
        # Old files do not name it: then the entries tell.
        if "framework" not in header and any(_OWN_TYPE.search(memoryview(raw)) for raw in entries.values()):
            framework = FRAMEWORK
        else:
            framework = _text(header, "framework", "pytorch", notes)
        kind, no_calls = (MindSporeEntry, NO_CALLS) if framework == FRAMEWORK else (Entry, ())
        skipped: Counter[str] = Counter()
        with paused_gc():
            records = tuple(_records(entries, skipped, no_calls))
            compare_only = tuple(_module_records(entries))
        if skipped[UNNAMED]:
            first = next(name for name in entries if not (_skip_kind(name, no_calls) or _split_name(name)))
            notes.append(f"{UNNAMED}: {skipped[UNNAMED]}, the first is {first!r}")
        return Dump(
            path=path,
            framework=framework,
            task=_text(header, "task", "", notes, _KNOWN_TASKS),
            level=_text(header, "level", "", notes, _KNOWN_LEVELS),
            records=records,
            compare_only=compare_only,
            decode=partial(decode, path, ours="probe" in header, entries=kind, modes=_modes(header, notes)),
            stack=StackFile(path.with_name("stack.json")),
            modules=ConstructFile(path.with_name("construct.json"), entries),
            observed=partial(gradients, path, entries=kind),
            data_dirs=_data_dirs(path, header.get("dump_data_dir"), notes),
            notes=(*notes, *(f"unknown top-level key {key!r}" for key in header if key not in _KEYS)),
            damage=loaded.damage,
            skipped=dict(skipped),
        )


def _records(
    entries: Mapping[str, msgspec.Raw], skipped: Counter[str], no_calls: Sequence[str] = ()
) -> Iterator[Record]:
    """The records in the order of their first entries; other entries are counted, as are entries whose first part
    is one of no_calls."""
    paired: set[str] = set()
    for entry, raw in entries.items():
        kind = _skip_kind(entry, no_calls)
        parts = None if kind else _split_name(entry)
        if parts is None:
            skipped[kind or UNNAMED] += 1
            continue
        name, direction, namespace, api, number = parts
        other = entries.get(f"{name}.{_OTHER[direction]}")
        if other is not None:
            # The first entry of the pair made the record.
            if name in paired:
                continue
            paired.add(name)
        forward, backward = (raw, other) if direction == "forward" else (other, raw)
        name, namespace, api = map(printable_line, (name, namespace, api))
        yield Record(name, sys.intern(namespace), sys.intern(api), number, forward, backward)


def _module_records(entries: Mapping[str, msgspec.Raw]) -> Iterator[Record]:
    """The records of modules in the order of their first entries; gradients of parameters are records of their own."""
    found: dict[tuple[str, str, str, int], dict[str, msgspec.Raw]] = {}
    for entry, raw in entries.items():
        if not _skip_kind(entry):
            continue
        # The direction stands before the number. Gradients of parameters, which some releases give no number, have come
        # out of a backward.
        left, _, last = (f"{entry}.0" if is_of_parameters(entry) else entry).rpartition(".")
        stem, _, before = left.rpartition(".")
        usual = f"{left}.{last}.backward" if is_of_parameters(left) else f"{stem}.{last}.{before}"
        if (parts := _split_name(usual)) is not None:
            name, direction, namespace, api, number = parts
            found.setdefault((name, namespace, api, number), {})[direction] = raw
    for (name, namespace, api, number), raws in found.items():
        name, api = map(printable_line, (name, api))
        yield Record(name, sys.intern(namespace), sys.intern(api), number, raws.get("forward"), raws.get("backward"))


def _skip_kind(entry: str, no_calls: Sequence[str] = ()) -> str:
    """The kind of an entry that describes a module and no API call ("" for any other)."""
    namespace = entry.partition(".")[0]
    if namespace not in (*MODULES, *no_calls) or namespace == entry:
        return ""
    gradients = is_of_parameters(entry) or is_of_parameters(entry.rpartition(".")[0])
    return "parameters_grad entries" if gradients else f"{namespace} entries"


def _split_name(entry: str) -> tuple[str, str, str, str, int] | None:
    """Name, direction, namespace, API and call number; only the last two parts are number and direction."""
    name, _, direction = entry.rpartition(".")
    left, _, number = name.rpartition(".")
    namespace, _, api = left.partition(".")
    if direction not in _OTHER or not namespace or not api:
        return None
    # 19 digits may be more than an int64.
    if not (number.isascii() and number.isdecimal() and len(number) < 19):
        return None
    return name, direction, namespace, api, int(number)


def _modes(header: Mapping[str, Any], notes: list[str]) -> tuple[str, ...]:
    """The device modes that our capture says were allowed, those of them that are known."""
    ours = header.get("probe")
    said = ours.get("modes", "") if isinstance(ours, dict) else ""
    names = said.split(", ") if isinstance(said, str) and said else []
    unknown = [name for name in names if not is_mode(name)]
    notes.extend(f"probe.modes: no device mode is called {quoted(name)}" for name in unknown)
    return tuple(name for name in names if is_mode(name))


def _text(header: Mapping[str, Any], key: str, default: str, notes: list[str], known: tuple[str, ...] = ()) -> str:
    value = header.get(key, default)
    if not isinstance(value, str):
        taken = f"; taken as {default}" if default else ""
        notes.append(f"{key} is {quoted(value)}, expected a string{taken}")
        return default
    if known and value not in known:
        notes.append(f"unknown {key} {value!r}, known are {', '.join(known)}" if value else f"{key} is missing")
    return value


def _data_dirs(path: Path, recorded: object, notes: list[str]) -> tuple[Path, ...]:
    """The folders of tensor files: first the one next to the dump, so that a dump can be moved, then the recorded one,
    if it is inside the dump's folder. An untrusted dump may not choose what else is read."""
    default = path.parent / TENSOR_FOLDER
    if not isinstance(recorded, str) or "\0" in recorded or not Path(recorded).is_absolute():
        # A relative path depends on where the run starts.
        return (default,)
    try:
        inside = Path(recorded).resolve().is_relative_to(path.parent.resolve())
    except (OSError, RuntimeError):  # a name too long, a loop of links
        inside = False
    if inside:
        return tuple(dict.fromkeys((default, Path(recorded))))
    if not archive.is_folder(default):
        notes.append(f"dump_data_dir {recorded!r} is outside the dump's folder, so it is not read; {_NAMED}")
    return (default,)
