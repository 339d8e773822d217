"""The configuration of a capture: msprobe's config.json and the arguments of PrecisionDebugger, as one CaptureConfig.

Keys of msprobe's that have no effect here are named in a warning; one that asks for a feature of msprobe's that a
capture does not have is an error that says what to use instead.
"""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypedDict, get_args

from msgspec import Meta, Struct, defstruct, field
from msgspec.structs import asdict, fields

from pytest_probe.capture.online.address import NEEDS_TLS, WANTED, Address, HostPort, address, of_msprobe
from pytest_probe.errors import SettingsError
from pytest_probe.system.decoding import WrongField, decode
from pytest_probe.system.files import open_regular

# The words of msprobe's config.json, and `kinds`, which is ours.
Task: TypeAlias = Literal["statistics", "tensor", "structure", "overflow_check"]
Mode: TypeAlias = Literal["forward", "backward", "input", "output"]
Compiled: TypeAlias = Literal["as-is", "eager"]
Policy: TypeAlias = Literal["block", "sample", "drop"]
Kind: TypeAlias = Literal["float", "int", "bool", "scalar"]
Names: TypeAlias = Sequence[str] | None


class Options(TypedDict, total=False):
    """The keys of a configuration that have no parameter of their own; None: not said."""

    scope: Names
    list: Names
    data_mode: Sequence[Mode | Literal["all"]] | None
    summary_mode: Literal["statistics", "md5"] | None
    overflow_nums: int | None
    white_list: Names
    black_list: Names
    rank: Sequence[int | str] | None
    rank_folder: int | None
    extra_info: bool | None
    kinds: Sequence[Kind | Literal["all"]] | None
    overwrite: bool | None
    layout: Literal["msprobe", "paddleapex"] | None
    namespaces: Mapping[str, str] | None
    compiled: Compiled | None
    seed: int | None
    is_deterministic: bool | None
    # Where calls are sent, in our words and in msprobe's.
    online: str | None
    online_policy: Policy | None
    online_buffer: int | None
    tls_path: str | os.PathLike[str] | None
    online_run_ut: bool | None
    nfs_path: str | os.PathLike[str] | None
    host: str | None
    port: int | None
    # Of task free_benchmark.
    fuzz_stage: Literal["forward", "backward"]
    pert_mode: Literal["improve_precision", "add_noise", "bit_noise", "no_change", "change_value", "to_cpu"]
    fuzz_device: Literal["npu", "cpu"]
    fuzz_level: Literal["L1"]
    handler_type: Literal["check", "fix"]
    if_preheat: bool
    preheat_step: int
    max_sample: int
    sample: int


class AllOptions(Options, total=False):
    """Those of `capture`: these, and what PrecisionDebugger has as parameters besides the folder."""

    config_path: str | os.PathLike[str] | None
    task: str | None
    level: str | None
    model: Any
    step: Sequence[int | str] | None
    framework: str


_log = logging.getLogger("pytest_probe")
# The task that asks calls of a running program.
FREE_BENCHMARK = "free_benchmark"

