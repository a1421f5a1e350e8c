"""The page in a real browser: what a hostile model wrote, colours that can be read, the page as one file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from looks import FAINT_TEXTS, check_looks, open_folds
from stored_runs import HOSTILE

from verl_agentic.observe.viewer.export import newest_rows, spot_check_rows, write_page
from verl_agentic.observe.viewer.query import Query
from verl_agentic.observe.viewer.run_view import RunView

HOSTILE_LINK = "#split=train&step=5&uid=g0005-03&session=0&index=0"
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(open_page: Callable[..., Any], url: str, scheme: str) -> None:
    page = open_page(
        url + "#split=train&step=5&uid=g0005-03&session=2&index=0", color_scheme=scheme, reduced_motion="reduce"
    )
    page.wait_for_selector(".t")
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (int(re.findall(r"\d+", dark)[0]) < 60) == (scheme == "dark")
    open_folds(page)
    for key in "123456":
        page.keyboard.press(key)
        assert page.evaluate(FAINT_TEXTS) == [], key
    page.hover(".t >> nth=3")
    assert page.evaluate(FAINT_TEXTS) == []
    for tab in ("curves", "time", "findings"):
        page.click(f"#tab-{tab}")
        page.wait_for_selector(f"#panel-{tab} :is(svg, .finding)")
        page.wait_for_timeout(150)
        open_folds(page)
        assert page.evaluate(FAINT_TEXTS) == [], tab
    page.keyboard.press("?")
    assert page.evaluate(FAINT_TEXTS) == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_exported_page_opens_with_its_result_and_fits_a_phone(
    open_page: Callable[..., Any], view: RunView, tmp_path: Path, scheme: str
) -> None:
    page = open_page(exported(tmp_path, view), color_scheme=scheme, reduced_motion="reduce")
    (_, first), *_, (last, value) = view.about()["result"]["points"]
    result = page.inner_text("#result")
    assert result.startswith(
        f"Mean outcome {float(f'{first:.4g}'):g} in step 1, {float(f'{value:.4g}'):g} in step {last}"
    )
    assert "81 trajectories in 21 groups" in result and page.locator("#result-picture svg polyline").count() == 1
    for tab in ("trajectories", "curves", "time", "findings"):
        page.set_viewport_size({"width": 390, "height": 850})
        page.click(f"#tab-{tab}")
        check_looks(page, scheme=scheme)


def test_the_contrast_check_finds_text_that_cannot_be_read(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url)
    page.evaluate("document.getElementById('run-name').style.color = 'rgb(0 0 0 / 30%)'")
    assert [found[2] for found in page.evaluate(FAINT_TEXTS)] == [page.inner_text("#run-name")]


@pytest.mark.slow
def test_the_theme_is_chosen_and_remembered(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url, color_scheme="light")
    colour = "getComputedStyle(document.body.parentElement).backgroundColor"
    light = page.evaluate(colour)
    page.select_option("#theme", "dark")
    assert page.evaluate(colour) != light
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.evaluate(colour) != light and page.input_value("#theme") == "dark"
    page.select_option("#theme", "light")
    assert page.evaluate(colour) == light


def check_harmless(page: Any) -> None:
    """Fails when anything that a model wrote became more than text."""
    page.wait_for_selector(".banner.breach")
    open_folds(page)
    page.hover(".t >> nth=2")
    assert page.evaluate("window.broken") is None
    assert (
        page.locator("#trajectory img, #siblings img, #list img, #trajectory script, main script, form img").count()
        == 0
    )
    whole = page.evaluate("document.body.innerText") + page.evaluate(
        "[...document.querySelectorAll('main *')].flatMap((one) => [...one.attributes]).map((one) => one.value).join()"
    )
    assert not _UNSEEN.findall(whole)
    for said in (
        "<script>window.broken = 1</script>",
        "⟦ESC⟧[2J",
        "⟦BEL⟧",
        "⟦RLO⟧ecilA⟦PDF⟧",
        "a⟦ZWSP⟧b",
        "⟦NUL⟧",
        "&lt;b&gt;",
    ):
        assert page.evaluate("document.body.innerText").count(said) >= 5, said
    stream = page.locator(".stream").first.inner_text()
    assert "<script>window.broken = 1</script><img src=x" in stream and "⟦RLO⟧" in stream
    overflow = "(() => { const one = document.getElementById('detail'); return one.scrollWidth - one.clientWidth })()"
    assert page.evaluate(overflow) <= 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_a_hostile_model_wrote_is_text_with_its_hidden_characters_shown(
    open_page: Callable[..., Any], url: str
) -> None:
    page = open_page(url + HOSTILE_LINK)
    page.click("#filters summary")
    check_harmless(page)
    page.fill("#search", "<script>window.broken")
    page.wait_for_selector("#count >> text=1 groups · 1 rows")
    page.wait_for_selector(".group .task >> text=<script>window.broken = 1</script>")


def exported(folder: Path, view: RunView, rows: Any = None) -> str:
    path = folder / "page & <b>.html"
    chosen = rows or {row: [] for row in newest_rows(view, limit=500, query=Query())}
    write_page(path, view, chosen)
    return path.as_uri()


def test_an_exported_page_needs_no_server_and_is_as_harmless(
    open_page: Callable[..., Any], view: RunView, tmp_path: Path
) -> None:
    uri = exported(tmp_path, view)
    page = open_page(uri + HOSTILE_LINK)
    page.click("#filters summary")
    check_harmless(page)
    assert not page.is_visible("#refresh")
    for key in "jkjj":
        page.keyboard.press(key)
    page.wait_for_selector(".trajectory-head")
    page.keyboard.press("3")
    page.wait_for_selector(".t.s2")
    link = page.url
    again = open_page(link)
    again.wait_for_selector(".t")
    assert again.inner_text(".uid") == page.inner_text(".uid")
    page.click("#tab-curves")
    page.wait_for_selector(".chart polyline")
    page.click("#tab-time")
    page.wait_for_selector("svg.stack")
    page.click("#tab-findings")
    page.wait_for_selector("#findings .finding >> nth=1")


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"sort": "reward"},
        {"sort": "spread", "order": "asc"},
        {"sort": "advantage"},
        {"sort": "length", "order": "asc", "step_min": "2", "step_max": "4"},
        {"sort": "acc", "advantage_min": "0.4", "acc_min": "1"},
        {"stop": ["answered", "env_done"], "tool": ["python"], "reward_max": "0.5"},
        {"split": ["val"]},
        {"void": "yes"},
        {"breach": "no", "task": "KYOTO", "env": ["python_math"]},
        {"text": "last digit"},
        {"length_max": "1"},
    ],
    ids=str,
)
def test_an_exported_page_filters_and_sorts_as_the_server_does(
    looked_at: Any, view: RunView, query: dict[str, Any]
) -> None:
    found = looked_at.evaluate(
        "([query, page]) => viewer.source.groups(query, page)",
        [query, {"offset": 0, "limit": 100, "around_split": "train", "around_step": 3, "around_uid": "g0003-01"}],
    )
    params = {name: value if isinstance(value, list) else [value] for name, value in query.items()}
    expected = view.list_groups(Query.from_params(params), offset=0, limit=100, around=("train", 3, "g0003-01"))
    assert {**found, "revision": 0} == {**expected, "revision": 0}


@pytest.fixture(scope="module")
def looked_at(browser: Any, view: RunView, tmp_path_factory: pytest.TempPathFactory) -> Any:
    page = browser.new_page()
    page.goto(exported(tmp_path_factory.mktemp("export"), view))
    page.wait_for_selector("html[data-ready]", state="attached")
    yield page
    page.close()


@pytest.mark.slow
def test_a_spot_check_says_why_each_is_there(open_page: Callable[..., Any], view: RunView, tmp_path: Path) -> None:
    rows = spot_check_rows(view, count=3, seed=1)
    page = open_page(exported(tmp_path, view, rows))
    page.wait_for_selector(".badge.why")
    whys = []
    for place in range(len({view.groups.of_row[row] for row in rows})):
        page.click(f"#group-{place}")
        page.wait_for_selector(f"#group-{place}[aria-selected=true]")
        page.wait_for_timeout(60)
        whys += page.locator(".badge.why").all_inner_texts()
    assert sorted(whys) == sorted(why for reasons in rows.values() for why in reasons)
    assert whys.count("random") == 3 and page.locator(".card").count() >= 1


@pytest.mark.slow
def test_an_exported_page_holds_no_way_out_of_its_data(view: RunView, tmp_path: Path) -> None:
    exported(tmp_path, view)
    text = next(tmp_path.glob("*.html")).read_text()
    assert HOSTILE.partition("<img")[0] not in text and "\\u003cscript>window.broken" in text
    blocks = re.findall(r'<script type="application/json" id="([\w-]+)">(.*?)</script>', text, re.DOTALL)
    assert [name for name, _ in blocks] == ["data", *(f"record-{number}" for number in range(81))]
    assert not any("<" in content for _, content in blocks)
    assert "http://" not in re.sub(r"http://www\.w3\.org/\S+", "", text) and "https://" not in text
