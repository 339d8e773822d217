from __future__ import annotations

import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.system.text import check_name, closest, known_keys, one_of, suggestion


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (one_of(("tf32", "bf16"), "tf23"), "give one of tf32, bf16 (did you mean tf32?)"),
        (one_of(("tf32", "bf16"), "x"), "give one of tf32, bf16"),
        (closest(("Functional.softmax",), "functional.sofmax"), "Functional.softmax"),
        (closest(("add",), "conv2d"), ""),
        (suggestion(iter(("add", "sub")), "add"), ""),
        (suggestion(("add", "sub"), "ad"), "; did you mean add?"),
        (suggestion(("add", "sub"), "ad", 0.9), ""),
        (known_keys(("rtol", "atol"), "rtl"), "did you mean 'rtol'? Known keys: rtol, atol"),
        (known_keys(("rtol", "atol"), "x"), "known keys: rtol, atol"),
    ],
)
def test_a_wrong_word_is_answered_with_the_nearest(said: str, wanted: str) -> None:
    assert said == wanted


def test_a_name_that_is_no_choice_is_refused() -> None:
    assert check_name("--probe-standard", "noise", ("auto", "noise")) == "noise"
    with pytest.raises(
        SettingsError, match=r"--probe-standard: 'noize' cannot be used; give one of auto, noise \(did you"
    ):
        check_name("--probe-standard", "noize", ("auto", "noise"))
