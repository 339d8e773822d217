"""Everything that pytest-probe raises.

ProbeError
├── SettingsError       an option or ini key has a value that cannot be used
│   ├── UnknownKey      a file of settings, or arguments, have a key that is not known
│   └── MissingSetting  an option that is needed was not given
├── DumpError           a file is no dump, or is damaged
├── ResultsError        a file of results is none of ours
├── RecordError         one record cannot be used: its items are skipped
│   ├── NotRecorded     the capture could not record it
│   ├── NotRebuilt      it holds a value that no dump can hold
│   ├── LostArgument    the dump does not hold what an argument was
│   └── NoTensors       it holds the call's stack alone
├── FrameworkTooOld     the installed framework is older than what works
├── DeviceRaised        the device raised where the reference did not
│   └── CompilerFailed  a compiler broke on a call, or what it made is none of the call
├── OverflowFound       a capture met as many overflows as it was asked for
├── HookFailed          code that a project's conftest.py added raised, or gave what cannot be used
└── Unsupported         a case that cannot be decided here: its item is skipped
    ├── UnknownAPI      the name leads to no API inside the allow-list
    ├── UnsupportedDtype    NumPy has no place for the dtype of a tensor
    ├── NoKernel        the device has no kernel for the call
    ├── NotCompilable   a compiler does not take the call, or left it as it is
    ├── NoReference     float64 on the CPU cannot compute the call
    ├── BrokenCall      the shapes of the call's arguments contradict its operator
    ├── UnsafeArguments the call's kernel would not check its arguments, and they are wrong
    ├── TooLarge        the call needs more memory than may be taken
    ├── OutOfMemory     memory ran out all the same
    ├── TooLargeForDevice   it did on the device, for a case that was alone there
    ├── NotMeasured     the device raised where its time or memory alone was asked for
    └── ReplayDiffers   the outputs are unlike the recorded ones

NotStarted, a SystemExit, ends a command whose program Python does not find.
DeviceMemoryError, a MemoryError, is caught by whoever runs a case: a second try may do.
"""

from __future__ import annotations

import copyreg
from typing import Any


class ProbeError(Exception):
    """Base of all errors; its text is meant for the user, and complete."""


class SettingsError(ProbeError):
    """An option or ini key has a value that cannot be used."""

    def __init__(self, option: str, value: object, wanted: str) -> None:
        super().__init__(f"{option}: {value!r} cannot be used; {wanted}")
        self.option = option


class UnknownKey(SettingsError):
    """A file of settings, or arguments, have a key that is not known. advice names the known ones."""

    def __init__(self, where: str, key: object, advice: str) -> None:
        ProbeError.__init__(self, f"{where}: unknown key {key!r}; {advice}")
        self.option = where


class MissingSetting(SettingsError):
    """An option that is needed was not given."""

    def __init__(self, option: str, wanted: str) -> None:
        ProbeError.__init__(self, f"{option} is missing; {wanted}")
        self.option = option


class DumpError(ProbeError):
    """A file is no dump, or is damaged."""

    def __init__(self, path: object, found: str, advice: str = "") -> None:
        self.problem = f"{found}; {advice}" if advice else found
        super().__init__(f"{path}: {self.problem}")


class ResultsError(ProbeError):
    """A file of results is none of ours. where is the file, with the line; found names the field in it."""

    def __init__(self, where: str, found: str) -> None:
        super().__init__(f"{where}: pytest-probe does not write this: {found}")
        self.found = found


class RecordError(ProbeError):
    """One record cannot be used. `field` is the path inside the entry, as `input_args.0.shape`; `kind` groups skips."""

    kind = "broken record"

    def __init__(self, path: object, entry: str, field: str, found: str, wanted: str) -> None:
        where = f"{path}: {entry}: {field}" if field else f"{path}: {entry}"
        super().__init__(f"{where}: found {found}, expected {wanted}")
        self.entry = entry
        self.field = field

    def __reduce__(self) -> tuple[Any, ...]:
        """By its words: pickle would call __init__ with them."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class NotRecorded(RecordError):
    """The capture met an error at this call, and left its reason in the entry's place."""

    kind = "not recorded"


