"""Where --probe-listen listens, and what does not go with it."""

from __future__ import annotations

from pytest_probe.capture.online.address import WANTED, Address, address
from pytest_probe.option_types import Given, Type
from pytest_probe.settings import RawOptions, Settings, on_no_device, refuse


class Listening(Type):
    def read(self, given: Given) -> Address | None:
        """Raises SettingsError for what is no address."""
        if not given.text:
            return None
        found = address(given.text)
        if found is None:
            raise given.wrong(WANTED)
        return found

    def plain(self, value: Address | None) -> str | None:
        return None if value is None else str(value)


def check(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError for an option that needs a dump, other processes, or another run of the same cases."""
    refuse(
        options,
        f"{options['listen'].name} judges calls when they come; leave it out",
        **on_no_device(settings),
        dump=not settings.dumps,
        inputs=settings.inputs not in ("generated", "exact"),
        against=settings.against is None,
        outputs=settings.outputs is None,
        fuzz=settings.fuzz is None,
        unique=not settings.unique,
        shard=settings.shard is None,
        isolate=not settings.isolate,
        cluster=settings.cluster is None,
        resume=not settings.resume,
    )
