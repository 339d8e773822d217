"""What the items of one process share: the settings, the dumps, the checker."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property, partial
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.errors import ProbeError, SettingsError, Unsupported
from pytest_probe.model.case import Case
from pytest_probe.model.dump import Dump
from pytest_probe.model.result import AnnouncedCall
from pytest_probe.options import FEATURES, SELF, imported
from pytest_probe.plugin.feature import Feature, Machines, Trait
from pytest_probe.plugin.item_hooks import ItemHooks
from pytest_probe.plugin.run_dumps import RunDumps
from pytest_probe.registry import Registry
from pytest_probe.reports.running_case import FOLDER
from pytest_probe.settings import Settings, parse
from pytest_probe.standards import standards
from pytest_probe.standards.tools.table import packaged
from pytest_probe.system.text import check_name
from pytest_probe.user_errors import reporting_failures_of

if TYPE_CHECKING:
    import pluggy

    from pytest_probe.check import CaseOutcome, CaseRuns, Checker, Question
    from pytest_probe.reports.result_set import OtherResults

# Errors of one API, in one process, whose causes are looked for with further runs; from -vv on all are.
WHOLE_DIAGNOSES, VERBOSE = 50, 2
STATE: pytest.StashKey[ProcessSession] = pytest.StashKey()


# A context in which cases run; and one in which a drawn call runs.
Surrounding: TypeAlias = Callable[[], AbstractContextManager[None]]
AroundCall: TypeAlias = Callable[[AnnouncedCall], AbstractContextManager[None]]


class ProcessSession:
    """One process of a run. device: the one under test as the user named it, None for the framework's default."""

    def __init__(
        self, config: pytest.Config, settings: Settings, registry: Registry, positional: Sequence[str] = ()
    ) -> None:
        self.config = config
        self.settings = settings
        self.registry = registry
        worker: dict[str, Any] = getattr(config, "workerinput", {})
        self.workers: int = worker.get("workercount", 1)
        # The columns of the terminal, which a worker does not have, and nobody while output is captured.
        self.width: int = worker.get("probe_width") or max(shutil.get_terminal_size().columns, 40)
        self._slot: int | None = worker.get("probe_slot")
        self._given_device: str | None = worker.get("probe_device") or next(iter(settings.devices), None)
        self.dumps = RunDumps(config, settings, registry.readers, positional)
        # Where this process writes a file of --probe-out.
        self.written_at: Callable[[Path], Path] = lambda path: path
        # Has a case left the device in a state in which every other one would fail?
        self.device_lost = False
        self.use_guard(nullcontext, nullcontext, lambda call: nullcontext())
        self._places: tuple[Dump | None, Mapping[str, int]] = (None, {})
        self._names: dict[tuple[str | None, str], str] = {}
        # The paths that pytest shows for the files of items.
        self.shown_paths: dict[PathLike[str] | str, str] = {}
        asked = (path for path, asks in FEATURES.items() if asks(settings))
        self.features: tuple[Feature, ...] = tuple(imported(path)(self) for path in asked)

    def use_guard(self, limited: Surrounding, waiting: Surrounding, announced: AroundCall) -> None:
        """limited: what a case runs in, its time limit. waiting: what it waits in for a device that other workers have,
        no limit. announced: what a drawn call runs in."""
        self.limited, self.waiting, self.announced = limited, waiting, announced

    def register_features(self) -> None:
        """Make plugins of pytest's of them."""
        for feature in self.features:
            self.config.pluginmanager.register(feature, f"probe-{type(feature).__name__}")

    def has(self, trait: Trait) -> bool:
        """Has the run this by one of its features?"""
        return any(trait in feature.traits for feature in self.features)

    @property
    def verbose(self) -> bool:
        """Is all that is known of each failing case shown, as from -vv on?"""
        return self.config.get_verbosity() >= VERBOSE

    @property
    def standards(self) -> Mapping[str, str]:
        """The standards that features judge by, with what each looks at."""
        return {name: words for feature in self.features for name, words in feature.standards.items()}

    @property
    def machines(self) -> Machines | None:
        """The devices that the items run on; None for this one."""
        return next((feature.machines for feature in self.features if feature.machines is not None), None)

    @property
    def others(self) -> list[OtherResults]:
        """The runs that this one is compared with."""
        return [feature.other for feature in self.features if feature.other is not None]

    @property
    def at_risk(self) -> Callable[[str], AbstractContextManager[None]] | None:
        """What a call is made in that may end this process, which words name; None where no other process survives
        that."""
        if self.running_folder is None or not hasattr(self.config, "workerinput"):
            return None
        return lambda words: self.announced(AnnouncedCall("", words))

    @cached_property
    def item_hooks(self) -> ItemHooks:
        return ItemHooks(self.config)

    @cached_property
    def device(self) -> str | None:
        """A worker that got only its number finds its device itself."""
        devices = () if self._slot is None else self.shared_devices
        return devices[self._slot % len(devices)] if self._slot is not None and devices else self._given_device

    @cached_property
    def checker(self) -> Checker:
        return self.checker_of(self.device)

    @cached_property
    def runs(self) -> CaseRuns:
        from pytest_probe.check import CaseRuns

        return CaseRuns(self.checker)

    @cached_property
    def quick_checker(self) -> Checker:
        """One that says of no error what caused it."""
        return self.checker.changed(diagnosed=False)

    def checker_of(self, device: str | None) -> Checker:
        """One that checks on this device, as the run asks."""
        from pytest_probe.check import Checker, RunRequest, user_code

        frameworks.import_in_order(() if self.settings.judges_stored else self.frameworks)
        settings, hook = self.settings, self.config.hook
        request = RunRequest(
            device=device,
            seed=settings.seed,
            inputs=settings.inputs,
            standard=settings.standard,
            workers=self.workers,
            allow=settings.allow,
            repeat=1 if self.has("draws anew") else settings.repeat,
            reference_device=settings.reference_device,
            flops=settings.flops,
            emulate=settings.emulate,
            locks=self.running_folder if self.workers > 1 else None,
            judged=settings.judges,
            whole_diagnoses=None if self.verbose else WHOLE_DIAGNOSES,
            plotted=self.has("plots"),
            saves_all=settings.save == "all",
            framework=self.calls_by[0],
            reference_framework=self.calls_by[1],
        )
        for feature in self.features:
            request = replace(request, **feature.request)
        return Checker(
            request,
            self.registry,
            adjust_inputs=_adjustment(hook.pytest_probe_inputs, user_code.inputs),
            adjust_verdict=_adjustment(hook.pytest_probe_verdict, user_code.hooked_verdict),
            waiting=lambda: self.waiting(),
        )

    @cached_property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks that the dumps' calls run with, by the names that dumps give them; the default one where no
        dump names one that is here."""
        named = {dump.framework for _, dump in self.dumps.readable()}
        stored, known = self.settings.judges_stored, frameworks.MODULES
        here = (name for name in known if name in named and not frameworks.unavailable(name, stored=stored))
        return tuple(here) or (frameworks.DEFAULT,)

    @property
    def device_name(self) -> str:
        """The device that functions of the user's own are tested on, by the name that the framework gives it."""
        return self.name_of(self.device, frameworks.DEFAULT)

    @property
    def running_folder(self) -> Path | None:
        """Where processes say what they run; None where nobody survives to read it."""
        given: dict[str, Any] = getattr(self.config, "workerinput", {})
        if "probe_running" in given:
            return Path(given["probe_running"])
        return None if self.settings.out is None else self.settings.out / FOLDER

    @cached_property
    def shared_devices(self) -> tuple[str, ...]:
        """The devices that workers share out: the named ones, or all of the one kind. Empty for the default
        device where that is one alone."""
        if len(self.settings.devices) > 1:
            return self.settings.devices
        with suppress(Unsupported):
            engines = self.checker_of(self._given_device).engines_of(self.frameworks[0])
            return engines.shared_devices or self.settings.devices
        return self.settings.devices

    def described(self, devices: Sequence[str] = ()) -> list[dict[str, str]]:
        """What these devices are, or this process's own, for each framework; nothing where one is not installed: what
        needs it says so. Raises SettingsError where a device is unknown."""
        checkers = [self.checker]
        if len(devices) > 1:
            checkers = [self.checker_of(device) for device in devices]
        # str: a framework's version may be a class of its own, which JSON does not take.
        with suppress(Unsupported):
            known = (checker.engines_of(name) for checker in checkers for name in self.frameworks)
            return [{key: str(value) for key, value in engines.describe().items()} for engines in known]
        return []

    def know_names(self, name: str | None, devices: Sequence[Mapping[str, str]]) -> None:
        """Take what another process says of a device, once a framework, for the names of this one's."""
        for framework, device in zip(self.frameworks, devices, strict=False):
            for known in dict.fromkeys((name, self._given_device, None)):
                self._names.setdefault((known, framework), device["device"])

    def warm_up(self) -> None:
        """Import the frameworks. Where that fails the items say so."""
        for framework in self.frameworks:
            with suppress(ProbeError):
                self.checker.engines_of(framework).describe()

    def name_of(self, device: str | None, framework: str) -> str:
        """The name that a framework gives the device of a worker, None for the default."""
        key = device, framework
        if key not in self._names:
            checker = self.checker if device in (None, self.device) else self.checker_of(device)
            self._names[key] = checker.engines_of(framework).describe().get("device") or device or ""
        return self._names[key]

    @property
    def calls_by(self) -> tuple[str, str]:
        """What makes the calls of records on the device and in float64, as modules; "" for their own framework."""
        return next((feature.calls_by for feature in self.features if any(feature.calls_by)), ("", ""))

    def sides_of(self, framework: str) -> tuple[str, str]:
        """What makes the calls of a framework's records on the device and in float64, as modules; "" for both where
        that is the framework itself."""
        own, (device, reference) = frameworks.MODULES.get(framework, ""), self.calls_by
        return (device or own, reference or own) if device or reference else ("", "")

    def check(self, case: Case, question: Question | None = None) -> CaseOutcome:
        """Check a case, which may use what the case before it left; as a question asks it, if one is given."""
        found = (question or self.runs).run(case)
        if question is None or not question.device:
            self.note_loss(found)
        return found

    def note_loss(self, checked: CaseOutcome) -> None:
        """A case ended: is the device lost that it ran on?"""
        if checked.verdict.verdict == "error" and not checked.verdict.outputs:
            engines = self.checker.engines_of(checked.case.dump.framework)
            self.device_lost |= engines.framework.is_lost(engines.device)

    def release(self) -> None:
        """Forget what the last case left."""
        if "runs" in vars(self):
            self.runs.release()

    def place_of(self, case: Case) -> int | None:
        """The place of a case's record in its dump, from 0; None for one that a test made."""
        return None if case.pair is not None else self.places(case.dump).get(case.record.name)

    def places(self, dump: Dump) -> Mapping[str, int]:
        """The place of each record in a dump, from 0; of a dump without calls, that of each module. Those of the last
        dump are kept."""
        if self._places[0] is not dump:
            places = {record.name: place for place, record in enumerate(dump.records or dump.compare_only)}
            self._places = dump, places
        return self._places[1]


