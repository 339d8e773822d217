"""Which calls of the allow-list end the process on odd arguments? A dump is untrusted, and may ask for any of them.

    python benchmarks/crashing_calls.py [--framework paddle] [--seed N] [--calls N] [--api GLOB] [--seconds N]
        [--unguarded]

Everything that a dump may name is called on the CPU, with its backward: torch's APIs with arguments drawn for its
schemas and with mutated samples of its own tests (OpInfo); Paddle's APIs and operators, which have no schemas, with up
to five arguments of any kind. A call runs in a forked child with limits of its own, so that its death is seen; each
call that kills is repeated in a fresh child. Calls that the checks of pytest_probe refuse are not made; --unguarded
makes them all the same, which shows what the checks are for. Memory and time that run out are no finding.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import warnings
from functools import partial
from importlib import import_module
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.crashing.search import deaths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=["pytorch", "paddle"], default="pytorch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", type=int, default=100, help="calls of each API (default: 100)")
    parser.add_argument("--api", default="*", metavar="GLOB", help="only these, as dumps name them")
    parser.add_argument("--seconds", type=float, default=600, help="end after so many seconds of CPU (default: 600)")
    parser.add_argument("--unguarded", action="store_true", help="make the calls that the checks refuse, too")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    searched = found = 0
    for subject in import_module(f"benchmarks.crashing.{given.framework}").subjects(given.api):
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        if usage.ru_utime + usage.ru_stime > given.seconds:
            print(f"time is over at {subject.name}")
            break
        searched += 1
        for death in deaths(given.calls, partial(subject.prepare, given.seed, not given.unguarded)):
            found += 1
            print(death, flush=True)
    print(f"{searched} APIs, {given.calls} calls each: {found} deaths")


if __name__ == "__main__":
    main()
