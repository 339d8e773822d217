"""What pytest's header says of a run: its conditions, and what of the command line matches nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from glob import escape

from pytest_probe import frameworks
from pytest_probe.check.cost import sampled_cases
from pytest_probe.model.dump import Dump
from pytest_probe.options import standards
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.reports import terminal
from pytest_probe.selection import Selection, apis_of, closest, matches, nearest
from pytest_probe.standards.tables import classes_of
from pytest_probe.standards.tools.table import BENCHMARK, packaged

# What our own standards judge by; those of tools have a line of help.
DECIDES = {
    "auto": "noise or the API's class decides; msprobe's tables warn",
    "noise": "noise decides",
    "exact": "the correctly rounded reference, bit for bit",
    "finite": "is what is inf or NaN explained by the reference?",
}


def header(
    probe: ProcessSession,
    devices: Sequence[Mapping[str, str]],
    dumps: Sequence[tuple[str, Dump]],
    unmatched: Sequence[str],
    *,
    later: bool,
) -> list[str]:
    """unmatched: lines of names without a record; later: workers will say what the devices are, so nothing is known of
    them yet."""
    settings, sampled = probe.settings, []
    if devices or later:
        cases = sampled_cases((dump for _, dump in dumps), settings.selection.admits, settings.flops)
        cases *= len(settings.selection.dtypes)
        sampled = [terminal.sampled_line(cases, settings.flops)] if cases else []
    return [
        *terminal.header(_conditions(probe, devices), _decides(probe), dumps)[later:],
        *_state(devices),
        *(line for feature in probe.features for line in feature.header()),
        *unmatched,
        *sampled,
    ]


def of_devices(probe: ProcessSession, devices: Sequence[Mapping[str, str]]) -> list[str]:
    """What the header could not say before workers described their devices."""
    return [*terminal.header(_conditions(probe, devices), "", [])[:1], *_state(devices)]


def _conditions(probe: ProcessSession, devices: Sequence[Mapping[str, str]]) -> list[str]:
    settings = probe.settings
    names = [device["device"] for device in devices] or list(settings.devices) or ["default device"]
    framework = dict.fromkeys(f"{device['framework']} {device['version']}" for device in devices)
    dtypes = "+".join(dtype or "recorded" for dtype in settings.selection.dtypes)
    mode = [f"mode {','.join(settings.mode)}"] if settings.measures else []
    given = [f"dtype {dtypes}", f"inputs {settings.inputs}", *_drawn(probe), *mode]
    modes = dict.fromkeys(device["modes"] for device in devices if device["modes"] != "none")
    allowed = [f"{mode} allowed" for mode in modes]
    emulated = ["16 bit emulated in float32"] if settings.emulate else []
    return [" ".join(dict.fromkeys(names)), *framework, *given, *allowed, *emulated]


def _drawn(probe: ProcessSession) -> list[str]:
    """How inputs are drawn and how often the device runs on them."""
    settings = probe.settings
    if settings.repeat > 1 and probe.has("draws anew"):
        return [f"seeds {settings.seed} to {settings.seed + settings.repeat - 1}"]
    return [f"seed {settings.seed}", f"repeat {settings.repeat}"]


def _decides(probe: ProcessSession) -> str:
    """The standard, what it judges by, and what may change its verdicts."""
    settings = probe.settings
    if not settings.judges:
        return "results are measured, and not judged"
    known = (probe.standards, DECIDES, standards())
    decides = next((names[settings.standard] for names in known if settings.standard in names), "of this project")
    words = [f"standard {settings.standard}: {decides}"]
    if settings.standards_file is not None:
        words.append(f"with the rules of {settings.standards_file.name}")
    words += filter(None, (feature.decides() for feature in probe.features))
    return "; ".join([*words, *(["warnings fail"] if settings.strict else [])])


def _state(devices: Sequence[Mapping[str, str]]) -> list[str]:
    """A line for what the process has set, as far as it is known when the run begins."""
    found = dict.fromkeys(device["state"] for device in devices if "state" in device)
    shared = dict.fromkeys(device["shared"] for device in devices if "shared" in device)
    said = [f"probe: this process has set: {words}; references run without it" for words in found]
    return said + [f"probe: {words}" for words in shared]


def unmatched_names(probe: ProcessSession, dumps: Sequence[tuple[str, Dump]]) -> list[str]:
    """A line for each option and each registered name that no record of the dumps matches."""
    settings, registry = probe.settings, probe.registry
    if not dumps or settings.collect:
        return []
    records = [record for _, dump in dumps for record in dump.records]
    apis = apis_of(dump for _, dump in dumps)
    named = [("--probe-api", glob) for glob in settings.selection.apis if not matches(glob, records)]
    named += [("--probe-skip-api", glob) for glob in settings.selection.skip_apis if not matches(glob, records)]
    marks = "".join(re.findall(r"probe\([^)]*\)", probe.config.option.markexpr))
    marked = re.findall(r"api\s*=\s*['\"]([^'\"]*)['\"]", marks)
    named += [("-m", name) for name in marked if not matches(escape(name), records)]
    for family, keys in (("registry.calls", registry.calls), ("registry.references", registry.references)):
        named += [(family, key) for key in keys if key not in apis]
    found = [f"probe: {where}: {name} matches no record{closest(name, apis)}" for where, name in named]
    # A file of rules may be for other dumps as well, so that an API that is known is no misspelling.
    rules = settings.rules
    for name in dict.fromkeys([*(entry.pattern for entry in rules.entries), *rules.white_list, *rules.black_list]):
        known = classes_of(frameworks.signatures().canonical(name)) or packaged().listing(name) != BENCHMARK
        meant = "" if known or matches(name, records) else closest(name, apis)
        if meant:
            found.append(f"probe: {settings.standards_file}: {name} matches no record{meant}")
    return found


def nothing_selected(probe: ProcessSession, dumps: Sequence[tuple[str, Dump]]) -> list[str]:
    """For a run without items: a line for each glob of --probe-api that no record matches, with the nearest names, or
    one with the options that leave nothing of the records together."""
    records = [record for _, dump in dumps for record in dump.records]
    apis = sorted(apis_of(dump for _, dump in dumps))
    selection, default = probe.settings.selection, Selection()
    unmatched = [glob for glob in selection.apis if not matches(glob, records)]
    if records and not unmatched:
        given = [
            option
            for option, value, usual in (
                ("--probe-api", selection.apis, default.apis),
                ("--probe-skip-api", selection.skip_apis, default.skip_apis),
                ("--probe-direction", selection.directions, default.directions),
            )
            if value != usual
        ]
        return [f"probe: {' and '.join(given)}: of {len(records):,} records nothing is left to run"] if given else []
    return [
        f"probe: --probe-api: {glob!r} matches none of {len(records):,} records; the nearest names: "
        f"{', '.join(nearest(glob, apis)) or 'none'}"
        for glob in unmatched
        if records
    ]
