"""The files of msprobe's checker for MindSpore: its columns, dtypes and messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from pytest_probe import frameworks
from pytest_probe.features.msprobe_csv.rows import MESSAGE, NAME, SHAPE, shape_text, status_of
from pytest_probe.model.result import OutputResult, Result, number
from pytest_probe.standards.tools.release import Check, Release

_FRAMEWORK = "mindspore"
# By metric: what the tool says where it is beyond its limit, and where there is none.
_MESSAGES = {
    "cosine": ("cosine similarity is less than threshold: {} ", "cosine similarity"),
    "max_abs_error": ("max absolute difference is greater than threshold: {} ", "max absolute difference"),
}
_NO_METRIC = "two inputs are not valid for computing {}, skip comparing "


class MindSporeColumns(Struct, frozen=True):
    """See checker.Layout."""

    release: Release
    details: Sequence[str] = (
        *(NAME, "Bench Dtype", "Tested Dtype", SHAPE, "Cosine", "MaxAbsErr", "MaxRelativeErr", "Status", MESSAGE),
    )
    result: Sequence[str] = (NAME, "Forward Test Success", "Backward Test Success", MESSAGE)
    blank: str = ""

    def has(self, result: Result) -> bool:
        return any(fnmatchcase(result.api, glob) for glob in " ".join(self.release.columns.apis).split())

    def detail(self, name: str, result: Result, output: OutputResult) -> Sequence[object]:
        dtype = frameworks.signatures(_FRAMEWORK).written(output.dtype)[2]
        cells = (_cell(self._value(output, metric)) for metric in ("cosine", "max_abs_error", "max_rel_error"))
        return [name, dtype, dtype, shape_text(output.shape), *cells, status_of(output.verdict), self._said(output)]

    def message(self, result: Result, before: str) -> str:
        return before + ("".join(map(self._said, result.own_outputs)) if result.outputs else result.reason)

    def _said(self, output: OutputResult) -> str:
        return "".join(self._trouble(output, self.release.status.checks))

    def _trouble(self, output: OutputResult, checks: Sequence[Check]) -> Iterator[str]:
        for check in checks:
            beyond, metric = _MESSAGES[check.metric]
            value = self._value(output, check.metric)
            if value is None:
                yield _NO_METRIC.format(metric)
            elif not check.holds(value):
                yield beyond.format(check.limit)

    def _value(self, output: OutputResult, metric: str) -> float | None:
        found = output.measures.get("cosine_distance" if metric == "cosine" else metric)
        return None if found is None else 1 - number(found) if metric == "cosine" else number(found)


def _cell(value: float | None) -> str:
    return "" if value is None else repr(float(value))
