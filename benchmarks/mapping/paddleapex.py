"""PaddleAPEX's own map through the same proof: python -m benchmarks.mapping.paddleapex CHECKOUT

It prints which of its entries hold, and what is wrong with the others. Of an entry with arguments that are said to have
no counterpart these are left out, as its converter does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.mapping.entries import both, how_of
from benchmarks.mapping.paddle_cases import CASES
from benchmarks.mapping.proof import Pair, Proof, prove
from pytest_probe.frameworks.mapping.framework import function_at
from pytest_probe.frameworks.mapping.table import packaged

_MAP = "paddleapex/apex/framework_cmp/api_mapping.json"


def main() -> None:
    pair = both()
    entries = json.loads((Path(sys.argv[1]) / _MAP).read_text())["mapping"]
    proofs = [_proof(api, entry, pair) for api, entry in entries.items()]
    held = [proof for proof in proofs if proof.holds]
    print(f"{len(held)} of {len(proofs)} entries of PaddleAPEX's map hold")
    for proof in proofs:
        if not proof.holds:
            print(f"{proof.api}: {proof.troubles[0].splitlines()[0][:200]}")


def _proof(api: str, entry: Mapping[str, Any], pair: Pair) -> Proof:
    table = packaged("paddle_torch")
    found = table.found(api)
    name = api if api in CASES or found is None else found[0]
    if name not in CASES:
        return Proof(api, 0, 0.0, 0, (), ("we have no cases of it",))
    try:
        other = _converted(entry, function_at(str(entry["torch_api"])))
    except AttributeError as error:
        return Proof(api, 0, 0.0, 0, (), (str(error),))
    takes = sorted({key.lstrip("*") for group in CASES[name] for key in group})
    return prove(api, function_at(api), other, takes, CASES[name], pair, how_of(name))


def _converted(entry: Mapping[str, Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Arguments by name get torch's names, those without a counterpart are dropped; by place they stay as they are."""
    names = entry.get("kwargs_change") or {}
    dropped = set(entry.get("unsupport_args") or ()) | {"name"}
    order = entry.get("paddle_args_list") or ()

    def call(*args: Any, **kwargs: Any) -> Any:
        by_place = [value for place, value in enumerate(args) if place >= len(order) or order[place] not in dropped]
        by_name = {names.get(key, key): value for key, value in kwargs.items() if key not in dropped}
        return function(*by_place, **by_name)

    return call


main()
