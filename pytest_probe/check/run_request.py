"""What a run was asked for, in plain data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from pytest_probe.model.run import RECORDED, Device, Way

if TYPE_CHECKING:
    from pytest_probe.check.outcome import Measuring
    from pytest_probe.check.reference_cache import ReferenceCache
    from pytest_probe.frameworks.base import Framework

# float64 operations from which on a contraction is sampled: about half a second of two cores.
FLOPS = 2e10

# Wraps the device under test in what a feature adds.
DeviceWrapper: TypeAlias = "Callable[[Framework, Device], Device]"
# Gives what a feature puts in the place of float64 on the CPU, from the framework of the device and the device: what
# runs references, and how.
ReferenceBy: TypeAlias = "Callable[[Framework, Device], tuple[Framework, Way]]"


class RunRequest(Struct, frozen=True):
    """What a run was asked for: device None is the framework's own choice, workers share the machine's cores,
    repeat is how often the device runs each case, allow names device modes, or says "auto" for what the framework's
    flags allow, or "none". reference_device is where float64 runs, flops how many a product or a convolution may take
    there in one run before it is sampled. measured: verdicts carry the measures that msprobe's files hold; baseline:
    what a baseline keeps. emulate: a device without kernels of 16 bit computes it in float32, and rounds. diagnosed:
    errors carry their likely cause; of further errors of an API than `whole_diagnoses`, None for no such number, those
    causes alone are tried that need no run; a fifth of that is enough where runs found nothing. locks: the folder in
    which processes lock the devices that they share. keeps_sides: what checking a case leaves has all outputs of both
    sides. cache: what keeps numbers of the reference side. judged: are results judged, or do records run on the device
    alone, to be measured? measuring: what measures each case's time and memory, None where neither is asked for.
    plotted: verdicts carry what plots draw. saves_all: the tensors of all cases are saved, in full. device_wrapper:
    wraps the device under test in what a feature adds. framework, reference_framework: what makes the device's calls of
    records, and those of float64, by the map of both; "" for the record's own framework. reference_by: gives what a
    feature puts in the place of float64 on the CPU."""

    device: str | None = None
    seed: int = 0
    inputs: str = "auto"
    standard: str = "auto"
    workers: int = 1
    allow: tuple[str, ...] = ("auto",)
    repeat: int = 1
    reference_device: str = "cpu"
    flops: float = FLOPS
    measured: bool = False
    emulate: bool = False
    baseline: bool = False
    diagnosed: bool = True
    locks: Path | None = None
    cache: ReferenceCache | None = None
    judged: bool = True
    measuring: Measuring | None = None
    whole_diagnoses: int | None = None
    plotted: bool = False
    saves_all: bool = False
    keeps_sides: bool = False
    device_wrapper: DeviceWrapper | None = None
    framework: str = ""
    reference_framework: str = ""
    reference_by: ReferenceBy | None = None

    @property
    def judges_parts(self) -> bool:
        """May a part of a large output tell what all of it is? By the noise standard, which says of each other element
        that it is within its limits; of one run of the device; and where a user does not ask for all tensors.
        Float64 alone adds up pieces without an error."""
        by_noise = self.standard in ("auto", "noise") and self.reference_by is None
        return by_noise and self.repeat == 1 and not self.saves_all and self.judged

    @property
    def judges_stored(self) -> bool:
        """Are the outputs judged that a dump stored?"""
        return self.device == RECORDED
