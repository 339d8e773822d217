"""Which options go together: found from what each one's row needs and takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.options import CAPABILITIES, NAMED, OPTIONS
from pytest_probe.settings import Settings, parse
from tests.support.settings import settings_of


def parsed(pytester: pytest.Pytester, *args: str) -> Settings:
    (pytester.path / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L1", "data": {}}))
    return parse(pytester.parseconfig(*args), paths_given=False)


def test_rows_name_capabilities_and_options_alone() -> None:
    settings = settings_of()
    for option in OPTIONS:
        needed = {word.partition("=")[0] for word in option.needs(settings)}
        assert needed <= CAPABILITIES.keys() | NAMED.keys(), option.name
        assert {*option.takes(settings)} <= CAPABILITIES.keys(), option.name
        assert {word.partition("=")[0] for word in option.apart} <= NAMED.keys(), option.name


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--probe-relations=again", "--probe-against=dump.json"],
            "--probe-relations: 'again' cannot be used; it needs a device, and with --probe-against=dump.json no "
            "device runs; leave it out",
        ),
        (
            ["--probe-baseline=b", "--probe-against-framework=torch"],
            "--probe-baseline: 'b' cannot be used; it needs results of one side, and with "
            "--probe-against-framework=torch two sides are compared; leave it out",
        ),
        (
            ["--probe-emulate", "--probe-framework=torch"],
            "--probe-emulate: True cannot be used; with --probe-framework=torch the other framework has kernels of 16 "
            "bit; leave it out",
        ),
        (
            ["--probe-compile=eager", "--probe-standard=finite"],
            "--probe-compile: 'eager' cannot be used; with --probe-standard=finite there is no reference for what a "
            "compiler makes; leave it out",
        ),
        (
            ["--probe-self=wider-dtype"],
            "--probe-self: 'wider-dtype' cannot be used; it needs another option: add --probe-standard=self",
        ),
        (
            ["--probe-baseline-update"],
            "--probe-baseline-update: True cannot be used; it needs another option: add --probe-baseline=FILE",
        ),
        (
            ["--probe-compile=eager", "-o", "probe_against_call=b.py"],
            "--probe-compile: 'eager' cannot be used; it needs calls that the device makes in its own way, and with "
            "probe_against_call they are made in another way; leave it out",
        ),
    ],
)
def test_a_conflict_names_option_value_reason_and_one_remedy(
    pytester: pytest.Pytester, args: list[str], message: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        parsed(pytester, *args)
    assert str(raised.value) == message


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
    values = parsed(pytester, *args).values
    facts = {o.name: (o.type.plain(values[o.attribute]), o.type.identity(values[o.attribute])) for o in OPTIONS}
    assert json.loads(json.dumps(facts)).keys() == NAMED.keys()
