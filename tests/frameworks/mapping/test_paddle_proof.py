from __future__ import annotations

import pytest

from pytest_probe.frameworks import unavailable
from tests.support.installed import needs_paddle

if not unavailable("paddle"):
    from benchmarks.mapping.drawing import ABSENT, Group, fixed, float_, positive
    from benchmarks.mapping.entries import both, taken
    from benchmarks.mapping.paddle_cases import CASES
    from benchmarks.mapping.proof import Pair, Proof, prove
    from pytest_probe.frameworks.mapping import Mapping
    from pytest_probe.frameworks.mapping.framework import function_at, translation
    from pytest_probe.frameworks.mapping.paddle_torch import reductions, shapes
    from pytest_probe.frameworks.mapping.table import Table, packaged

pytestmark = needs_paddle


@pytest.fixture(scope="module")
def pair() -> Pair:
    return both()


def proved(api: str, entry: Mapping, pair: Pair, groups: list[Group] | None = None) -> Proof:
    table = Table("paddle", "torch", {api: entry}, {})
    calls = translation(table, api, False, pair.other.writes_to)
    return prove(api, function_at(api), calls, taken(entry), groups or CASES[api], pair)


# What PaddleAPEX's map has wrongly, and what is easily forgotten.
def wrong() -> dict[str, tuple[str, Mapping]]:
    f = "paddle.nn.functional."
    return {
        "the upper end is lost": (
            "paddle.clip",
            Mapping("clip(x min=None max=None)", function=lambda x, min, max: x if min is None else x.clamp_min(min)),
        ),
        "sections are sizes": ("paddle.split", Mapping("torch.split(0/x 1/num_or_sections dim/axis=0)")),
        "pad in the other order": (
            f + "pad",
            Mapping(
                "pad(x pad mode='constant' value=0.0 data_format=None pad_from_left_axis=True)",
                function=lambda x, pad, **more: shapes.pad(x, pad[::-1], **more),
            ),
        ),
        "another default": (f + "softmax", Mapping("torch.softmax(input/x dim/axis=0 dtype=None)")),
        "a gradient is missing": ("paddle.multiply", Mapping("product(x y)", function=lambda x, y: x * y.detach())),
        "another dtype": (
            "paddle.count_nonzero",
            Mapping(
                "count(x axis=None keepdim=False)", function=lambda **given: reductions.count_nonzero(**given).int()
            ),
        ),
    }


WRONG = wrong() if not unavailable("paddle") else {}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_entry_for_paddle_is_refused(name: str, pair: Pair) -> None:
    api, entry = WRONG[name]
    proof = proved(api, entry, pair)
    assert not proof.holds, proof
    assert proof.troubles


def test_a_right_entry_for_paddle_holds(pair: Pair) -> None:
    proof = proved("paddle.add", Mapping("torch.add(input/x other/y | alpha=1)"), pair)
    assert proof.holds, proof.troubles
    assert proof.calls >= 20
    assert proof.worst < 1e-12


def test_an_argument_of_paddle_with_one_value_is_not_covered(pair: Pair) -> None:
    groups: list[Group] = [{"x": [float_(2, 3), float_(3)], "alpha": [1.0]}]
    proof = proved("paddle.nn.functional.elu", Mapping("torch.nn.functional.elu(input/x alpha=1.0)"), pair, groups)
    assert proof.troubles == ("alpha: 1 values agree, expected 2",)


def test_arguments_of_paddle_that_no_entry_takes_are_listed(pair: Pair) -> None:
    groups: list[Group] = [{"x": [float_(2, 3)], "y": [positive(2, 3), fixed([1.5, 2.5, 0.5])]}]
    proof = proved("paddle.divide", Mapping("torch.div(input/x other/y)"), pair, groups)
    assert proof.holds
    assert proof.uncovered == ("rounding_mode",)


def test_calls_that_paddle_refuses_count_for_nothing(pair: Pair) -> None:
    groups: list[Group] = [{"x": [float_(2, 3)], "y": [float_(4, 5), ABSENT]}]
    proof = proved("paddle.add", Mapping("torch.add(input/x other/y)"), pair, groups)
    assert proof.calls == 0
    assert proof.refused > 20
    assert any(trouble.startswith("0 calls agree, expected 20; refused: paddle") for trouble in proof.troubles)


@pytest.mark.evidence
@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_all_entries_for_paddle_hold(part: int, pair: Pair) -> None:
    from benchmarks.mapping.entries import proof_of

    table = packaged("paddle_torch")
    found = [proof_of(api, table, pair) for api in list(table.entries)[part::8]]
    assert [(proof.api, proof.troubles) for proof in found if not proof.holds] == []


@pytest.mark.slow
def test_entries_for_paddle_hold_backwards(pair: Pair) -> None:
    from benchmarks.mapping.entries import proof_back

    table = packaged("paddle_torch")
    found = [proof_back(path, api, entry, table, pair) for path, (api, entry) in table.back.items()]
    assert len(found) > 150
    assert [(proof.api, proof.troubles) for proof in found if not proof.holds] == []


def test_a_wrong_default_of_torch_is_refused_backwards_beside_paddle(pair: Pair) -> None:
    from benchmarks.mapping.entries import proof_back

    def proof(back: str) -> Proof:
        entry = Mapping("torch.nn.functional.leaky_relu(input/x negative_slope=0.01)", back=back)
        api = "paddle.nn.functional.leaky_relu"
        table = Table("paddle", "torch", {api: entry}, {})
        return proof_back("torch.nn.functional.leaky_relu", api, entry, table, pair)

    assert proof("input negative_slope=0.01").holds
    assert not proof("input negative_slope=0.2").holds
