"""The report in a real browser: it loads nothing, runs its own script alone, and fits, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Page, chromium_page
from report_records import HOSTILE
from report_runs import write_demo

from cospec.evaluation.report import PAGE, ReportOptions, build_report, find_runs

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the PATH")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    build_report(find_runs([write_demo(folder / "demo")]), ReportOptions(title="A <b>report")).write(folder / "out")
    return folder / "out" / PAGE


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    with chromium_page() as opened:
        yield opened


@pytest.mark.parametrize(
    "options", [{}, {"dark": True}, {"width": 390}, {"script": False}, {"media": "print"}], ids=str
)
def test_the_page_asks_for_nothing_and_raises_no_error(page: Path, tab: Page, options: dict) -> None:
    tab.requests.clear()
    tab.open(page, **options)
    assert tab.requests == [page.as_uri()]
    assert tab.problems == []
    assert tab.run("window.pwned") is None
    assert tab.run("document.querySelectorAll('script').length") == 1
    # Nothing is wider than the window: tables scroll in boxes of their own.
    assert tab.run("document.documentElement.scrollWidth") <= options.get("width", 1280)


def test_a_page_that_breaks_these_rules_is_noticed(tab: Page, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='http://127.0.0.1:9/x.png'><div style='width:3000px'>.</div><script>nonsense()</script>")
    tab.requests.clear()
    tab.open(bad)
    assert "http://127.0.0.1:9/x.png" in tab.requests
    assert tab.problems
    assert tab.run("document.documentElement.scrollWidth") > 1280
    tab.problems.clear()


def test_the_texts_are_what_the_model_wrote(page: Path, tab: Page) -> None:
    tab.open(page)
    # Without the other candidates: what a reader sees and selects.
    texts = tab.run(
        """[...document.querySelectorAll('article .text')].map((text) => {
            const copy = text.cloneNode(true);
            copy.querySelectorAll('s').forEach((other) => other.remove());
            return copy.textContent.trim();
        })"""
    )
    plain = [text.strip() for text in HOSTILE if text and text.isascii() and text.isprintable()]
    assert len(plain) > 3
    assert set(plain) <= set(texts)
    assert tab.run("[...document.querySelectorAll('.text')].every((text) => text.scrollWidth <= text.clientWidth + 1)")
    assert tab.run("getComputedStyle(document.querySelector('.text')).unicodeBidi") == "plaintext"


def test_light_and_dark_differ_and_print_is_light(page: Path, tab: Page) -> None:
    def colours() -> list[str]:
        return tab.run(
            """[document.body, document.querySelector('figure svg text'), document.querySelector('.d')].map((element) =>
                getComputedStyle(element)[element.tagName === 'text' ? 'fill' : 'backgroundColor'])"""
        )

    tab.open(page)
    light = colours()
    tab.open(page, dark=True)
    assert all(one != other for one, other in zip(light, colours(), strict=True))
    tab.open(page, dark=True, media="print")
    assert colours() == light


def test_tables_sort_and_rollouts_filter(page: Path, tab: Page) -> None:
    tab.open(page)
    found = tab.run(
        """(() => {
            const table = document.querySelector('table.sortable'), button = table.querySelectorAll('th button')[1];
            const values = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[1].dataset.value));
            button.click(); const up = values(); button.click(); const down = values();
            return {up, down, sort: button.parentElement.getAttribute('aria-sort')};
        })()"""
    )
    assert found["up"] == sorted(found["up"])
    assert found["down"] == found["up"][::-1] != found["up"]
    assert found["sort"] == "descending"
    shown = tab.run(
        """(() => {
            const group = document.querySelector('.rollouts'), select = group.querySelector('select');
            const open = () => [...group.querySelectorAll('article')].filter((article) => !article.hidden).length;
            const all = open(); select.value = 'wrong'; select.dispatchEvent(new Event('change'));
            return {all, wrong: open(), marked: group.querySelectorAll('article[data-verdict=wrong]').length};
        })()"""
    )
    assert shown["all"] > shown["wrong"] == shown["marked"] > 0


def test_a_list_leads_to_its_decision(page: Path, tab: Page) -> None:
    tab.open(page)
    place = tab.run(
        """new Promise((done) => {
            const link = document.querySelector('th.id a');
            document.documentElement.style.scrollBehavior = 'auto';
            addEventListener('hashchange', () => {
                const box = document.querySelector(':target').getBoundingClientRect();
                done({hash: location.hash === link.getAttribute('href'), top: box.top, bottom: box.bottom});
            });
            link.click();
        })"""
    )
    assert place["hash"]
    # Below the bar that stays at the top.
    assert 30 <= place["top"] < place["bottom"] <= 900


def test_screenshots_are_whole(page: Path, tab: Page, tmp_path: Path) -> None:
    for name, options in (("light", {}), ("dark", {"dark": True}), ("narrow", {"width": 390})):
        tab.open(page, **options)
        tab.screenshot(tmp_path / f"{name}.png", height=2000)
        assert (tmp_path / f"{name}.png").stat().st_size > 40_000
