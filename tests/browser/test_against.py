"""The view of two sides in a browser: read, searched, gone through by keyboard."""

from __future__ import annotations

from typing import get_args

import pytest
from msgspec import structs

from pytest_probe.model.pairing import Paired, Status
from pytest_probe.model.result import Result
from tests.browser.conftest import Opener
from tests.browser.test_page import AXE, CLOSE, HOSTILE, focused, names, press, violations
from tests.support.browser import Opened
from tests.support.made_results import made_pair, made_pairs, made_result, with_pair

# Numbers of cases: even ones are forward, odd ones backward.
OWN = (40, 90, 33)
VIEW = "A against B"
ROWS = "#app section:not([hidden]) tbody tr[data-place]"


def view(opened: Opener, results: list[Result], mode: str = "") -> Opened:
    page = opened(results)
    page.view(VIEW)
    page.choose("#shown-as", mode)
    return page


def selected(page: Opened) -> str:
    return str(page.find("tr.selected .opener").text)


def in_order(results: list[Result]) -> list[str]:
    """Forward in the order of the calls, then backward in reverse."""
    forward = [each for each in results if each.direction == "forward"]
    backward = [each for each in results if each.direction == "backward"]
    return [each.portable_id.name for each in (*forward, *reversed(backward))]


def test_a_run_of_one_side_has_no_such_view(opened: Opener) -> None:
    page = opened([made_result(1)])
    assert VIEW not in page.texts("#views button")
    page.all("tbody .opener")[0].click()
    assert VIEW not in page.find("dialog").text


def test_calls_in_the_order_of_the_run(opened: Opener) -> None:
    results = [*made_pairs(20, {6})]
    page = view(opened, [*reversed(results)], "calls")
    assert names(page) == in_order(results)
    cells = [cell.text for cell in page.all(f"{ROWS}.is-own td")]
    assert cells == ["✕ own error", "1.00e-5", "A (A 0.5, B 31)", "layers.0.attention"]
    assert [text.split(" ", 1)[1] for text in page.texts(".legend li")] == [
        "own error 1", "inherited 13", "equal 6",
    ]  # fmt: skip


def test_modules_as_a_tree(opened: Opener) -> None:
    page = view(opened, [*made_pairs(200, OWN)])
    assert names(page)[:4] == ["▾ forward (100)", "▾ layers (100)", "▾ 0 (32)", "▸ attention (16)"]
    assert page.texts(f"{ROWS}.of-module td.status")[:4] == [*["✕ 2 own errors"] * 2, "✕ 1 own error", "↓ inherited"]
    page.all(f"{ROWS} .opener")[1].click()
    assert names(page)[:3] == ["▾ forward (100)", "▸ layers (100)", "▾ backward (100)"]
    assert focused(page) == "▸ layers (100)"
    assert page.all(f"{ROWS} .opener")[1].get_attribute("aria-expanded") == "false"


def test_by_keyboard(opened: Opener) -> None:
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    results = [*made_pairs(200, OWN)]
    own = [name for name in in_order(results) if name in {results[number].portable_id.name for number in OWN}]
    page = view(opened, results)
    for mode in ("", "calls"):
        page.choose("#shown-as", mode)
        page.run("document.activeElement.blur()")
        for name in own:
            press(page, "n")
            assert selected(page) == focused(page) == name
        press(page, "n")
        assert selected(page) == own[-1]
        press(page, "p", "p")
        assert selected(page) == own[0]
    press(page, Keys.ARROW_DOWN)
    after = in_order(results)[in_order(results).index(own[0]) + 1]
    assert selected(page) == after
    press(page, Keys.ENTER)
    assert page.find("#case-name").text == f"dump.json::{after}"
    press(page, "n", Keys.ESCAPE)
    # The browser tells the page a little later that the dialog was closed.
    WebDriverWait(page.driver, 60).until(lambda _: not page.all("body.case-open"))
    assert focused(page) == after
    press(page, "/")
    assert focused(page) == "pair-search"
    press(page, "n", "p", Keys.ARROW_DOWN)
    assert page.find("#pair-search").get_attribute("value") == "np"
    assert all(word in page.find(".keys").text for word in ("↑", "Enter", "n", "p", "/"))


