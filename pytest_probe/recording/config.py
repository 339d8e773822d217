"""What a capture is told: msprobe's config.json and the arguments of PrecisionDebugger, as one frozen CaptureConfig."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from pytest_probe.core.regular_file import opened
from pytest_probe.errors import SettingsError

# The words of msprobe's config.json, and `kinds`, which is ours.
TASKS = ("statistics", "tensor", "structure", "overflow_check")
LEVELS = ("L0", "L1", "mix")
SUMMARIES = ("statistics", "md5")
DATA_MODES = ("forward", "backward", "input", "output")
KINDS = ("float", "int", "bool", "scalar")

FieldReader: TypeAlias = Callable[[str, Any], Any]

# Keys of msprobe's that choose how it works, or that concern other tasks: a configuration that has them is good.
_WITHOUT_EFFECT = frozenset(
    "enable_dataloader async_dump precision risk_level dump_enable grad_probe free_benchmark nan_check diff_check "
    "load error_data_path file_format tensor_list check_mode".split()
)


@dataclass(frozen=True, slots=True)
class CaptureConfig:
    """What is recorded, and where it goes.

    scope is empty, or the first and the last name of an interval; names are parts of names of which one must occur;
    white and black are API names or globs ("Functional.linear", "softmax*"); modes which halves of a record are kept,
    kinds of which values statistics or data are kept; overflows ends an overflow_check (-1: never). namespaces are
    modules whose functions are recorded as well, by the prefix of their records.
    """

    dump_path: str
    task: str = "statistics"
    level: str = "L1"
    summary: str = "statistics"
    steps: frozenset[int] = frozenset()
    ranks: frozenset[int] = frozenset()
    scope: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    white: tuple[str, ...] = ()
    black: tuple[str, ...] = ()
    modes: frozenset[str] = frozenset(DATA_MODES)
    kinds: frozenset[str] = frozenset(KINDS)
    stacks: bool = True
    overflows: int = 1
    namespaces: tuple[tuple[str, str], ...] = ()


def configured(path: str | os.PathLike[str] | None, **given: Any) -> CaptureConfig:
    """The configuration of a file, where there is one, with what is given besides (None: not given) on top.

    Raises SettingsError, which names the file, the key and what would do.
    """
    content = {} if path is None else _content(Path(path))
    task = given.get("task") or content.get("task") or TASKS[0]
    merged = _merged(str(path), content, task)
    for key, value in given.items():
        merged.update(_read("PrecisionDebugger", key, value, _TOP | _TASK | _CHECKS))
    return _whole("PrecisionDebugger" if path is None else str(path), replace(CaptureConfig(dump_path=""), **merged))


def _content(path: Path) -> dict[str, Any]:
    try:
        with opened(path) as file:
            content = json.loads(file.read().decode("utf-8-sig"))
    except OSError as error:
        raise SettingsError(str(path), error.strerror, "give a configuration file that can be read") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(str(path), str(error), "give a JSON object, as msprobe's config.json") from None
    if not isinstance(content, dict):
        raise SettingsError(str(path), content, "give a JSON object, as msprobe's config.json")
    return content


def _merged(where: str, content: Mapping[str, Any], task: str) -> dict[str, Any]:
    """What a file says, of the tasks' sections that of this task."""
    merged: dict[str, Any] = {}
    for key, value in content.items():
        if key in _SECTIONS:
            section = _section(f"{where}: {key}", value)
            # white and black lists stand in the section of msprobe's checker, all else in that of its task.
            merged.update(section if key == task else {k: v for k, v in section.items() if k in ("white", "black")})
        elif key not in _WITHOUT_EFFECT:
            merged.update(_read(where, key, value, _TOP))
    return merged


def _whole(where: str, config: CaptureConfig) -> CaptureConfig:
    if not config.dump_path:
        raise SettingsError(f"{where}: dump_path", None, "give the folder that the dump goes to")
    if config.task == "overflow_check" and config.level != "L1":
        raise SettingsError(f"{where}: level", config.level, "an overflow_check looks at API calls: give L1")
    return config


def _section(where: str, content: Any) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise SettingsError(where, content, "give an object")
    found: dict[str, Any] = {}
    for key, value in content.items():
        if key not in _WITHOUT_EFFECT:
            found.update(_read(where, key, value, _TASK | _CHECKS))
    return found


