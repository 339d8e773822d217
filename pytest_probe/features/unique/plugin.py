"""--probe-unique: of items whose records are alike the first one runs."""

from __future__ import annotations

import shlex

import pytest
from msgspec.structs import replace

from pytest_probe.features.unique.duplicates import Folds
from pytest_probe.options import NAMED
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.order import deselect


class Unique(Feature):
    def select(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Records are folded over all dumps of the run, also where single items of them were named: a case that is run
        again by itself is then the same one. An item whose first record does not run here stays itself."""
        probe = self.probe
        found = {item.dump_path: item.case.dump for item in items if isinstance(item, ProbeItem)}
        # In the order in which they were given: another plugin may have shuffled the items.
        in_order = [path for path in probe.dumps.paths if path in found]
        dumps = {path: found[path] for path in (*in_order, *sorted(found.keys() - in_order))}
        folds = Folds(probe.settings.inputs not in ("generated", "exact"))
        admits = probe.settings.selection.admits
        for dump in dumps.values():
            folds.add(
                dump, (record for record in dump.records if any(admits(record, way) for way in record.directions))
            )
        folded = {path: folds.folded(dump) for path, dump in dumps.items()}
        globs = (("api", probe.settings.selection.apis), ("skip-api", probe.settings.selection.skip_apis))
        words = [f"{NAMED['dump'].flag}={shlex.quote(str(path))}" for path in dumps]
        words += [f"{NAMED[name].flag}={shlex.quote(glob)}" for name, given in globs for glob in given]
        run_here = {_key(item) for item in items if isinstance(item, ProbeItem)}
        kept: list[pytest.Item] = []
        left: list[pytest.Item] = []
        for item in items:
            whole = folds.of(item.case.record) if isinstance(item, ProbeItem) else None
            if not isinstance(item, ProbeItem) or whole is None:
                kept.append(item)
            elif whole.record is item.case.record:
                item.case = replace(item.case, dump=folded[item.dump_path])
                item.folded = whole.others
                if whole.others:
                    name = shlex.quote(f"{item.case.record.name}.{item.case.direction}")
                    item.command = " ".join([*words, "-k", name])
                kept.append(item)
            else:
                of_first = (id(whole.record), *_key(item)[1:])
                (left if of_first in run_here else kept).append(item)
        deselect(session.config, left)
        items[:] = kept


def _key(item: ProbeItem) -> tuple[int, str, str | None]:
    return id(item.case.record), item.case.direction, item.case.dtype
