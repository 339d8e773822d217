from __future__ import annotations

import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.system.text import check_name, closest, known_keys, one_of, suggestion


def test_a_wrong_choice_is_answered_with_the_nearest() -> None:
    assert one_of(("tf32", "bf16"), "tf23") == "give one of tf32, bf16 (did you mean tf32?)"
    assert one_of(("tf32", "bf16"), "x") == "give one of tf32, bf16"


def test_upper_and_lower_case_are_alike() -> None:
    assert closest(("Functional.softmax",), "functional.sofmax") == "Functional.softmax"
    assert closest(("add",), "conv2d") == ""


def test_a_known_word_suggests_nothing() -> None:
    assert suggestion(iter(("add", "sub")), "add") == ""
    assert suggestion(("add", "sub"), "ad") == "; did you mean add?"
    assert suggestion(("add", "sub"), "ad", 0.9) == ""


def test_known_keys_are_all_named() -> None:
    assert known_keys(("rtol", "atol"), "rtl") == "did you mean 'rtol'? Known keys: rtol, atol"
    assert known_keys(("rtol", "atol"), "x") == "known keys: rtol, atol"


def test_a_name_that_is_no_choice_is_refused() -> None:
    assert check_name("--probe-standard", "noise", ("auto", "noise")) == "noise"
    with pytest.raises(
        SettingsError, match=r"--probe-standard: 'noize' cannot be used; give one of auto, noise \(did you"
    ):
        check_name("--probe-standard", "noize", ("auto", "noise"))
