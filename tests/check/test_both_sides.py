from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs

from pytest_probe.check.prepare import prepared
from pytest_probe.errors import DeviceRaised, HookFailed, NoKernel, ProbeError, ReplayDiffers, Unsupported
from pytest_probe.frameworks.torch.signatures import bind
from pytest_probe.model.dump import Call, Lost, SizeSpec, Surroundings
from pytest_probe.model.run import Arguments, Leaf
from pytest_probe.numerics.dtypes import numpy_dtype, widen
from tests.support.replaying import leaf, normal, replay

BF16 = numpy_dtype("bfloat16")


# Both sides


# Lists and tuples


@pytest.mark.parametrize(("shape", "values"), [("float32[2, 2]", [[0, 1], [2, 3]]), ("float32[]", 1)])
def test_a_list_may_have_been_a_tuple(shape: str, values: Any) -> None:
    made = replay("Tensor.__getitem__", leaf([[0, 1], [2, 3]]), [0, 1], outputs=[shape])
    assert made.reference.run.outputs["output.0"].tolist() == values


# What dumps lose


def test_a_lost_dtype_is_the_recorded_outputs() -> None:
    made = replay("Tensor.to", leaf([1.5, 0.1]), Lost(), outputs=["bfloat16[2]"])
    assert made.actual.outputs["output.0"].dtype == BF16
    assert made.reference.notes == ("input.1 was lost; bfloat16 gives the recorded output",)


# Random parts of fused calls


@pytest.mark.parametrize(
    ("args", "kwargs"), [((None, 0.5), {}), ((), {"dropout_p": 0.5})], ids=["positional", "keyword"]
)
def test_dropout_inside_attention_is_switched_off(args: Any, kwargs: Any) -> None:
    given = [normal(1, 2, 4, 8, seed=seed) for seed in range(3)]
    made = replay("Functional.scaled_dot_product_attention", *given, *args, outputs=["float32[1, 2, 4, 8]"], **kwargs)
    assert made.reference.notes == ("run with dropout_p = 0, recorded: 0.5",)
    assert np.allclose(made.actual.outputs["output.0"], made.reference.run.outputs["output.0"], atol=1e-5)
    assert replay("Functional.scaled_dot_product_attention", *given, None, 0.0).reference.notes == ()


# Autocast


def test_autocast_is_found_and_rounds_the_inputs_for_both_sides() -> None:
    x, weight = normal(4, 8), normal(3, 8, seed=1)
    made = replay("Functional.linear", x, weight, outputs=["bfloat16[4, 3]"])
    assert (made.reference.autocast, made.reference.narrow, made.reference.notes) == (
        "bfloat16",
        True,
        ("under autocast to bfloat16",),
    )
    assert made.actual.outputs["output.0"].dtype == BF16
    rounded = [widen(item.array.astype(BF16)) for item in (x, weight)]
    assert np.array_equal(widen(made.reference.leaves["input.0"].array), rounded[0])
    assert made.reference.leaves["input.0"].array.dtype == np.float32
    assert np.allclose(made.reference.run.outputs["output.0"], rounded[0] @ rounded[1].T, rtol=1e-12)


def test_autocast_to_float32_rounds_nothing() -> None:
    x, y = normal(8, dtype="bfloat16"), normal(8, dtype="bfloat16", seed=1)
    made = replay("Functional.mse_loss", x, y, outputs=["float32[]"])
    assert (made.reference.autocast, made.reference.narrow) == ("bfloat16", False)
    assert made.actual.outputs["output.0"].dtype == np.float32
    assert made.reference.leaves["input.0"] is x
    made = replay("Torch.add", leaf([1], "bfloat16"), leaf([2]), outputs=["float32[1]"])  # needs none
    assert made.reference.autocast == ""
    made = replay("Functional.linear", normal(4, 8), normal(3, 8), outputs=["bfloat16[4, 3]"], as_recorded=False)
    assert made.reference.autocast == ""


# Python floats


