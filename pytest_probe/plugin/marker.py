"""`@pytest.mark.probe(dump=..., api=..., direction=..., dtype=...)`: the records that a test of one's own runs on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from pytest_probe import frameworks
from pytest_probe.check import Case, floating_dtypes
from pytest_probe.errors import DumpError, HookFailed, SettingsError
from pytest_probe.model.dump import Direction, Dump
from pytest_probe.options import DIRECTION_CHOICES, DTYPE_CHOICES
from pytest_probe.plugin.session import state_of
from pytest_probe.records import NO_SUCH, dumps_of_option, labels
from pytest_probe.selection import Selection, apis_of, closest, select
from pytest_probe.system.text import check_name, one_of

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

ARGUMENTS = ("dump", "api", "direction", "dtype")


class Marked(Struct, frozen=True):
    """A record that a marked test runs on, and the directions that its check judges."""

    case: Case
    directions: tuple[Direction, ...]


def parameters(config: pytest.Config, mark: pytest.Mark, folder: Path) -> list[ParameterSet]:
    """The records of the marked dumps that match, as parameters of `probe_case`; ids are the records' names.

    folder is the test file's: a relative path is looked for there, then in rootdir. Raises CollectError.
    """
    try:
        unknown = [*map(repr, mark.args), *(name for name in mark.kwargs if name not in ARGUMENTS)]
        if unknown:
            advice = f"{one_of(ARGUMENTS, unknown[0])}, by name"
            raise SettingsError("pytest.mark.probe", ", ".join(unknown), advice)
        if "dump" not in mark.kwargs:
            advice = "give dump=PATH, the dump whose records the test runs on"
            raise SettingsError("pytest.mark.probe", mark.kwargs, advice)
        probe = state_of(config)
        paths = _dumps(mark.kwargs["dump"], folder, config.rootpath)
        named = dict(labels(sorted(paths)))
        dumps: dict[Path, Dump] = {}
        for path in paths:
            dump = dumps[path] = probe.dumps.read(path)
            trouble = frameworks.unavailable(dump.framework) or "; ".join(dump.damage)
            if trouble:
                raise DumpError(dump.path, trouble)
        found = [
            _parameter(marked, f"{named[path]}-" if len(paths) > 1 else "")
            for path, dump in dumps.items()
            for marked in _records(dump, mark.kwargs)
        ]
    except (DumpError, HookFailed, SettingsError) as error:
        raise pytest.Collector.CollectError(str(error)) from None
    if not found:
        wanted = ", ".join(f"{name}={value!r}" for name, value in mark.kwargs.items())
        apis = apis_of(dumps.values())
        meant = "".join(closest(name, apis) for name in _listed(mark.kwargs.get("api", ())) if name not in apis)
        raise pytest.Collector.CollectError(f"pytest.mark.probe({wanted}): no record matches{meant}")
    return found


def _dumps(given: str | Path, folder: Path, root: Path) -> list[Path]:
    path = next((place / given for place in (folder, root) if (place / given).exists()), None)
    if path is None:
        places = " or ".join(dict.fromkeys([str(folder), str(root)]))
        raise SettingsError("pytest.mark.probe: dump", str(given), f"{NO_SUCH} in {places}")
    return dumps_of_option("pytest.mark.probe: dump", path)


def _records(dump: Dump, given: Mapping[str, Any]) -> Iterator[Marked]:
    wanted = DIRECTION_CHOICES[
        check_name("pytest.mark.probe: direction", given.get("direction", "forward"), DIRECTION_CHOICES)
    ]
    dtypes = [
        check_name("pytest.mark.probe: dtype", name, DTYPE_CHOICES) for name in _listed(given.get("dtype", "recorded"))
    ]
    selection = Selection(
        apis=tuple(map(frameworks.signatures().spelled, _listed(given.get("api", ())))),
        directions=wanted[:1],
        dtypes=tuple(None if dtype == "recorded" else dtype for dtype in dtypes),
    )
    for record, direction, dtype in select(dump, selection, floating_dtypes):
        if record.forward is not None:
            directions = tuple(each for each in wanted if each in record.directions)
            yield Marked(Case(dump, record, direction, dtype), directions)


def _listed(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _parameter(marked: Marked, prefix: str) -> ParameterSet:
    case = marked.case
    names = (case.record.api, case.api)
    marks = [pytest.mark.probe(namespace=case.record.namespace, api=name) for name in names]
    suffix = "" if case.dtype is None else f"-{case.dtype}"
    return pytest.param(marked, marks=marks, id=f"{prefix}{case.record.name}{suffix}")
