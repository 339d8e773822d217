from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs

from pytest_probe.check.prepare import prepared
from pytest_probe.errors import DeviceRaised, HookFailed, NoKernel, ReplayDiffers, UnknownAPI, Unsupported
from pytest_probe.frameworks.torch.signatures import bind
from pytest_probe.model.dump import Call, Lost, SizeSpec, Surroundings
from pytest_probe.model.run import Arguments, Leaf
from pytest_probe.numerics.dtypes import numpy_dtype, widen
from tests.support.replaying import leaf, normal, replay

BF16 = numpy_dtype("bfloat16")


# Both sides


def test_the_device_runs_in_the_cases_dtype_and_the_reference_in_float64() -> None:
    made = replay("Torch.exp", leaf([0, 1]), outputs=["float32[2]"])
    assert made.actual.outputs["output.0"].dtype == np.float32
    assert made.reference.run.outputs["output.0"].tolist() == [1.0, np.exp(1.0)]
    assert (made.reference.candidate.path, made.reference.notes, made.reference.autocast) == ("torch.exp", (), "")


def test_without_recorded_outputs_any_will_do() -> None:
    assert replay("Torch.exp", leaf([0.0])).reference.run.outputs["output.0"].tolist() == [1.0]


def test_a_call_and_a_reference_of_the_users() -> None:
    made = replay(
        "NPU.twice",
        leaf([1.0]),
        outputs=["float32[1]"],
        calls={"NPU.twice": lambda x: x + x},
        references={"NPU.twice": lambda x: 2 * x},
    )
    assert made.actual.outputs["output.0"].tolist() == made.reference.run.outputs["output.0"].tolist() == [2.0]
    with pytest.raises(UnknownAPI):
        replay("NPU.twice", leaf([1.0]), calls={"NPU.twice": lambda x: x + x})


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


def test_a_lost_argument_without_a_recorded_output() -> None:
    with pytest.raises(Unsupported, match=r"input.1 was not recorded and no output tells what it was") as caught:
        replay("Tensor.to", leaf([1.5]), Lost())
    assert caught.value.kind == "lost argument"


def test_a_lost_submodule_is_found() -> None:
    made = replay("Torch.eigvalsh", leaf(np.eye(3)), outputs=["float32[3]"])
    assert (made.reference.candidate.path, made.reference.notes) == (
        "torch.linalg.eigvalsh",
        ("taken as torch.linalg.eigvalsh",),
    )


@pytest.mark.parametrize(
    ("outputs", "path"),
    [
        (["float32[5, 3]", "float32[3]", "float32[3, 3]"], "torch.svd"),
        (["float32[5, 5]", "float32[3]", "float32[3, 3]"], "torch.linalg.svd"),
    ],
)
def test_shapes_tell_which_of_two_functions_was_called(outputs: list[str], path: str) -> None:
    assert replay("Torch.svd", normal(5, 3), outputs=outputs).reference.candidate.path == path


def test_a_name_that_may_be_two_functions_is_not_guessed() -> None:
    with pytest.raises(ReplayDiffers, match=r"Torch.svd.0 may be torch.svd and torch.linalg.svd") as caught:
        replay("Torch.svd", normal(3, 3), outputs=["float32[3, 3]", "float32[3]", "float32[3, 3]"])
    assert caught.value.kind == "ambiguous name"


def test_two_functions_that_agree_are_one() -> None:
    made = replay("Torch.matmul", normal(2, 2), normal(2, 2), outputs=["float32[2, 2]"])
    assert made.reference.candidate.path == "torch.matmul"


# Random parts of fused calls


@pytest.mark.parametrize(
    ("args", "kwargs"), [((None, 0.5), {}), ((), {"dropout_p": 0.5})], ids=["positional", "keyword"]
)
def test_dropout_inside_attention_is_switched_off(args: Any, kwargs: Any) -> None:
    given = [normal(1, 2, 4, 8, seed=seed) for seed in range(3)]
    made = replay("Functional.scaled_dot_product_attention", *given, *args, outputs=["float32[1, 2, 4, 8]"], **kwargs)
    assert made.reference.notes == ("run with dropout_p = 0, recorded: 0.5",)
    assert np.allclose(made.actual.outputs["output.0"], made.reference.run.outputs["output.0"], atol=1e-5)


def test_attention_without_dropout_says_nothing() -> None:
    given = [normal(1, 2, 4, 8, seed=seed) for seed in range(3)]
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


def test_mixed_dtypes_that_need_no_autocast() -> None:
    made = replay("Torch.add", leaf([1], "bfloat16"), leaf([2]), outputs=["float32[1]"])
    assert made.reference.autocast == ""


def test_autocast_is_not_asked_for_another_dtype() -> None:
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


