"""Proves the entries of a map: python -m benchmarks.mapping [GLOB] [--of mindspore] [--write]

It prints what does not hold. --write makes docs/mapping/paddle-torch.csv anew, or
mindspore-torch.csv.
"""

from __future__ import annotations

import argparse
import fnmatch
import time

from benchmarks.mapping.entries import MINDSPORE, PADDLE, proofs, proofs_back
from benchmarks.mapping.page import table_of, written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("glob", nargs="?", default="*")
    parser.add_argument("--of", choices=("paddle", "mindspore"), default="paddle")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    begin = time.process_time()
    subject = PADDLE if options.of == "paddle" else MINDSPORE
    found = list(proofs(lambda api: fnmatch.fnmatch(api, options.glob), subject))
    back = list(proofs_back(lambda api: fnmatch.fnmatch(api, options.glob))) if subject is PADDLE else []
    failed = [proof for proof in (*found, *back) if not proof.holds]
    for proof in failed:
        print(f"{proof.api}: {proof.calls} calls agree; {'; '.join(proof.troubles)}")
    seconds = time.process_time() - begin
    calls = sum(proof.calls for proof in found)
    print(f"{len(found)} entries, {calls:,} calls that agree; {len(back)} of them backwards; {len(failed)} do not hold")
    print(f"{seconds:.0f} s of CPU")
    if options.write and not failed:
        table_of(subject).write_text(written(found, subject))
    return bool(failed)


raise SystemExit(main())