def got(value: Any, *tensors: Leaf) -> list[Any]:
    found: list[Any] = []

    def note(number: Any, *tensors: Any) -> Any:
        found.append(number)
        return tensors[0] + 1

    replay("X.note", value, *tensors, calls={"X.note": note}, references={"X.note": note})
    return found


def test_python_floats_are_rounded_to_float32() -> None:
    single = float(np.float32(0.1))
    assert got(0.1, leaf([1.0]))[:2] == [single, single]
    assert got(0.1, leaf([1.0], "bfloat16"))[:2] == [single, single]
    assert got(0.1, leaf([1j], "complex64"))[:2] == [single, single]
    assert got([1, (0.1, True)], leaf([1.0]))[:1] == [[1, (single, True)]]


def test_python_floats_stay_beside_float64() -> None:
    assert got(0.1, leaf([1.0], "float64"))[:2] == [0.1, 0.1]
    assert got(0.1, leaf([1.0], "float64"), leaf([1.0]))[:2] == [0.1, 0.1]
    assert got(1e300, leaf([1.0]))[:2] == [1e300, 1e300]


def test_python_floats_beside_integers_are_of_the_default_dtype() -> None:
    """1.03 to the 30th differs in float32 by 13 roundoffs."""
    single = float(np.float32(1.03))
    assert got(1.03, leaf([30], "int64"))[:2] == [single, single]
    arguments, call = Arguments((1.03, leaf([30], "int64")), {}, None), Call((), {}, None, None)
    for default, number in (("", single), ("float64", 1.03)):
        given = structs.replace(call, surroundings=Surroundings(default=default))
        assert prepared(bind("Torch.pow", arguments.args, {}), given, arguments)[0].args[0] == number


def test_a_16_bit_call_has_another_reading_with_floats_rounded_to_its_dtype() -> None:
    made = replay("Torch.gt", leaf([0.1, 0.2], "bfloat16"), 0.1, outputs=["bool[2]"])
    plain, rounded = made.readings()
    assert plain is made
    assert plain.reference.run.outputs["output.0"].tolist() == [True, True]
    assert rounded.reference.run.outputs["output.0"].tolist() == [False, True]
    assert rounded.reference.notes == ("Python floats rounded to the tensors' dtype, as the device does",)
    assert rounded.rounded is plain.reference


def test_sizes_beside_a_float_to_be_rounded_stay_sizes() -> None:
    made = replay("Tensor.new_full", leaf([1.0], "bfloat16"), SizeSpec((2, 3)), 0.1, outputs=["bfloat16[2, 3]"])
    assert len(list(made.readings())) == 2


@pytest.mark.parametrize(
    ("tensor", "number"),
    [(leaf([0.1]), 0.1), (leaf([0.1], "bfloat16"), 0.5), (leaf([0.1], "bfloat16"), 3), (leaf([1], "int64"), 0.1)],
)
def test_there_is_one_reading_where_rounding_changes_nothing(tensor: Leaf, number: Any) -> None:
    assert len(list(replay("Torch.gt", tensor, number).readings())) == 1


# What cannot be decided


