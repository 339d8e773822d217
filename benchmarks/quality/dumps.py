"""Every case of real dumps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.quality.samples import Sample, Samples, Wish
from pytest_probe.check import Case, Checker
from pytest_probe.model.dump import Dump, Record
from pytest_probe.records import read_dump


def samples(paths: Sequence[Path], wish: Wish) -> Samples:
    """All cases, cast to the dtype."""
    for path in paths:
        dump = read_dump(path)
        for record in dump.records:
            if wish.takes(f"{record.namespace}.{record.api}"):
                yield _of_record(path, dump, record, wish.dtype)


def _of_record(path: Path, dump: Dump, record: Record, dtype: str) -> Sample:
    def cases(checker: Checker) -> Sequence[Case]:
        return [Case(dump, record, direction, dtype) for direction in record.directions]

    return Sample(f"{'/'.join(path.parts[-3:-1])} {record.name}", cases)
