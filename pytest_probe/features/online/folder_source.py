"""Messages in a shared folder, from which several checking processes take.

Who takes a file renames it: `<name>.<checker>.claimed`, and a forward entry that was judged `<name>.<checker>.judged`
until its backward was, or cannot come any more. What a checker had that died is taken over: a claimed file gets its
name back, a judged one waits for its backward only. `<run>-<checker>.done` has the number of each message that has its
result: at the end they are compared with what the programs say that they sent. A checker removes all that when nobody
else is left.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from pytest_probe.capture.online.message import Entry, Goodbye, Message, NoMessage, Sender, read
from pytest_probe.capture.online.shared_folder import (
    ALIVE,
    CHECKER,
    GONE_SECONDS,
    SUFFIX,
    TRAINER,
    Beat,
    lives,
    name_of,
)
from pytest_probe.system.files import open_regular

# As many ranks as nothing says: see capture/ranks.
_MANY = 1 << 20
_CLAIMED, _JUDGED, _DONE = ".claimed", ".judged", ".done"
# What passes, when another process closes files.
_LATER = (errno.EMFILE, errno.ENFILE, errno.ENOENT)
# Reasons that are kept: anybody can send anything.
_REASONS = 1000
_FILE = re.compile(
    r"(?P<number>\d{9,19})-(?P<run>[0-9a-f]{8})-(?:(?P<goodbye>goodbye)|(?P<rank>\d+)-(?P<step>\d+)-(?P<call>\d+)-"
    rf"(?P<direction>forward|backward)){re.escape(SUFFIX)}(?:\.(?P<checker>[0-9a-f]{{8}})\.(?P<state>claimed|judged))?"
)
# A run, a rank, a step and a call.
_Call: TypeAlias = tuple[str, str, str, str]


class _File(Struct, frozen=True):
    """A file of the folder, by its name."""

    name: str
    number: int
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
        return cls(name, int(parts["number"]), parts["run"], call, direction, parts["checker"], parts["state"])

    @property
    def plain(self) -> str:
        """Its name as it came."""
        return self.name.removesuffix(f".{self.checker}.{self.state}") if self.state else self.name


class Received(Struct, frozen=True):
    """An entry that came, and the file that has its tensors; forward is the file of the call's forward entry, with
    which a backward is judged: None where it never came."""

    entry: Entry
    path: Path
    forward: Path | None = None


class Senders:
    """Who sends, and who has ended. ranks are the senders by their runs, announced how many messages were seen of each;
    goodbyes what those said that have ended."""

    def __init__(self) -> None:
        self.ranks: dict[str, Sender] = {}
        self.announced: Counter[str] = Counter()
        self.goodbyes: dict[str, Goodbye] = {}
        self.steps: dict[int, set[int]] = {}
        self._gone: set[str] = set()
        self._last_end = 0.0

    def came(self, entry: Entry, number: int = 0) -> None:
        self.ranks[entry.sender.run] = entry.sender
        self.announced[entry.sender.run] = max(self.announced[entry.sender.run], number + 1)
        self.steps.setdefault(entry.sender.rank, set()).add(entry.step)

    def ended(self, goodbye: Goodbye) -> None:
        self.ranks[goodbye.sender.run] = goodbye.sender
        self.goodbyes[goodbye.sender.run] = goodbye
        self._last_end = time.monotonic()

    def alive(self, run: str, lives: bool) -> None:
        """Does a program live? One that was gone may come back."""
        if lives:
            self._gone.discard(run)
        elif not self.has_ended(run):
            self._gone.add(run)
            self._last_end = time.monotonic()

    def has_ended(self, run: str) -> bool:
        return run in self.goodbyes or run in self._gone

    @property
    def _missing(self) -> int:
        """How many of the processes that train together have not come."""
        wanted = max((each.ranks for each in self.ranks.values() if each.ranks < _MANY), default=1)
        return max(wanted - len({sender.rank for sender in self.ranks.values()}), 0)

    @property
    def all_ended(self) -> bool:
        """Have all that train together come, and ended? Who has not come for a while after that comes no more."""
        if not self.ranks or not all(map(self.has_ended, self.ranks)):
            return False
        return not self._missing or time.monotonic() - self._last_end > GONE_SECONDS

    def lost(self, done: Callable[[str], set[int]]) -> list[str]:
        """What fails the run: what was sent and no checker judged, and who went without a goodbye. done gives the
        messages of a run that have their results; -9: all those before 9."""
        found = [f"ranks that never came: {self._missing:,}"] if self._missing else []
        for run, sender in self.ranks.items():
            numbers, goodbye = done(run), self.goodbyes.get(run)
            first = max(-min(numbers, default=0), 0)
            count = first + sum(number >= first for number in numbers)
            sent = max(self.announced[run], count) if goodbye is None else goodbye.sent
            if goodbye is None or count < sent:
                how = "went without a goodbye" if goodbye is None else "has ended"
                found.append(f"rank {sender.rank} {how}: {count:,} of the {sent:,} entries that it sent were judged")
        return sorted(found)


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
        # Names that are not looked at any more.
        self._odd: set[str] = set()

    def refuse(self, why: str, name: str = "") -> None:
        """For this reason nothing is done with what came; name: of its file, which is left where it is."""
        self._odd |= {name} - {""}
        if len(self.refused) < _REASONS:
            self.refused.append(why)

    def _others(self) -> Iterator[str]:
        """The other checkers that live."""
        now = self._now()
        for path in self._folder.glob(f"{CHECKER}-*{ALIVE}"):
            if path != self._beat.path and lives(path, now):
                yield path.name.removeprefix(f"{CHECKER}-").removesuffix(ALIVE)

    def _now(self) -> int:
        with suppress(OSError):
            self._beat.path.touch()
            return self._beat.path.stat().st_mtime_ns
        return 0

    def _files(self) -> list[_File]:
        files = []
        with os.scandir(self._folder) as found:
            for entry in found:
                file = _File.of(entry.name)
                if file is None or entry.name in self._odd:
                    continue
                if entry.is_file(follow_symlinks=False):
                    files.append(file)
                else:
                    self.refuse(f"{entry.path}: it is a folder, a link or the like, expected a file", entry.name)
        return sorted(files, key=lambda file: file.name)

    def take(self) -> Received | None:
        if not self._listed:
            self._list()
        while self._listed:
            if (received := self._taken(self._listed.pop(0))) is not None:
                return received
        return None

    def _list(self) -> None:
        """Look what is there now."""
        files = self._files()
        living = {self._me, *self._others()}
        coming = {file.call for file in files if file.direction == "backward"}
        for call in self._held.keys() - coming:
            # Its backward cannot come where the program is in a later step, or has ended.
            if self.senders.has_ended(call[0]) or int(call[2]) < self._last.get(call[0], 0):
                self._unlink(self._held.pop(call))
        # What is taken over now is free at the next look: then the whole call is.
        elsewhere = {file.call for file in files if file.state and file.checker != self._me}
        for file in files:
            if file.direction == "goodbye":
                if file.run not in self.senders.goodbyes and (message := self._read(file, file.name)):
                    self.senders.ended(message)  # type: ignore[arg-type]
            elif file.state and file.checker not in living:
                # What a checker had that died. It may have died between a result and the name that says so.
                if file.state == "claimed" and file.number not in self.done(file.run):
                    self._renamed(file.name, file.plain)
                elif file.direction == "backward":
                    self._unlink(file.name)
                else:
                    self._hold(file)
        self._listed = [
            file for file in files if not file.state and file.direction != "goodbye" and file.call not in elsewhere
        ]
        now = self._now()
        for run in self.senders.ranks:
            self.senders.alive(run, lives(self._folder / f"{TRAINER}-{run}{ALIVE}", now))
        self._rest = any(file.direction != "goodbye" for file in files if file.call not in self._held)

    def _read(self, file: _File, name: str) -> Message | None:
        """The message of a file, which has this name now; None where it is refused, or looked at later."""
        try:
            message = read(self._folder / name)
            if name_of(file.number, message) != file.plain:
                raise NoMessage("its name is that of another message")
        except OSError as error:
            if (name == file.name or self._renamed(name, file.name)) and error.errno not in _LATER:
                self.refuse(f"{self._folder / file.plain}: {error}", file.name)
            return None
        except NoMessage as error:
            self.refuse(f"{self._folder / file.plain}: {error}", file.name)
            self._unlink(name)
            return None
        return message

    def _taken(self, file: _File) -> Received | None:
        """The entry of a file, which is this process's from now on; None where another one was faster."""
        if (
            file.direction == "backward"
            and file.call not in self._held
            and any(other.call == file.call and other.direction == "forward" for other in self._files())
        ):
            return None  # another one took the call since we looked
        claimed = f"{file.plain}.{self._me}{_CLAIMED}"
        if not self._renamed(file.name, claimed):
            return None
        message, path = self._read(file, claimed), self._folder / claimed
        if not isinstance(message, Entry):
            return None
        self.senders.came(message, file.number)
        self._last[file.run] = max(self._last.get(file.run, 0), message.step)
        if file.direction == "forward":
            self._held[file.call] = claimed
            return Received(message, path)
        forward = self._held.get(file.call)
        return Received(message, path, None if forward is None else self._folder / forward)

    def judged(self, received: Received) -> None:
        file = _File.of(received.path.name)
        assert file is not None
        self.note(file.run, file.number)
        if file.direction == "forward":
            self._hold(file)
            return
        for name in (file.name, self._held.pop(file.call, "")):
            if name:
                self._unlink(name)

    def _hold(self, file: _File) -> None:
        """A forward entry that was judged waits for its backward."""
        if self._renamed(file.name, target := f"{file.plain}.{self._me}{_JUDGED}"):
            self._held[file.call] = target

    def note(self, run: str, number: int) -> None:
        """This message has its result, or needs none. On a network's disk others see that when the file is closed."""
        with suppress(OSError), (self._folder / f"{run}-{self._me}{_DONE}").open("a") as noted:
            noted.write(f"{number}\n")

    def done(self, run: str) -> set[int]:
        """The messages of a program that have their results, of all checkers; -9: all those before 9."""
        found: set[int] = set()
        for path in self._folder.glob(f"{run}-*{_DONE}"):
            with suppress(OSError, ValueError), open_regular(path) as noted:
                found.update(map(int, noted))
        return found

    def waiting(self) -> list[str]:
        with suppress(OSError):
            return [file.plain for file in self._files() if not file.state and file.direction != "goodbye"]
        return []

    def finished(self) -> bool:
        return self.senders.all_ended and not self._listed and not self._rest and not self._held

    def _renamed(self, name: str, target: str) -> bool:
        try:
            os.rename(self._folder / name, self._folder / target)
        except FileNotFoundError:  # another one was faster
            return False
        except OSError as error:
            self.refuse(f"{self._folder / name}: it cannot be taken ({error.strerror})", name)
            return False
        return True

    def _unlink(self, name: str) -> None:
        with suppress(OSError):
            (self._folder / name).unlink()

    def close(self) -> None:
        with suppress(OSError):
            for file in self._files():
                if file.checker == self._me and file.state == "claimed":
                    self._renamed(file.name, file.plain)
        if self.finished() and not any(self._others()):
            for name in (*self.senders.ranks, CHECKER):
                for path in self._folder.glob(f"*{name}*"):
                    self._unlink(path.name)
        self._beat.close()
