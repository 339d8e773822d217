"""Messages in a shared folder, from which several checking processes take.

Who takes a file renames it: `<name>.<checker>.claimed`, and a forward entry that was judged `<name>.<checker>.judged`
until its backward was, or cannot come any more. What a checker had that died is taken over: a claimed file gets its
name back, a judged one waits for its backward only.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from pytest_probe.capture.online.message import Entry, Goodbye, NoMessage, read
from pytest_probe.capture.online.shared_folder import ALIVE, CHECKER, SUFFIX, TRAINER, Beat, lives
from pytest_probe.features.online.source import Received, Senders

_CLAIMED, _JUDGED = ".claimed", ".judged"
_FILE = re.compile(
    r"(?P<number>\d{9})-(?P<run>[0-9a-f]{8})-(?:(?P<goodbye>goodbye)|(?P<rank>\d+)-(?P<step>\d+)-(?P<call>\d+)-"
    rf"(?P<direction>forward|backward)){re.escape(SUFFIX)}(?:\.(?P<checker>[0-9a-f]{{8}})\.(?P<state>claimed|judged))?"
)
# A run, a rank, a step and a call.
_Call: TypeAlias = tuple[str, str, str, str]


class _File(Struct, frozen=True):
    """A file of the folder, by its name."""

    name: str
    run: str
    call: _Call
    direction: str
    checker: str
    state: str

    @classmethod
    def of(cls, name: str) -> _File | None:
        found = _FILE.fullmatch(name)
        if found is None:
            return None
        parts = found.groupdict(default="")
        call = parts["run"], parts["rank"], parts["step"], parts["call"]
        direction = parts["goodbye"] or parts["direction"]
        return cls(name, parts["run"], call, direction, parts["checker"], parts["state"])

    @property
    def plain(self) -> str:
        """Its name as it came."""
        return self.name.removesuffix(f".{self.checker}.{self.state}") if self.state else self.name


class FolderSource:
    """One checking process at a folder. Raises OSError where it cannot be written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._me = secrets.token_hex(4)
        folder.mkdir(parents=True, exist_ok=True)
        self._beat = Beat(folder / f"{CHECKER}-{self._me}{ALIVE}")
        self.senders = Senders()
        self.refused: list[str] = []
        self._listed: list[_File] = []
        self._held: dict[_Call, str] = {}
        self._last: dict[str, int] = {}
        self._rest = False
        self._forget_earlier()

    def _forget_earlier(self) -> None:
        """Remove what an earlier run left in which nothing waits any more."""
        files = self._files()
        if any(file.direction != "goodbye" for file in files) or any(self._others()):
            return
        for file in files:
            self._unlink(file.name)

    def _others(self) -> Iterator[str]:
        """The other checkers that live."""
        now = self._now()
        for path in self._folder.glob(f"{CHECKER}-*{ALIVE}"):
            name = path.name.removeprefix(f"{CHECKER}-").removesuffix(ALIVE)
            if name != self._me and lives(path, now):
                yield name

    def _now(self) -> int:
        with suppress(OSError):
            self._beat.path.touch()
            return self._beat.path.stat().st_mtime_ns
        return 0

    def _files(self) -> list[_File]:
        with os.scandir(self._folder) as found:
            names = sorted(entry.name for entry in found)
        return [file for name in names if (file := _File.of(name)) is not None]

    def take(self) -> Received | None:
        if not self._listed:
            self._list()
        while self._listed:
            file = self._listed.pop(0)
            received = self._taken(file)
            if received is not None:
                return received
        return None

    def _list(self) -> None:
        """Look what is there now."""
        files = self._files()
        living = {self._me, *self._others()}
        coming = {file.call for file in files if file.direction == "backward"}
        self._let_go(coming)
        # What is taken over now is free at the next look: then the whole call is.
        elsewhere = {file.call for file in files if file.state and file.checker != self._me}
        for file in files:
            if file.direction == "goodbye":
                self._read_goodbye(file)
            elif file.state and file.checker not in living:
                self._take_over(file)
        self._listed = [
            file for file in files if not file.state and file.direction != "goodbye" and file.call not in elsewhere
        ]
        self._note_deaths()
        self._rest = any(file.direction != "goodbye" for file in files if file.call not in self._held)

    def _let_go(self, coming: set[_Call]) -> None:
        """Remove forward entries whose backward cannot come: their program is in a later step, or has ended."""
        for call in [call for call in self._held if call not in coming]:
            run, _, step, _ = call
            if self.senders.has_ended(run) or int(step) < self._last.get(run, 0):
                self._unlink(self._held.pop(call))

    def _read_goodbye(self, file: _File) -> None:
        if not self.senders.has_ended(file.run):
            with suppress(OSError, NoMessage):
                message = read(self._folder / file.name)
                if isinstance(message, Goodbye):
                    self.senders.ended(message)

    def _take_over(self, file: _File) -> None:
        """What a checker had that died."""
        target = file.plain if file.state == "claimed" else f"{file.plain}.{self._me}{_JUDGED}"
        if self._renamed(file.name, target) and file.state == "judged":
            self._held[file.call] = target

    def _note_deaths(self) -> None:
        now = self._now()
        for path in self._folder.glob(f"{TRAINER}-*{ALIVE}"):
            run = path.name.removeprefix(f"{TRAINER}-").removesuffix(ALIVE)
            if not lives(path, now) and self.senders.died(run):
                self._unlink(path.name)

    def _taken(self, file: _File) -> Received | None:
        """The entry of a file, which is this process's from now on; None where another one was faster."""
        if file.direction == "backward" and file.call not in self._held and self._has_forward(file):
            return None  # another one took the call since we looked
        claimed = f"{file.plain}.{self._me}{_CLAIMED}"
        if not self._renamed(file.name, claimed):
            return None
        path = self._folder / claimed
        try:
            message = read(path)
            if not isinstance(message, Entry):
                raise NoMessage("it is no entry of a dump")
        except (NoMessage, OSError) as error:
            self.refused.append(f"{self._folder / file.plain}: {error}")
            self._unlink(claimed)
            return None
        self.senders.came(message)
        self._last[file.run] = max(self._last.get(file.run, 0), message.step)
        if file.direction == "forward":
            self._held[file.call] = claimed
            return Received(message, path)
        forward = self._held.get(file.call)
        return Received(message, path, None if forward is None else self._folder / forward)

    def _has_forward(self, file: _File) -> bool:
        return any(other.call == file.call and other.direction == "forward" for other in self._files())

    def judged(self, received: Received) -> None:
        file = _File.of(received.path.name)
        assert file is not None
        if file.direction == "forward":
            target = f"{file.plain}.{self._me}{_JUDGED}"
            if self._renamed(file.name, target):
                self._held[file.call] = target
            return
        self._unlink(file.name)
        held = self._held.pop(file.call, "")
        if held:
            self._unlink(held)

    def waiting(self) -> list[str]:
        return [file.plain for file in self._files() if not file.state and file.direction != "goodbye"]

    def finished(self) -> bool:
        return self.senders.all_ended and not self._listed and not self._rest and not self._held

    def _renamed(self, name: str, target: str) -> bool:
        try:
            os.rename(self._folder / name, self._folder / target)
        except OSError:  # another one was faster
            return False
        return True

    def _unlink(self, name: str) -> None:
        with suppress(OSError):
            (self._folder / name).unlink()

    def close(self) -> None:
        for file in self._files():
            if file.checker == self._me and file.state == "claimed":
                self._renamed(file.name, file.plain)
        self._beat.close()
