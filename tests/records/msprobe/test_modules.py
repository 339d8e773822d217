"""Entries of modules, which are compared with another dump's and never replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_probe.errors import RecordError
from pytest_probe.model.dump import Call, Dump, Record, TensorSpec
from pytest_probe.records import read_dump
from tests.acceptance.conftest import backward, forward, tensor
from tests.support.writing import write_dump

X, Y, W = tensor(2, 3), tensor(2, 4), tensor(4, 3)
_FORWARD = {**forward(X, output=Y), "parameters": {"weight": W}}


def _spec(*shape: int) -> TensorSpec:
    told = tensor(*shape)
    numbers = {key.lower(): told[key] for key in ("Max", "Min", "Mean", "Norm")}
    return TensorSpec("float32", shape, requires_grad=told["requires_grad"], **numbers)


def _read(folder: Path, **data: Any) -> Dump:
    return read_dump(write_dump(folder, {"Torch.relu.0.forward": forward(X, output=X), **data}))


def _only(folder: Path, **data: Any) -> tuple[Dump, Record]:
    dump = _read(folder, **data)
    (record,) = dump.compare_only
    return dump, record


@pytest.mark.parametrize(
    ("entry", "parts", "directions"),
    [
        ("Module.a.b.Linear.forward.3", ("Module.a.b.Linear.3", "Module", "a.b.Linear", 3), ("forward",)),
        ("Cell.net.Net.backward.0", ("Cell.net.Net.0", "Cell", "net.Net", 0), ("backward",)),
        ("Module.forward.0.X.forward.2", ("Module.forward.0.X.2", "Module", "forward.0.X", 2), ("forward",)),
        (
            "Module.a.Linear.parameters_grad",
            ("Module.a.Linear.parameters_grad.0", "Module", "a.Linear.parameters_grad", 0),
            ("backward",),
        ),
        (
            "Module.a.Linear.parameters_grad.1",
            ("Module.a.Linear.parameters_grad.1", "Module", "a.Linear.parameters_grad", 1),
            ("backward",),
        ),
    ],
)
def test_a_name_has_no_direction(
    tmp_path: Path, entry: str, parts: tuple[str, str, str, int], directions: tuple[str, ...]
) -> None:
    dump, record = _only(tmp_path, **{entry: {}})
    assert (record.name, record.namespace, record.api, record.number) == parts
    assert record.directions == directions
    assert [each.name for each in dump.records] == ["Torch.relu.0"]
    assert sum(dump.skipped.values()) == 1


@pytest.mark.parametrize("entry", ["Module.a.Linear.sideways.0", "Module.forward.0", "Cell.", "Module.a.forward.x"])
def test_a_name_that_fits_nothing_is_counted_alone(tmp_path: Path, entry: str) -> None:
    dump = _read(tmp_path, **{entry: {}})
    assert dump.compare_only == ()
    assert sum(dump.skipped.values()) == 1


def test_a_call_has_its_parameters_and_gradients(tmp_path: Path) -> None:
    dump, record = _only(
        tmp_path, **{"Module.a.Linear.forward.0": _FORWARD, "Module.a.Linear.backward.0": backward(Y, X)}
    )
    x, y, w = _spec(2, 3), _spec(2, 4), _spec(4, 3)
    assert dump.decode(record) == Call((x,), {"parameters": {"weight": w}}, (y,), (y,))
    assert dump.gradients(record) == {"input.0": y, "output.0": x}


def test_a_backward_alone_has_its_gradients(tmp_path: Path) -> None:
    dump, record = _only(tmp_path, **{"Module.a.Linear.backward.0": backward(Y, X)})
    assert dump.decode(record) == Call((), {}, None, (_spec(2, 4),))
    assert dump.gradients(record) == {"input.0": _spec(2, 4), "output.0": _spec(2, 3)}


def test_gradients_of_parameters_have_their_names(tmp_path: Path) -> None:
    gradients = {"weight": [W, Y], "bias": [None]}
    dump, record = _only(tmp_path, **{"Module.a.Linear.parameters_grad": gradients})
    w = _spec(4, 3)
    outgoing = {"weight": w, "weight.1": _spec(2, 4), "bias": None}
    assert dump.decode(record) == Call((), {}, None, (), outgoing=outgoing)
    assert dump.gradients(record) == {f"output.{name}": spec for name, spec in outgoing.items()}


@pytest.mark.parametrize(
    ("entry", "body", "message"),
    [
        ("Module.a.N.forward.0", 3, "Module.a.N.forward.0: found 3, expected an object"),
        ("Module.a.N.forward.0", {}, "Module.a.N.forward.0: input_args: found nothing, expected a list of arguments"),
        (
            "Module.a.N.forward.0",
            {**_FORWARD, "parameters": []},
            "Module.a.N.forward.0: parameters: found an empty list",
        ),
        ("Module.a.N.backward.0", {"input": 1}, "Module.a.N.backward.0: input: found 1, expected a list of gradients"),
        (
            "Module.a.N.parameters_grad.0",
            {"weight": [[]]},
            "Module.a.N.parameters_grad.0: weight.0: found an empty list, expected a tensor or null",
        ),
    ],
)
def test_what_is_malformed_is_named_as_the_dump_names_it(tmp_path: Path, entry: str, body: Any, message: str) -> None:
    dump, record = _only(tmp_path, **{entry: body})
    with pytest.raises(RecordError) as caught:
        dump.decode(record)
    assert str(caught.value).startswith(f"{dump.path}: {message}")


def test_parameters_of_an_api_are_no_argument(tmp_path: Path) -> None:
    dump = _read(tmp_path, **{"Torch.relu.0.forward": _FORWARD})
    assert dump.decode(dump.records[0]).kwargs == {}


def test_an_api_may_be_called_like_gradients_of_parameters(tmp_path: Path) -> None:
    entries = {"Torch.parameters_grad.0.forward": forward(X, output=Y), "Torch.parameters_grad.0.backward": backward(Y)}
    dump = _read(tmp_path, **entries)
    assert dump.gradients(dump.records[1]) == {"input.0": _spec(2, 4)}
