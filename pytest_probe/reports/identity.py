"""What a run is: run.json's `identity`, and the one function that compares two of them.

An identity is plain data: a value a field, or a mapping of such fields. Each option is a field unless its row in the
table of options says why it changes no verdict; the row says where it may differ, too. A baseline has in its header
only what must be equal. A cache compares no runs: the key of each reference has all that it depends on, so it has no
use here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from pytest_probe.errors import SettingsError
from pytest_probe.options import JUDGES, OPTIONS, OTHER_DEVICE, OTHER_ENVIRONMENT, PROJECT, SELECTS

Identity: TypeAlias = Mapping[str, Any]
Use: TypeAlias = Literal["resume", "merge", "benchmark", "baseline"]
_NONE = "none"

_PYTEST = ("-k", "-m", "--deselect", "--lf", "--sw", "--ignore", "paths")
# What may differ between two runs that are used together, by the use, and why. What is not here may not.
MAY_DIFFER: Mapping[str, Mapping[str, str]] = {
    **{option.by or option.name: option.may_differ for option in OPTIONS},
    **dict.fromkeys(_PYTEST, SELECTS),
    **dict.fromkeys(("standards", "pytest_probe_verdict"), JUDGES),
    **dict.fromkeys(("calls", "devices of the user"), OTHER_DEVICE | PROJECT),
    **dict.fromkeys(("references", "readers", "pytest_probe_inputs"), PROJECT),
    "versions": OTHER_DEVICE | OTHER_ENVIRONMENT,
}


class _Difference(Struct, frozen=True):
    field: str
    before: str
    now: str


def differences(before: Identity, now: Identity, use: Use) -> Iterator[_Difference]:
    """Each field that must be equal for this use and is not. Dumps that only one side of a benchmark has are no
    difference, since their cases are listed as cases of one side."""
    for field in dict.fromkeys((*before, *now)):
        if use not in MAY_DIFFER.get(field, {}):
            common = use == "benchmark" and field == "dumps"
            yield from _differing(field, before.get(field), now.get(field), common=common)


def _differing(field: str, before: Any, now: Any, *, common: bool = False) -> Iterator[_Difference]:
    if before == now:
        return
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys((*before, *now)):
            if not common or (name in before and name in now):
                yield from _differing(
                    name if field == "devices" else f"{field} {name}", before.get(name), now.get(name)
                )
    else:
        yield _Difference(field, _text(before), _text(now))


def _text(value: object) -> str:
    if value is None or value == []:
        return _NONE
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items()) or _NONE
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def check(option: str, folder: str, before: Identity, now: Identity, use: Use, advice: str) -> None:
    """Raises SettingsError, which names the first field that differs and both its values."""
    for found in differences(before, now, use):
        told = f"its run has {found.field} {found.before}, this run has {found.now}"
        raise SettingsError(option, folder, f"{told}; {advice}")
