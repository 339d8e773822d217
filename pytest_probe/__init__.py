"""Which API call got less precise, where, and by how much more than it may?"""

from __future__ import annotations

# The entry point runs this module in every pytest run, so it imports nothing before it is asked.
_EXPORTS = {
    "PrecisionDebugger": "pytest_probe.recording.debugger",
    "ProbeCase": "pytest_probe.checks",
    "ProbeError": "pytest_probe.errors",
    "ProbeFixture": "pytest_probe.checks",
    "Case": "pytest_probe.execution",
    "Checker": "pytest_probe.execution",
    "Conditions": "pytest_probe.execution",
    "Dump": "pytest_probe.records.model",
    "Record": "pytest_probe.records.model",
    "Registry": "pytest_probe.registry",
    "Verdict": "pytest_probe.standards.verdict",
    "capture": "pytest_probe.recording.debugger",
    "read_dump": "pytest_probe.records",
    "seed_all": "pytest_probe.recording.seeds",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_EXPORTS[name]), name)
