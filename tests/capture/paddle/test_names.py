from __future__ import annotations

import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe.capture.paddle import recording
from pytest_probe.capture.paddle.names import recorded_functions
from pytest_probe.frameworks.paddle.allowlist import is_api


def test_names_are_allowed_in_a_replay() -> None:
    names = [rule.name for _, rule in recorded_functions(lambda name: True) if rule.name]
    assert len(names) == len(set(names)) > 1000
    assert [name for name in names if not is_api(name.partition(".")[2])] == []


@pytest.mark.parametrize("module", [paddle, paddle.nn.functional, paddle.linalg, paddle.fft])
def test_no_public_function_is_forgotten(module: object) -> None:
    found = {id(function) for function, _ in recorded_functions(lambda name: True)}
    place = module.__name__.partition(".")[2]  # type: ignore[attr-defined]
    missing = [
        name
        for name in module.__all__  # type: ignore[attr-defined]
        if is_api(f"{place}.{name}".lstrip(".")) and id(getattr(module, name)) not in found
    ]
    assert not set(missing) - {
        "rank",
        "is_complex",
        "is_floating_point",
        "is_integer",
        "is_empty",
        "is_tensor",
        "tolist",
    }


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (paddle.concat, "paddle.concat"),
        (paddle.Tensor.add, "paddle.add"),
        (paddle.nn.functional.softmax, "paddle.nn.functional.softmax"),
        (paddle.nn.functional.tanh, "paddle.tanh"),
        (paddle._C_ops.adamw_, "paddle._C_ops.adamw_"),
    ],
)
def test_a_function_has_its_own_name(function: object, name: str) -> None:
    rules = {id(function): rule for function, rule in recorded_functions(lambda name: True)}
    assert rules[id(function)].name == name


def test_operators_that_write_are_known() -> None:
    rules = [rule for function, rule in recorded_functions(lambda name: True) if function is paddle._C_ops.sgd_]
    assert [rule.writes for rule in rules] == [True]


FLAGS = ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic")


@pytest.mark.parametrize("known", [["FLAGS_cudnn_deterministic"], sorted(FLAGS), []])
@pytest.mark.parametrize("deterministic", [True, False])
def test_flags_of_deterministic_algorithms(
    deterministic: bool, known: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not every build has each; that of the CPU has none."""
    told: dict[str, bool] = {}
    monkeypatch.setattr(paddle.base.core, "globals", lambda: dict.fromkeys(known, False))
    monkeypatch.setattr(paddle, "set_flags", told.update)
    recording.seed(3, deterministic)
    assert told == dict.fromkeys(known, deterministic)


def test_a_step_ends_with_each_step_of_the_first_optimizer() -> None:
    first, second = (paddle.optimizer.SGD(0.1, parameters=[paddle.create_parameter([2], "float32")]) for _ in range(2))
    steps = []
    with recording.after_optimizer_steps(lambda: steps.append(1)):
        for optimizer in (first, second, first):
            optimizer.step()
    first.step()
    assert len(steps) == 2