def state_of(config: pytest.Config) -> ProcessSession:
    """What the tests of this process share, made when it is first asked for. Raises SettingsError."""
    if STATE not in config.stash:
        config.stash[STATE] = make_probe(config)
        config.stash[STATE].register_features()
    return config.stash[STATE]


def make_probe(config: pytest.Config, positional: Iterable[str] = ()) -> ProcessSession:
    """Read the settings and let the project's conftest add to the registry. Raises SettingsError."""
    positional = list(positional)
    settings = parse(config, paths_given=bool(positional))
    registry = registry_of(config, settings)
    probe = ProcessSession(config, settings, registry, positional)
    check_name("--probe-standard", settings.standard, dict.fromkeys([*registry.standards, *probe.standards, SELF]))
    if settings.data_dir is not None and len(probe.dumps.paths) > 1:
        wanted = f"the run has {len(probe.dumps.paths)} dumps, and each has its own folder of tensors; give one dump"
        raise SettingsError("--probe-data-dir", str(settings.data_dir), wanted)
    return probe


def registry_of(config: pytest.Config, settings: Settings) -> Registry:
    """What is known by default, by the settings and by the project's conftest. Raises SettingsError."""
    registry = Registry.default()
    registry.namespaces.update(settings.namespaces)
    if settings.rules.entries:
        registry.standards.update(standards(packaged().with_entries(settings.rules.entries)))
    with reporting_failures_of("pytest_probe_register"):
        config.hook.pytest_probe_register.call_historic(kwargs={"registry": registry})
    # Is there anything to import? Cheaply: what lies inside a package is seen when it is imported.
    for prefix, module in registry.namespaces.items():
        if module.partition(".")[0] not in sys.modules and find_spec(module.partition(".")[0]) is None:
            raise SettingsError("probe_namespaces", f"{prefix}={module}", f"there is no module {module} to import")
    return registry


def _adjustment(hook: pluggy.HookCaller, call: Callable[..., Any]) -> Callable[[Case, Any], Any] | None:
    """A hook as the checker calls it, None where no conftest implements it."""
    return partial(call, hook) if hook.get_hookimpls() else None