def test_arrows_open_and_close_modules(opened: Opener) -> None:
    from selenium.webdriver.common.keys import Keys

    page = view(opened, [*made_pairs(200, OWN)])
    press(page, Keys.ARROW_DOWN, Keys.ARROW_LEFT)
    assert names(page)[0] == "▸ forward (100)"
    press(page, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert selected(page) == "▾ 0 (32)"
    press(page, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert selected(page) == "▾ layers (100)"


def test_the_first_own_error_is_linked(opened: Opener) -> None:
    results = [*made_pairs(2000, {1400, 1600})]
    page = view(opened, results, "calls")
    words = page.find(".begins").text
    first = results[1400]
    assert first.portable_id.name in words
    assert f"in {first.module}" in words
    assert "own error of B; looks like all times 1.0003; noise ratio" in words
    page.find(".begins .opener").click()
    assert selected(page) == first.portable_id.name
    box = "const one = document.querySelector('tr.selected').getBoundingClientRect(); return [one.top, one.bottom]"
    top, bottom = page.run(box)
    assert 0 < top < bottom <= page.run("return innerHeight")
    bar = "[...document.querySelectorAll('.gap.is-own')].pop()"
    page.run(f"{bar}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    assert selected(page) == results[1600].portable_id.name
    assert first.portable_id.name in str(page.find(".gaps svg").get_attribute("aria-label"))


def test_search(opened: Opener) -> None:
    results = [*made_pairs(200, OWN)]
    page = view(opened, [*results, made_pair(200, "inherited", "Functional.renamed.7.forward")])
    page.find("#pair-search").send_keys("OWN ERROR forward")
    assert page.find(".pairs [role=status]").text == "2 of 201 pairs"
    wanted = [results[number].portable_id.name for number in OWN if number % 2 == 0]
    assert [name for name in names(page) if name.startswith("Functional")] == wanted
    page.find("#pair-search").clear()
    page.find("#pair-search").send_keys("renamed")
    assert "Functional.renamed.7.forward" in page.find(f"{ROWS}.of-call").text
    page.find(".begins .opener").click()
    assert page.find("#pair-search").get_attribute("value") == ""


def test_ranks_are_apart(opened: Opener) -> None:
    results = [
        structs.replace(each, id=each.id.replace("dump.json", f"rank{rank}/dump.json"))
        for rank, own in ((10, {4}), (2, {6, 8}), (1, ()))
        for each in made_pairs(20, own)
    ]
    page = view(opened, results, "calls")
    assert page.texts("#side option") == [f"rank{rank}/dump.json" for rank in (1, 2, 10)]
    assert [text.partition(":")[0] for text in page.texts(".begins li")] == ["rank2/dump.json", "rank10/dump.json"]
    assert page.find(".legend .is-own").text == "✕ own error 2"
    page.all(".begins .opener")[1].click()
    assert page.find("#side").get_attribute("value") == "rank10/dump.json"
    assert selected(page) == "Functional.gelu.2.forward"
    page.choose("#side", "rank1/dump.json")
    assert page.texts(".legend li") == ["= equal 20"]


def of_module(number: int, entry: str) -> Result:
    api, _, direction = entry.rpartition(".")
    return structs.replace(
        with_pair(made_pair(number, "equal"), Paired("equal", entry)),
        id=f"dump.json::{entry}",
        api=api.rpartition(".")[0],
        direction=direction,
        place=None,
    )


def test_modules_come_behind_their_calls(opened: Opener) -> None:
    calls = [*made_pairs(20)]
    modules = [
        of_module(30, "Module.layers.0.attention.Attention.0.forward"),
        of_module(31, "Module.layers.0.Layer.0.forward"),
        of_module(32, "Module.layers.0.attention.Attention.parameters_grad.0.backward"),
        of_module(33, "Module.other.Other.0.forward"),
    ]
    page = view(opened, [*modules, *calls], "calls")
    shown = names(page)
    # The inner one first, the gradients of parameters when the backward has left the module.
    at = shown.index(calls[18].portable_id.name)
    assert shown[at + 1 : at + 3] == [each.portable_id.name for each in modules[:2]]
    assert shown[shown.index(calls[1].portable_id.name) + 1] == modules[2].portable_id.name
    assert shown[-1] == "Module.other.Other.0.forward"
    page.choose("#shown-as", "")
    press(page, "/")
    page.find("#pair-search").send_keys("Module.layers.0.attention forward")
    assert names(page)[-2:] == ["▾ attention (7)", "Module.layers.0.attention.Attention.0.forward"]


def test_a_case_says_what_it_is_beside_the_other_side(opened: Opener) -> None:
    page = view(opened, [made_pair(2, "own", "Functional.other.1.forward")], "calls")
    page.all(f"{ROWS} .opener")[0].click()
    told = page.find("dialog table.pair").text
    assert [*told.split("\n")] == [
        "it is ✕ own error of B", "in B Functional.other.1.forward", "relative difference 1.00e-5",
        "nearer to float64, noise ratios A (A 0.5, B 31)",
    ]  # fmt: skip


def test_what_a_dump_says_is_never_run(opened: Opener) -> None:
    results = [
        structs.replace(made_pair(number, "own", text), module=text, id=f"dump.json::{text}.{number}.forward")
        for number, text in enumerate(HOSTILE)
    ]
    page = view(opened, results)
    for mode in ("", "calls"):
        page.choose("#shown-as", mode)
        page.run("document.querySelector('tr.of-call .opener').click()")
        assert page.run("return document.querySelectorAll('main img, main script:not([type]), dialog img').length") == 0
        page.run(CLOSE)
    shown = str(page.find("#app").get_attribute("textContent"))
    assert all(text.strip("\u2028\u2029") in shown for text in HOSTILE)


@pytest.mark.usefixtures("phone")
def test_on_a_phone(opened: Opener) -> None:
    name = "Functional.scaled_dot_product_attention_with_a_name_of_eighty_letters_in_all.12.forward"
    long = structs.replace(made_pair(2, "own"), id=f"dump.json::{name}", module="model.decoder.layers.11.attention")
    page = view(opened, [long, *made_pairs(20)])
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")
    press(page, "n")
    assert selected(page) == name
    assert page.run(
        "const one = document.querySelector('tr.selected .opener'), cell = one.parentElement;"
        "return one.scrollWidth <= one.clientWidth && one.offsetHeight <= cell.offsetHeight"
    )
    right = "return document.querySelector(arguments[0]).getBoundingClientRect().right"
    assert page.run(right, "tr.selected td.figure") <= 390


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_violation_of_accessibility(opened: Opener, theme: str) -> None:
    page = opened([made_pair(number, status) for number, status in enumerate(get_args(Status) * 2)])
    page.choose("#theme", theme)
    page.run(AXE.read_text(encoding="utf-8"))
    page.view(VIEW)
    for mode in ("", "calls"):
        page.choose("#shown-as", mode)
        assert violations(page) == []
    page.all(f"{ROWS} .opener")[3].click()
    assert violations(page) == []
    page.run(CLOSE)
