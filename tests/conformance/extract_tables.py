"""Pack the CSV files that the tools themselves wrote, for the tests of decision rules.

    python tests/conformance/extract_tables.py DUMPS

DUMPS holds dumps with the tools' files beside them: <tool>/.../*.csv. They are copied, compressed, below
tests/data/peers; traces of the call stack and statistics of inputs are left out.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
from pathlib import Path

TARGET = Path(__file__).parent.parent / "data" / "peers"
KINDS = ("accuracy_checking_details", "api_precision_compare_details", "compare_result.")
VERDICTS = {"Status", "比对结果", "Accuracy Reached or Not"}
LEFT_OUT = re.compile("Stack_Info|(NPU|Bench) (max|min|mean|l2norm)")


def main() -> None:
    source = Path(sys.argv[1])
    for path in sorted(source.rglob("*.csv")):
        shortened = _shortened(path)
        if not any(kind in path.name for kind in KINDS) or not VERDICTS & set(shortened.partition("\n")[0].split(",")):
            continue
        target = TARGET / path.relative_to(source).with_suffix(".csv.gz")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.compress(shortened.encode("utf-8-sig"), mtime=0))
        print(target.relative_to(TARGET))


def _shortened(path: Path) -> str:
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    kept = [column for column in rows[0] if not LEFT_OUT.search(column)] if rows else []
    text = io.StringIO()
    writer = csv.DictWriter(text, kept, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


if __name__ == "__main__":
    main()
