"""What each framework's replays promise: of arrays, arguments, outputs, gradients and devices."""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.base import reference_run
from pytest_probe.model.dump import DtypeSpec
from pytest_probe.model.run import Arguments, Leaf, MeasuredCall, Run, Wanted, Way
from pytest_probe.numerics.arrays import laid_out
from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype
from tests.support.devices import Emulated
from tests.support.installed import needs_paddle

DTYPES = (
    "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 complex64 complex128 bool int8 uint8 int16 int32 int64"
).split()
OF_TORCH = "float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu uint16 uint32 uint64".split()
EACH = [
    *(("pytorch", dtype) for dtype in (*DTYPES, *OF_TORCH)),
    *(pytest.param("paddle", dtype, marks=needs_paddle) for dtype in DTYPES),
]


def layouts(dtype: str) -> dict[str, AnyArray]:
    plain = np.arange(6).reshape(2, 3).astype(numpy_dtype(dtype))
    return {
        **{"plain": plain, "transposed": plain.T, "reversed": plain[::-1, ::-1], "every other": plain[:, ::2]},
        **{"one reversed": plain[:1][::-1], "broadcast": np.broadcast_to(plain[0], (4, 3))},
        **{"0-d": np.asarray(plain[1, 2]), "empty": plain[:, :0]},
    }


@pytest.mark.parametrize(("framework", "dtype"), EACH)
def test_arrays_cross_as_they_are(framework: str, dtype: str) -> None:
    name = {"pytorch": "torch"}.get(framework, framework)
    arrays = import_module(f"pytest_probe.frameworks.{name}.arrays")
    for layout, array in layouts(dtype).items():
        tensor = arrays.to_tensor(array)
        back = arrays.to_array(tensor)
        assert (str(tensor.dtype), tuple(tensor.shape)) == (f"{name}.{dtype}", array.shape), layout
        assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes()), layout


WIDE = Way(dtype="float64")
FIRST = Wanted(frozenset({"input.0"}))