class NotRebuilt(RecordError):
    """A value is of a kind that no dump can hold, as a function of the program's or a sparse tensor."""

    kind = "value that no dump holds"


class LostArgument(RecordError):
    """The dump does not hold what an argument was, as the value of a tensor that gives a size."""

    kind = "lost argument"


class NoTensors(RecordError):
    """The dump has the stack of a call, and neither arguments nor outputs."""

    kind = "no tensors"


class HookFailed(ProbeError):
    """Code that a project's conftest.py added raised, or gave what cannot be used: what met it fails."""


class FrameworkTooOld(ProbeError):
    """The installed framework is older than what works: nothing can be checked or recorded with it."""

    def __init__(self, module: str, found: str, oldest: str) -> None:
        super().__init__(
            f"{module} {found} is installed, and pytest-probe needs {module} {oldest} or newer: "
            f"pip install --upgrade 'pytest-probe[{module}]'"
        )


class Unsupported(ProbeError):
    """A case that cannot be decided here.

    `kind` groups skips in reports ("no kernel on the device"), the message says the details.
    """

    kind = "unsupported"

    def __init__(self, message: str, kind: str | None = None) -> None:
        super().__init__(message)
        if kind is not None:
            self.kind = kind


class UnknownAPI(Unsupported):
    """The name leads to no API inside the allow-list; nothing was imported or called for it."""

    kind = "outside the allow-list"


class UnsupportedDtype(Unsupported):
    """NumPy, with ml_dtypes, has no place for a tensor's dtype."""

    kind = "dtype not supported"


class NoKernel(Unsupported):
    """The device has no kernel for the call."""

    kind = "unsupported by the device"


class NotCompilable(Unsupported):
    """A compiler does not take the call, or left it as it is."""

    kind = "not compilable"


class NoReference(Unsupported):
    """Float64 on the CPU cannot compute the call."""

    kind = "no reference"


class BrokenCall(Unsupported):
    """The shapes of the arguments contradict the operator."""

    kind = "broken record"


class UnsafeArguments(Unsupported):
    """The arguments are wrong, and the call's kernel would not notice: it may read memory that is not its own."""

    kind = "unsafe arguments"


class TooLarge(Unsupported):
    """The call needs more memory than may be taken; none was."""

    kind = "too large"


class OutOfMemory(Unsupported):
    """The machine's memory, or the device's, ran out in the middle of a case; what the case had taken is given back."""

    kind = "out of memory"


class TooLargeForDevice(Unsupported):
    """The device's own memory ran out for a case that was alone on it."""

    kind = "too large for the device"

    def __init__(self, needed: int, free: int | None, device: str, said: str) -> None:
        left = "the framework does not say how many are free" if free is None else f"{free:,} are free"
        super().__init__(
            f"its arguments and outputs take {needed:,} bytes; it was alone on {device}, where {left}: {said}"
        )


class DeviceMemoryError(MemoryError):
    """A device's own memory ran out, or it has less than a call's arguments take."""


class NotMeasured(Unsupported):
    """The device raised where its time or memory alone was asked for, so that nobody knows whether it should."""

    kind = "not measured"


class ReplayDiffers(Unsupported):
    """The outputs are unlike the recorded ones, so the call that was captured is not the call that ran."""

    kind = "replay differs from the record"


class DeviceRaised(ProbeError):
    """The device raised where the reference did not."""

    kind = ""


class CompilerFailed(DeviceRaised):
    """A compiler broke on a call, or what it made is none of the call."""

    kind = "compiler"


class OverflowFound(ProbeError):
    """A capture met as many overflows as it was asked for, and ends the program."""


class NotStarted(SystemExit):
    """Python finds no such module to run; its message, or status, is Python's own."""
