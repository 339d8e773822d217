"""Which API call lost precision, where, and by how much more than its dtype explains?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_probe.capture.debugger import PrecisionDebugger as PrecisionDebugger
    from pytest_probe.capture.debugger import capture as capture
    from pytest_probe.capture.debugger import seed_all as seed_all
    from pytest_probe.capture.timing import end_analysis as end_analysis
    from pytest_probe.capture.timing import start_analysis as start_analysis
    from pytest_probe.capture.timing import timing as timing
    from pytest_probe.check import Case as Case
    from pytest_probe.check import Checker as Checker
    from pytest_probe.check import RunRequest as RunRequest
    from pytest_probe.check.notebook import check as check
    from pytest_probe.check.quantizers import dequantize as dequantize
    from pytest_probe.check.quantizers import quantizer as quantizer
    from pytest_probe.errors import ProbeError as ProbeError
    from pytest_probe.model.dump import Dump as Dump
    from pytest_probe.model.dump import Record as Record
    from pytest_probe.model.verdict import Verdict as Verdict
    from pytest_probe.plugin.checks import ProbeCase as ProbeCase
    from pytest_probe.plugin.checks import ProbeFixture as ProbeFixture
    from pytest_probe.records import read_dump as read_dump
    from pytest_probe.registry import Registry as Registry

# The entry point runs this module in every pytest run, so it imports nothing before it is asked.
_EXPORTS = {
    "PrecisionDebugger": "pytest_probe.capture.debugger",
    "ProbeCase": "pytest_probe.plugin.checks",
    "ProbeError": "pytest_probe.errors",
    "ProbeFixture": "pytest_probe.plugin.checks",
    "Case": "pytest_probe.check",
    "Checker": "pytest_probe.check",
    "RunRequest": "pytest_probe.check",
    "Dump": "pytest_probe.model.dump",
    "Record": "pytest_probe.model.dump",
    "Registry": "pytest_probe.registry",
    "Verdict": "pytest_probe.model.verdict",
    "capture": "pytest_probe.capture.debugger",
    "check": "pytest_probe.check.notebook",
    "dequantize": "pytest_probe.check.quantizers",
    "end_analysis": "pytest_probe.capture.timing",
    "quantizer": "pytest_probe.check.quantizers",
    "read_dump": "pytest_probe.records",
    "seed_all": "pytest_probe.capture.debugger",
    "start_analysis": "pytest_probe.capture.timing",
    "timing": "pytest_probe.capture.timing",
}

__all__ = sorted(_EXPORTS)


# A type checker that sees it takes any name.
if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _EXPORTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_EXPORTS[name]), name)
