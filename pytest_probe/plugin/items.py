"""The items of a dump: one a case."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cache, cached_property
from os import PathLike
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from msgspec.structs import replace

from pytest_probe.check import Case
from pytest_probe.model.dump import Direction, Dump, Frame, Record
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import PASS_SELF, Verdict
from pytest_probe.plugin import junit
from pytest_probe.plugin.item_verdict import ItemVerdict
from pytest_probe.plugin.report_results import carry
from pytest_probe.plugin.reproduce import item_command, saved_file
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.records import library_frame, module_path, user_frame
from pytest_probe.reports.results_file import UNWRITTEN
from pytest_probe.system.text import printable, printable_line
from pytest_probe.user_errors import exception_line, first_line

if TYPE_CHECKING:
    import pluggy

    from pytest_probe.check import Question


class CaseFailed(AssertionError):
    """A case ended in a verdict that fails its item; its text is the whole report, its reason one line.

    Reports of other tools take an AssertionError for a test that failed, and all else for one that is broken.
    """

    __module__ = "builtins"  # so that they print the name alone

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


class ProbeParent(Protocol):
    """What items hang under: a dump, or the table of APIs."""

    probe: ProcessSession
    dump_path: Path


@cache
def _marks(namespace: str, api: str, direction: str, dtype: str | None) -> tuple[pytest.Mark, ...]:
    """The same for all items that are alike, since a mark an item costs more than the item. -m finds an API by its name
    alone, and with its namespace."""
    kwargs = {"namespace": namespace, "direction": direction}
    if dtype is not None:
        kwargs["dtype"] = dtype
    return tuple(pytest.mark.probe(api=name, **kwargs).mark for name in (api, f"{namespace}.{api}"))


@cache
def _keywords(dtype: str) -> set[str]:
    return {dtype}


def _call(judge: Callable[[], Verdict]) -> Verdict:
    return judge()


def _call_below_frame(name: str, judge: Callable[[], Verdict]) -> Verdict:
    """Judge below a frame of this name. When native code ends the process, faulthandler, which pytest enables, prints
    the names of all frames, and no Python code can run any more to say what ran."""
    names = {"co_name": name, "co_filename": "<pytest-probe item>"}
    if sys.version_info >= (3, 11):
        names["co_qualname"] = name
    found: Verdict = FunctionType(_call.__code__.replace(**names), {})(judge)  # type: ignore[arg-type]
    return found


class NoticeItem(pytest.Item):
    """Something about a dump as a whole that fails or is skipped; base of the cases."""

    makes_calls = False
    # Its place among the items of its dump, which other plugins may shuffle.
    number = 0
    # Does the call build the model? Such calls run last, and as one line where they pass.
    initialises = False

    def __init__(self, *, verdict: Verdict | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._given = verdict
        self.verdict: Verdict | None = None
        self.judged: ItemVerdict | None = None
        # Of the estimated cost of all items that run here.
        self.share = 0.0

    @property
    def ihook(self) -> pluggy.HookRelay:
        """Those of the dump, in which other plugins are left out where we do the same for less."""
        parent: Any = self.parent
        hooks: pluggy.HookRelay = parent.probe.item_hooks.of(parent)
        return hooks

    @cached_property
    def location(self) -> tuple[str, int | None, str]:
        """pytest's own, which looks at a path anew for each item: a dump's items have few."""
        file, line, title = self.shown_place()
        shown = self.probe.shown_paths
        if file not in shown:
            shown[file] = super().location[0]
        return shown[file], line, title

    @property
    def _above(self) -> ProbeParent:
        parent: Any = self.parent
        return parent  # type: ignore[no-any-return]

    @property
    def probe(self) -> ProcessSession:
        return self._above.probe

    @property
    def dump_path(self) -> Path:
        return self._above.dump_path

    def judge(self) -> Verdict:
        assert self._given is not None
        return self._given

    def limited(self) -> AbstractContextManager[None]:
        """What the item is judged in."""
        return self.probe.limited()

    def runtest(self) -> None:
        with self.limited():
            verdict = self.verdict = _call_below_frame(self.nodeid, self.judge)
        if verdict.verdict == "skip":
            pytest.skip(self.displayed_reason(verdict))
        judged = self.judged
        if judged is not None and judged.known:
            # pytest's own word for it, which all reports know; under --runxfail it says nothing, and the case fails.
            pytest.xfail(printable(f"known failure: {verdict.headline}"))
        if (judged or verdict).fails(strict=self.probe.settings.strict):
            reason = verdict.headline
            raise CaseFailed(
                printable(self.text(verdict)), printable(reason if judged is None else judged.reason(reason))
            )
        if self.probe.settings.strict and verdict.verdict == PASS_SELF:
            pytest.skip(self.displayed_reason(verdict))

    def displayed_reason(self, verdict: Verdict) -> str:
        """A skip's reason as pytest shows it, which shows the path as well."""
        uncounted = f"--probe-strict counts no {PASS_SELF}; " if verdict.verdict == PASS_SELF else ""
        return printable(f"{uncounted}{verdict.reason.removeprefix(f'{self.dump_path}: ')}")

    def text(self, verdict: Verdict) -> str:
        command = item_command(self.probe, self.dump_path, self.name, None, None)
        return f"{verdict.reason}\nto reproduce: {command}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Our own text without a traceback; where the probe itself broke, its own lines."""
        if not isinstance(excinfo.value, (CaseFailed, pytest.fail.Exception)):
            excinfo.traceback = excinfo.traceback.cut(path=__file__)
            return excinfo.getrepr(style="short", chain=False)
        shown = excinfo.getrepr(style="value")
        if shown.reprcrash is not None:
            path, line, _ = self.reportinfo()
            shown.reprcrash.path, shown.reprcrash.lineno = str(path), line + 1
            shown.reprcrash.message = getattr(excinfo.value, "reason", first_line(excinfo.value))
        return shown

    def complete(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Give the report of the item's run its result, and a skip the place of the call instead of ours.

        A teardown ends the run, which may be one of several: what other plugins run again is judged again.
        """
        if call.when == "teardown":
            self.forget()
            return
        if call.when == "setup" and report.passed:
            return
        # It was skipped by us.
        if self.verdict is not None and report.skipped and not hasattr(report, "wasxfail"):
            path, line, _ = self.reportinfo()
            report.longrepr = (str(path), line + 1, f"Skipped: {self.displayed_reason(self.verdict)}")
        found = self._result(self.verdict or _unjudged(report, call), call.duration)
        outcome = carry(report, [found], "" if self.judged is None else self.judged.message)
        self.user_properties = [*junit.other_properties(self.user_properties), *junit.properties(outcome)]
        report.user_properties = list(self.user_properties)

    def forget(self) -> None:
        """Drop what a run of the item left."""
        self.verdict = self.judged = None

    @property
    def portable_id(self) -> PortableId:
        return replace(PortableId.parse(f"::{self.name}"), label=self.probe.dumps.label(self.dump_path))

    def _result(self, verdict: Verdict, duration: float) -> Result:
        """An error where a hook of the project gave the verdict fields of other types."""
        try:
            return self.result(verdict, duration)
        except Exception as error:
            reason = f"the verdict cannot be written: {exception_line(error)}"
            return self.result(Verdict("error", "", reason, UNWRITTEN), duration)

    def result(self, verdict: Verdict, duration: float) -> Result:
        return Result.of(verdict, self.portable_id, api="", direction="", dtype="", device="", duration=duration)

    def reportinfo(self) -> tuple[PathLike[str] | str, int, str]:
        """Always with a line: pytest needs one where a mark skips the item."""
        path, line, title = self.shown_place()
        return path, line or 0, title

    def shown_place(self) -> tuple[PathLike[str] | str, int | None, str]:
        return printable_line(str(self.dump_path)), None, self.name

    @property
    def run_key(self) -> object:
        """Equal for items of which each uses what the others' runs left."""
        return id(self)


def _unjudged(report: pytest.TestReport, call: pytest.CallInfo[None]) -> Verdict:
    """An item that pytest skipped or failed before it was judged, or that the probe broke on."""
    if report.skipped:
        return Verdict("skip", "", str(call.excinfo.value) if call.excinfo else "", kind="skipped by the test suite")
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, pytest.fail.Exception):  # a time limit, for one
        return Verdict("error", "", first_line(error))
    return Verdict("error", "", f"pytest-probe broke: {exception_line(error) if error else 'no reason given'}")


