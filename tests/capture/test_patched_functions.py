from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from pytest_probe.capture.bindings import Bindings, Function
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.framework import recording
from pytest_probe.capture.modules import ModuleCalls
from pytest_probe.capture.patched_functions import ReplacedCalls


class Parent:
    def run(self) -> list[str]:
        return ["run"]

    def add(self) -> str:
        return "own"


class Child(Parent):
    """Inherits what its parent gets."""


RUN, ADD = Parent.run, Parent.add


class Calls(ReplacedCalls):
    compiled_methods = ((Parent, "run"), (Child, "run"))

    def __init__(self) -> None:
        super().__init__()
        self._bindings = Bindings([(ADD, lambda self: "replaced")], [Parent])

    def compiled(self, original: Function, compiled: Any, /, *args: Any, **kwargs: Any) -> Any:
        return ["seen", *original(compiled, *args, **kwargs)]


def test_an_inherited_method_is_replaced_once() -> None:
    calls = Calls()
    calls.put()
    try:
        assert (Parent().run(), Child().run()) == (["seen", "run"], ["seen", "run"])
    finally:
        calls.take_back()
    assert Child.run is RUN
    assert "run" not in vars(Child)


def test_what_is_put_twice_is_replaced_once_and_taken_back_whole() -> None:
    calls = Calls()
    calls.put()
    calls.put()
    try:
        assert (Parent().run(), Parent().add()) == (["seen", "run"], "replaced")
    finally:
        calls.take_back()
    assert (Parent.run, Parent.add) == (RUN, ADD)


def test_a_region_inside_another_leaves_the_own_functions_in_their_places() -> None:
    calls = Calls()
    calls.put()
    try:
        with calls.own_functions():
            with calls.own_functions():
                assert Parent().add() == "own"
            assert Parent().add() == "own"
        assert Parent().add() == "replaced"
    finally:
        calls.take_back()


class Model:
    def __call__(self) -> str:
        return "called"


CALL = Model.__call__


class Models(ModuleCalls):
    kind, kind_name, atoms = Model, "Model", ()
    broken = False

    def called(self, original: Any, module: Any, /, *args: Any, **kwargs: Any) -> Any:
        return f"seen {original(module)}"

    def named(self, model: Any) -> Iterable[tuple[str, Any]]:
        if self.broken:
            raise RuntimeError("of the program")
        return [("", model)]


def models() -> Any:
    made: Any = Models
    found = made(CaptureConfig("", level="mix"), None)
    found.follow(Model())
    return found


def test_modules_that_begin_twice_are_seen_once_and_end() -> None:
    found = models()
    found.begin(None)
    found.begin(None)
    try:
        assert Model()() == "seen called"
    finally:
        found.end()
    assert Model.__call__ is CALL


def test_a_model_that_cannot_be_walked_leaves_the_method_as_it_was() -> None:
    found = models()
    found.broken = True
    with pytest.raises(RuntimeError, match="of the program"):
        found.begin(None)
    assert Model.__call__ is CALL


class TornDown:
    """A group at the end of a process, which knows its size no more."""

    def is_initialized(self) -> bool:
        return True

    def get_rank(self) -> int:
        return 3

    def get_world_size(self) -> int:
        raise RuntimeError("the group has ended")


def test_the_rank_is_asked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = recording().hooks(CaptureConfig(""))
    monkeypatch.setattr(hooks, "distributed", TornDown())
    assert hooks.rank() == 3