# They choose how msprobe works, concern its other tasks, or ask for what is recorded anyway.
_WITHOUT_EFFECT = frozenset(
    "acl_config async_dump backward_input bench_path check_mode custom_api custom_op_namespaces diff_check "
    "diff_nums dump_enable enable_dataloader error_data_path file_format free_benchmark grad_probe is_benchmark_log "
    "is_online jit load nan_check precision rank_list request_id risk_level slice tensor_list".split()
)
_RECORD = "record with task statistics, then check with pytest --probe-dump=DUMP"
_LISTS = "check a dump with pytest --probe-dump=DUMP --probe-standards-file=FILE, this file for its lists"
# Features of msprobe's by key and value: what each is, and what does most of it here.
_FEATURES: Mapping[tuple[str, str | bool], tuple[str, str]] = {
    ("task", FREE_BENCHMARK): (
        "msprobe's free benchmarking, which perturbs the calls of a running program",
        f'PrecisionDebugger(task="free_benchmark") in the program asks them; or {_RECORD}',
    ),
    ("task", "grad_probe"): (
        "msprobe's gradient monitor",
        "level L0 or mix with a model records the gradients of its parameters",
    ),
    ("task", "run_ut"): ("msprobe's accuracy checker", _LISTS),
    ("task", "acc_check"): ("msprobe's accuracy checker", _LISTS),
    ("task", "nan_check"): ("msprobe's search for the first NaN", "task overflow_check records calls with NaN or inf"),
    ("task", "diff_check"): ("msprobe's comparison of a running program with a dump", _RECORD),
    ("task", "exception_dump"): ("msprobe's dump of AI Core exceptions", _RECORD),
    ("level", "L2"): ("msprobe's dump of Ascend kernels", "level L1 records the API calls that start them"),
    ("level", "debug"): ("msprobe's debugger.save", "levels L0, L1 and mix record calls"),
    ("summary_mode", "xor"): ("msprobe's XOR checksum", "summary_mode md5 records a checksum as well"),
    ("jit", True): (
        "a dump of the kernels of compiled functions",
        "run the program without jit, where level L1 records its API calls",
    ),
}
TASKS: tuple[Task, ...] = get_args(Task)
_COMPILED: tuple[Compiled, ...] = get_args(Compiled)
_DATA_MODES: tuple[Mode, ...] = get_args(Mode)
_KINDS: tuple[Kind, ...] = get_args(Kind)
# msprobe's keys of its online check.
_ONLINE = ("online_run_ut", "nfs_path", "host", "port", "tls_path")
# Sections of the tasks, and two of msprobe's checker.
_SECTIONS = (*TASKS, "run_ut", "acc_check")
# None: not said.
_Text: TypeAlias = Annotated[str | None, Meta(description="give a string")]
SeedGiven: TypeAlias = Annotated[
    Annotated[int, Meta(ge=0, lt=2**32)] | None, Meta(description="give a whole number from 0 to 2**32 - 1")
]
YesOrNo: TypeAlias = Annotated[bool | None, Meta(description="give true or false")]
_Texts: TypeAlias = Annotated[tuple[str, ...] | None, Meta(description="give a list of strings")]
_Numbers: TypeAlias = Annotated[
    tuple[Annotated[int, Meta(ge=0)] | Annotated[str, Meta(pattern=r"^\d{1,9}(-\d{1,9})?$")], ...] | None,
    Meta(description='give a list of numbers, 0 or more, and of ranges as "4-6"'),
]


def keys_with_effect(content: Mapping[str, Any], sections: tuple[str, ...], where: str) -> dict[str, Any]:
    """The content without the keys that have no effect, in its sections too; they are said once in a process.

    Raises SettingsError for a feature that a capture does not have, which it names.
    """
    parts = {name: part for name, part in content.items() if name in sections and isinstance(part, dict)}
    unused: list[str] = []
    kept = dict(_keys_with_effect(content, where, "", unused))
    for name, part in parts.items():
        kept[name] = dict(_keys_with_effect(part, where, f"{name}.", unused))
    if unused:
        _say(f"pytest-probe: {where}: these keys have no effect here: {', '.join(unused)}")
    return kept


def _keys_with_effect(
    content: Mapping[str, Any], where: str, section: str, unused: list[str]
) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        # msprobe's `jit` is an object or a bool: each but an empty one asks for kernels.
        known = bool(value) if key == "jit" else value
        if isinstance(known, str | bool) and (feature := _FEATURES.get((key, known))):
            what, instead = feature
            wanted = f"it is {what}, and a recording does not have it; {instead}"
            raise SettingsError(f"{where}: {section.replace('.', ': ')}{key}", value, wanted)
        if key in _WITHOUT_EFFECT:
            unused.append(f"{section}{key}")
        else:
            yield key, value


