"""Calls of Paddle's through the checker: healthy ones pass, planted faults are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe.check import Checker, RunRequest
from pytest_probe.model.dump import Direction, DtypeSpec, TensorSpec
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.support.paddle_calls import checked, integers, tensor

F = paddle.nn.functional
FUNCTIONAL = "nn.functional."
Plant = Callable[[Any, str, Callable[..., Any]], None]


class Other:
    """The CPU under another name; all that comes from the one called "wrong" is 0.1 % off."""

    def __init__(self, name: str) -> None:
        self.name = name

    def put(self, given: Any) -> Any:
        return given.clone()

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def get(self, given: Any) -> Any:
        return given * 1.001 if self.name == "wrong" and given.dtype == paddle.float32 else given


def check(
    api: str, *args: Any, emulate: bool = False, device: str = "cpu", allow: str = "auto", **kwargs: Any
) -> dict[Direction, Verdict]:
    """The verdicts on a recorded call, by direction."""
    registry = Registry.default()
    registry.devices.update({"other": Other, "wrong": Other})
    checker = Checker(RunRequest(device=device, emulate=emulate, allow=(allow,)), registry)
    return checked(checker, api, *args, **kwargs)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Put a fault in the place of a function, but where it is asked for float64: a reference is right."""

    def planted(owner: Any, name: str, wrong: Callable[..., Any]) -> None:
        right = getattr(owner, name)

        def function(*args: Any, **kwargs: Any) -> Any:
            wide = any(getattr(value, "dtype", None) == paddle.float64 for value in args)
            return right(*args, **kwargs) if wide else wrong(right, *args, **kwargs)

        monkeypatch.setattr(owner, name, function)

    return planted


HEALTHY: dict[str, tuple[Any, ...]] = {
    "matmul": (tensor(8, 40), tensor(40, 9)),
    "matmul transposed": (tensor(40, 8), tensor(9, 40), True, True),
    FUNCTIONAL + "linear": (tensor(4, 16, 32), tensor(32, 64), tensor(64)),
    FUNCTIONAL + "layer_norm": (tensor(4, 16, 32), 32, tensor(32), tensor(32)),
    FUNCTIONAL + "batch_norm": (tensor(4, 3, 8, 8), tensor(3), tensor(3), tensor(3), tensor(3), True),
    FUNCTIONAL + "gelu": (tensor(64, 64, max=10, min=-100),),
    FUNCTIONAL + "tanhshrink": (tensor(16, 33),),
    "logit": (tensor(16, 33), 1e-3),
    FUNCTIONAL + "softmax": (tensor(8, 40),),
    FUNCTIONAL + "conv2d": (tensor(2, 3, 16, 16), tensor(8, 3, 3, 3), tensor(8)),
    FUNCTIONAL + "max_pool2d": (tensor(2, 3, 12, 12), 3, 2, 1),
    FUNCTIONAL + "cross_entropy": (tensor(16, 40), integers(16, 1)),
    FUNCTIONAL + "embedding": (integers(4, 7), tensor(50, 16)),
    FUNCTIONAL + "dropout": (tensor(64, 64), 0.3),
    "_C_ops.layer_norm": (tensor(4, 8), tensor(8), tensor(8), 1e-5, 1),
    "nn.clip._squared_l2_norm": (tensor(32, 33),),
    "Tensor.multiply_": (tensor(4, 8), tensor(1)),
    "split": (tensor(8, 64), 2, -1),
    "topk": (tensor(8, 64), 3),
    "linalg.svd": (tensor(8, 5),),
    "gather_nd": (tensor(5, 6, 4), integers(7, 2)),
    "put_along_axis": (tensor(10, 4), integers(3, 4), tensor(3, 4), 0),
    "scatter": (tensor(10, 4), integers(5), tensor(5, 4)),
    "multiplex": ([tensor(4, 3), tensor(4, 3)], tensor(4, 1, dtype="int32")),
    "exp": (tensor(8, 8, dtype="complex64"),),
    "einsum": ("bij,jk->bik", tensor(2, 8, 16), tensor(16, 32)),
}


@pytest.mark.parametrize("api", HEALTHY)
def test_a_healthy_call_passes(api: str) -> None:
    found = check(api.partition(" ")[0], *HEALTHY[api])
    assert {direction: (verdict.verdict, verdict.reason) for direction, verdict in found.items()} == {
        "forward": ("pass", ""),
        "backward": ("pass", ""),
    }


