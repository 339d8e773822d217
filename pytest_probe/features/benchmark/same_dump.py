"""Are two sides of a comparison of the same dump?"""

from __future__ import annotations

from collections.abc import Set

from pytest_probe.errors import SettingsError


def check_same_dump(option: str, device: Set[str], benchmark: Set[str], what: str) -> int:
    """How many names are on both sides. what: of what they are names. Raises SettingsError where the two have not half
    of their names in common."""
    common, most = len(device & benchmark), max(len(device), len(benchmark))
    if 2 * common < most or not common:
        found = f"{common:,} of {most:,} {what} are on both sides"
        raise SettingsError(option, found, "give two runs of the same dump")
    return common