def leaf(*shape: int, seed: int = 0) -> Leaf:
    return Leaf(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def run(kit: Any, function: Any, *args: Any, way: Way = WIDE, wanted: Wanted | None = None, **kwargs: Any) -> Run:
    done: Run = kit.framework.run(function, Arguments(args, kwargs, None), way, wanted)
    return done


def test_the_reference_is_float64_and_the_device_as_recorded(kit: Any) -> None:
    P, device = kit.module, Way(kit.cpu)
    cast = P.Tensor.to if kit.name == "pytorch" else P.cast
    for function, args, dtypes in (
        (P.exp, [leaf(3)], ("float64", "float32")),
        (P.ones, [[3]], ("float64", "float32")),
        (cast, [leaf(3), DtypeSpec("float16")], ("float64", "float16")),
        (cast, [leaf(3), DtypeSpec("int32")], ("int32", "int32")),
        (P.abs, [Leaf(np.array([3 + 4j], np.complex64))], ("float64", "float32")),
    ):
        found = [run(kit, function, *args, way=way).outputs["output.0"].dtype.name for way in (WIDE, device)]
        assert tuple(found) == dtypes


def test_outputs_have_names_and_shapes(kit: Any) -> None:
    one = kit.module.ones([1])
    tree = {"a": [one, None], "b": (1, "text", np.float32(2.5)), "c": one}
    found = run(kit, lambda: tree).outputs
    assert {name: type(value).__name__ for name, value in found.items() if name != "output.b.2"} == {
        **{"output.a.0": "ndarray", "output.b.0": "int", "output.b.1": "str", "output.c": "ndarray"}
    }
    assert run(kit, kit.module.sum, leaf(3)).outputs["output.0"].shape == ()


def test_what_a_call_changes_and_returns(kit: Any) -> None:
    done = run(
        kit, kit.module.Tensor.add_, leaf(3), leaf(3, seed=1), wanted=Wanted(frozenset({"input.0"}), copies=True)
    )
    assert (done.changed, done.returned) == (frozenset({"input.0"}), {"output.0": "input.0"})
    assert np.array_equal(done.after("input.0"), done.outputs["output.0"])
    assert np.array_equal(done.after("input.1"), leaf(3, seed=1).array)
    assert kit.framework.gradients(done, {"output.0": np.ones(3)})["input.0"].tolist() == [1, 1, 1]
    done = run(kit, kit.module.add, leaf(3), leaf(3))
    assert (done.changed, done.returned, done.differentiable) == (frozenset(), {}, ())


def test_gradients_of_many_outputs_and_of_arguments_that_have_none(kit: Any) -> None:
    def function(x: Any, y: Any) -> Any:
        return [x * 2, x * 3.0]

    wanted = Wanted(frozenset({"input.0", "kwargs.y"}))
    done = run(kit, function, leaf(4), y=leaf(2), wanted=wanted)
    assert done.differentiable == ("output.0", "output.1")
    found = kit.framework.gradients(done, {"output.0": np.ones(4), "output.1": np.full(4, 3.0)})
    assert {name: gradient.tolist() for name, gradient in found.items()} == {"input.0": [11.0] * 4}
    done = run(kit, function, leaf(4), leaf(2), wanted=wanted)
    assert kit.framework.gradients(done, {"output.1": np.ones(4)})["input.0"].tolist() == [3.0] * 4


def test_indices_have_no_gradient_and_a_gradient_has_the_outputs_dtype(kit: Any) -> None:
    assert run(kit, kit.module.topk, leaf(9), 2, wanted=FIRST).differentiable == ("output.0",)
    done = run(kit, kit.module.exp, leaf(3), way=Way(kit.cpu), wanted=FIRST)
    assert kit.framework.gradients(done, {"output.0": np.ones(3)})["input.0"].dtype == np.float32


@pytest.mark.parametrize(("strides", "offset"), [((1, 2), 0), ((4, 1), 0), ((3, 1), 0), ((0, 0), 0), ((5, 1), 3)])
def test_an_incoming_gradient_lies_as_its_array(kit: Any, strides: tuple[int, ...], offset: int) -> None:
    if kit.name == "paddle" and 0 in (strides[0], 3 - offset):
        pytest.skip("Paddle has no such views")
    array = laid_out(np.arange(6.0).reshape(2, 3) * (0 not in strides), np.dtype("float32"), strides, offset)
    for way in (Way(dtype="float64"), Way(Emulated("other") if kit.name == "pytorch" else kit.cpu)):
        output = kit.module.ones([2, 3], dtype=kit.module.float32 if way.device else kit.module.float64)
        asked = MeasuredCall(kit.module.neg, Arguments((), {}, None), way, incoming={"output.0": array})
        for seed in (kit.framework.seed(array, output, way), kit.framework.seeding(asked)("output.0", output)):
            found = seed.stride() if kit.name == "pytorch" else tuple(seed.strides)
            assert (seed.dtype, found, seed.tolist()) == (output.dtype, strides, array.tolist())
            assert kit.name == "paddle" or seed.storage_offset() == offset


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_border_rounds_values_and_gradients_in_runs_that_ask_for_it(kit: Any, dtype: str) -> None:
    P, border = kit.module, import_module(f"pytest_probe.frameworks.{kit.module.__name__}.references").border
    make = P.tensor if kit.name == "pytorch" else P.to_tensor
    x, weights = (make(values, dtype=P.float64) for values in ([1.0 + 2.0**-13, 3.0], [1 - 2.0**-13, 2.0]))
    if kit.name == "pytorch":
        x.requires_grad_()
    else:
        x.stop_gradient = False
    index = P.arange(300)
    assert border(x) is x
    wide = kit.framework.widening("float64", []) if kit.name == "pytorch" else nullcontext()
    with reference_run(Way(dtype="float64", border=dtype)), wide:
        passed = border(x)
        assert kit.name == "paddle" or border(index) is index
    assert (passed.tolist(), passed.dtype) == ([1.0, 3.0], P.float64)
    (passed * weights).sum().backward()
    assert x.grad.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", ["nonsense", "nothing:3"])
def test_a_device_that_is_not_there(kit: Any, name: str) -> None:
    says = {"pytorch": "torch", "paddle": "Paddle"}[kit.name]
    with pytest.raises(SettingsError, match=rf"'{name}' cannot be used; {says} says: .*; found here: .*cpu"):
        kit.framework.device(name)
    assert kit.framework.device("cpu").name == "cpu"


def test_saved_tensors_can_be_loaded(kit: Any, tmp_path: Path) -> None:
    kit.framework.save(tmp_path / "x.pt", {"a": np.arange(3.0), "b": np.ones((2, 2), numpy_dtype("bfloat16"))})
    loaded = kit.module.load(str(tmp_path / "x.pt"))
    assert loaded["a"].tolist() == [0.0, 1.0, 2.0]
    assert loaded["b"].dtype == kit.module.bfloat16