def _read(where: str, key: str, value: Any, known: Mapping[str, tuple[str, FieldReader]]) -> dict[str, Any]:
    if key not in known:
        near = difflib.get_close_matches(key, [*known, *_SECTIONS], 1, 0.0)
        raise SettingsError(where, key, f"is no key that is known here; the nearest is {near[0]!r}")
    if value is None:
        return {}
    field, read = known[key]
    return {field: read(f"{where}: {key}", value)}


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str | os.PathLike):
        raise SettingsError(where, value, "give a string")
    return os.fspath(value)


def _flag(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise SettingsError(where, value, "give true or false")
    return value


def _one_of(known: tuple[str, ...]) -> Callable[[str, Any], str]:
    def read(where: str, value: Any) -> str:
        if value not in known:
            raise SettingsError(where, value, f"give one of {', '.join(known)}")
        return str(value)

    return read


def _some_of(known: tuple[str, ...]) -> Callable[[str, Any], frozenset[str]]:
    def read(where: str, value: Any) -> frozenset[str]:
        chosen = _texts(where, value)
        if not chosen or chosen == ("all",):
            return frozenset(known)
        return frozenset(_one_of(known)(where, item) for item in chosen)

    return read


def _modes(where: str, value: Any) -> frozenset[str]:
    """["forward"] keeps both halves of forward entries, ["input"] that half of either entry."""
    chosen = _some_of(DATA_MODES)(where, value)
    pairs = (("forward", "backward"), ("input", "output"))
    # A list that names no half, or no direction, means both.
    return chosen.union(*(pair for pair in pairs if not chosen.intersection(pair)))


def _texts(where: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise SettingsError(where, value, "give a list of strings")
    return tuple(value)


def _scope(where: str, value: Any) -> tuple[str, ...]:
    scope = _texts(where, value)
    if len(scope) not in (0, 2):
        raise SettingsError(where, value, "give the first and the last name of an interval, or an empty list")
    return scope


def _numbers(where: str, value: Any) -> frozenset[int]:
    """Integers from 0 on, and ranges as "4-6", both ends included."""
    if not isinstance(value, list | tuple):
        raise SettingsError(where, value, 'give a list of numbers and of ranges as "4-6"')
    found: set[int] = set()
    for item in value:
        if isinstance(item, int) and not isinstance(item, bool) and item >= 0:
            found.add(item)
            continue
        first, dash, last = item.partition("-") if isinstance(item, str) else ("", "", "")
        whole = first.isdecimal() and (last.isdecimal() if dash else True)
        if not whole or (dash and int(first) > int(last)):
            raise SettingsError(where, item, 'give numbers from 0 on, or ranges as "4-6"')
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _overflows(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or (value < 1 and value != -1):
        raise SettingsError(where, value, "give a number from 1 on, or -1 to go on for ever")
    return value


def _spaces(where: str, value: Any) -> tuple[tuple[str, str], ...]:
    """A mapping, or a list of torch.ops' namespaces as msprobe's, which are recorded anyway."""
    if isinstance(value, Mapping):
        return tuple((_text(where, prefix), _text(where, module)) for prefix, module in value.items())
    _texts(where, value)
    return ()


# By key of a configuration: our field and what reads it. At the top, in a task's section, in that of msprobe's checker.
_TOP: dict[str, tuple[str, FieldReader]] = {
    "task": ("task", _one_of(TASKS)),
    "dump_path": ("dump_path", _text),
    "level": ("level", _one_of(LEVELS)),
    "step": ("steps", _numbers),
    "rank": ("ranks", _numbers),
    "extra_info": ("stacks", _flag),
    "kinds": ("kinds", _some_of(KINDS)),
    "namespaces": ("namespaces", _spaces),
    "custom_op_namespaces": ("namespaces", _spaces),
}
_TASK: dict[str, tuple[str, FieldReader]] = {
    "scope": ("scope", _scope),
    "list": ("names", _texts),
    "data_mode": ("modes", _modes),
    "summary_mode": ("summary", _one_of(SUMMARIES)),
    "overflow_nums": ("overflows", _overflows),
}
_CHECKS: dict[str, tuple[str, FieldReader]] = {
    "white_list": ("white", _texts),
    "black_list": ("black", _texts),
}
_SECTIONS = (*TASKS, "run_ut", "acc_check")
