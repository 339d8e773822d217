"""The memory of the device under test, for which the processes of a run compete.

A device's error that its memory ran out is no wrong result: the case runs once more, alone there.

A case with more than a 32nd of the free memory leaves nothing on a shared device, not even the forward run for its
backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_probe.errors import DeviceMemoryError, TooLargeForDevice
from pytest_probe.model.run import Device
from pytest_probe.system.files import DeviceLock
from pytest_probe.system.machine import release_frames
from pytest_probe.user_errors import first_line

if TYPE_CHECKING:
    from pytest_probe.frameworks.base import Devices

# Shares of the free memory. A case with more than the first has the device for itself; one with more than the second
# leaves nothing there for the next one, since what every process keeps adds up.
ALONE, KEPT = 1 / 2, 1 / 32

Waiting = Callable[[], AbstractContextManager[None]]


class DeviceMemory:
    """One device's. folder: where the processes that share it lock a file, None where there is no other one; waiting is
    entered while this process waits for others."""

    def __init__(
        self, framework: Devices, device: Device, folder: Path | None = None, waiting: Waiting = nullcontext
    ) -> None:
        self._framework = framework
        self._device = device
        self._waiting = waiting
        self._lock: DeviceLock | None = None
        if folder is not None and device.name != "cpu":
            with suppress(OSError):  # without locks nobody can be alone
                self._lock = DeviceLock(folder / f"{device.name.replace(':', '-')}.lock", self._waits)

    def crowds(self, needed: Callable[[], int], share: float = KEPT) -> bool:
        """Do so many bytes leave too little of a device that several processes share?"""
        left = None if self._lock is None else self._framework.memory_left(self._device)
        return left is not None and needed() > left * share

    def check(self, needed: Callable[[], int]) -> None:
        """Raises DeviceMemoryError where the device has less than these bytes; none was taken."""
        left = self._framework.memory_left(self._device)
        if left is None or needed() <= left:
            return
        left = self._left()
        if left is not None and needed() > left:
            raise DeviceMemoryError(f"its arguments alone take {needed():,} bytes")

    @contextmanager
    def turn(self, needed: Callable[[], int]) -> Iterator[None]:
        """A case has the device in here; needed gives the bytes of its tensors. Where the device's memory runs out, it
        ends here, and nothing is raised: what stands behind it tries again."""
        with self._turn(needed, alone=self.crowds(needed, ALONE)):
            try:
                yield
            except DeviceMemoryError as error:
                # In here: what its frames hold has to be free before another process has its turn.
                release_frames(error)

    @contextmanager
    def turn_alone(self, needed: Callable[[], int]) -> Iterator[None]:
        """The same with no other process there. Raises TooLargeForDevice where memory runs out then, too."""
        with self._turn(needed, alone=True):
            self._release()
            try:
                yield
            except DeviceMemoryError as error:
                release_frames(error)
                raise TooLargeForDevice(needed(), self._left(), self._device.name, first_line(error)) from None

    @contextmanager
    def _turn(self, needed: Callable[[], int], *, alone: bool) -> Iterator[None]:
        """The case has the device in here, and leaves nothing there that would be in another one's way."""
        if self._lock is None:
            yield
            return
        with self._lock.exclusive() if alone else self._lock.shared():
            try:
                yield
            finally:
                if alone or self.crowds(needed) or self._lock.others_wait():
                    self._release()

    @contextmanager
    def _waits(self) -> Iterator[None]:
        self._release()
        with self._waiting():
            yield

    def _left(self) -> int | None:
        self._release()
        return self._framework.memory_left(self._device)

    def _release(self) -> None:
        self._framework.release_memory(self._device)


class noting_device_memory:
    """The device under test runs in here. Raises DeviceMemoryError where it says that its own memory ran out."""

    def __init__(self, framework: Devices) -> None:
        self._framework = framework

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        ran_out = isinstance(error, MemoryError) and not isinstance(error, DeviceMemoryError)
        if error is not None and ran_out and self._framework.is_device_memory(error):
            raise DeviceMemoryError(first_line(error)) from error
