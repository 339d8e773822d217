"""The page of a run in a browser: opened, searched, filtered, sorted, read by keyboard, and by what reads it aloud."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from pytest_probe.features.html.other_runs import Comparison, OtherCase, letter_of
from pytest_probe.model.details import OperandPlot
from pytest_probe.model.measurement import CaseTime, Throughput, TimeBeside
from pytest_probe.model.result import Result
from pytest_probe.numerics.error_plots import Histogram, error_map
from pytest_probe.reports.result_set import ResultSet
from tests.browser.conftest import Opener
from tests.support.browser import Opened
from tests.support.made_results import made_result, made_results

AXE = Path(__file__).with_name("axe.min.js")
# What a dump may hold, and what runs if it is taken for HTML or for the end of a script.
HOSTILE = [
    "<script>window.harmed = 1</script>",
    "</script><script>window.harmed = 1</script>",
    "<!--<script>window.harmed = 1</script>",
    "<img src=x onerror='window.harmed = 1'>",
    '" onmouseover="window.harmed = 1" x="',
    "'><svg onload=window.harmed=1>",
    "\u2028window.harmed = 1\u2029",
    "javascript:window.harmed=1",
    "{{ 7 * 7 }}",
    "https://example.org/x.png",
]
CASES = [*made_results(300, 30)]
CLOSE = "document.querySelector('dialog').close()"
IS_SHOWN = "return arguments[0].checkVisibility()"


def unlike(results: list[Result], factor: float) -> dict[str, OtherCase]:
    """The same cases in another run, with metrics so many times as large."""
    found = {result.id: OtherCase.of(result) for result in results}
    return {
        id: OtherCase("pass", {name: factor * value for name, value in case.numbers.items()})
        for id, case in found.items()
    }


def names(page: Opened) -> list[str]:
    return page.texts("#app section:not([hidden]) tbody tr[data-place] .opener")


def focused(page: Opened) -> str:
    return str(page.run("const one = document.activeElement; return one.id || one.textContent.trim().slice(0, 60)"))


def press(page: Opened, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    ActionChains(page.driver).send_keys(*keys).perform()


def test_calls_that_initialise_the_model_are_one_line_until_they_are_asked_for(opened: Opener) -> None:
    page = opened([structs.replace(made_result(number), initialises=number < 5) for number in range(12)])
    assert page.find("#count").text == "7 of 12 cases; 5 passing cases of calls that initialise the model left out"
    page.find("#search").send_keys("initialises")
    assert (page.find("#count").text, len(names(page))) == ("5 of 12 cases", 5)


def test_errors_come_first_and_only_rows_in_view_are_there(opened: Opener) -> None:
    page = opened([*made_results(5000, 50)])
    rows = page.all("tbody tr[data-place]")
    assert 20 < len(rows) < 70
    assert {row.find_elements("css selector", "td")[0].text for row in rows[:10]} == {"error"}
    assert page.find("#count").text == "5,000 cases"
    assert page.find("#app table").get_attribute("aria-rowcount") == "5001"
    page.run("document.querySelector('.scroll').scrollTop = 1e9")
    assert page.awaited('tr[aria-rowindex="5001"]').is_displayed()


def test_search_and_filters(opened: Opener) -> None:
    page = opened(CASES)
    page.find("#search").send_keys("SOFTMAX.1 backward")
    assert names(page)
    assert all("softmax.1" in name and "backward" in name for name in names(page))
    page.find("#search").clear()
    page.find("#search").send_keys("noise ratio")  # of the reasons
    assert page.find("#count").text == "30 of 300 cases"
    page.click(".toolbar button", "Clear")
    assert page.find("#count").text == "300 cases"
    page.choose("#filter-verdict", "warning")
    assert page.find("#count").text == "3 of 300 cases"
    page.choose("#filter-verdict", "")
    page.choose("#filter-kind", "factor")
    assert page.find("#count").text == "30 of 300 cases"
    page.choose("#filter-kind", "")
    page.choose("#filter-direction", "backward")
    page.choose("#filter-verdict", "error")
    page.choose("#filter-api", "Functional.gelu")
    assert all(re.fullmatch(r"Functional\.gelu\.\d+\.backward", name) for name in names(page))


def test_any_metric_sorts(opened: Opener) -> None:
    page = opened(CASES)
    page.find(".chooser summary").click()
    page.click(".chooser label", "mean ULP")
    heads = page.texts("#app thead th")
    place = heads.index("mean ULP")
    page.all("#app thead th")[place].find_element("css selector", "button").click()
    assert page.all("#app thead th")[place].get_attribute("aria-sort") == "descending"
    cells = [float(row.find_elements("css selector", "th, td")[place].text) for row in page.all("tbody tr[data-place]")]
    assert cells == sorted(cells, reverse=True)
    largest = max(float(result.outputs[0].metrics["mean_ulp"] or 0) for result in CASES)
    assert cells[0] == pytest.approx(largest, rel=1e-3)
    page.all("#app thead th")[place].find_element("css selector", "button").click()
    assert page.all("#app thead th")[place].get_attribute("aria-sort") == "ascending"


def test_a_group_shows_its_cases(opened: Opener) -> None:
    page = opened(CASES)
    line = page.texts(".grouped")[0]
    page.all(".grouped")[0].click()
    assert page.find("#count").text == f"{line.split()[0]} of 300 cases"
    assert all(name.startswith("Functional.") for name in names(page))
    assert len({name.split(".")[1] for name in names(page)}) == 1


def test_by_order_of_calls(opened: Opener) -> None:
    page = opened(CASES)
    page.choose("#filter-verdict", "error")
    page.choose("#order", "calls")
    errors = [result for result in CASES if result.verdict == "error"]
    forward = sorted((each for each in errors if each.direction == "forward"), key=lambda each: each.place or 0)
    backward = sorted((each for each in errors if each.direction == "backward"), key=lambda each: -(each.place or 0))
    assert names(page) == [each.portable_id.name for each in (*forward, *backward)]
    page.choose("#order", "")
    shares = [float(text.split()[0].replace(",", "")) for text in page.texts("tbody td .over") if text.endswith("x")]
    assert len(shares) > 5
    assert shares == sorted(shares, reverse=True)


def test_the_address_keeps_what_is_chosen(opened: Opener) -> None:
    page = opened(CASES)
    page.find("#search").send_keys("backward")
    page.choose("#filter-verdict", "error")
    page.choose("#order", "calls")
    page.all("tbody .opener")[1].click()
    chosen, count, case = names(page), page.find("#count").text, page.find("#case-name").text
    address = page.driver.current_url
    page.driver.get("about:blank")
    page.driver.get(address)
    assert page.find("#case-name").text == case
    page.run(CLOSE)
    assert (names(page), page.find("#count").text) == (chosen, count)
    assert page.find("#search").get_attribute("value") == "backward"
    page.view("APIs")
    page.driver.refresh()
    assert page.find("nav [aria-current]").text == "APIs"
    # A filter that this page has not is none.
    page.driver.get(f"{address.partition('#')[0]}#verdict=error&device=moon&case=9999")
    assert page.find("#count").text == "27 of 300 cases"


def test_filtered_rows_are_saved_as_csv(opened: Opener, tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    formula = structs.replace(hostile("=1+1", 3), id='=2+3::Functional."quoted", name.0.forward')
    page = opened([*CASES, formula])
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    page.choose("#filter-verdict", "error")
    page.click(".toolbar button", "Save as CSV")
    file = tmp_path / "cases.csv"
    WebDriverWait(page.driver, 60).until(lambda driver: file.exists())
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 28
    first = next(each for each in CASES if each.verdict == "error")
    mine = next(row for row in rows if row["case"] == first.id)
    assert (mine["looks like"], mine["verdict"]) == ("all times 1.0003", "error")
    assert re.fullmatch(r"layers\.\d+\.\w+, layers\.py:120", mine["called at"])
    assert float(mine["noise ratio"]) == pytest.approx(first.outputs[0].metrics["noise_ratio"], rel=1e-3)
    (odd,) = (row for row in rows if "quoted" in row["case"])
    assert (odd["case"], odd["dtype"]) == (f"'{formula.id}", "'=1+1")


def test_filtered_rows_are_a_text_for_an_issue(opened: Opener) -> None:
    page = opened(CASES)
    page.choose("#filter-verdict", "warning")
    page.click(".toolbar button", "Text for an issue")
    text = str(page.find(".exported textarea").get_attribute("value"))
    assert text.startswith("3 of 300 cases: Device cpu, Versions torch 2.13.0")
    place, cause = r"`layers\.\d+\.\w+, layers\.py:120`", r"looks like `all times 1\.0003`"
    found = re.findall(rf"^- \*\*warning\*\* `dump\.json::(\S+)`: {place}; {cause}; `noise", text, re.M)
    assert found == names(page)
    assert text.count(" of its limit") == 3
    page.choose("#filter-verdict", "")
    assert page.all(".exported") == []


@pytest.mark.usefixtures("phone")
def test_on_a_phone(opened: Opener) -> None:
    name = "Functional.scaled_dot_product_attention_with_a_name_of_eighty_letters_in_all.12.backward"
    page = opened([*CASES, structs.replace(made_result(3, "error"), id=f"dump.json::{name}")])
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")
    tops = "return [...document.querySelectorAll(arguments[0])].map(one => one.getBoundingClientRect().top)"
    for tiles in (".verdicts .tile", ".tiles .tile"):
        assert len(set(page.run(tops, tiles))) == 1
    box = "const one = document.querySelector(arguments[0]).getBoundingClientRect(); return [one.right, one.bottom]"
    right, bottom = page.run(box, "tbody .opener")
    assert right < 390
    assert bottom < 844
    assert page.run(box, "tbody td.figure")[0] <= 390
    page.find("#search").send_keys("eighty")
    assert names(page) == [name]
    # All of it is there, the direction too.
    assert page.run(
        "const one = document.querySelector('tbody .opener'), cell = one.parentElement;"
        "return one.scrollWidth <= one.clientWidth && one.offsetHeight <= cell.offsetHeight"
    )
    assert not page.find("#filter-verdict").is_displayed()
    page.find(".unfold").click()
    assert page.find("#filter-verdict").is_displayed()
    page.all("tbody .opener")[0].click()
    assert page.run("return document.querySelector('dialog').scrollWidth <= innerWidth")


@pytest.mark.usefixtures("phone")
@pytest.mark.parametrize("place", [4, 150, 240])
def test_names_on_a_phone_are_drawn_in_full(opened: Opener, place: int) -> None:
    name = f"Functional.scaled_dot_product_attention.{place // 2}.forward"
    wrong = structs.replace(made_result(place, "error"), id=f"dump.json::{name}")
    page = opened([wrong if result.place == place // 2 else result for result in made_results(300)])
    page.run(
        "window.drawn = []; const fill = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (words, x, y, most) {"
        "  const size = Math.min(this.measureText(words).width, most ?? Infinity);"
        "  const from = this.textAlign === 'right' ? x - size : x;"
        "  drawn.push([words, from, from + size]); fill.call(this, words, x, y, size); }"
    )
    page.view("Where it begins")
    drawn = page.run("return [drawn, document.querySelector('canvas').clientWidth]")
    assert f"first error: {name}" in [words for words, _, _ in drawn[0]]
    assert [words for words, left, right in drawn[0] if left < 0 or right > drawn[1] + 0.5] == []


def test_a_map_of_a_few_elements_is_seen(opened: Opener) -> None:
    result = made_result(3, "error")
    few = np.array([[1.0, 2.0], [3.0, 4.0]])
    details = result.details
    assert details is not None
    assert details.plots is not None
    plots = structs.replace(details.plots, error_map=error_map(few.astype(np.float32) * 1.01, few, (1, 1)))
    page = opened([structs.replace(result, details=structs.replace(details, plots=plots))])
    page.all("tbody .opener")[0].click()
    sizes = page.run("return [...document.querySelectorAll('rect.cell')].map(one => one.getBoundingClientRect().width)")
    assert len(sizes) == 4
    assert min(sizes) > 30


OVERLAPPING = """
const found = [];
for (const drawing of document.querySelectorAll("dialog svg")) {
  const boxes = [...drawing.querySelectorAll("text")].map(one => [one.textContent, one.getBoundingClientRect()]);
  boxes.forEach(([name, one], place) => boxes.slice(place + 1).forEach(([other, next]) => {
    if (one.left < next.right && next.left < one.right && one.top + 3 < next.bottom && next.top + 3 < one.bottom)
      found.push(`${name} | ${other}`);
  }));
}
return found;
"""


def test_labels_of_plots_do_not_overlap_and_are_round(opened: Opener) -> None:
    page = opened(CASES)
    for place in range(20):
        page.run("document.querySelectorAll('tbody .opener')[arguments[0]].click()", place)
        assert page.run(OVERLAPPING) == []
        ticks = page.texts("dialog figure:nth-of-type(3) text")
        assert len(ticks) >= 8
        assert all(
            len(tick.strip("-").rstrip("0").replace(".", "")) <= 3
            for tick in ticks
            if tick not in ("expected", "actual")
        )
        page.run(CLOSE)


def test_no_plots_of_what_is_exact(opened: Opener) -> None:
    result = made_result(5)
    assert result.details is not None
    plots = result.details.plots
    assert plots is not None
    assert plots.points is not None
    assert plots.error_map is not None
    exact = structs.replace(
        plots,
        noise_ratios=None,
        ulps=Histogram(0, (), small=4000, large=0),
        points=structs.replace(plots.points, more=(0.0,) * len(plots.points.more)),
        error_map=structs.replace(plots.error_map, cells="0" * len(plots.error_map.cells)),
    )
    page = opened([structs.replace(result, details=structs.replace(result.details, plots=exact)), made_result(7)])
    page.run("[...document.querySelectorAll('tbody .opener')].find(one => one.textContent === arguments[0]).click()",
             result.portable_id.name)  # fmt: skip
    assert page.all("dialog figure") == []
    assert "No plots: all elements of grad.input.0 are those of the reference." in page.find("dialog").text
    page.run(CLOSE)
    page.run("[...document.querySelectorAll('tbody .opener')].find(one => one.textContent !== arguments[0]).click()",
             result.portable_id.name)  # fmt: skip
    assert len(page.all("dialog figure")) == 4


def test_operands_of_scaled_products_are_drawn(opened: Opener) -> None:
    result = made_result(7)
    assert result.details is not None
    operands = (
        OperandPlot("input.0", Histogram(-12, (3, 0, 55), 7, 0), "48 scales over 2 binades"),
        OperandPlot("input.1", Histogram(-70, (3, 1000), 0, 0, 4), "32 scales over 0 binades"),
    )
    page = opened([structs.replace(result, details=structs.replace(result.details, operands=operands))])
    page.all("tbody .opener")[0].click()
    figures = [text.partition("\n")[0] for text in page.texts("dialog figcaption")]
    assert figures[-2:] == ["input.0 times its scales", "input.1 times its scales"]
    drawing = page.all("dialog svg[role=img]")[-2].get_attribute("aria-label")
    assert "0 or nearly: 7, from 2^-12: 3, from 2^-11: 0, from 2^-10: 55" in str(drawing)
    assert "input.0: 48 scales over 2 binades" in page.find("dialog").text


def test_a_case_in_full(opened: Opener) -> None:
    page = opened(CASES)
    first = names(page)[0]
    cells = [cell.text for cell in page.all("tbody tr[data-place]")[0].find_elements("css selector", "th, td")]
    row = dict(zip(page.texts("#app thead th"), cells, strict=True))
    assert row["Why"].startswith("looks like all times 1.0003; noise ratio ")
    assert row["Called at"] == "layers.2.attention, layers.py:120"
    assert "above 100 % the case fails" in page.find(".share").text
    page.all("tbody .opener")[0].click()
    assert page.find("#case-name").text == f"dump.json::{first}"
    words = page.find("dialog").text
    for part in (
        "noise ratio", f"pytest 'dumps/step0/dump.json::{first}'", "rows 12:16 of dim 0", "[3, 4, 17]",
        "-4.17653 .. 4.20128", "/home/user/project/model/layers.py:120 in forward",
    ):  # fmt: skip
        assert part in words
    assert words.count("all times 1.0003") == words.count("(limit 64)") == 1
    figures = page.texts("dialog figcaption")
    assert [text.partition("\n")[0] for text in figures] == [
        "Noise ratio", "Distance in ULP", "Actual against expected", "Error by position",
    ]  # fmt: skip
    limits = page.texts("dialog svg .limit-text")
    assert "limit" in limits
    assert "limit of the RMS" in limits
    for drawing in page.all("dialog svg"):
        assert drawing.get_attribute("role") == "img"
        assert len(str(drawing.get_attribute("aria-label"))) > 20
    next(button for button in page.all("dialog button") if button.accessible_name == "Next case").click()
    assert page.find("#case-name").text != f"dump.json::{first}"


def test_a_case_without_details_has_its_metrics(opened: Opener) -> None:
    page = opened([*made_results(600, 4)])
    page.choose("#filter-verdict", "pass")
    page.run("document.querySelector('.scroll').scrollTop = 1e9")
    page.awaited('tr[aria-rowindex="597"] .opener').click()
    assert "share of limit" in page.find("dialog").text
    assert "the 200 worst others" in page.find("dialog").text


def test_by_keyboard_alone(opened: Opener) -> None:
    from selenium.webdriver.common.keys import Keys

    page = opened(CASES)
    seen = []
    for _ in range(40):
        press(page, Keys.TAB)
        seen.append(focused(page))
        if seen[-1] == names(page)[0]:
            break
    assert seen[0] == "Skip to the content"
    assert "search" in seen
    assert seen[-1] == names(page)[0]
    before = names(page)
    press(page, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert focused(page) == before[2]
    press(page, Keys.ENTER)
    assert page.find("#case-name").text == f"dump.json::{before[2]}"
    press(page, Keys.ESCAPE)
    assert focused(page) == before[2]
    press(page, Keys.END)
    assert page.awaited('tr[aria-rowindex="301"]').is_displayed()
    assert focused(page) == page.find('tr[aria-rowindex="301"] .opener').text


def test_where_it_begins(opened: Opener) -> None:
    page = opened(CASES)
    page.view("Where it begins")
    errors = [result for result in CASES if result.verdict == "error" and result.direction == "forward"]
    first = min(errors, key=lambda result: result.place or 0)
    words = page.find("#app section:not([hidden]) > p").text
    assert words.startswith(f"The first error is {first.portable_id.name} in {first.module}: call ")
    listed = page.texts(".firsts .opener")
    assert listed[0] == first.portable_id.name
    assert first.portable_id.name in str(page.find("canvas").get_attribute("aria-label"))
    # It is painted: some pixel is of the errors' colour.
    painted = page.run(
        "const one = document.querySelector('canvas');"
        "const {data} = one.getContext('2d').getImageData(0, 0, one.width, one.height);"
        "let count = 0; for (let at = 0; at < data.length; at += 4)"
        " if (data[at] === 179 && data[at + 1] === 38 && data[at + 2] === 30) count += 1; return count"
    )
    assert painted > 50
    page.all(".firsts .opener")[0].click()
    assert page.find("#case-name").text == first.id


def test_by_api(opened: Opener) -> None:
    page = opened(CASES)
    page.view("APIs")
    assert sorted(names(page)) == sorted({result.api for result in CASES})
    api = names(page)[0]
    page.all("#app section:not([hidden]) tbody .opener")[0].click()
    assert all(name.startswith(api) for name in names(page))


def test_two_runs(opened: Opener) -> None:
    gone = {"dump.json::Functional.gone.0.forward": OtherCase("pass", {"noise_ratio": 1.0})}
    page = opened(CASES, Comparison(ResultSet("run", "last week", {**unlike(CASES[:-1], 0.25), **gone})))
    page.view("Two runs")
    words = page.find("#app section:not([hidden])").text
    assert "299 cases on both sides" in words
    assert "Only in this run: 1 case" in words
    assert "Only in last week: 1 case" in words
    assert len(page.all(".slope.worse")) == 60
    assert page.all(".slope.better") == []
    rows = page.all("#app section:not([hidden]) .scroll tbody")[0].find_elements("css selector", "tr[data-place]")
    changed = rows[0].find_elements("css selector", "td")
    assert changed[0].text in ("pass → error", "pass → warning")
    assert float(changed[3].text) == pytest.approx(4, rel=0.01)


def test_unlike_runs_have_no_slopes(opened: Opener) -> None:
    other = ResultSet("run", "another", unlike(CASES, 2))
    page = opened(CASES, Comparison(other, ("They are of other dumps.",), alike=False))
    page.view("Two runs")
    assert page.all("#app section:not([hidden]) svg") == []
    words = page.find("#app section:not([hidden])").text
    assert "They are of other dumps." in words
    assert "Only in this run: 300 cases" in words
    assert "Only in another: 300 cases" in words


def test_times(opened: Opener) -> None:
    def timed(result: Result, number: int) -> Result:
        rates = Throughput(
            gb_per_s=2.0 + number, copy_gb_per_s=40.0, gflop_per_s=1.0 + number, product_gflop_per_s=900.0
        )
        beside = TimeBeside("benchmark", 10.0, 0.5 + number / 100)
        return structs.replace(result, time=CaseTime(median_us=5.0 + number, throughput=rates, beside=beside))

    page = opened([timed(result, number) for number, result in enumerate(CASES)])
    page.view("Times")
    assert [text.partition("\n")[0] for text in page.texts("#app section:not([hidden]) figcaption")] == [
        "Time beside the other run", "Roofline",
    ]  # fmt: skip
    assert len(page.all("#app section:not([hidden]) circle.dot")) == 300
    assert "copy: 40 GB/s" in page.texts("svg .limit-text")
    assert names(page)[0] == CASES[-1].portable_id.name


def test_sparklines(opened: Opener) -> None:
    line = "".join(map(letter_of, [1.0, 4.0, None, 64.0]))
    lines = {"metric": "noise_ratio", "runs": ["a", "b", "c", "d"], "lines": [line] * len(CASES)}
    page = opened(CASES, None, lines)
    drawing = page.all("tbody td svg")[0]
    assert drawing.get_attribute("aria-label") == "noise ratio over 3 runs: first about 1, last about 64"


def test_a_run_without_cases(opened: Opener) -> None:
    page = opened([])
    assert "This run has no cases" in page.find("main").text


def hostile(text: str, number: int) -> Result:
    """A case in which every text is that one."""
    result = made_result(number, "error")
    output = structs.replace(result.outputs[0], name=text, reason=text, standard=text)
    assert result.details is not None
    argument = structs.replace(result.details.arguments[0], name=text, value=text)
    frame = structs.replace(result.details.stack[0], file=text, code=text, function=text)
    details = structs.replace(result.details, command=text, arguments=(argument,), stack=(frame,))
    changed: dict[str, Any] = dict.fromkeys(("api", "dtype", "device", "reason", "kind", "module", "direction"), text)
    return structs.replace(
        result, id=f"{text}::{text}.0.forward", outputs=(output,), notes=(text,), details=details, **changed
    )


def test_what_a_dump_says_is_never_run(opened: Opener) -> None:
    results = [hostile(text, number) for number, text in enumerate(HOSTILE)]
    other = ResultSet("run", HOSTILE[0], {HOSTILE[1]: OtherCase("pass", {})})
    page = opened(results, Comparison(other, (HOSTILE[3],)))
    for place in range(len(results)):
        page.view("Cases")
        page.all("tbody .opener")[place].click()
        assert page.run("return document.querySelectorAll('dialog img, dialog script').length") == 0
        page.run(CLOSE)
    for view in ("Where it begins", "APIs", "Two runs"):
        page.view(view)
    shown = page.find("html").get_attribute("textContent")
    assert all(text.strip("\u2028\u2029") in str(shown) for text in HOSTILE)
    assert page.run("return document.querySelectorAll('img, iframe, object, embed, link').length") == 0


def test_the_policy_forbids_what_is_not_the_pages_own(opened_anyway: Opener) -> None:
    page = opened_anyway(CASES)
    page.run(
        "const one = document.createElement('img'); one.src = 'https://example.org/x.png'; document.body.append(one);"
        "const two = document.createElement('script'); two.textContent = 'window.harmed = 1';"
        "document.body.append(two);"
        "fetch('https://example.org/').catch(() => null)"
    )
    assert page.run("return window.harmed") is None
    blocked = page.messages()
    assert len(blocked) >= 3
    assert all("Content Security Policy" in message for message in blocked)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_violation_of_accessibility(opened: Opener, theme: str) -> None:
    other = ResultSet("run", "last week", unlike(CASES[:-1], 0.25))
    page = opened(CASES, Comparison(other, ("A note.",)))
    page.choose("#theme", theme)
    ground = page.run("return getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[theme]
    page.run(AXE.read_text(encoding="utf-8"))
    for view in ("Cases", "Where it begins", "APIs", "Two runs"):
        page.view(view)
        assert violations(page) == []
    page.view("Cases")
    page.all("tbody .opener")[0].click()
    assert violations(page) == []
    page.run(CLOSE)


def test_a_violation_would_be_found(opened_anyway: Opener) -> None:
    page = opened_anyway(CASES)
    page.run("document.body.append(document.createElement('img'), document.createElement('button'))")
    page.run(AXE.read_text(encoding="utf-8"))
    assert sorted(found.partition(":")[0] for found in violations(page)) == ["button-name", "image-alt"]


def violations(page: Opened) -> list[str]:
    """Of levels A and AA, with the elements."""
    page.driver.set_script_timeout(60)
    found = page.driver.execute_async_script(
        "const done = arguments[0];"
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}).then(found => done("
        "found.violations.map(one => `${one.id}: ${one.nodes.map(node => node.html.slice(0, 200)).join(' ; ')}`)))"
    )
    return list(found)


def test_on_paper_errors_are_listed_and_a_case_that_is_open_is_alone(opened: Opener) -> None:
    page = opened(CASES)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert page.run(IS_SHOWN, page.find(".listed"))
        assert not page.run(IS_SHOWN, page.find("#app"))
        assert len(page.all(".listed tbody tr")) == 30
        page.run("document.querySelector('tbody .opener').click()")
        assert page.run(IS_SHOWN, page.find("dialog .plots"))
        assert not page.run(IS_SHOWN, page.find(".listed"))
        assert not page.run(IS_SHOWN, page.find("#summary"))
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_without_its_script_errors_are_listed(opened: Opener) -> None:
    page = opened(CASES)
    page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.driver.refresh()
        assert page.find(".listed").is_displayed()
        assert len(page.all(".listed tbody tr")) == 30
    finally:
        page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
