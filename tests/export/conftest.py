"""What runs of pytest inside pytest need."""

from __future__ import annotations

from tests.acceptance.conftest import make_dump

__all__ = ["make_dump"]