def raising(error: Exception) -> dict[str, Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise error

    return {"Torch.exp": function}


X, SQUARE = leaf([1, 2]), normal(3, 3)
FULL, CUT = ["float32[5, 5]", "float32[3]", "float32[3, 3]"], ["float32[5, 3]", "float32[3]", "float32[3, 3]"]
BOTH = ["float32[3, 3]", "float32[3]", "float32[3, 3]"]
DIFFERS, LINE = "replay differs from the record", r"\n  .*test_both_sides.py:\d+: raise error$"
UNLIKE: tuple[list[str], ...] = (["float32[3]"], ["float32[2]", "float32[2]"], ["int64[2]"], [])
NO_HALF = raising(RuntimeError("exp not implemented for 'Half'"))


def refused(error: type[ProbeError], message: str, kind: str, name: str, *args: Any, **more: Any) -> Any:
    """What a replay of a call says."""
    return pytest.param(error, message, kind, name, args, more)


@pytest.mark.parametrize(
    ("error", "message", "kind", "name", "args", "more"),
    [
        *(
            refused(ReplayDiffers, r"torch.exp gives float64\[2\]; recorded: ", DIFFERS, "Torch.exp", X, outputs=each)
            for each in UNLIKE
        ),
        refused(DeviceRaised, r"the device gave float32\[2\], recorded", "", "Torch.exp", X, outputs=["float64[2]"]),
        refused(ReplayDiffers, "torch.exp gave .* under autocast", DIFFERS, "Torch.exp", X, outputs=["float16[2]"]),
        refused(ReplayDiffers, "Torch.svd.0 may be torch.svd and", "ambiguous name", "Torch.svd", SQUARE, outputs=BOTH),
        refused(
            *(Unsupported, "cpu raised RuntimeError: mat1 and mat2 .*; the reference raised Runtime"),
            *("device and reference both raise", "Torch.matmul"),
            *(normal(2, 3), normal(2, 3)),
        ),
        refused(
            *(
                HookFailed,
                f"the reference registered for .* raised ValueError: no float64{LINE}",
                "",
                "Torch.exp",
                X,
            ),
            references=raising(ValueError("no float64")),
        ),
        refused(
            *(DeviceRaised, f"cpu raised ValueError: broken{LINE}", "", "Torch.exp", X),
            calls=raising(ValueError("broken")),
        ),
        refused(NoKernel, "cpu: exp not implemented for 'Half'$", "", "Torch.exp", X, calls=NO_HALF),
        refused(
            *(NoKernel, "", "", "Torch.masked_fill", leaf([1.0], "float16"), leaf([True], "bool"), -1e9),
            as_recorded=False,
        ),
        refused(Unsupported, "torch.Tensor.type returns text", "no numbers", "Tensor.type", X),
        refused(Unsupported, ".*layout torch.sparse_coo", "", "Tensor.to_sparse", X),
    ],
)
def test_what_cannot_be_decided_says_why(
    error: type[ProbeError], message: str, kind: str, name: str, args: Any, more: Any
) -> None:
    with pytest.raises(error) as caught:
        replay(name, *args, **more)
    assert re.match(message, str(caught.value), re.DOTALL), str(caught.value)
    assert not kind or getattr(caught.value, "kind", "") == kind


@pytest.mark.parametrize(
    ("api", "args", "outputs", "path"),
    [
        ("Torch.svd", [normal(5, 3)], CUT, "torch.svd"),
        ("Torch.svd", [normal(5, 3)], FULL, "torch.linalg.svd"),
        ("Torch.eigvalsh", [leaf(np.eye(3))], ["float32[3]"], "torch.linalg.eigvalsh"),
        ("Torch.matmul", [normal(2, 2), normal(2, 2)], ["float32[2, 2]"], "torch.matmul"),
    ],
)
def test_shapes_tell_which_of_two_functions_was_called(
    api: str, args: list[Any], outputs: list[str], path: str
) -> None:
    found = replay(api, *args, outputs=outputs).reference
    assert found.candidate.path == path
    assert found.notes == ((f"taken as {path}",) if "linalg" in path else ())


def test_a_dtype_that_was_asked_for_may_differ_from_the_record() -> None:
    made = replay("Torch.exp", leaf([1, 2], "bfloat16"), outputs=["float32[2]"], as_recorded=False)
    assert made.actual.outputs["output.0"].dtype == BF16


# Gradients and changed arguments


def test_changes_that_no_version_counter_shows() -> None:
    def silent(x: torch.Tensor) -> torch.Tensor:
        x.data[0] = 7
        return x + 1

    made = replay("X.silent", leaf([1, 2]), calls={"X.silent": silent}, references={"X.silent": silent})
    assert made.reference.run.changed == frozenset()
    assert made.reference.changed == {"input.0"}
