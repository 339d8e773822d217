"""Which calls of the allow-list end the process on odd arguments? A dump is untrusted, and may ask for any of them.

    python benchmarks/crashing_calls.py [--seed N] [--calls N] [--api GLOB] [--seconds N] [--unguarded]

Every API that a dump may name is called on the CPU with arguments drawn for torch's schemas and with mutated samples of
torch's own tests (OpInfo): indices out of range, lists of other lengths, other shapes, dtypes, sizes and flags, each
with its backward. A call runs in a forked child with limits of its own, so that its death is seen; each call that kills
is repeated in a fresh child. Calls that the checks of pytest_probe refuse are not made; --unguarded makes them all the
same, which shows what the checks are for. Memory and time that run out are no finding.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import random
import resource
import signal
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
import torch.testing._internal.common_methods_invocations as invocations

from benchmarks.odd_arguments import Draw, call_text, mutated
from pytest_probe.frameworks.torch import calls, safety, signatures
from pytest_probe.frameworks.torch.allowlist import is_api
from pytest_probe.frameworks.torch.framework import TorchDevice

# A dump's namespaces, where they lead, and what aten puts before the names of each.
PLACES = {
    "Torch": ("torch", ""),
    "Tensor": ("torch.Tensor", ""),
    "Functional": ("torch.nn.functional", ""),
    "Torch.linalg": ("torch.linalg", "linalg_"),
    "Torch.fft": ("torch.fft", "fft_"),
    "Torch.special": ("torch.special", "special_"),
}
CPU = TorchDevice("cpu")
DEADLY = {signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGILL}
# Bytes of address space beyond what the parent has, and seconds of CPU, for one child.
MEMORY, SECONDS = 2 << 30, 2
SEARCHED = 4  # deaths of one API after which the next is searched


@dataclass(frozen=True)
class Subject:
    """One API: its name in a dump, the function, aten's schemas of it, samples of torch's own tests."""

    name: str
    function: Callable[..., Any]
    schemas: Sequence[Any]
    infos: Sequence[Any] = ()


class Death(NamedTuple):
    number: int
    signal: str
    text: str
    repeats: bool


def subjects(glob: str) -> Iterator[Subject]:
    """Everything that the allow-list admits and torch says a schema or has samples of."""
    infos: dict[str, list[Any]] = {}
    for info in invocations.op_db:
        infos.setdefault(info.name.removeprefix("nn.functional."), []).append(info)
    for namespace, (place, prefix) in PLACES.items():
        owner = torch.Tensor if place == "torch.Tensor" else sys.modules[place]
        for name in sorted(dir(owner)):
            full = f"{namespace}.{name}"
            if not fnmatchcase(full, glob) or not is_api(*_split(place, name)):
                continue
            schemas = torch._C._jit_get_schemas_for_operator(f"aten::{prefix}{name}")
            key = f"{place.removeprefix('torch').removeprefix('.')}.{name}" if prefix else name
            found = infos.get(key, []) if namespace != "Tensor" else []
            if schemas or found:
                yield Subject(full, getattr(owner, name), schemas, found)


def _split(place: str, name: str) -> tuple[str, str]:
    """As the allow-list is asked: what lies below torch is a name with a dot."""
    below = place.removeprefix("torch.")
    return ("torch", f"{below}.{name}") if below in ("linalg", "fft", "special") else (place, name)


class Search:
    """The calls of one API, each made once, in children that may die."""

    def __init__(self, subject: Subject, seed: int, count: int, guarded: bool) -> None:
        self.subject, self.count, self.guarded = subject, count, guarded
        self.seed = zlib.crc32(f"{subject.name} {seed}".encode())
        self.progress = mmap.mmap(-1, 4096)

    def deaths(self) -> Iterator[Death]:
        first = found = 0
        while first < self.count and found < SEARCHED:
            status = self._child(range(first, self.count))
            if not os.WIFSIGNALED(status):
                return
            number, text = self._position()
            cause = signal.Signals(os.WTERMSIG(status))
            if cause in DEADLY:
                found += 1
                repeats = os.WIFSIGNALED(self._child(range(number, number + 1)))
                yield Death(number, cause.name, text, repeats)
            first = number + 1

    def _child(self, numbers: range) -> int:
        """The wait status of a child that makes these calls."""
        pid = os.fork()
        if pid == 0:
            self._make(numbers)
            os._exit(0)
        return os.waitpid(pid, 0)[1]

    def _make(self, numbers: range) -> None:
        limit = _address_space() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1), os.dup2(null, 2)
        samples = list(_samples(self.subject))
        for number in numbers:
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + SECONDS, resource.RLIM_INFINITY))
            with contextlib.suppress(Exception):
                self._call(number, samples)

    def _call(self, number: int, samples: Sequence[tuple[list[Any], dict[str, Any]]]) -> None:
        rng = random.Random(self.seed + number)
        torch.manual_seed(self.seed + number)
        self._note(number, "")
        draw = Draw(rng)
        if samples and (number % 2 or not self.subject.schemas):
            args, kwargs = mutated(rng, *samples[rng.randrange(len(samples))])
        else:
            args, kwargs = draw.call(self.subject.schemas[rng.randrange(len(self.subject.schemas))])
        self._note(number, call_text(self.subject.name, args, kwargs))
        if self.guarded:
            _check(self.subject, args, kwargs)
        result = self.subject.function(*args, **kwargs)
        tensors = [value for value in _flat(result) if isinstance(value, torch.Tensor)]
        text = str([value.sum() for value in tensors if value.layout is torch.strided])  # reads what was returned
        wanted = [value for value in tensors if value.requires_grad]
        if text and wanted:
            torch.autograd.backward([value.sum() for value in wanted])

    def _note(self, number: int, text: str) -> None:
        self.progress.seek(0)
        self.progress.write(f"{number} {text}"[:4000].encode(errors="replace")[:4090].ljust(4096, b"\0"))

    def _position(self) -> tuple[int, str]:
        self.progress.seek(0)
        number, _, text = self.progress.read().rstrip(b"\0").decode(errors="replace").partition(" ")
        return int(number), text


def _check(subject: Subject, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raises where pytest_probe refuses the call."""
    taken = [calls.taken(value, CPU) for value in args]
    named = {name: calls.taken(value, CPU) for name, value in kwargs.items()}
    safety.check_arguments(signatures.bind(subject.name, taken, named))


def _samples(subject: Subject) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    for info in subject.infos:
        for dtype in (torch.float32, torch.int64):
            with contextlib.suppress(Exception):
                for _, sample in zip(range(20), info.sample_inputs("cpu", dtype, requires_grad=False), strict=False):
                    yield [sample.input, *sample.args], dict(sample.kwargs)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", type=int, default=100, help="calls of each API (default: 100)")
    parser.add_argument("--api", default="*", metavar="GLOB", help="only these, as dumps name them")
    parser.add_argument("--seconds", type=float, default=600, help="end after so many seconds of CPU (default: 600)")
    parser.add_argument("--unguarded", action="store_true", help="make the calls that the checks refuse, too")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    searched = deaths = 0
    for subject in subjects(given.api):
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        if usage.ru_utime + usage.ru_stime > given.seconds:
            print(f"time is over at {subject.name}")
            break
        searched += 1
        for death in Search(subject, given.seed, given.calls, not given.unguarded).deaths():
            deaths += 1
            again = "" if death.repeats else " (not when made alone)"
            print(f"{death.signal}{again} {death.number} {death.text}", flush=True)
    print(f"{searched} APIs, {given.calls} calls each: {deaths} deaths")


if __name__ == "__main__":
    main()
