"""Another run that this one is compared with: a benchmark, or what a baseline keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from pytest_probe.model.baseline import KeptCase
from pytest_probe.model.result import Result


class OtherRun(Struct, frozen=True):
    """Its cases by their ids. same_device: is it of this run's device? limits: may a case fail, since it takes longer
    than there?"""

    kind: Literal["benchmark", "baseline"]
    name: str
    cases: Mapping[str, Result | KeptCase]
    same_device: bool = True
    limits: bool = True
