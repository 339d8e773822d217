"""The packaged tables, as YAML."""

from __future__ import annotations

from importlib import resources
from typing import TypeVar

import msgspec

T = TypeVar("T")


def packaged_table(name: str, kind: type[T]) -> T:
    """The table of a name ("classes", "tools/ptdbg"), read anew. msgspec reads by libyaml where PyYAML has it."""
    return msgspec.yaml.decode(resources.files(__name__).joinpath(f"{name}.yaml").read_bytes(), type=kind)
