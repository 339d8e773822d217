"""The project's own tests: plugins that they need."""

from __future__ import annotations

pytest_plugins = ["pytester"]