LABELS = [tensor(4, 3, dtype="int32"), integers(4), integers(4)]
# Where float32 overflows on the way, cancels, or computes back from what it has rounded, as Paddle's kernels do.
EXTREME: dict[str, tuple[Any, ...]] = {
    "logcumsumexp": (tensor(8, 40, max=1000, min=0), 1),
    "cumprod": (tensor(9, 3, max=1e10, min=-1e10), 0),
    "prod": (tensor(17, 16, 15, max=1000, min=-1000), -1),
    "sinh": (tensor(18, 15, 3, max=-1, min=-1000),),
    "sinh vectors": (tensor(64, 64, max=-88, min=-90),),
    "exp": (tensor(64, 64, max=89, min=88),),
    FUNCTIONAL + "mish": (tensor(64, 64, max=10, min=0),),
    FUNCTIONAL + "glu": (tensor(9, 15, 26, max=20, min=-20),),
    FUNCTIONAL + "group_norm": (tensor(3, 2, 6, 7), 1, 1e-5, tensor(2, max=4, min=0.4), tensor(2, max=7e3, min=-4e3)),
    FUNCTIONAL + "ctc_loss": (tensor(11, 4, 5, max=1e4, min=0), *LABELS),
    FUNCTIONAL + "cosine_similarity": (tensor(8, 16, max=1e10, min=-1e10), tensor(8, 16)),
}


@pytest.mark.parametrize("api", EXTREME)
def test_extreme_values_are_no_error_in_paddle(api: str) -> None:
    found = check(api.partition(" ")[0], *EXTREME[api])
    # Where perturbed runs overflow nobody can judge: a warning.
    assert not [verdict.reason for verdict in found.values() if verdict.verdict not in ("pass", "warning")]


@pytest.mark.parametrize("api", HEALTHY)
@pytest.mark.parametrize("allow", ["auto", "tf32"])
def test_paddle_calls_pass_on_another_device_under_any_mode(api: str, allow: str) -> None:
    """Paddle emulates no mode: one that is allowed excuses nothing, and stands in nobody's way."""
    found = check(api.partition(" ")[0], *HEALTHY[api], device="other", allow=allow)
    assert {verdict.verdict for verdict in found.values()} == {"pass"}


FAULTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "matmul": (paddle, "matmul", lambda right, x, y: right(x, y) * 1.0001),
    FUNCTIONAL + "linear": (F, "linear", lambda right, x, weight, bias: right(x, weight, bias * 0.999)),
    FUNCTIONAL + "layer_norm": (F, "layer_norm", lambda right, *args: right(*args, epsilon=1e-3)),
    FUNCTIONAL + "gelu": (F, "gelu", lambda right, x: right(x, True)),
    FUNCTIONAL + "softmax": (F, "softmax", lambda right, x: right(x.cast("float64").cast("float16").cast("float32"))),
    FUNCTIONAL + "tanhshrink": (F, "tanhshrink", lambda right, x: right(x) * 1.001),
    FUNCTIONAL + "embedding": (F, "embedding", lambda right, x, weight: right((x + 1) % 50, weight)),
    "gather_nd": (paddle, "gather_nd", lambda right, x, index: right(x, paddle.zeros_like(index))),
    "nn.clip._squared_l2_norm": (
        paddle.nn.clip,
        "_squared_l2_norm",
        lambda right, x: right(x.flatten()[2:]),
    ),
}


@pytest.mark.parametrize("api", FAULTS)
def test_a_planted_fault_is_found(api: str, plant: Plant) -> None:
    plant(*FAULTS[api])
    assert check(api, *HEALTHY[api])["forward"].verdict == "error"


@pytest.mark.parametrize("api", FAULTS)
@pytest.mark.parametrize("allow", ["auto", "tf32", "ftz"])
def test_a_wrong_device_of_another_name(api: str, allow: str) -> None:
    assert check(api, *HEALTHY[api], device="wrong", allow=allow)["forward"].verdict == "error"


def test_a_lost_gradient_of_paddle_is_an_error(plant: Plant) -> None:
    plant(F, "linear", lambda right, x, weight, bias: right(x, weight.detach(), bias))
    found = check(FUNCTIONAL + "linear", *HEALTHY[FUNCTIONAL + "linear"])
    assert found["forward"].verdict == "pass"
    assert [output.name for output in found["backward"].outputs if output.verdict == "error"] == ["grad.input.1"]


