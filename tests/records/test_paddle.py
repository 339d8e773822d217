from __future__ import annotations

import pytest

from pytest_probe.records.paddle import has_gradient


@pytest.mark.parametrize(
    ("api", "line", "gradient"),
    [
        ("add", 'Tensor([2],"float32"), 1, ', True),
        ("argmax", 'Tensor([2],"float32"), axis=0, ', False),
        ("Tensor.argmax", 'Tensor([2],"float32"), ', False),
        ("Tensor.__ne__", 'Tensor([2],"float32"), 1.0, ', False),
        ("Tensor.__setitem__", 'Tensor([2],"float32"), 0, 1.0, ', False),
        ("cast", 'Tensor([2],"float32"), "float64", ', True),
        ("cast", 'Tensor([2],"float32"), "int64", ', False),
        ("Tensor.astype", 'Tensor([2],"float32"), Dtype(bool), ', False),
        ("Tensor.astype", 'Tensor([2],"float32"), Dtype(paddle.uint8), ', False),
        ("Tensor.astype", '"args": [{"dtype": "FLOAT32"}, "paddle.int32"]', False),
        ("Tensor.astype", '"args": [{"dtype": "FLOAT32"}, {"type": "str", "value": "int32"}]', False),
        ("Tensor.astype", '"args": [{"dtype": "FLOAT32"}, {"type": "str", "value": "float16"}]', True),
        ("sum", 'Tensor([2],"float32"), dtype="int64", ', True),
    ],
)
def test_which_calls_may_have_a_gradient(api: str, line: str, gradient: bool) -> None:
    assert has_gradient(api, line.encode()) == gradient
