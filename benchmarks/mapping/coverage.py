"""How much of what programs call has a counterpart: python -m benchmarks.mapping.coverage COUNTS.tsv

COUNTS.tsv has a line for each API, with how often it is called behind a tab.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_probe.frameworks.mapping.table import packaged


def main() -> None:
    table = packaged("paddle_torch")
    rows = [line.split("\t") for line in Path(sys.argv[1]).read_text().splitlines() if line]
    counts = {api: int(count) for api, count in rows}
    missing = [api for api in counts if table.found(api) is None]
    calls, without = sum(counts.values()), sum(counts[api] for api in missing)
    share = 100 * (calls - without) / calls
    print(f"{len(counts) - len(missing)} of {len(counts)} APIs, {share:.1f} % of {calls:,} calls")
    print("without an entry:", ", ".join(missing))


main()
