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
import os
import random
import resource
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import Struct

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
import torch.testing._internal.common_methods_invocations as invocations

from benchmarks.deaths import Call, Search, flat
from benchmarks.odd_arguments import Draw, call_text, mutated
from pytest_probe.frameworks.torch import safety, signatures
from pytest_probe.frameworks.torch.allowlist import is_api
from pytest_probe.frameworks.torch.calls import CALLS
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


class Subject(Struct, frozen=True):
    """One API: its name in a dump, the function, aten's schemas of it, samples of torch's own tests."""

    name: str
    function: Callable[..., Any]
    schemas: Sequence[Any]
    infos: Sequence[Any] = ()


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


class Calls(Struct, frozen=True):
    """The calls of one API, by their numbers; guarded: those that the checks of pytest_probe refuse are not made."""

    subject: Subject
    seed: int
    guarded: bool

    def prepare(self) -> Call:
        samples = list(_samples(self.subject))
        return lambda number, tell: self._call(number, tell, samples)

    def _call(
        self, number: int, tell: Callable[[str], None], samples: Sequence[tuple[list[Any], dict[str, Any]]]
    ) -> None:
        seed = zlib.crc32(f"{self.subject.name} {self.seed}".encode()) + number
        rng = random.Random(seed)
        torch.manual_seed(seed)
        draw = Draw(rng)
        if samples and (number % 2 or not self.subject.schemas):
            args, kwargs = mutated(rng, *samples[rng.randrange(len(samples))])
        else:
            args, kwargs = draw.call(self.subject.schemas[rng.randrange(len(self.subject.schemas))])
        tell(call_text(self.subject.name, args, kwargs))
        if self.guarded:
            _check(self.subject, args, kwargs)
        result = self.subject.function(*args, **kwargs)
        tensors = [value for value in flat(result) if isinstance(value, torch.Tensor)]
        text = str([value.sum() for value in tensors if value.layout is torch.strided])  # reads what was returned
        wanted = [value for value in tensors if value.requires_grad]
        if text and wanted:
            torch.autograd.backward([value.sum() for value in wanted])


def _check(subject: Subject, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raises where pytest_probe refuses the call."""
    taken = [CALLS.take(value, CPU) for value in args]
    named = {name: CALLS.take(value, CPU) for name, value in kwargs.items()}
    safety.check_arguments(signatures.bind(subject.name, taken, named))


def _samples(subject: Subject) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    for info in subject.infos:
        for dtype in (torch.float32, torch.int64):
            with contextlib.suppress(Exception):
                for _, sample in zip(range(20), info.sample_inputs("cpu", dtype, requires_grad=False), strict=False):
                    yield [sample.input, *sample.args], dict(sample.kwargs)


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
        for death in Search(given.calls, Calls(subject, given.seed, not given.unguarded).prepare).deaths():
            deaths += 1
            print(death, flush=True)
    print(f"{searched} APIs, {given.calls} calls each: {deaths} deaths")


if __name__ == "__main__":
    main()
