from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.errors import UnknownAPI
from pytest_probe.frameworks.torch.allowlist import CREATION
from pytest_probe.frameworks.torch.arrays import laid_out
from pytest_probe.frameworks.torch.framework import TorchFramework
from pytest_probe.frameworks.torch.signatures import bind

FRAMEWORK = TorchFramework()


def paths(name: str, **namespaces: str) -> list[str]:
    namespace, _, api = name.partition(".")
    return [api.path for api in FRAMEWORK.candidates(namespace, api, namespaces)]


def test_overloads_of_operators_are_found() -> None:
    operators = {"Aten": "torch.ops.aten"}
    assert paths("Aten.add.Tensor", **operators) == ["torch.ops.aten.add.Tensor"]
    assert paths("Aten.mm", **operators) == ["torch.ops.aten.mm"]
    for name in ("Aten.add.nothing", "Aten.add.Tensor.redispatch", "Aten.add.__class__"):
        with pytest.raises(UnknownAPI):
            paths(name, **operators)


PLAIN = (
    "Functional.linear Functional.relu_ Functional.hardswish Functional.upsample_nearest Tensor.new_full "
    "Tensor.unflatten Tensor.__iadd__ Tensor.__rsub__ Tensor.__getitem__ Tensor.__float__ Torch.einsum "
    "Torch._foreach_add_ Torch.linalg.svd Torch.special.expit"
).split()
PLACES = {"Functional": "torch.nn.functional", "Tensor": "torch.Tensor", "Torch": "torch"}
# Names that lead to another module, or to two.
OTHERS = {
    "Torch.matmul": ["torch.matmul", "torch.linalg.matmul"],
    "Torch.svd": ["torch.svd", "torch.linalg.svd"],
    "Torch.eigh": ["torch.linalg.eigh"],
    "Torch.expit": ["torch.special.expit"],
    "Torch.fft": ["torch.fft.fft"],
    "VF.lstm": ["torch.lstm"],
}


@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
def test_what_torch_lists_may_be_called(name: str) -> None:
    place, _, api = name.partition(".")
    assert paths(name) == (OTHERS.get(name) or [f"{PLACES[place]}.{api}"])


@pytest.mark.parametrize("name", sorted(CREATION))
def test_creation_functions_may_be_called(name: str) -> None:
    assert f"torch.{name}" in paths(f"Torch.{name}")


REFUSED = (
    "Torch.load Torch.save Torch.from_file Torch.from_numpy Torch.compile Torch.manual_seed "
    "Torch.use_deterministic_algorithms Torch.jit.load Torch.serialization.load Torch.os.system Torch.sys.exit "
    "Torch.nn.functional.linear.__globals__.get Torch.Tensor.add Torch.linalg Torch.device Torch.ops.aten.relu "
    "Torch._C._cuda_init Torch.__loader__ Torch. Torch.linalg. Torch..svd Torch.nothing Functional.Optional "
    "Functional.torch.load Functional.warnings.warn Functional.__builtins__ Tensor.__class__ Tensor.__dict__ "
    "Tensor.__init__ Tensor.__reduce_ex__ Tensor.__setattr__ Tensor.__getattribute__ Tensor.__torch_function__ "
    "Tensor.__subclasshook__ Tensor.__repr__ Tensor._make_subclass Tensor.add.__call__ Tensor.data_ptr "
    "Tensor.register_hook Tensor.backward Tensor.numpy Tensor.get_device Tensor.set_ Tensor.shape Tensor.nothing "
    "os.system builtins.eval torch.matmul"
).split()


@pytest.mark.parametrize("name", REFUSED)
def test_anything_else_is_refused(name: str) -> None:
    with pytest.raises(UnknownAPI):
        paths(name)


def test_a_refusal_says_what_would_do() -> None:
    with pytest.raises(UnknownAPI, match=r"^Torch\.load: torch\.load is not among what torch lists as public and ov"):
        paths("Torch.load")
    with pytest.raises(UnknownAPI, match=r"\(NPU=python\.module, or NPU=torch\.ops\.NPU for operators\)$"):
        paths("NPU.npu_unheard_of")
    with pytest.raises(UnknownAPI, match="communication between ranks cannot be replayed alone"):
        paths("Distributed.all_reduce")


@pytest.mark.parametrize(
    ("owner", "name", "recorded"),
    [
        (torch, "matmul", "Torch.matmul"),
        (torch.nn.functional, "gelu", "Functional.gelu"),
        (torch.Tensor, "add", "Tensor.add"),
    ],
)
def test_a_patched_function_stays_allowed_and_is_the_one_that_runs(
    owner: Any, name: str, recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace, _, function = recorded.partition(".")
    (before, *_) = FRAMEWORK.candidates(namespace, function, {})

    def mine(*args: Any) -> str:
        return "mine"

    monkeypatch.setattr(owner, name, mine)
    (after, *_) = FRAMEWORK.candidates(namespace, function, {})
    assert (before.lookup()(), after.lookup()()) == ("mine", "mine")


@pytest.mark.parametrize("name", ["load", "save", "compile", "from_file", "manual_seed", "set_default_dtype", "hub"])
def test_what_is_refused_stays_so_where_a_library_patched_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, name, lambda *args: "harm")
    with pytest.raises(UnknownAPI):
        paths(f"Torch.{name}")