@functools.cache
def _say(message: str) -> None:
    _log.warning(message)


class ApexOptions(Struct, frozen=True):
    """How files of PaddleAPEX's are written: unique, without equal calls, ranges rounded to powers of ten; split, with
    calls in 16 bit and others in files of their own as well; and copied to the folder remote, where there is one."""

    unique: bool = False
    split: bool = True
    remote: str = ""


class CaptureConfig(Struct, frozen=True):
    """What is recorded, and where it goes.

    scope is empty, or the first and the last name of an interval; names are parts of names of which one must occur;
    white and black are API names or globs ("Functional.linear", "softmax*"); modes which halves of a record are kept,
    kinds of which values statistics or data are kept; overflows ends an overflow_check (-1: never). namespaces are
    modules whose functions are recorded as well, by the prefix of their records. With seed or deterministic everything
    that draws is seeded when the debugger is made, as msprobe 1.0 does it. overwrite: an earlier dump in the folder is
    removed. rank is the number of this process among the processes that train together, None: as its starter says it.
    layout is whose files are written, apex how PaddleAPEX's files are. targets are the functions to record, by their
    paths ("paddle.add"); None: all that the framework has. compiled functions run "as-is", and what they call is not
    seen, or "eager" while something is recorded. online is where calls go to be checked, in place of dump_path; policy
    what happens where there is no room for more, of buffer bytes; tls is the folder of the certificates.
    """

    dump_path: str
    task: str = "statistics"
    level: str = "L1"
    summary: str = "statistics"
    steps: tuple[range, ...] = ()
    ranks: tuple[range, ...] = ()
    scope: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    white: tuple[str, ...] = ()
    black: tuple[str, ...] = ()
    modes: frozenset[str] = frozenset(_DATA_MODES)
    kinds: frozenset[str] = frozenset(_KINDS)
    stacks: bool = True
    overflows: int = 1
    namespaces: tuple[tuple[str, str], ...] = ()
    seed: int | None = None
    deterministic: bool | None = None
    overwrite: bool = False
    rank: int | None = None
    layout: str = "msprobe"
    apex: ApexOptions = ApexOptions()
    targets: tuple[str, ...] | None = None
    compiled: str = _COMPILED[0]
    online: Address | None = None
    policy: Policy = "block"
    buffer: int = 1 << 30
    tls: str = ""


