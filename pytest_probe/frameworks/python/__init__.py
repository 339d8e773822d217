"""What frameworks with a Python API have in common."""

from __future__ import annotations
