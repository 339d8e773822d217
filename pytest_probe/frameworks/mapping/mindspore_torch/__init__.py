"""MindSpore's APIs by torch's, where that is no function of the same name and parameters."""

from __future__ import annotations

from collections.abc import Mapping

RECORD, CALL = "mindspore", "torch"
SPELLINGS: Mapping[str, tuple[str, ...]] = {}