@pytest.mark.parametrize("api", [FUNCTIONAL + "linear", "topk", "Tensor.multiply_", FUNCTIONAL + "batch_norm"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_is_emulated(api: str, dtype: str) -> None:
    def narrow(value: Any) -> Any:
        floating = isinstance(value, TensorSpec) and value.dtype == "float32"
        return tensor(*value.shape, dtype=dtype) if floating else value

    found = check(api, *map(narrow, HEALTHY[api]), emulate=True)
    assert {verdict.verdict for verdict in found.values()} == {"pass"}
    assert found["forward"].notes == (f"emulated: {dtype} computed in float32 and rounded",)


def test_a_fault_in_16_bit_is_found(plant: Plant) -> None:
    plant(paddle, "matmul", lambda right, x, y: right(x, y) * 1.02)
    args = (tensor(8, 40, dtype="bfloat16"), tensor(40, 9, dtype="bfloat16"))
    assert check("matmul", *args, emulate=True)["forward"].verdict == "error"


def test_functions_of_the_users_own_are_emulated_as_closely() -> None:
    """Limits are those of float32 inside, not of kernels that round each step."""
    checker = Checker(RunRequest(device="cpu", emulate=True), Registry.default(), framework="paddle")
    x, y = (paddle.randn(shape).cast("bfloat16") for shape in ([8, 40], [40, 9]))
    right = checker.compare(paddle.matmul, paddle.matmul, [x, y], api="paddle.matmul")
    wrong = checker.compare(lambda a, b: paddle.matmul(a, b) * 1.02, paddle.matmul, [x, y], api="paddle.matmul")
    assert [verdict.verdict for verdict in (*right, *wrong)] == ["pass", "error"]
    assert "emulated: bfloat16 computed in float32 and rounded" in right[0].notes


@pytest.mark.parametrize(
    ("api", "args", "kind", "said"),
    [
        (
            *("matmul", [tensor(4, 8, dtype="bfloat16"), tensor(8, 4, dtype="bfloat16")], "unsupported by the device"),
            "(NotFound) The kernel with key (CPU, Undefined(AnyLayout), bfloat16) of kernel `matmul`",
        ),
        (
            *("full", [TensorSpec("int64", (2,)), 1.0], "lost argument"),
            "a tensor whose values were not stored, expected its values, which are a size",
        ),
        ("abs", [tensor(4, dtype="int8")], "unsupported by the device", ""),
        ("add_n", [[tensor(4), tensor(4, dtype="float16")]], "unsupported by the device", ""),
        ("amax", [tensor(0, 5), 0], "unsafe arguments", ""),
        ("argmin", [tensor(0), 0], "unsafe arguments", ""),
    ],
)
def test_what_paddle_cannot_run_is_a_skip_that_says_why(api: str, args: list[Any], kind: str, said: str) -> None:
    found = check(api, *args)["forward"]
    assert (found.verdict, found.kind) == ("skip", kind)
    assert said in found.reason


def test_paddle_calls_with_a_dtype_by_name_pass() -> None:
    assert check("cast", tensor(4, 4), DtypeSpec("float64"))["forward"].verdict == "pass"
    assert check(FUNCTIONAL + "softmax", tensor(4, 4), dtype=DtypeSpec("float64"))["forward"].verdict == "pass"


def test_bits_are_those_of_the_devices_dtype() -> None:
    """Of a float64 there are twice as many."""
    assert check("view", tensor(3, 4), DtypeSpec("int32"))["forward"].verdict == "pass"
    assert check("Tensor.view", tensor(3, 4, dtype="bfloat16"), "uint8")["forward"].verdict == "pass"
    assert {verdict.verdict for verdict in check("view", tensor(3, 4), [4, 3]).values()} == {"pass"}
    checker = Checker(RunRequest(device="cpu"), Registry.default(), framework="paddle")
    wrong = (lambda x, dtype: paddle.view(x, dtype) + 1, paddle.view, [paddle.ones([3]), "int32"])
    assert [verdict.verdict for verdict in checker.compare(*wrong, api="paddle.view")] == ["error"]


@pytest.mark.parametrize("variances", [[0.1, 0.2, 0.3, 0.4], (1.0, 1.0, 1.0, 1.0), tensor(5, 4)])
def test_variances_of_boxes_are_judged(variances: Any, plant: Plant) -> None:
    """The float64 kernel misreads a list of them."""
    call: tuple[Any, ...] = (tensor(5, 4), variances, tensor(5, 3, 4), "decode_center_size", False)
    assert check("vision.ops.box_coder", *call, axis=1)["forward"].verdict == "pass"
    plant(paddle.vision.ops, "box_coder", lambda right, x, by, *args, **kwargs: right(x, None, *args, **kwargs))
    assert check("vision.ops.box_coder", *call, axis=1)["forward"].verdict == "error"


def test_scores_of_a_transducer(plant: Plant) -> None:
    integers = [tensor(*shape, dtype="int32") for shape in ((3, 2), (3,), (3,))]
    call = (tensor(3, 4, 3, 3), *integers)
    assert {verdict.verdict for verdict in check(FUNCTIONAL + "rnnt_loss", *call).values()} == {"pass"}
    plant(F, "rnnt_loss", lambda right, *args: right(*args) * 1.001)
    assert check(FUNCTIONAL + "rnnt_loss", *call)["forward"].verdict == "error"


def test_functions_of_the_users_own() -> None:
    checker = Checker(RunRequest(device="cpu"), Registry.default(), framework="paddle")
    x = paddle.to_tensor(np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32))
    right = checker.compare(lambda x: x * x.exp(), lambda x: x * x.exp(), [x], backward=True)
    wrong = checker.compare(lambda x: x * x.exp() * 1.001, lambda x: x * x.exp(), [x], backward=True)
    assert [verdict.verdict for verdict in (*right, *wrong)] == ["pass", "pass", "error", "error"]
