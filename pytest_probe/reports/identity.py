"""What a run is: run.json's `identity`, and the one function that compares two of them.

An identity is plain data: a value a field, or a mapping of such fields. Each option is a field unless its row in the
table of options says why it changes no verdict. A baseline has in its header only what must be equal. A cache compares
no runs: the key of each reference has all that it depends on, so it has no use here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from pytest_probe.errors import SettingsError

Identity: TypeAlias = Mapping[str, Any]
Use: TypeAlias = Literal["resume", "merge", "benchmark", "baseline"]
_NONE = "none"

_OTHER_DEVICE = "a benchmark is another device, whose kernels, calls and modes are its own"
_OTHER_ENVIRONMENT = "a baseline is kept for it: what differs is shown, and bits are compared of the same only"
_SELECTION = (
    "api", "skip-api", "direction", "shard", "fuzz", "collect", "-k", "-m", "--deselect", "--lf", "--sw", "--ignore",
    "paths",
)  # fmt: skip
_OTHER_CASES = "cases on one side only are listed at the end"
_OWN_VERDICT = "the errors are compared, and not the verdicts"
_OWN_MEASURE = "times are compared where both runs have them"
# What may differ between two runs that are used together, and why. What is not here may not.
MAY_DIFFER: Mapping[Use, Mapping[str, str]] = {
    "resume": {},
    "merge": {"shard": "each folder is another shard; their numbers are checked by themselves"},
    "benchmark": {
        **dict.fromkeys(("devices", "versions", "allow", "namespaces", "calls", "devices of the user"), _OTHER_DEVICE),
        **dict.fromkeys(_SELECTION, _OTHER_CASES),
        **dict.fromkeys(
            ("standard", "standards-file", "standards", "gate", "baseline", "baseline-update",
             "benchmark", "pytest_probe_verdict"),
            _OWN_VERDICT,
        ),
        **dict.fromkeys(("mode", "time-budget", "time-limit"), _OWN_MEASURE),
        "dtype": "the ratios of errors are compared between dtypes as well",
        "repeat": "each side has the errors of its worst run",
        "emulate": "emulated 16 bit is another device",
    },
    "baseline": {
        **dict.fromkeys(("devices", "versions", "dumps", "emulate"), _OTHER_ENVIRONMENT),
        **dict.fromkeys((*_SELECTION, "unique", "dtype"), "cases are found by their ids; what did not run stays"),
        **dict.fromkeys(
            ("standards-file", "standards", "allow", "gate", "baseline", "baseline-update", "benchmark",
             "pytest_probe_verdict"),
            "metrics are compared, whatever judges them",
        ),
        **dict.fromkeys(("mode", "time-budget", "time-limit"), _OWN_MEASURE),
        **dict.fromkeys(
            ("references", "calls", "devices of the user", "readers", "namespaces", "pytest_probe_inputs", "data-dir"),
            "code and data of the project change with it, and what they change is seen as a metric that moved",
        ),
        "repeat": "the header has it, and a spread is kept with the cases",
        "flops": "a sample is one of the same outputs",
        "reference-device": "float64 references agree in the digits that are kept",
    },
}  # fmt: skip


class _Difference(Struct, frozen=True):
    field: str
    before: str
    now: str


def differences(before: Identity, now: Identity, use: Use) -> Iterator[_Difference]:
    """Each field that must be equal for this use and is not. Dumps that only one side of a benchmark has are no
    difference, since their cases are listed as cases of one side."""
    for field in dict.fromkeys((*before, *now)):
        if field not in MAY_DIFFER[use]:
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