class _Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Fields are named as CaptureConfig's, keys as msprobe's."""

    def __post_init__(self) -> None:
        for name, fits in _FITS.items():
            value = getattr(self, name, None)
            if value is not None and not fits(value):
                raise WrongField(name)


class _Section(_Settings, frozen=True):
    """The keys of one task."""

    scope: Annotated[
        tuple[str, ...] | None, Meta(description="give the first and the last name of an interval, or an empty list")
    ] = None
    names: _Texts = field(default=None, name="list")
    modes: Annotated[
        tuple[Mode | Literal["all"], ...] | None,
        Meta(description=f"give a list of {', '.join(_DATA_MODES)}, or of all"),
    ] = field(default=None, name="data_mode")
    summary: Literal["statistics", "md5"] | None = field(default=None, name="summary_mode")
    overflows: Annotated[
        Annotated[int, Meta(ge=-1)] | None, Meta(description="give a number from 1 on, or -1 for no limit")
    ] = field(default=None, name="overflow_nums")
    white: _Texts = field(default=None, name="white_list")
    black: _Texts = field(default=None, name="black_list")


class _Top(_Settings, frozen=True):
    """The keys for all tasks."""

    task: Task | None = None
    dump_path: _Text = None
    level: Literal["L0", "L1", "mix"] | None = None
    steps: _Numbers = field(default=None, name="step")
    ranks: _Numbers = field(default=None, name="rank")
    rank: Annotated[Annotated[int, Meta(ge=0)] | None, Meta(description="give this process's number, 0 or more")] = (
        field(default=None, name="rank_folder")
    )
    stacks: Annotated[bool | None, Meta(description="give true or false")] = field(default=None, name="extra_info")
    kinds: Annotated[
        tuple[Kind | Literal["all"], ...] | None, Meta(description=f"give a list of {', '.join(_KINDS)}, or of all")
    ] = None
    overwrite: Annotated[bool | None, Meta(description="give true or false")] = None
    layout: Literal["msprobe", "paddleapex"] | None = None
    namespaces: Annotated[
        dict[str, str] | None, Meta(description='give an object of modules by prefix, as {"Flash": "flash_attn_cuda"}')
    ] = None
    compiled: Compiled | None = None
    online: Annotated[str | None, Meta(description=WANTED)] = None
    policy: Policy | None = field(default=None, name="online_policy")
    buffer: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="give a number of bytes")] = field(
        default=None, name="online_buffer"
    )
    tls: _Text = field(default=None, name="tls_path")
    seed: SeedGiven = None
    deterministic: YesOrNo = field(default=None, name="is_deterministic")


class _File(_Top, frozen=True):
    statistics: _Section = field(default_factory=_Section)
    tensor: _Section = field(default_factory=_Section)
    structure: _Section = field(default_factory=_Section)
    overflow_check: _Section = field(default_factory=_Section)
    run_ut: _Section = field(default_factory=_Section)
    acc_check: _Section = field(default_factory=_Section)


# Arguments need no section. A Struct has one base that has fields.
ARGUMENTS = defstruct(
    "_Arguments",
    [(each.name, each.type, field(default=None, name=each.encode_name)) for each in fields(_Top)],
    bases=(_Section,),
    frozen=True,
)


def read_config(path: str | os.PathLike[str] | None, **given: Any) -> CaptureConfig:
    """The configuration of a file, where there is one, with what is given besides (None: not given) on top.

    Raises SettingsError, which names the file, the key and what would do.
    """
    where = "PrecisionDebugger" if path is None else str(path)
    file = _File()
    if path is not None:
        content = content_of(Path(path))
        parts = (part for part in (content, content.get("tensor")) if isinstance(part, dict))
        asked = [_online(part, where) for part in parts]
        kept = keys_with_effect(content, _SECTIONS, where)
        file = decode(
            {**kept, **{key: value for each in asked for key, value in each.items()}}, _File, lambda steps: where
        )
    plain = {key: os.fspath(value) if isinstance(value, os.PathLike) else value for key, value in given.items()}
    online = _online(plain, "PrecisionDebugger")
    own = {**keys_with_effect(plain, (), "PrecisionDebugger"), **online}
    arguments = asdict(decode(own, ARGUMENTS, lambda steps: "PrecisionDebugger"))
    # The checker's lists hold where the task has none.
    checker = {name: getattr(file.run_ut, name) or getattr(file.acc_check, name) for name in ("white", "black")}
    top = {name: getattr(file, name) for name in _Top.__struct_fields__}
    section = asdict(getattr(file, arguments["task"] or file.task or TASKS[0]))
    merged: dict[str, Any] = {"dump_path": ""}
    for layer in (checker, top, section, arguments):
        merged.update((name, value) for name, value in layer.items() if value is not None)
    made = {name: _MADE[name](value) if name in _MADE else value for name, value in merged.items()}
    return _whole(where, CaptureConfig(**made))


def asks_itself(path: str | os.PathLike[str] | None, **given: Any) -> dict[str, Any] | None:
    """What a configuration says for task free_benchmark, which records nothing but suspicious calls; None for another
    task. Raises SettingsError where the file cannot be read."""
    content = {} if path is None else content_of(Path(path))
    plain = {key: os.fspath(value) if isinstance(value, os.PathLike) else value for key, value in given.items()}
    if (plain.get("task") or content.get("task")) != FREE_BENCHMARK:
        return None
    section = content.get(FREE_BENCHMARK)
    if unused := [key for key in ("rank", "step") if content.get(key)]:
        _say(f"pytest-probe: {path}: these keys have no effect here: {', '.join(unused)}")
    top = {key: content[key] for key in ("task", "dump_path", "level", "seed", "is_deterministic") if key in content}
    return {**top, **(section if isinstance(section, dict) else {}), **plain}


def _online(part: dict[str, Any], where: str) -> dict[str, Any]:
    """Take msprobe's keys of its online check out of a file, or of its section tensor, as keys of ours."""
    asked, folder, host, port, tls = (part.pop(key, None) for key in _ONLINE)
    # Of online as well, which may be given elsewhere.
    certificates = {} if tls is None else {"tls_path": tls}
    if not asked:
        return certificates
    if not folder and not (host and isinstance(port, int) and port > 0):
        wanted = "give the checking host as well: nfs_path, or host and port"
        raise SettingsError(f"{where}: online_run_ut", asked, wanted)
    return {"online": of_msprobe(folder, host, port), **certificates}


