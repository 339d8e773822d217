"""What the page says of a run as a whole, in tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from pytest_probe.reports.run_folder import RunFacts

# Dumps that are named.
NAMED = 4


class Tile(Struct, frozen=True):
    """A name, what is said of it, and small print below."""

    name: str
    text: str
    more: Sequence[str] = ()


def tiles(run: RunFacts, seconds: float) -> Iterator[Tile]:
    """seconds: what the cases took in all."""
    yield _devices(run)
    yield _versions(run)
    yield _standard(run)
    runs = run.settings.get("repeat", 1)
    yield Tile("Seed", str(run.seed), [f"{runs} {'run' if runs == 1 else 'runs'} of each case"])
    yield _dumps(run)
    started = run.started.replace("T", " ").replace("+00:00", " UTC")
    yield Tile("Time", _taken(run), [f"started {started}", f"all cases together {seconds:.3g} s"])


def _devices(run: RunFacts) -> Tile:
    names = list(dict.fromkeys(device.get("device", "") for device in run.devices))
    more = dict.fromkeys(line for device in run.devices for line in _device(device))
    return Tile("Device" if len(names) == 1 else "Devices", ", ".join(names) or "unknown", list(more))


def _device(device: Mapping[str, str]) -> Iterator[str]:
    hardware, threads = device.get("hardware"), device.get("threads")
    told = [hardware, f"{threads} threads" if threads and threads != "1" else None]
    if any(told):
        yield ", ".join(filter(None, told))
    if device.get("state"):
        yield f"this process had set: {device['state']}"


def _versions(run: RunFacts) -> Tile:
    frameworks = dict.fromkeys(f"{device.get('framework')} {device.get('version')}" for device in run.devices)
    packages = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    return Tile("Versions", ", ".join(frameworks) or "no framework", [packages])


def _standard(run: RunFacts) -> Tile:
    settings = run.settings
    modes = dict.fromkeys(device.get("modes", "none") for device in run.devices)
    measured = ", ".join(map(str, settings.get("mode", ())))
    inputs = f"{settings.get('inputs', '')} inputs in {', '.join(map(str, settings.get('dtypes', ())))} dtype"
    return Tile(
        "Standard",
        str(settings.get("standard", "")),
        [f"device modes: {', '.join(modes) or 'none'}", f"measured: {measured}", inputs],
    )


def _dumps(run: RunFacts) -> Tile:
    labels = [dump.label for dump in run.dumps]
    if len(labels) == 1:
        return Tile("Dump", labels[0], [run.dumps[0].digest[:19]])
    more = [f"and {len(labels) - NAMED:,} more"] if len(labels) > NAMED else []
    return Tile("Dumps", f"{len(labels):,}" if labels else "none", [*labels[:NAMED], *more])


def _taken(run: RunFacts) -> str:
    """How long the run took."""
    try:
        taken = datetime.fromisoformat(run.finished or "") - datetime.fromisoformat(run.started)
    except (ValueError, TypeError):
        return "not finished"
    minutes, seconds = divmod(int(taken.total_seconds()), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
