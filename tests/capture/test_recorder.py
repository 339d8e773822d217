from __future__ import annotations

from pytest_probe.capture.config import read_config
from pytest_probe.capture.scope import Scope


def scope(**given: object) -> Scope:
    return Scope(read_config(None, dump_path="d", **given))


def test_an_interval_holds_both_its_ends() -> None:
    asked = scope(scope=["Torch.b.0.forward", "Torch.d.0.backward"])
    calls = ["Torch.a.0", "Torch.b.0", "Torch.c.0", "Torch.d.0", "Torch.e.0"]
    assert [call for call in calls if asked.wants(call)] == calls[1:4]


def test_an_interval_is_closed_when_a_step_begins() -> None:
    asked = scope(scope=["Torch.b.0.forward", "Torch.never.0.forward"])
    assert asked.wants("Torch.b.0")
    asked.again()
    assert not asked.wants("Torch.c.0")


def test_names_are_parts_of_entries() -> None:
    asked = scope(list=["relu", "linear.0.backward"])
    wanted = ["Functional.relu.3", "Functional.linear.0"]
    assert [call for call in [*wanted, "Functional.linear.1", "Torch.add.0"] if asked.wants(call)] == wanted


def test_lists_of_apis_know_globs_and_prefixes() -> None:
    asked = scope(white_list=["Functional.*", "add"], black_list=["softmax*"])
    assert asked.wants_api("Functional.linear")
    assert asked.wants_api("Torch.add")
    assert not asked.wants_api("Functional.softmax")
    assert not asked.wants_api("Torch.mul")
