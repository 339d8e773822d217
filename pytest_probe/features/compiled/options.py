"""What goes with --probe-compile."""

from __future__ import annotations

from pytest_probe.model.run import RECORDED
from pytest_probe.options import ACCURACY
from pytest_probe.settings import RawOptions, Settings, refuse


def check(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError for an option that needs no call on a device, other calls, or no verdict."""
    refuse(
        options,
        "--probe-compile judges what a compiler makes of recorded calls; leave it out",
        device=RECORDED not in settings.devices,
        against=settings.against is None,
        against_call=settings.against_call is None,
        outputs=settings.outputs is None,
        relations=not settings.relations,
        framework=settings.framework is None,
        against_framework=settings.against_framework is None,
        fuzz=settings.fuzz is None,
        mode=settings.mode == (ACCURACY,),
        emulate=not settings.emulate,
        standard=settings.standard != "finite",
    )
