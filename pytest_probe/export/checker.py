"""accuracy_checking_result_*.csv and accuracy_checking_details_*.csv, from a run's results: in the columns of msprobe,
whose own api_precision_compare reads the details, or in those of its checker for MindSpore.

UTF-8 with a byte order mark. msprobe has floats with 14 decimals, or as many as its file says, and a space in cells
that are not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from msgspec import Struct

from pytest_probe import frameworks
from pytest_probe.export.details import DETAILS, MEASURED, MINDSPORE_DETAILS, OF_RULE, Detail
from pytest_probe.export.table import CallStatuses, Table, status_of
from pytest_probe.model.result import OutputResult, Result, number
from pytest_probe.standards.tools import TOOLS, rule_of
from pytest_probe.standards.tools.release import Release

# msprobe's.
DECIMALS = 14
# By metric: what the tool for MindSpore says where it is beyond its limit, and where there is none.
_MESSAGES = {
    "cosine": ("cosine similarity is less than threshold: {} ", "cosine similarity"),
    "max_abs_error": ("max absolute difference is greater than threshold: {} ", "max absolute difference"),
}


class Layout(Struct, frozen=True):
    """What msprobe's two files hold: of which APIs, by patterns; call is the header of the calls' names."""

    details: Table = Table(DETAILS)
    call: str = "API name"
    apis: tuple[str, ...] = ("*",)

    def has(self, result: Result) -> bool:
        return any(fnmatchcase(result.api, glob) for glob in self.apis)

    def rows(self, result: Result) -> Iterator[Detail]:
        """A row for each output."""
        for index, output in enumerate(result.own_outputs):
            yield self.detail(f"{result.portable_id.entry}.output.{index}", result, output)

    def count(self, result: Result, calls: CallStatuses) -> None:
        """Add what the other file says of a result."""
        named, status = result.portable_id, status_of(result.accuracy)
        calls.add(named.call, named.direction, status)
        if message := self.message(result, calls.messages.get(named.call, "")):
            calls.messages[named.call] = message

    def detail(self, name: str, result: Result, output: OutputResult) -> Detail:
        """Columns of rules that do not judge this API are left blank, and the reference's dtype is wide for floats."""
        dtype = output.dtype
        is_complex, floating = dtype.startswith("complex"), "float" in dtype or "complex" in dtype
        rule = rule_of(result.standard, result.api, dtype) if floating else "binary"
        blank = {column for columns in OF_RULE.values() for column in columns} - set(OF_RULE.get(rule, ()))
        found = {field: output.measures.get(field) for column, field in MEASURED.items() if column not in blank}
        metrics = {field: number(value) if isinstance(value, str) else value for field, value in found.items()}
        bench = "complex128" if is_complex else "float64" if floating else dtype
        return Detail(
            name, output.verdict, output.reason, f"torch.{bench}", f"torch.{dtype}", str(output.shape), metrics
        )

    def message(self, result: Result, before: str) -> str:
        """What is said of a call, "" for nothing. before: what it says of the other direction."""
        return result.reason if status_of(result.accuracy) == "SKIP" else before


class MindSporeLayout(Layout, frozen=True, kw_only=True):
    """What the two files of msprobe's checker for MindSpore hold: its columns, dtypes and messages."""

    release: Release
    details: Table = Table(MINDSPORE_DETAILS, blank="", number=repr)
    call: str = "API Name"

    def detail(self, name: str, result: Result, output: OutputResult) -> Detail:
        dtype = frameworks.signatures("mindspore").written(output.dtype)[2]
        metrics = {field: number(value) for field, value in output.measures.items()}
        return Detail(name, status_of(output.verdict), self._said(output), dtype, dtype, str(output.shape), metrics)

    def message(self, result: Result, before: str) -> str:
        return before + ("".join(map(self._said, result.own_outputs)) if result.outputs else result.reason)

    def _said(self, output: OutputResult) -> str:
        said = ""
        for check in self.release.status.checks:
            beyond, metric = _MESSAGES[check.metric]
            value = output.measures.get("cosine_distance" if check.metric == "cosine" else check.metric)
            if value is None:
                said += f"two inputs are not valid for computing {metric}, skip comparing "
            elif not check.holds(1 - number(value) if check.metric == "cosine" else number(value)):
                said += beyond.format(check.limit)
        return said


def layout_of(standard: str, decimals: int = DECIMALS) -> Layout:
    """The layout of a run that was judged by this standard. decimals are those of numbers in msprobe's columns."""
    tool = TOOLS.get(standard)
    if tool is not None and tool.release.columns.layout == "mindspore":
        release = tool.release
        return MindSporeLayout(release=release, apis=tuple(" ".join(release.columns.apis).split()))
    return Layout(Table(DETAILS, number=f"{{:.{decimals}f}}".format))
