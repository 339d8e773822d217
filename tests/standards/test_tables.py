from __future__ import annotations

import fnmatch
import itertools

import pytest
import torch

from pytest_probe import frameworks
from pytest_probe.frameworks.paddle import signatures as of_paddle
from pytest_probe.frameworks.python.binding import Signature
from pytest_probe.frameworks.torch.npu import OPERATORS
from pytest_probe.frameworks.torch.signatures import SIGNATURES, canonical
from pytest_probe.standards.tables import _classes, classes_of, details, names

FORWARD = ("uninitialised", "random", "discrete", "selection", "factorisation", "own_dtype", "exact", "factory")
BACKWARD = ("random", "ties", "factorisation", "exact_backward")
PLACES = (torch, torch.Tensor, torch.nn.functional, torch.linalg, torch.special, torch.fft)
TORCHS = {canonical(name) for place in PLACES for name in dir(place)}


# Lists of "api@parameter", "api@parameter=value": another list for each argument that a judge asks for.
OF_PARAMETERS = (
    "noise_with discrete_with nearest_with labels random_with inner_dropout running_statistics eps approximate "
    "terms_of_last_dimension"
).split()
# APIs of torch_npu.
ELSEWHERE = frozenset(map(canonical, OPERATORS))
# By their arguments calls of Paddle's mean these, which no function of its is called.
FORMS = frozenset(f"{name}_channels_last" for name in of_paddle.FORMS) | {"unscaled_dropout"}


def paddles() -> frozenset[str]:
    """The canonical names of all that Paddle has."""
    if frameworks.unavailable("paddle"):
        pytest.skip("paddle is not installed")
    import paddle

    functional, fused = paddle.nn.functional, paddle.incubate.nn.functional
    places = (paddle, paddle.Tensor, functional, paddle.linalg, fused, paddle._C_ops)
    return frozenset(of_paddle.canonical(name) for place in places for name in dir(place))


@pytest.mark.paddle
@pytest.mark.parametrize("kind", _classes())
def test_listed_names_are_canonical_and_torch_has_them(kind: str) -> None:
    names = {name.partition("@")[0] for name in _classes()[kind]}
    globs = {name for name in names if "*" in name}
    assert {name for name in names - globs if canonical(name) != name} == set()
    others = names - globs - TORCHS - ELSEWHERE
    assert not others or others - paddles() - FORMS == set()
    assert all(fnmatch.filter(TORCHS, glob) for glob in globs)


@pytest.mark.parametrize("kind", OF_PARAMETERS)
def test_listed_parameters_are_those_of_the_signatures(kind: str) -> None:
    for entry in _classes()[kind]:
        name, _, detail = entry.partition("@")
        known = [Signature.parsed(text).parameters for api, text in SIGNATURES.items() if canonical(api) == name]
        texts = of_paddle.SIGNATURES.items()
        known += [Signature.parsed(text).parameters for api, text in texts if of_paddle.canonical(api) == name]
        assert any(detail.partition("=")[0] in parameters for parameters in known), entry


@pytest.mark.parametrize("judges", [FORWARD, BACKWARD], ids=["forward", "backward"])
def test_no_api_has_two_judges(judges: tuple[str, ...]) -> None:
    """But a histogram: its counts are discrete, its edges a factory's."""
    lists = {kind: frozenset(names) - {"histogram"} for kind, names in _classes().items()}
    assert {pair: lists[pair[0]] & lists[pair[1]] for pair in itertools.combinations(judges, 2)} == {
        pair: frozenset() for pair in itertools.combinations(judges, 2)
    }


def test_no_api_is_elementwise_that_looks_at_its_neighbours() -> None:
    lists = {kind: frozenset(names) for kind, names in _classes().items()}
    for other in ("selection", "factorisation", "factory", "uninitialised"):
        assert lists["elementwise"] & lists[other] == frozenset()


def test_an_unknown_api_is_in_no_list() -> None:
    assert classes_of("npu_unheard_of") == frozenset()
    assert classes_of("") == frozenset()
    assert classes_of("npu_rms_norm") == {"eps@epsilon", "smooth", "terms_of_row"}


def test_details_of_a_list() -> None:
    assert details(classes_of("histogram"), "noise_with") == ("density", "weight")
    assert details(classes_of("dropout2d"), "channel_dropout") == ("0",)
    assert details(classes_of("conv2d"), "terms_of_kernel") == ()
    assert details(frozenset(("eps", "eps_like@x", "eps@y")), "eps") == ("y",)


def test_names_are_those_without_globs() -> None:
    assert {"histogram", "npu_rms_norm", "scaled_dot_product_attention"} <= names()
    assert not [name for name in names() if "@" in name or "*" in name]
