from __future__ import annotations

from typing import Any

import pytest

from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.mapping import Mapping
from pytest_probe.frameworks.mapping.entry import Translation, backward, forward


def made(entry: Mapping, **more: Any) -> Translation:
    return forward("paddle.api", entry, lambda: lambda *args, **kwargs: (args, kwargs), lambda text: f"<{text}>", None)


def test_arguments_get_the_other_names_and_the_own_defaults() -> None:
    entry = Mapping("torch.sum(input/x dim/axis=None keepdim=False)")
    assert made(entry)("X", 1) == ((), {"input": "X", "dim": 1, "keepdim": False})
    assert made(entry)(x="X", keepdim=True) == ((), {"input": "X", "dim": None, "keepdim": True})


def test_names_of_the_other_framework_are_taken_too() -> None:
    entry = Mapping("torch.sum(input/x dim/axis=None)")
    assert made(entry)(input="X", dim=2) == ((), {"input": "X", "dim": 2})


def test_numbers_are_places() -> None:
    entry = Mapping("torch.where(1/x 0/condition 2/y)")
    assert made(entry)("X", "C", y="Y") == (("C", "X", "Y"), {})


def test_values_are_converted_and_others_have_no_counterpart() -> None:
    entry = Mapping("torch.gelu(input/x approximate=False)", values={"approximate": {False: "none", True: "tanh"}})
    assert made(entry)("X", True)[1]["approximate"] == "tanh"
    assert made(entry)("X")[1]["approximate"] == "none"
    # 1 is no bool.
    with pytest.raises(Unsupported, match=r"no counterpart for approximate=1 of paddle\.api") as raised:
        made(entry)("X", 1)
    assert raised.value.kind == "no counterpart for approximate"


def test_the_only_right_value_is_left_out_and_no_other() -> None:
    entry = Mapping("torch.f(input/x inplace=False axes=None)", only={"inplace": False, "axes": [0, 1]})
    assert made(entry)("X", False, [0, 1]) == ((), {"input": "X"})
    with pytest.raises(Unsupported, match="no counterpart for inplace=True"):
        made(entry)("X", True, [0, 1])


def test_an_argument_that_no_entry_takes_has_no_counterpart() -> None:
    entry = Mapping("torch.abs(input/x)")
    assert made(entry)("X", None, name="n", out=None) == ((), {"input": "X"})
    with pytest.raises(Unsupported) as raised:
        made(entry)("X", out="O")
    assert raised.value.kind == "no counterpart for out"
    with pytest.raises(Unsupported, match="the argument at place 1"):
        made(entry)("X", "Y")


def test_further_arguments_come_as_a_tuple() -> None:
    entry = Mapping("einsum(equation *operands)")
    assert made(entry)("ij", "X", "Y")[1] == {"equation": "ij", "operands": ("X", "Y")}
    assert made(entry)("ij", ["X", "Y"])[1] == {"equation": "ij", "operands": ("X", "Y")}


def test_texts_that_name_dtypes_become_those_of_the_other_framework() -> None:
    entry = Mapping("torch.sum(input/x dtype=None)")
    assert made(entry)("X", "float32")[1]["dtype"] == "<float32>"
    assert made(entry)("X")[1]["dtype"] is None


def test_what_the_own_kernel_keeps_in_float32_is_rounded() -> None:
    entry = Mapping("torch.elu(input/x alpha=1.0)", single=("alpha",))
    assert made(entry)("X", 0.3)[1]["alpha"] == 0.30000001192092896


class Tensor:
    def __init__(self, value: int) -> None:
        self.value = value

    def detach(self) -> str:
        return f"detached {self.value}"

    def clone(self) -> Tensor:
        return Tensor(self.value)


def test_what_gets_no_gradient_is_detached() -> None:
    assert made(Mapping("torch.f(x y)", constant=("y",)))(1, Tensor(2))[1] == {"x": 1, "y": "detached 2"}


def test_outputs_are_those_that_the_own_api_returns() -> None:
    def lookup() -> Any:
        return lambda input: ("values", "places", "more")

    def run(outputs: int | tuple[int, ...]) -> Any:
        return forward("a", Mapping("torch.f(input/x)", outputs=outputs), lookup, str, None)(1)

    assert run(1) == "places"
    assert run((2, 0)) == ("more", "values")


def test_an_api_that_works_in_place_writes_into_its_first_argument() -> None:
    written: list[Any] = []

    def write(target: Any, result: Any) -> Any:
        written.append((target, result))
        return target

    def lookup() -> Any:
        return lambda input, other: input.value + other

    first = Tensor(3)
    assert forward("a_", Mapping("torch.add(input/x other/y)"), lookup, str, write)(first, 4) is first
    assert written == [(first, 7)]


def test_an_entry_is_read_backwards() -> None:
    entry = Mapping(
        "torch.gelu(input/x approximate=False)",
        back="input | approximate='none'",
        values={"approximate": {False: "none", True: "tanh"}},
    )
    # Compiled functions take no names.
    calls = backward("torch.gelu", entry, lambda: lambda *args: args, str, None)
    assert calls("X") == ("X", False)
    assert calls("X", approximate="tanh") == ("X", True)
    assert entry.reverses
    assert not Mapping("torch.f(x)", one_way=True).reverses


def test_a_text_that_is_no_call_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'torch\.sum' is no call; write it as"):
        _ = Mapping("torch.sum").path
