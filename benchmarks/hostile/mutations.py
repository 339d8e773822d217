"""Dumps made hostile, drawn by hypothesis: bytes, JSON values, names, and the files of stored tensors."""

from __future__ import annotations

import copy
import io
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from hypothesis import strategies as st
from msgspec import Struct, field

from benchmarks.hostile.bases import Base, Tree
from benchmarks.hostile.words import (
    AGAIN,
    ENDINGS,
    FIELDS,
    anything,
    api_names,
    as_json,
    file_names,
    texts,
)

LEVELS = ("bytes", "values", "names", "files")
# What users add on the command line; most add nothing.
ARGUMENTS = (
    *[()] * 6,
    ("--probe-device=recorded",),
    ("--probe-save=all",),
    ("--probe-dtype=bfloat16",),
    ("--probe-standard=msprobe",),
    ("--probe-inputs=generated",),
    ("--probe-repeat=2", "-v"),
    ("--junitxml=out/junit.xml", "-rA"),
)
SNIPPETS = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"\\u",
    b"\\ud800",
    b"\xff",
    b"\xfe\xff",
    b"\xef\xbb\xbf",
    b"\0",
    b"\n",
    b"NaN",
    b"-Infinity",
    b"//x\n",
    b"'",
    b"1e999",
    b"-",
    b"0" * 400,
    b"[" * 5000,
    b'{"a":' * 5000,
    b'"' * 3001,
    b'"data": {',
    b"\x1b[31m",
    b" " * 5000,
]
# What takes the place of a tensor's file.
SPECIAL = ("FIFO", "folder", "link to outside", "link to itself", "link to /dev/zero", "empty")


class HostileDump(Struct, frozen=True):
    """Files by their names in the dump's folder, what special files to make there, and what was done, in words."""

    base: str
    level: str
    arguments: tuple[str, ...]
    words: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    special: Mapping[str, str] = field(default_factory=dict)