@pytest.mark.parametrize("in_place", [True, False])
def test_which_names_work_in_place(in_place: bool) -> None:
    names = "Tensor.add_ Tensor.__iadd__ Tensor.__setitem__ Tensor.__ior__ Torch._foreach_mul_ Functional.relu_"
    others = "Tensor.add Tensor.__add__ Tensor.__getitem__ Tensor.__invert__ Tensor.__index__ Tensor.__int__"
    for name in (names if in_place else others).split():
        namespace, api = name.split(".")
        assert FRAMEWORK.candidates(namespace, api, {})[0].in_place is in_place
        assert bind(name, (np.ones(2),), {}).in_place is in_place
    assert bind("", (), {}).in_place is False


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made, below = ModuleType("vendor"), ModuleType("vendor.ops")
    made.__dict__.update(rms_norm=lambda x: x, os=__import__("os"), ops=below, torch=torch, number=3, _hidden=len)
    below.__dict__.update(swiglu=lambda x: x, top=made)
    monkeypatch.setitem(__import__("sys").modules, "vendor", made)
    return made


def test_a_users_module_may_be_called(module: ModuleType) -> None:
    assert paths("NPU.rms_norm", NPU="vendor") == ["vendor.rms_norm"]
    assert paths("NPU.ops.swiglu", NPU="vendor") == ["vendor.ops.swiglu"]
    assert FRAMEWORK.candidates("NPU", "rms_norm", {"NPU": "vendor"})[0].lookup() is module.rms_norm


@pytest.mark.parametrize("api", ["os.system", "torch.load", "ops.top.os.system", "_hidden", "number", "nothing", "ops"])
def test_what_a_users_module_imported_may_not(module: ModuleType, api: str) -> None:
    with pytest.raises(UnknownAPI, match=f"NPU.{api}: vendor.{api} is not a function there"):
        paths(f"NPU.{api}", NPU="vendor")


def test_custom_operators_are_a_namespace_too() -> None:
    assert paths("NPU.relu", NPU="torch.ops.aten") == ["torch.ops.aten.relu"]


@pytest.mark.parametrize("place", ["no_such_module", "no_such_module.ops", "torch.no_such_part"])
def test_a_module_that_is_not_there(place: str) -> None:
    with pytest.raises(UnknownAPI, match=r"^probe_namespaces: .* cannot be imported: "):
        paths("NPU.rms_norm", NPU=place)


@pytest.mark.parametrize(
    ("error", "says_so"),
    [
        (NotImplementedError("no"), True),
        (RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'"), True),
        (RuntimeError("Could not run 'aten::add' with arguments from the 'CUDA' backend"), True),
        (RuntimeError("value cannot be converted to type c10::Half without overflow"), True),
        (RuntimeError("MKL FFT doesn't support tensors of type: Half"), True),
        (RuntimeError("Unsupported dtype BFloat16"), True),
        (AssertionError("Tried to use AMP with the `pretend` backend, but the backend has not registered"), True),
        (RuntimeError("HalfTensor is not supported"), True),
        (RuntimeError("torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA"), True),
        (RuntimeError("linalg.inv: Low precision dtypes not supported. Got Half"), True),
        (RuntimeError("derivative for aten::floor_divide is not implemented"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("no"), False),
    ],
)
def test_which_errors_say_that_there_is_no_kernel(error: Exception, says_so: bool) -> None:
    assert FRAMEWORK.has_no_kernel(error) == says_so


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (torch.complex, 2),
        (torch.polar, 2),
        (lambda x: torch.view_as_complex(x), 1),
        (lambda x: torch.quantile(x, 0.5), 1),
        (lambda x: torch.nanquantile(x, 0.5), 1),
        (torch.linalg.pinv, 1),
        (torch.linalg.lstsq, 2),
        (torch.linalg.matrix_rank, 1),
        (lambda x: torch.linalg.vander(x[0]), 1),
    ],
)
def test_what_has_no_kernel_in_bfloat16(function: Any, arguments: int) -> None:
    x = torch.ones(2, 2, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError) as raised:
        function(*[x] * arguments)
    assert FRAMEWORK.has_no_kernel(raised.value)


def test_threads_are_shared() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        FRAMEWORK.share_threads(2)
        assert torch.get_num_threads() == 2
        FRAMEWORK.share_threads(9)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_kernels_in_their_order_and_which_are_of_float32() -> None:
    x = torch.ones(4, 8, dtype=torch.bfloat16)
    found = FRAMEWORK.kernels(lambda: torch.nn.functional.rms_norm(x, (8,), eps=0.5).abs())
    names = "pow.Tensor_Scalar mean.dim add_.Scalar rsqrt.default mul.Tensor abs.default".split()
    assert found == tuple((f"aten.{name}", name != "abs.default", name == "abs.default") for name in names)


@pytest.mark.parametrize(
    ("dtype", "between"), [(torch.float32, float("nan")), (torch.bfloat16, float("nan")), (torch.int64, 0)]
)
def test_what_lies_between_the_elements_of_a_view_shows_who_reads_it(dtype: torch.dtype, between: float) -> None:
    made = laid_out(torch.arange(3).to(dtype), (2,), 1)
    assert made.tolist() == [0, 1, 2]
    memory = made.as_strided((6,), (1,), 0).double().numpy()
    np.testing.assert_array_equal(memory, [0, 0, between, 1, between, 2])
