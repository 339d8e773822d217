"""What runs of pytest inside pytest, and checkers of one call, need."""

from __future__ import annotations

from tests.acceptance.conftest import healthy_run, make_dump, planted, planted_run
from tests.check.conftest import bench, plant

__all__ = ["bench", "healthy_run", "make_dump", "plant", "planted", "planted_run"]
