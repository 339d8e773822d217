"""Settings as a command line gives them."""

from __future__ import annotations

from pathlib import Path

from pytest_probe.option_types import Given
from pytest_probe.options import OPTIONS
from pytest_probe.settings import Settings


def settings_of(**values: object) -> Settings:
    """Options by their attribute; the others are at their default."""
    defaults = {o.attribute: o.type.read(Given(o.flag, o.default, Path(), is_set=False)) for o in OPTIONS}
    return Settings(defaults | values)
