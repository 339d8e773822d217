"""The hooks of our items: pytest's own, but for those of plugins in whose place we do the same for less."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pytest_probe.plugin import phases
from pytest_probe.plugin.logs import PHASES, PYTESTS, Logs, Phase, logs_of


class Hooks:
    """A relay of hooks in which some leave a plugin out. without has that plugin by the hook's name."""

    def __init__(
        self, relay: Any, plugins: pytest.PytestPluginManager, without: Mapping[str, object], logs: Logs | None
    ) -> None:
        self._relay, self._plugins, self._without, self._logs = relay, plugins, without, logs

    def __getattr__(self, name: str) -> Any:
        hook = getattr(self._relay, name)
        if name in self._without:
            hook = self._less(hook, self._without[name])
        if name in PHASES and self._logs is not None:
            hook = Phase(hook, self._logs, PHASES[name])
        self.__dict__[name] = hook
        return hook

    def _less(self, hook: Any, plugin: object) -> Callable[..., object]:
        kept = {implementation.plugin for implementation in hook.get_hookimpls()}
        every = getattr(self._plugins.hook, hook.name).get_hookimpls()
        others = {implementation.plugin for implementation in every} - kept
        return self._plugins.subset_hook_caller(hook.name, [*others, plugin])


class ItemHooks:
    """Gives items their hooks; the very ones of pytest where there is nothing to leave out."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager
        self._logs = logs_of(config)
        quiet = {} if self._logs is None else dict.fromkeys(PHASES, self._plugins.get_plugin(PYTESTS))
        self._without = {**quiet, **phases.told_later(config)}
        self._usual: Hooks | None = None

    def of(self, relay: Any) -> Any:
        if not self._without:
            return relay
        # Those of a folder with conftests beside it are made anew each time, as pytest makes them.
        if relay is not self._plugins.hook:
            return self._made(relay)
        if self._usual is None:
            self._usual = self._made(relay)
        return self._usual

    def _made(self, relay: Any) -> Hooks:
        return Hooks(relay, self._plugins, self._without, self._logs)
