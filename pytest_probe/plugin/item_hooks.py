"""The hooks of our items: pytest's own, but for those of plugins in whose place we do the same for less."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from pytest_probe.plugin import phases
from pytest_probe.plugin.logs import PHASES, PYTESTS, Logs, Phase, logs_of

# Whose plugins print nothing while an item is set up and torn down, by their modules.
_SILENT = ("_pytest.", "pytest_probe.", "xdist.")


class Hooks:
    """A relay of hooks in which some leave a plugin out. without has that plugin by the hook's name. Output is not
    captured where nobody prints: in setups, and in teardowns of an item alone, if no other plugin hears of them."""

    def __init__(
        self, relay: Any, plugins: pytest.PytestPluginManager, without: Mapping[str, object], logs: Logs | None
    ) -> None:
        self._relay, self._plugins, self._without, self._logs = relay, plugins, without, logs

    def __getattr__(self, name: str) -> Any:
        plugins = [self._without[name]] if name in self._without else []
        hook = self._less(getattr(self._relay, name), plugins)
        if name in _CAPTURED and _is_silent(hook):
            hook = _CAPTURED[name](hook, self._less(hook, [*plugins, self._plugins.get_plugin("capturemanager")]))
        if name in PHASES and self._logs is not None:
            hook = Phase(hook, self._logs, PHASES[name])
        self.__dict__[name] = hook
        return hook

    def _less(self, hook: Any, plugins: Sequence[object]) -> Any:
        if not plugins:
            return hook
        kept = {implementation.plugin for implementation in hook.get_hookimpls()}
        every = getattr(self._plugins.hook, hook.name).get_hookimpls()
        others = {implementation.plugin for implementation in every} - kept
        return self._plugins.subset_hook_caller(hook.name, [*others, *plugins])


def _is_silent(hook: Any) -> bool:
    return all(each.function.__module__.startswith(_SILENT) for each in hook.get_hookimpls())


class _Teardown:
    """Captures where more than the item ends: fixtures of other items may print then."""

    def __init__(self, usual: Callable[..., object], quiet: Callable[..., object]) -> None:
        self._usual, self._quiet = usual, quiet

    def __call__(self, *, item: pytest.Item, nextitem: pytest.Item | None) -> object:
        alone = nextitem is not None and nextitem.parent is item.parent
        return (self._quiet if alone else self._usual)(item=item, nextitem=nextitem)


_CAPTURED: Mapping[str, Callable[..., Any]] = {
    "pytest_runtest_setup": lambda usual, quiet: quiet,
    "pytest_runtest_teardown": _Teardown,
}


class ItemHooks:
    """Gives items their hooks; the very ones of pytest where there is nothing to leave out. settled: no conftest is
    loaded any more, so that all items under one parent have the same."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager
        self._logs = logs_of(config)
        quiet = {} if self._logs is None else dict.fromkeys(PHASES, self._plugins.get_plugin(PYTESTS))
        self._without = {**quiet, **phases.told_later(config)}
        self._usual: Hooks | None = None
        self.settled = False
        self._last: tuple[object, Any] = (None, None)

    def of(self, parent: pytest.Collector) -> Any:
        if self._last[0] is not parent or not self.settled:
            self._last = parent, self._among(parent.ihook)
        return self._last[1]

    def _among(self, relay: Any) -> Any:
        if not self._without:
            return relay
        # Those of a folder with conftests beside it are made anew, as pytest makes them.
        if relay is not self._plugins.hook:
            return self._made(relay)
        if self._usual is None:
            self._usual = self._made(relay)
        return self._usual

    def _made(self, relay: Any) -> Hooks:
        return Hooks(relay, self._plugins, self._without, self._logs)
