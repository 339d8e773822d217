"""The page itself: the data of a run inside a template, with a policy that forbids every request.

It is plain JavaScript without a library: a table that draws the rows in view, and plots of a few shapes, are less code
than a library and its licence. Text is set as text everywhere, so nothing of a dump is read as HTML.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from msgspec import Struct

from pytest_probe.features.html.collected import Collected, in_script
from pytest_probe.features.html.other_runs import Comparison
from pytest_probe.model.verdict import PASS_SELF
from pytest_probe.reports.case_metrics import LABELS
from pytest_probe.reports.groups import MAX_GROUPS
from pytest_probe.reports.result_set import RunFile
from pytest_probe.system.files import check_replaceable, replacing

# Dumps that are named.
_MAX_DUMPS = 4
_TEMPLATE, _STYLE, _SCRIPTS = "page.html.j2", "style.css", "script"
# In this order: each uses what the ones before it define.
PARTS = (
    "dom", "address", "values", "pairs", "charts", "table", "case", "export", "sequence", "cases", "apis", "runs",
    "times", "modules", "against", "main",
)  # fmt: skip
_VERDICTS = ("error", "warning", "pass", PASS_SELF, "skip")
# Errors and warnings that the page lists without its script, as on paper.
_MAX_LISTED = 500


class _Tile(Struct, frozen=True):
    """A name, what is said of it, and small print below."""

    name: str
    text: str
    more: Sequence[str] = ()


def tiles(run: RunFile, seconds: float) -> Iterator[_Tile]:
    """seconds: what the cases took in all."""
    settings = run.settings
    names = list(dict.fromkeys(device.get("device", "") for device in run.devices))
    more = dict.fromkeys(line for device in run.devices for line in _device(device))
    yield _Tile("Device" if len(names) == 1 else "Devices", ", ".join(names) or "unknown", list(more))
    found = dict.fromkeys(f"{device.get('framework')} {device.get('version')}" for device in run.devices)
    packages = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    yield _Tile("Versions", ", ".join(found) or "no framework", [packages])
    modes = dict.fromkeys(device.get("modes", "none") for device in run.devices)
    measured = ", ".join(map(str, settings.get("mode", ())))
    inputs = f"{settings.get('inputs', '')} inputs in {', '.join(map(str, settings.get('dtypes', ())))} dtype"
    lines = [f"device modes: {', '.join(modes) or 'none'}", f"measured: {measured}", inputs]
    yield _Tile("Standard", str(settings.get("standard", "")), lines)
    runs = settings.get("repeat", 1)
    yield _Tile("Seed", str(run.seed), [f"{runs} {'run' if runs == 1 else 'runs'} of each case"])
    labels = [dump.label for dump in run.dumps]
    if len(labels) == 1:
        yield _Tile("Dump", labels[0], [run.dumps[0].digest[:19]])
    else:
        others = [f"and {len(labels) - _MAX_DUMPS:,} more"] if len(labels) > _MAX_DUMPS else []
        yield _Tile("Dumps", f"{len(labels):,}" if labels else "none", [*labels[:_MAX_DUMPS], *others])
    started = run.started.replace("T", " ").replace("+00:00", " UTC")
    yield _Tile("Time", _taken(run), [f"started {started}", f"all cases together {seconds:.3g} s"])


def _device(device: Mapping[str, str]) -> Iterator[str]:
    hardware, threads = device.get("hardware"), device.get("threads")
    hardware_parts = [hardware, f"{threads} threads" if threads and threads != "1" else None]
    if any(hardware_parts):
        yield ", ".join(filter(None, hardware_parts))
    if device.get("state"):
        yield f"this process had set: {device['state']}"


def _taken(run: RunFile) -> str:
    """How long the run took."""
    try:
        taken = datetime.fromisoformat(run.finished or "") - datetime.fromisoformat(run.started)
    except (ValueError, TypeError):
        return "not finished"
    minutes, seconds = divmod(int(taken.total_seconds()), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


class Page(Struct, frozen=True):
    """What the page is made of."""

    run: RunFile
    collected: Collected
    beside: Comparison | None = None
    sparklines: Mapping[str, Any] | None = None

    def write(self, path: Path) -> None:
        """Write the page. Raises OSError."""
        check_replaceable(path)
        with (
            replacing(path) as temporary,
            temporary.open("w", encoding="utf-8", errors="replace", newline="\n") as file,
        ):
            file.writelines(self._text())

    def _text(self) -> Iterator[str]:
        # Not with loader and folders: a package may lie in an archive.
        environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        parts = "\n".join(_resource(f"{_SCRIPTS}/{name}.js") for name in PARTS)
        script, style = (f'(() => {{\n"use strict";\n{parts}}})();\n'), _resource(_STYLE)
        found = self.collected
        listed = sorted(found.listed, key=lambda each: _VERDICTS.index(each[0]))
        return environment.from_string(_resource(_TEMPLATE)).generate(
            policy=_policy(script, style),
            style=Markup(style),
            script=Markup(script),
            verdicts=[(name, found.verdicts[name]) for name in _VERDICTS if name != PASS_SELF or found.verdicts[name]],
            not_run=self.run.not_run or 0,
            groups=[
                (found.group_places[group.first.key], group.first.key[0], group.line)
                for group in found.groups.of("error", "warning")[:MAX_GROUPS]
            ],
            tiles=list(tiles(self.run, found.seconds)),
            cases=len(found.rows),
            listed=listed[:_MAX_LISTED],
            unlisted=max(0, len(listed) - _MAX_LISTED),
            beside=None if self.beside is None else self.beside.other.name,
            parts={name: Markup(data.decode()) for name, data in self._data()},
        )

    def _data(self) -> Iterator[tuple[str, bytes]]:
        """The data by the id of its element, as JSON."""
        found = self.collected
        names = {kind: list(each) for kind, each in found.names.items()}
        names["groups"] = [found.groups.found[key].line for key in found.group_places]
        columns = [[name, LABELS.get(name, name.replace("_", " "))] for name in found.columns]
        yield "probe-names", in_script(msgspec.json.encode({"names": names, "columns": columns}))
        yield "probe-rows", b"[%s]" % b",\n".join(found.rows)
        shown = (b'"%d":%s' % (row, details) for row, details in found.details())
        yield "probe-details", b"{%s}" % b",\n".join(shown)
        yield "probe-beside", b"null" if self.beside is None else in_script(msgspec.json.encode(self.beside.data()))
        yield "probe-history", in_script(msgspec.json.encode(self.sparklines))
        if found.pairs.rows:
            yield "probe-against", in_script(found.pairs.data())


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """Nothing is loaded, sent or run but the script and the style of the page, which are known by their digests."""
    digests = {"script": hashlib.sha256(script.encode()), "style": hashlib.sha256(style.encode())}
    allowed = (f"; {kind}-src 'sha256-{b64encode(each.digest()).decode()}'" for kind, each in digests.items())
    return f"default-src 'none'{''.join(allowed)}; base-uri 'none'; form-action 'none'"
