"""The runs of two baselines side by side: may they be compared, and may their bits?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

from msgspec import Struct

from pytest_probe.errors import SettingsError
from pytest_probe.features.gate.baseline import OPTION, Header
from pytest_probe.reports.identity import Identity
from pytest_probe.reports.identity import differences as unequal

# What makes another device, whose bits are its own.
DEVICE = ("framework", "device", "hardware", "threads", "emulated")


class Comparable(Struct, frozen=True):
    """Whose bits can be compared: those of the same device on the same inputs. others: labels of dumps that are other
    files than the baseline's."""

    same_device: bool = True
    others: frozenset[str] = frozenset()

    def of(self, label: str) -> bool:
        return self.same_device and label not in self.others


def check(path: Path, before: Header, now: Identity) -> None:
    """Are both of the same inputs, and judged alike? Raises SettingsError."""
    for found in unequal(before.identity, now, "baseline"):
        told = f"it has {found.field} {found.before}, this run has {found.field} {found.now}"
        advice = f"give --probe-{found.field}={found.before}, or remove the file and write a new one"
        raise SettingsError(OPTION, str(path), f"{told}; {advice}")


def comparable(before: Header, now: Header) -> Comparable:
    """What of two runs has the same bits where nothing changed."""
    same = {_identity(device) for device in before.devices} == {_identity(device) for device in now.devices}
    others = (label for label, digest in now.dumps.items() if before.dumps.get(label, digest) != digest)
    same_inputs = (before.seed, before.inputs) == (now.seed, now.inputs)
    return Comparable(same and same_inputs, frozenset(others))


def _identity(device: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(device.get(name, "") for name in DEVICE)


def differences(before: Header, now: Header) -> list[str]:
    """What of the environment differs, as "torch 2.12.0 (now 2.13.0)"."""
    return list(dict.fromkeys(_differences(before, now)))


def _differences(before: Header, now: Header) -> Iterator[str]:
    for name in sorted(before.versions.keys() | now.versions.keys()):
        yield from _differing(name, before.versions, now.versions)
    for old, new in zip_longest(before.devices, now.devices, fillvalue=None):
        if old is None or new is None:
            yield f"{len(before.devices)} devices (now {len(now.devices)})"
            return
        if old.get("framework") == new.get("framework"):
            # The framework's version is called by its name.
            old, new = _named(old), _named(new)
        for name in dict.fromkeys((*old, *new)):
            yield from _differing(name, old, new)


def _named(device: Mapping[str, str]) -> dict[str, str]:
    return {device["framework"] if key == "version" else key: value for key, value in device.items()}


def _differing(name: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    if old.get(name) != new.get(name):
        yield f"{name} {old.get(name, 'unknown')} (now {new.get(name, 'unknown')})"
