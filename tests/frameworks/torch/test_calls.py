from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.torch.arrays import to_array, to_tensor
from pytest_probe.frameworks.torch.calls import CALLS, ENTRY, backward
from pytest_probe.frameworks.torch.framework import TorchDevice
from pytest_probe.model.dump import DeviceSpec, DtypeSpec, MemoryFormatSpec, SizeSpec
from pytest_probe.model.run import Arguments, Array, Leaf, Run, Wanted, Way
from pytest_probe.numerics.dtypes import numpy_dtype

REFERENCE = Way(dtype="float64")
ON_CPU = Way(device=TorchDevice("cpu"))


def leaf(values: Any, dtype: str = "float32") -> Leaf:
    return Leaf(np.asarray(values).astype(numpy_dtype(dtype)))


def call(function: Any, *args: Any, way: Way = REFERENCE, wanted: Wanted | None = None, **kwargs: Any) -> Run:
    return CALLS.run(function, Arguments(args, kwargs, None), way, wanted)


def test_a_tensor_has_its_own_memory() -> None:
    array = np.zeros(3, np.float32)
    tensor = to_tensor(array)
    tensor += 1
    assert array.tolist() == [0, 0, 0]
    read_only = np.broadcast_to(np.float32(1), (3,))
    assert (to_tensor(read_only) + 1).tolist() == [2, 2, 2]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_a_tensor_may_grow(dtype: str) -> None:
    """As what is given as out= does."""
    for array in (np.zeros(0), np.zeros((3, 2)).T, np.array(1.0)):
        assert to_tensor(array.astype(numpy_dtype(dtype))).resize_(4, 4).numel() == 16


