"""Which options go together; which do not, tests/acceptance/test_refusals.py says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_probe.options import CAPABILITIES, NAMED, OPTIONS
from pytest_probe.settings import parse
from tests.support.settings import settings_of


def test_rows_name_capabilities_and_options_alone() -> None:
    settings = settings_of()
    for option in OPTIONS:
        needed = {word.partition("=")[0] for word in option.needs(settings)}
        assert needed <= CAPABILITIES.keys() | NAMED.keys(), option.name
        assert {*option.takes(settings)} <= CAPABILITIES.keys(), option.name
        assert {word.partition("=")[0] for word in option.apart} <= NAMED.keys(), option.name


@pytest.mark.parametrize(
    "args",
    [
        ["--probe-device=recorded", "--probe-inputs=stored", "--probe-dtype=recorded", "--probe-repeat=1"],
        ["--probe-listen=file:///tmp", "--probe-device=cpu"],
        ["--probe-outputs=a", "--probe-benchmark=b", "--probe-inputs=exact"],
        ["--probe-against-call=b.py", "--probe-reference-framework=torch", "--probe-unique"],
        ["--probe-relations=all", "--probe-against-framework=torch", "--probe-strict"],
        ["--probe-mode=time", "--probe-framework=torch", "--probe-benchmark=b"],
        ["--probe-ranks=2,backend=ucx", "--probe-cache=c,size=1GB", "--probe-standard=finite"],
        ["--probe-standard=self", "--probe-self=wider-dtype", "--probe-baseline=b", "--probe-unique"],
    ],
    ids=" ".join,
)
def test_what_goes_together_is_let_pass(pytester: pytest.Pytester, args: list[str]) -> None:
    Path("b.py").write_text("")
    values = parse(pytester.parseconfig(*args), paths_given=False).values
    facts = {o.name: (o.type.plain(values[o.attribute]), o.type.identity(values[o.attribute])) for o in OPTIONS}
    assert json.loads(json.dumps(facts)).keys() == NAMED.keys()