class ProbeItem(NoticeItem):
    """One case: a record in one direction and one dtype, as a question asks it; None for the plain check."""

    def __init__(
        self,
        *,
        dump: Dump,
        record: Record,
        direction: Direction,
        dtype: str | None,
        keyword: str | None,
        question: Question | None = None,
        **kwargs: Any,
    ) -> None:
        case = Case(dump, record, direction, dtype)
        super().__init__(name=f"{case.id}{'' if question is None else question.suffix}", **kwargs)
        self.case = case
        self.question = question
        self.makes_calls = question is None or not question.device
        # How many cases this one represents, and the command that runs it again where they are needed for it.
        self.folded = 0
        self.command = ""
        # The record's place in its dump, where this process has not all of it.
        self.place: int | None = None
        self.own_markers += _marks(record.namespace, record.api, direction, keyword)
        if keyword is not None:
            self.extra_keyword_matches = _keywords(keyword)

    def judge(self) -> Verdict:
        """The verdict with what the run's features say."""
        checked = self.probe.check(self.case, self.question)
        folded = f"+{self.folded} alike, with Max and Min of all of them" if self.folded else ""
        judged = ItemVerdict(checked, checked.verdict, self.portable_id, self.case.api, self._file, self._command)
        self.judged = judged.by_features(self.probe, *checked.remarks, folded)
        return judged.verdict

    def displayed_reason(self, verdict: Verdict) -> str:
        """The reason first, then the record that it speaks of."""
        text = super().displayed_reason(verdict)
        entry, separator, rest = text.partition(": ")
        return f"{rest} ({entry})" if separator and entry.startswith(f"{self.case.record.name}.") else text

    @property
    def _device(self) -> str:
        """By the name that the framework gives it, which may be missing where it makes no call."""
        if self.question is not None and self.question.device:
            return self.question.device
        return self.probe.name_of(self.probe.device, self.case.dump.framework)

    def _file(self) -> Path:
        return saved_file(self.probe, self.probe.dumps.label(self.dump_path), self.name)

    def _command(self) -> str:
        device, dtype = self.probe.device if self.probe.settings.devices else None, self.case.dtype
        alone = {} if self.question is None else self.question.options
        if self.command:
            return self.probe.settings.command(self.command, dtype, device, alone)
        return item_command(self.probe, self.dump_path, self.case.id if alone else self.name, dtype, device, alone)

    def text(self, verdict: Verdict) -> str:
        assert self.judged is not None
        return self.judged.text(
            self.probe,
            name=self.name,
            device=self._device,
            frame=frame_of(self.case),
            library=library_frame(stack_of(self.case)),
            module=module_of(self.case),
            command=self._command(),
        )

    def result(self, verdict: Verdict, duration: float) -> Result:
        plots = self.probe.has("plots")
        placed = plots or verdict.verdict == "error" or (self.question is not None and self.question.placed)
        return Result.of(
            verdict,
            self.portable_id,
            api=self.case.api,
            direction=self.case.direction,
            dtype=self.case.dtype or "",
            device=self._device,
            duration=duration,
            gate=None if self.judged is None else self.judged.compared,
            folded=self.folded,
            place=(self.probe.place_of(self.case) if self.place is None else self.place) if placed else None,
            module=module_of(self.case) if placed else "",
            details=None if self.judged is None else self.judged.details,
            frameworks=self.probe.sides_of(self.case.dump.framework),
            initialises=self.initialises,
        )

    def shown_place(self) -> tuple[PathLike[str] | str, int | None, str]:
        """The line of the user's script that made the call, where the dump knows it.

        pytest writes `::` for the dots of a title that ends the node id: hence the space behind it.
        """
        frame = frame_of(self.case)
        title = f"{self.name} "
        if frame is None:
            return printable_line(str(self.dump_path)), None, title
        return frame.file, frame.line - 1, title

    @property
    def run_key(self) -> object:
        return id(self.case.record), self.case.dtype, "" if self.question is None else self.question.suffix


def frame_of(case: Case) -> Frame | None:
    """The line of the user's script that made the call, where the dump knows it."""
    return user_frame(stack_of(case))


def stack_of(case: Case) -> Iterable[Frame]:
    return case.dump.stack(f"{case.record.name}.{case.direction}")


def module_of(case: Case) -> str:
    """The path of the module that made the call, "" where the dump does not know it."""
    modules = case.dump.modules(f"{case.record.name}.{case.direction}")
    return module_path(modules[0]) if modules else ""


class AllureParameters:
    """Gives allure-pytest the dtype of a case as a parameter.

    allure drops the brackets at the end of an item's name: without a parameter it takes one case in several dtypes for
    repetitions, and shows the last of them.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if isinstance(item, ProbeItem) and item.case.dtype is not None:
            import allure

            allure.dynamic.parameter("dtype", item.case.dtype)
