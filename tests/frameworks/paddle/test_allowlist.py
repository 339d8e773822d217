from __future__ import annotations

import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe.errors import UnknownAPI
from pytest_probe.frameworks.paddle.allowlist import OPERATORS, candidates

COMPUTING = (
    "add nn.functional.linear linalg.svd fft.fft Tensor.__add__ Tensor.multiply_ Tensor.__getitem__ _C_ops.layer_norm "
    "nn.clip._squared_l2_norm incubate.nn.functional.swiglu geometric.segment_sum vision.ops.roi_align full randn"
).split()
# They read and write files, run what they are given, or set what the process has.
REFUSED = (
    "load save hub.load jit.load static.py_func set_flags seed vision.ops.read_file _C_ops.load_combine "
    "_C_ops.run_program _C_ops._run_custom_op _C_ops.print Tensor.register_hook Tensor.numpy Tensor.apply_ "
    "Tensor.__reduce__ Tensor.__class__ Tensor._share_memory os.system base.core.eager.Tensor nn.Linear utils.download "
    "add.__globals__ nn.functional.os inference.create_predictor autograd.PyLayer"
).split()


@pytest.mark.parametrize("api", COMPUTING)
def test_apis_that_compute_are_allowed(api: str) -> None:
    (found,) = candidates("paddle", api, {})
    assert found.path == f"paddle.{api}"
    assert callable(found.lookup())
    assert found.in_place == (api == "Tensor.multiply_")


@pytest.mark.parametrize("api", REFUSED)
def test_apis_that_do_not_compute_are_refused(api: str) -> None:
    with pytest.raises(UnknownAPI, match=rf"paddle\.{api}"):
        candidates("paddle", api, {})


def test_every_operator_is_there() -> None:
    assert {name for name in OPERATORS if not {name, f"{name}_"} & set(dir(paddle._C_ops))} == set()


def test_another_namespace() -> None:
    with pytest.raises(UnknownAPI, match=r"os is not paddle; allow it with probe_namespaces \(os=python.module\)"):
        candidates("os", "system", {})


def test_a_namespace_of_the_users() -> None:
    (found,) = candidates("mine", "median", {"mine": "statistics"})
    assert found.lookup()([1, 2, 9]) == 2
    with pytest.raises(UnknownAPI, match="is not a function there"):
        candidates("mine", "sys.exit", {"mine": "statistics"})


def test_what_a_user_patched_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = candidates("paddle", "add", {})
    monkeypatch.setattr(paddle, "add", lambda x, y: "mine")
    assert found.lookup()(1, 2) == "mine"