def content_of(path: Path) -> dict[str, Any]:
    """A configuration file's. Raises SettingsError."""
    try:
        with open_regular(path) as file:
            content = json.loads(file.read().decode("utf-8-sig"))
    except OSError as error:
        raise SettingsError(str(path), error.strerror, "give a configuration file that can be read") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(str(path), str(error), "give a JSON object, as msprobe's config.json") from None
    if not isinstance(content, dict):
        raise SettingsError(str(path), content, "give a JSON object, as msprobe's config.json")
    return content


def _whole(where: str, config: CaptureConfig) -> CaptureConfig:
    if config.online is not None:
        for key, value in {"task": "tensor", "level": "L1", "layout": "msprobe"}.items():
            if (found := getattr(config, key)) != value:
                raise SettingsError(f"{where}: {key}", found, f"online sends whole calls; give {key} {value}")
        if isinstance(config.online, HostPort) and not config.tls and not config.online.is_loopback:
            raise SettingsError(f"{where}: online", str(config.online), f"{NEEDS_TLS}: tls_path")
        return config
    if not config.dump_path:
        raise SettingsError(f"{where}: dump_path", None, "give the folder that the dump goes to")
    if config.task == "overflow_check" and config.level != "L1":
        raise SettingsError(f"{where}: level", config.level, "overflow_check records API calls only; give level L1")
    if config.layout == "paddleapex" and config.level != "L1":
        raise SettingsError(f"{where}: level", config.level, "PaddleAPEX's files hold API calls only; give level L1")
    return config


def _range(number: int | str) -> range:
    """An integer, or a range as "4-6", both ends included."""
    first, _, last = str(number).partition("-")
    return range(int(first), int(last or first) + 1)


def _ranges(numbers: tuple[int | str, ...]) -> tuple[range, ...]:
    return tuple(map(_range, numbers))


def _modes(chosen: tuple[str, ...]) -> frozenset[str]:
    """["forward"] keeps both halves of forward entries, ["input"] that half of either entry."""
    if "all" in chosen:
        return frozenset(_DATA_MODES)
    pairs = (("forward", "backward"), ("input", "output"))
    # A list that names no half, or no direction, means both.
    return frozenset(chosen).union(*(pair for pair in pairs if not set(pair).intersection(chosen)))


# Checks of fields, by name, that a type cannot express.
_FITS: Mapping[str, Callable[[Any], bool]] = {
    "scope": lambda names: len(names) in (0, 2),
    "overflows": lambda count: count != 0,
    "steps": lambda numbers: all(map(_range, numbers)),
    "ranks": lambda numbers: all(map(_range, numbers)),
    "online": lambda text: address(text) is not None,
}
_MADE: Mapping[str, Callable[[Any], Any]] = {
    "steps": _ranges,
    "ranks": _ranges,
    "modes": _modes,
    "kinds": lambda chosen: frozenset(_KINDS if not chosen or "all" in chosen else chosen),
    "namespaces": lambda modules: tuple(modules.items()),
    "online": address,
}