def test_views_of_tensors_come_back() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    z = torch.complex(x, x + 1)
    assert to_array(x.T).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert to_array(x.bfloat16().T).astype(float).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert to_array(z.conj())[0, 1] == 1 - 2j
    assert to_array(z.conj().imag)[0, 1] == -2
    assert to_array(x[0].expand(4, 3)).shape == (4, 3)
    assert to_array(x.clone().requires_grad_()).tolist() == x.tolist()
    assert to_array(torch._efficientzerotensor((2,))).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: torch.eye(2).to_sparse(), "layout torch.sparse_coo"),
        (lambda: torch.eye(2).to_sparse_csr(), "layout torch.sparse_csr"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8), "quantized"),
        (lambda: torch.ones(2, dtype=torch.complex32), "complex32"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_numpy_has_no_place_for(make: Callable[[], torch.Tensor], said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        to_array(make())
    with pytest.raises(Unsupported, match=said):
        CALLS.take(make(), TorchDevice("cpu"))


def seen(*args: Any, **kwargs: Any) -> str:
    return repr((args, kwargs))


def test_floats_become_the_dtype_of_the_reference() -> None:
    dtypes = [leaf([1], dtype) for dtype in ("float32", "bfloat16", "float8_e5m2", "complex64", "int32", "bool")]

    def names(*tensors: torch.Tensor) -> list[str]:
        return [str(tensor.dtype).removeprefix("torch.") for tensor in tensors]

    wide = CALLS.run(names, Arguments(tuple(dtypes), {}, None), REFERENCE, None).outputs
    assert list(wide.values()) == ["float64", "float64", "float64", "complex128", "int32", "bool"]
    single = CALLS.run(names, Arguments(tuple(dtypes), {}, None), Way(dtype="float32"), None).outputs
    assert list(single.values()) == ["float32", "float32", "float32", "complex64", "int32", "bool"]
    own = CALLS.run(names, Arguments(tuple(dtypes), {}, None), ON_CPU, None).outputs
    assert list(own.values()) == ["float32", "bfloat16", "float8_e5m2", "complex64", "int32", "bool"]


@pytest.mark.parametrize(
    ("way", "dtype"),
    [(REFERENCE, "torch.float64"), (Way(dtype="float32"), "torch.float32"), (ON_CPU, "torch.bfloat16")],
)
def test_dtypes_among_the_arguments_are_widened_for_the_reference(way: Way, dtype: str) -> None:
    given = call(seen, DtypeSpec("bfloat16"), dtype=DtypeSpec("int64"), way=way)
    assert given.outputs == {"output.0": f"(({dtype},), {{'dtype': torch.int64}})"}


def test_arguments_that_are_no_tensors_become_torchs() -> None:
    args = (DeviceSpec("cuda:3"), SizeSpec((2, 3)), MemoryFormatSpec("channels_last"), slice(1, None, 2), ..., None)
    given = call(seen, *args, a=[1, 2.5, (True, "x")], b={"c": 1j}, way=ON_CPU)
    assert given.outputs["output.0"] == (
        "((device(type='cpu'), torch.Size([2, 3]), torch.channels_last, slice(1, None, 2), Ellipsis, None), "
        "{'a': [1, 2.5, (True, 'x')], 'b': {'c': 1j}})"
    )


@pytest.mark.parametrize(
    ("dtype", "wide"), [("float16", "float64"), ("complex64", "complex128"), ("int32", "int32"), ("bool", "bool")]
)
def test_arrays_stay_arrays(dtype: str, wide: str) -> None:
    """Each run has its own, on the host; a reference's floats are wide."""
    given = np.ones(3, dtype)
    for way, wanted in ((ON_CPU, dtype), (REFERENCE, wide)):
        [array] = CALLS.bind(Arguments((Array(given),), {}, None), way, None).args
        assert (type(array), array.dtype.name, array.tolist()) == (np.ndarray, wanted, given.tolist())
        array[0] = 0
        assert given[0] == 1


def test_a_device_of_a_name_that_torch_does_not_know_has_its_tensors_on_the_cpu() -> None:
    device = TorchDevice("cpu")
    device.name = "accelerator:1"
    given = call(seen, DeviceSpec("cuda:3"), way=Way(device=device, autocast="bfloat16"))
    assert given.outputs["output.0"] == "((device(type='cpu'),), {})"


def test_surroundings_are_restored() -> None:
    def raising() -> None:
        assert torch.get_default_dtype() is torch.float64
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        call(raising)
    assert torch.get_default_dtype() is torch.float32
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


def test_autocast() -> None:
    way = Way(device=TorchDevice("cpu"), autocast="bfloat16")
    made = call(torch.matmul, leaf(np.ones((2, 2))), leaf(np.ones((2, 2))), way=way)
    assert made.outputs["output.0"].dtype == numpy_dtype("bfloat16")


def returning(value: Any) -> Any:
    return lambda *tensors: value


def test_names_of_outputs_and_scalars_among_them() -> None:
    one, two = torch.ones(1), torch.ones(2)
    for value, names in (
        (two, ["output.0"]),
        ([two, (one, one)], ["output.0", "output.1.0", "output.1.1"]),
        (torch.max(torch.ones(2, 2), 0), ["output.0", "output.1"]),
        ({"a": two, "b": [3]}, ["output.a", "output.b.0"]),
        ((two, None, one), ["output.0", "output.2"]),
        (None, []),
        ((), []),
    ):
        assert list(call(returning(value)).outputs) == names
    scalars = {2.5: 2.5, True: True, 3: 3, 1j: 1j, torch.Size([2, 3]): [2, 3], torch.float32: "torch.float32"}
    for given, plain in scalars.items():
        assert call(returning(given)).outputs == {"output.0": plain}


def test_what_is_changed_among_keywords_and_lists() -> None:
    made = call(torch.add, leaf([1]), leaf([2]), out=leaf([0]))
    assert (made.changed, made.returned) == (frozenset({"kwargs.out"}), {"output.0": "kwargs.out"})
    made = call(torch._foreach_add_, [leaf([1]), leaf([2])], 1)
    assert made.changed == {"input.0.0", "input.0.1"}
    assert made.after("input.0.1").tolist() == [3]


def back(
    function: Any, *args: Any, wanted: Any, seeds: Any = None, way: Way = REFERENCE, **more: Any
) -> dict[str, Any]:
    asked = Wanted(frozenset(wanted), function in (torch.Tensor.mul_,))
    made = CALLS.run(function, Arguments(args, more, None), way, asked)
    given = seeds or {name: np.ones(made.outputs[name].shape) for name in made.differentiable}
    return {name: value.tolist() for name, value in CALLS.gradients(made, given).items()}


def test_gradients_of_positional_keyword_and_nested_arguments() -> None:
    assert back(torch.mul, leaf([2]), leaf([3]), wanted=["input.0", "input.1"]) == {"input.0": [3], "input.1": [2]}
    found = back(torch.nn.functional.linear, leaf([[2]]), weight=leaf([[3]]), wanted=["input.0", "kwargs.weight"])
    assert found == {"input.0": [[3]], "kwargs.weight": [[2]]}
    found = back(torch.cat, [leaf([1]), leaf([2])], wanted=["input.0.0", "input.0.1"])
    assert found == {"input.0.0": [1], "input.0.1": [1]}


def test_complex_and_narrow_gradients() -> None:
    found = back(torch.mul, leaf([1 + 1j], "complex64"), leaf([2j], "complex64"), wanted=["input.0"])
    assert found == {"input.0": [-2j]}
    made = call(torch.exp, leaf([0], "bfloat16"), way=ON_CPU, wanted=Wanted(frozenset({"input.0"})))
    (gradient,) = CALLS.gradients(made, {"output.0": np.ones(1, numpy_dtype("bfloat16"))}).values()
    assert (gradient.dtype, float(gradient[0])) == (numpy_dtype("bfloat16"), 1.0)


def test_autograds_zeros_have_values() -> None:
    assert back(torch.sgn, leaf([2, -3]), wanted=["input.0"]) == {"input.0": [0, 0]}


def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    public = torch.autograd.grad

    def noted(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return public(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "grad", noted)
    return calls


def made() -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    torch.manual_seed(0)
    x, y, z = (torch.randn(4, 5, requires_grad=True) for _ in range(3))
    outputs = [torch.softmax(x @ y.T, -1), (x * y).sum(1), torch.complex(x, y)]
    return outputs, [x, y, z], [torch.randn(output.shape, dtype=output.dtype) for output in outputs]


def test_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = torch.autograd.grad(*made(), allow_unused=True)
    calls = asked(monkeypatch)
    found = backward(*made())
    assert not calls
    assert found[2] is None is wanted[2]
    for gradient, right in zip(found[:2], wanted[:2], strict=True):
        assert gradient is not None
        assert torch.equal(gradient, right)


def test_the_graph_is_used_up() -> None:
    outputs, leaves, incoming = made()
    backward(outputs, leaves, incoming)
    with pytest.raises(RuntimeError, match="a second time"):
        backward(outputs, leaves, incoming)


def test_a_gradient_of_another_shape_is_refused() -> None:
    """The engine would add up its rows."""
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        backward([x * 2], [x], [torch.ones(4, 3)])


def test_a_complex_gradient_of_a_real_output_is_refused() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="complex"):
        backward([x * 2], [x], [torch.ones(3, dtype=torch.complex64)])


class Own(torch.Tensor):
    pass


class Mode(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def test_what_sees_the_public_call_still_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = asked(monkeypatch)
    with Mode():
        backward(*made())
    x = torch.ones(3).as_subclass(Own).requires_grad_()
    backward([x * 2], [x], [torch.ones(3)])
    assert len(calls) >= 2


@pytest.mark.parametrize("entry", [None, lambda outputs, inputs: None])
def test_another_entry_is_left_alone(entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.autograd.graph, ENTRY, entry)
    monkeypatch.setattr(torch.autograd, "grad", lambda *args, **kwargs: ())
    assert backward(*made()) == ()