class Change(Struct):
    """A dump as it is being changed."""

    draw: st.DrawFn
    dump: Tree
    stack: Tree
    files: dict[str, bytes]
    special: dict[str, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    framework: str = "torch"

    @property
    def data(self) -> Any:
        """The entries; what a change put in their place, maybe."""
        return self.dump["data"] if self.framework == "torch" else self.dump

    def put(self, data: Tree) -> None:
        """Other entries."""
        if self.framework == "torch":
            self.dump["data"] = data
        else:
            self.dump = data

    def choose(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def below(self, end: int) -> int:
        return self.draw(st.integers(0, max(end - 1, 0)))

    def say(self, words: str) -> None:
        self.words.append(words if len(words) < 200 else f"{words[:200]}... ({len(words)} characters)")


@st.composite
def hostile_dumps(draw: st.DrawFn, bases: Sequence[Base]) -> HostileDump:
    level = draw(st.sampled_from(LEVELS))
    base = draw(st.sampled_from([base for base in bases if level != "files" or base.tensors]))
    calls = draw(st.lists(st.sampled_from(sorted(base.calls)), min_size=1, max_size=3, unique=True))
    change = Change(draw, *base.cut(calls), framework=base.framework)
    rounds = draw(st.integers(1, 3))
    if level != "bytes":
        for _ in range(rounds):
            MUTATORS[level](change)
    texts = {"dump.json": as_json(change.dump), "stack.json": as_json(change.stack)}
    if level == "bytes":
        for _ in range(rounds):
            name = change.choose(["dump.json"] * 3 + ["stack.json"])
            texts[name] = _changed_bytes(change, name, texts[name])
    files = texts | {f"{base.folder}{name}": held for name, held in change.files.items()}
    arguments = draw(st.sampled_from(ARGUMENTS))
    special = {f"{base.folder}{name}": kind for name, kind in change.special.items()}
    return HostileDump(base.name, level, arguments, tuple(change.words), files, special)


def _changed_bytes(change: Change, name: str, held: bytes) -> bytes:
    """The bytes of a file with one thing done to them."""
    at, span = change.below(len(held)), change.below(80) + 1
    kind = change.choose(["flip", "delete", "insert", "copy", "truncate", "overwrite", "move"])
    change.say(f"{name}: {kind} at {at} of {len(held)}, {span}")
    if kind == "truncate":
        return held[:at]
    if kind == "delete":
        return held[:at] + held[at + span :]
    if kind == "flip" and held:
        return held[:at] + bytes([held[at] ^ (change.below(255) + 1)]) + held[at + 1 :]
    if kind in ("copy", "move"):
        to = change.below(len(held))
        rest = held if kind == "copy" else held[:at] + held[at + span :]
        return rest[:to] + held[at : at + span] + rest[to:]
    new = change.draw(st.one_of(st.sampled_from(SNIPPETS), st.binary(max_size=8)))
    change.say(f"{name}: {new!r}")
    return held[:at] + new + held[at + (len(new) if kind == "overwrite" else 0) :]


Place: TypeAlias = "tuple[Any, Any, str]"  # a container, the key in it, and the path in words


def _places(tree: Any, path: str = "") -> Iterator[Place]:
    """Everything in a tree that can be replaced."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        yield tree, key, f"{path}/{key}"
        yield from _places(value, f"{path}/{key}")


def _change_value(change: Change) -> None:
    where = change.choose([change.data] * 6 + [change.dump, change.stack])
    places = list(_places(where))
    if not places:
        return
    container, key, path = change.choose(places)
    strategy = FIELDS.get(key, anything) if isinstance(key, str) and change.below(4) else anything
    new = change.draw(strategy)
    change.say(f"{path} = {new!r}")
    container[key] = copy.deepcopy(new)  # the strategies give the same lists again and again


def _change_name(change: Change) -> None:
    data = change.data
    if not data:
        return
    name = change.choose(list(data))
    kind = change.choose(["api", "api", "api", "ending", "field", "again", "swap"])
    if kind == "api":
        _rename(change, name, f"{change.draw(api_names(change.framework))}{_parts(name)[1]}")
    elif kind == "ending":
        _rename(change, name, f"{_parts(name)[0]}{change.choose(ENDINGS[change.framework])}")
    elif kind == "field":
        containers = [place for place in _places(data) if isinstance(place[0], dict) and place[0] is not data]
        if containers:
            _rename_field(change, *change.choose(containers))
    elif kind == "again":
        other = change.choose(list(data))
        change.say(f"{name} again, as {other}")
        data[name + AGAIN] = data[other]
    else:
        _swap(change, name, change.choose(list(data)))


def _parts(name: str) -> tuple[str, str]:
    """The API, and what stands behind it: ".0.forward", "*0"."""
    if "*" in name:
        api, _, number = name.rpartition("*")
        return api, f"*{number}"
    api, *rest = name.rsplit(".", 2)
    return api, "".join(f".{part}" for part in rest)


def _rename(change: Change, old: str, new: str) -> None:
    """All entries of the call where the new name leads, so that a backward follows its forward."""
    data = change.data
    if "*" in old:
        change.say(f"{old} -> {new}")
        change.put({new if name == old else name: value for name, value in data.items()})
        return
    call, renamed = old.rpartition(".")[0], new.rpartition(".")[0]
    pairs = [(name, name.replace(call, renamed) if name.startswith(f"{call}.") else name) for name in data]
    if old.rpartition(".")[2] != new.rpartition(".")[2]:
        pairs = [(name, new if name == old else name) for name in data]
    change.say(f"{old} -> {new}")
    change.put({renamed: data[name] for name, renamed in pairs})


def _rename_field(change: Change, container: dict[str, Any], key: str, path: str) -> None:
    known = [
        "input_args",
        "input_kwargs",
        "args",
        "kwargs",
        "output",
        "input",
        "type",
        "value",
        "shape",
        "dtype",
        "data_name",
        "real_data_path",
        "dout_list",
        "stop_gradient",
        "out",
        "self",
    ]
    new = change.draw(st.one_of(st.sampled_from(known), texts, st.just(key + AGAIN)))
    change.say(f"key {path} -> {new!r}")
    container[new] = container[key]
    if not new.endswith(AGAIN):
        container.pop(key) if new != key else None


def _swap(change: Change, one: str, other: str) -> None:
    data = change.data
    first, second = data[one], data[other]
    shared = sorted(set(first) & set(second)) if isinstance(first, dict) and isinstance(second, dict) else []
    key = change.choose([*shared, ""])
    change.say(f"{one} <-> {other}, {key or 'whole'}")
    if key:
        first[key], second[key] = second[key], first[key]
    else:
        data[one], data[other] = second, first


def _change_file(change: Change) -> None:
    """A stored tensor: its bytes, what lies inside the archive, what takes its place, or the name that leads to it."""
    path = "data_name" if change.framework == "torch" else "real_data_path"
    specs = [place[0] for place in _places(change.data) if place[1] == path]
    names = sorted(set(change.files) - set(change.special))
    if not names or not specs:
        return
    kind, name = (
        change.choose(["bytes", "archive", "archive", "special", "name", "folder", "npy", "pickle", "other"]),
        change.choose(names),
    )
    if kind == "bytes":
        change.files[name] = _changed_bytes(change, name, change.files[name])
    elif kind == "archive":
        change.files[name] = _changed_archive(change, name, change.files[name])
    elif kind == "special":
        change.special[name] = change.choose(SPECIAL)
        change.say(f"{name} is {change.special[name]}")
        del change.files[name]
    elif kind == "folder":
        change.dump["dump_data_dir"] = change.draw(FIELDS["dump_data_dir"])
        change.say(f"dump_data_dir = {change.dump['dump_data_dir']!r}")
    elif kind == "other":
        other = change.choose(names)
        change.say(f"{name} holds {other}")
        change.files[name] = change.files[other]
    else:
        _changed_name(change, kind, change.choose(specs), path)


def _changed_name(change: Change, kind: str, spec: dict[str, Any], path: str) -> None:
    if kind == "name":
        spec[path] = change.draw(file_names)
    else:
        spec[path] = change.choose(["x.npy", "x.pt", "x"])
        change.files[spec[path]] = _npy(change) if kind == "npy" else _evil(change)
    change.say(f"{path} = {spec[path]!r}")


class _Command:
    """What a full unpickler would run."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        import os

        return os.system, ("touch ../outside/written",)


def _evil(change: Change) -> bytes:
    """A pickle that runs a command: bare, and as the archive that torch.save writes."""
    held = pickle.dumps(_Command(), protocol=change.choose([0, 2, 4]))
    if change.below(2):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("x/data.pkl", held)
            archive.writestr("x/version", b"3\n")
        held = buffer.getvalue()
    change.say(f"a pickle that runs a command, {held[:20]!r}")
    return held


def _npy(change: Change) -> bytes:
    dtype = change.choose(["<f4", "|O", "<f8", "|V2", "<U99999999", "[('a', '<f4')]", "|S0", "<m8"])
    shape = tuple(
        change.draw(st.lists(st.one_of(st.integers(0, 4), st.sampled_from([2**31, 2**62, 2**64, -1])), max_size=3))
    )
    header = (
        f"{{'descr': {dtype!r}, 'fortran_order': {change.choose(['False', 'True', '__import__'])}, 'shape': {shape}, }}"
    )
    change.say(f"npy {header}")
    text = header.encode() + b" " * 3 + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + change.draw(st.binary(max_size=64))


def _changed_archive(change: Change, name: str, held: bytes) -> bytes:
    """Bytes of one member changed, with its checksum right: past the check that damage would not pass."""
    buffer = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(held)) as old, zipfile.ZipFile(buffer, "w") as new:
            members = {member: old.read(member) for member in old.namelist()}
            chosen = change.choose([member for member in members if member.endswith("data.pkl")] * 4 + sorted(members))
            members[chosen] = _changed_bytes(change, f"{name}!{chosen}", members[chosen])
            for member, content in members.items():
                new.writestr(member, content)
    except Exception:  # an archive that an earlier change damaged
        return held
    return buffer.getvalue()


MUTATORS: Mapping[str, Callable[[Change], None]] = {
    "values": _change_value,
    "names": _change_name,
    "files": _change_file,
}