@pytest.mark.parametrize("outputs", [["float32[3]"], ["float32[2]", "float32[2]"], ["int64[2]"], []])
def test_outputs_unlike_the_record(outputs: list[str]) -> None:
    with pytest.raises(ReplayDiffers, match=r"^torch.exp gives float64\[2\]; recorded: ") as caught:
        replay("Torch.exp", leaf([1, 2]), outputs=outputs)
    assert caught.value.kind == "replay differs from the record"


def test_an_output_dtype_unlike_the_record_is_refused() -> None:
    with pytest.raises(DeviceRaised, match=r"^the device gave float32\[2\], recorded: float64\[2\]$"):
        replay("Torch.exp", leaf([1, 2]), outputs=["float64[2]"])
    with pytest.raises(ReplayDiffers, match=r"^torch.exp gave float32\[2\] under autocast, recorded: float16\[2\]$"):
        replay("Torch.exp", leaf([1, 2]), outputs=["float16[2]"])


def test_a_dtype_that_was_asked_for_may_differ_from_the_record() -> None:
    made = replay("Torch.exp", leaf([1, 2], "bfloat16"), outputs=["float32[2]"], as_recorded=False)
    assert made.actual.outputs["output.0"].dtype == BF16


def raising(error: Exception) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise error

    return function


def test_a_call_that_both_sides_refuse_is_unsupported() -> None:
    with pytest.raises(
        Unsupported, match=r"^cpu raised RuntimeError: mat1 and mat2 .*; the reference raised Runt"
    ) as caught:
        replay("Torch.matmul", normal(2, 3), normal(2, 3))
    assert caught.value.kind == "device and reference both raise"


def test_an_error_of_the_reference_alone_is_the_hooks_fault() -> None:
    said = (
        r"^the reference registered for Torch.exp raised ValueError: no float64\n"
        r"  .*test_both_sides.py:\d+: raise error$"
    )
    with pytest.raises(HookFailed, match=said):
        replay("Torch.exp", leaf([1]), references={"Torch.exp": raising(ValueError("no float64"))})


def test_an_error_of_the_device_alone_is_the_devices_fault() -> None:
    with pytest.raises(DeviceRaised, match=r"^cpu raised ValueError: broken\n  .*test_both_sides.py:\d+: raise error$"):
        replay("Torch.exp", leaf([1]), calls={"Torch.exp": raising(ValueError("broken"))})


def test_a_missing_kernel_of_the_device_is_named() -> None:
    with pytest.raises(NoKernel, match=r"^cpu: exp not implemented for 'Half'$"):
        replay("Torch.exp", leaf([1]), calls={"Torch.exp": raising(RuntimeError("exp not implemented for 'Half'"))})
    with pytest.raises(NoKernel):
        replay("Torch.masked_fill", leaf([1.0], "float16"), leaf([True], "bool"), -1e9, as_recorded=False)


def test_a_call_that_gives_text_is_unsupported() -> None:
    with pytest.raises(Unsupported, match=r"^torch.Tensor.type returns text") as caught:
        replay("Tensor.type", leaf([1]))
    assert caught.value.kind == "no numbers"
    assert replay("Tensor.type", leaf([1]), "torch.HalfTensor").actual.outputs["output.0"].dtype == np.float16


def test_a_tensor_that_numpy_has_not() -> None:
    with pytest.raises(Unsupported, match=r"layout torch.sparse_coo"):
        replay("Tensor.to_sparse", leaf([0, 1]))


# Gradients and changed arguments


def test_every_floating_argument_is_wanted() -> None:
    made = replay("Functional.linear", normal(2, 3), weight=normal(4, 3), bias=normal(4), backward=True)
    assert made.reference.wanted is not None
    assert made.reference.wanted.names == {"input.0", "kwargs.weight", "kwargs.bias"}
    assert made.reference.run.differentiable == made.actual.differentiable == ("output.0",)


def test_running_statistics_that_cannot_be_differentiated_are_not_wanted() -> None:
    x = normal(8, 3, requires_grad=True)
    made = replay("Functional.batch_norm", x, normal(3), leaf([1, 1, 1]), None, None, True, backward=True)
    assert made.reference.wanted is not None
    assert made.reference.wanted.names == {"input.0"}
    assert made.reference.changed == {"input.1", "input.2"}


def test_calls_without_gradients_want_none() -> None:
    assert replay("Torch.argmax", normal(3), backward=True).reference.wanted is None
    assert replay("Torch.exp", normal(3)).reference.wanted is None


def test_changes_that_no_version_counter_shows() -> None:
    def silent(x: torch.Tensor) -> torch.Tensor:
        x.data[0] = 7
        return x + 1

    made = replay("X.silent", leaf([1, 2]), calls={"X.silent": silent}, references={"X.silent": silent})
    assert made.reference.run.changed == frozenset()
    assert made.reference.changed == {"input.0"}
