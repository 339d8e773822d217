"""--probe-outputs: the comparison of `pytest-probe compare --direct` as items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from pytest_probe.check import Case, CaseOutcome, Question
from pytest_probe.errors import SettingsError
from pytest_probe.export.compare_outputs import DIRECT_RULES, check_common, compare_direction, verdict_of
from pytest_probe.export.output_folders import OutputFolder, output_folder
from pytest_probe.model.dump import Dump
from pytest_probe.model.result import Result
from pytest_probe.model.run import RECORDED
from pytest_probe.options import NAMED
from pytest_probe.plugin.collectors import ProbeFile
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.reports.selected import id_list
from pytest_probe.standards.tools import DEFAULT
from pytest_probe.system.text import check_name

_AUTO = "auto"


class OutputsOfTwo(Feature, Question):
    """--probe-outputs: the comparison of `pytest-probe compare --direct`, an item a call and direction."""

    device = RECORDED
    standards: Mapping[str, str] = dict.fromkeys((_AUTO, *DIRECT_RULES), "the outputs of two folders")

    @cached_property
    def _sides(self) -> tuple[OutputFolder, OutputFolder]:
        """The device's and the benchmark's. Raises SettingsError."""
        settings = self.probe.settings
        assert settings.outputs is not None
        assert settings.benchmark is not None
        benchmark = output_folder(settings.benchmark, option=NAMED["benchmark"].flag)
        return output_folder(settings.outputs, option=NAMED["outputs"].flag), benchmark

    def prepare(self) -> None:
        check_name(NAMED["standard"].flag, self.probe.settings.standard, self.standards)
        check_common(*self._sides, NAMED["outputs"].flag)
        known, compared = self._calls
        if known and 2 * len(known & compared) < min(len(known), len(compared)):
            found = f"it has outputs of {len(known & compared):,} of the dump's {len(known):,} calls"
            raise SettingsError(NAMED["outputs"].flag, str(self.probe.settings.outputs), f"{found}; give this dump's")

    @cached_property
    def _calls(self) -> tuple[frozenset[str], frozenset[str]]:
        """Of all dumps, and of both folders."""
        known = (record.name for _, dump in self.probe.dumps.readable() for record in dump.records)
        compared = (name.rpartition("::")[2] for side in self._sides for name in side.calls)
        return frozenset(known), frozenset(compared)

    def header(self) -> Iterable[str]:
        device, benchmark = self._sides
        yield (
            f"probe: outputs of {len(device.calls):,} calls against {len(benchmark.calls):,}, "
            f"{check_common(device, benchmark):,} on both sides"
        )
        known, compared = self._calls
        if alone := len(compared - known):
            yield f"probe: {alone:,} of them are in no dump of this run, and are not compared"

    def items(self, parent: ProbeFile, dump: Dump) -> Iterator[ProbeItem]:
        return parent.cases(dump, self)

    def add(self, result: Result) -> bool | None:
        return result.verdict != "skip" if result.api else None

    def end(self, reporting: Reporting) -> None:
        known, _ = self._calls
        device, benchmark = ({name.rpartition("::")[2] for name in side.calls} & known for side in self._sides)
        if alone := device ^ benchmark if self.probe.settings.strict else frozenset():
            calls = id_list(sorted(alone))
            reporting.trouble(f"outputs of one side alone, which --probe-strict does not allow: {calls}")

    def run(self, case: Case) -> CaseOutcome:
        """A folder with outputs of several dumps has their labels before its names."""
        named = case.portable_id(self.probe.dumps.label(case.dump.path))
        name, labelled = named.call, f"{named.label}::{named.call}"
        name = labelled if any(labelled in side.calls for side in self._sides) else name
        asked = self.probe.settings.standard
        standard = DEFAULT if asked == _AUTO else asked
        found = compare_direction(name, case.direction, *self._sides, DIRECT_RULES[standard])
        return CaseOutcome(case, verdict_of(found, standard))
