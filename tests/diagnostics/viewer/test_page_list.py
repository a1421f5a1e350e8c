"""The page in a real browser: list, filters, groups, links, and what a run writes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stored_runs import stored_run

from verl_agentic.log.metric_log import MetricsLog
from verl_agentic.log.reader import write_run
from verl_agentic.observe.viewer.run_view import RunView


@pytest.fixture(scope="module")
def long_url(tmp_path_factory: pytest.TempPathFactory, serve: Any) -> Iterator[str]:
    """A run of 2,000 trajectories in 500 groups."""
    folder = stored_run(tmp_path_factory.mktemp("long"), None, steps=50, groups=10, sessions=4, words=1)
    with serve(RunView(folder)) as server:
        yield server.url


def titles(page: Any) -> list[str]:
    return page.locator(".group .task").all_inner_texts()


def settled(page: Any, count: str) -> None:
    page.wait_for_function("text => document.getElementById('count').textContent.startsWith(text)", arg=count)


def loaded(page: Any) -> None:
    page.wait_for_selector("#list:not([aria-busy])")


def test_only_the_lines_that_are_seen_are_in_the_page_and_the_last_of_many_can_be_reached(
    open_page: Callable[..., Any], long_url: str
) -> None:
    page = open_page(long_url)
    settled(page, "501 groups · 2,001 rows")
    assert page.locator(".group").count() < 40
    page.evaluate("document.getElementById('list').scrollTop = 1e9")
    page.wait_for_selector(".group:not(.loading)[aria-posinset='501']")
    assert page.locator(".group").count() < 40 and page.locator(".group[aria-posinset='1']").count() == 0
    page.evaluate("document.getElementById('list').scrollTop = 62 * 250")
    page.wait_for_selector(".group:not(.loading)[aria-posinset='252']")
    page.focus("#list")
    page.keyboard.press("End")
    page.wait_for_selector("#group-500[aria-selected=true]")
    assert page.get_attribute("#list", "aria-activedescendant") == "group-500"
    page.wait_for_selector(".uid >> text=g0001-09")
    page.keyboard.press("Home")
    page.wait_for_selector("#group-0[aria-selected=true]")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("#group-1[aria-selected=true]")


def test_j_and_k_walk_over_groups_and_arrows_over_siblings(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url)
    page.wait_for_selector("#group-0[aria-selected=true]")
    for key, selected in (("j", 1), ("j", 2), ("k", 1), ("k", 0), ("k", 0)):
        page.keyboard.press(key)
        page.wait_for_selector(f"#group-{selected}[aria-selected=true]")
    page.wait_for_selector("#siblings:not([inert]) .card[aria-current=true][data-session='0']")
    page.wait_for_selector(".trajectory-head >> text=session 0")
    for key, session in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        page.keyboard.press(key)
        page.wait_for_selector(f".card[aria-current=true][data-session='{session}']")
        page.wait_for_selector(f".trajectory-head >> text=session {session}")
    page.click(".card[data-session='3']")
    page.wait_for_selector(".trajectory-head >> text=session 3")
    assert page.locator(".card").count() == 4
    page.click("#group-5")
    page.wait_for_selector("#group-5[aria-selected=true]")


@pytest.mark.slow
def test_every_filter_narrows_the_list_and_reset_brings_it_back(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url)
    settled(page, "21 groups · 81 rows")
    page.click("#filters summary")
    form = page.locator("#filter-form")

    def rows() -> int:
        return int(page.inner_text("#count").split("·")[1].split()[0])

    def narrowed(act: Callable[[], Any]) -> int:
        before = page.inner_text("#count")
        act()
        page.wait_for_function("text => document.getElementById('count').textContent !== text", arg=before)
        page.wait_for_selector("#filters.on")
        found = rows()
        page.click("#reset")
        settled(page, "21 groups · 81 rows")
        return found

    assert narrowed(lambda: form.locator("[name=task]").fill("kyoto")) == 21
    assert narrowed(lambda: form.locator("[name=step_min]").fill("5")) == 17
    assert narrowed(lambda: form.locator("[name=step_max]").fill("2")) == 32
    for name in ("reward", "acc", "advantage", "length"):
        low = narrowed(lambda name=name: form.locator(f"[name={name}_min]").fill("0.5" if name != "length" else "190"))
        high = narrowed(lambda name=name: form.locator(f"[name={name}_max]").fill("0.5" if name != "length" else "189"))
        assert 0 < low < 81 and 0 < high < 81 and low + high in (79, 80, 81), (name, low, high)
    assert narrowed(lambda: form.locator("[name=void]").select_option("yes")) == 1
    assert narrowed(lambda: form.locator("[name=breach]").select_option("yes")) == 2
    assert narrowed(lambda: form.get_by_text("val", exact=True).click()) == 1
    answered = narrowed(lambda: form.get_by_text("answered", exact=True).click())
    assert 0 < answered < 81
    assert narrowed(lambda: form.get_by_text("python", exact=True).click()) == 80
    assert narrowed(lambda: form.get_by_text("python_math", exact=True).click()) == 80


@pytest.mark.slow
def test_a_bound_that_is_no_number_is_marked_and_asks_for_nothing(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url)
    settled(page, "21 groups")
    page.click("#filters summary")
    page.fill("[name=reward_min]", "high")
    page.wait_for_selector("[name=reward_min][aria-invalid=true]")
    assert page.inner_text("#status") == "Reward from must be a number"
    page.fill("[name=reward_min]", "2")
    settled(page, "nothing matches")
    assert page.locator("[name=reward_min][aria-invalid=true]").count() == 0


def test_the_list_is_sorted_both_ways(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url)
    for sort in ("reward", "acc", "spread", "advantage", "length", "step"):
        page.select_option("#sort", sort)
        loaded(page)
        down = titles(page)
        page.click("#order")
        loaded(page)
        assert page.get_attribute("#order", "aria-label") == "Ascending; turn around"
        assert titles(page) != down
        page.click("#order")
    page.select_option("#sort", "reward")
    loaded(page)
    rewards = [float(text) for text in page.locator(".group .reward").all_inner_texts()]
    assert rewards == sorted(rewards, reverse=True) and len(rewards) > 8


@pytest.mark.slow
def test_slash_searches_in_what_was_said(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url)
    settled(page, "21 groups")
    page.keyboard.press("/")
    page.keyboard.type("the capital of KENYA")
    settled(page, "5 groups · 20 rows")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.wait_for_selector("[aria-selected=true] >> text=the capital of Kenya")


@pytest.mark.slow
def test_the_address_is_a_link_to_what_is_seen(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url, permissions=["clipboard-read", "clipboard-write"])
    page.select_option("#sort", "length")
    loaded(page)
    page.click("#group-6")
    page.click(".card[data-session='2']")
    page.wait_for_selector(".trajectory-head >> text=session 2")
    page.keyboard.press("5")
    uid = page.inner_text(".uid")
    there = page.url
    page.click("#copy-link")
    page.wait_for_selector("#copy-link >> text=Copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert f"uid={uid}" in link and "session=2" in link and "f.sort" not in link
    assert link.startswith(url.split("?")[0]) and "secret" not in link

    again = open_page(there)
    again.wait_for_selector(".trajectory-head >> text=session 2")
    assert again.inner_text(".uid") == uid and again.input_value("#sort") == "length"
    assert again.is_checked("input[name=colour][value=entropy]")
    again.wait_for_selector("#group-6[aria-selected=true]")

    again.goto(link)  # this browser has the cookie
    again.wait_for_selector(".trajectory-head >> text=session 2")
    assert again.inner_text(".uid") == uid and again.input_value("#sort") == "step"


@pytest.mark.slow
def test_a_group_that_is_chosen_while_the_list_is_sorted_is_the_one_that_is_marked(
    open_page: Callable[..., Any], url: str
) -> None:
    page = open_page(url)
    held: list[Any] = []
    page.route("**/api/groups?**", lambda route: held.append(route), times=1)
    page.select_option("#sort", "length")
    page.wait_for_selector("#list[aria-busy]")
    page.click("#group-6")
    title = page.inner_text("#group-6 .task")
    while not held:
        page.wait_for_timeout(10)
    held[0].continue_()
    loaded(page)
    page.wait_for_selector(f"[aria-selected=true] >> text={title}")
    assert page.locator(".group[aria-selected=true]").count() == 1


@pytest.mark.slow
def test_siblings_of_the_group_that_was_left_are_not_chosen_any_more(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url)
    page.wait_for_selector(".card")
    uid = page.get_attribute("#group-2 .task", "title")
    held: list[Any] = []
    page.route("**/api/group?**", lambda route: held.append(route), times=1)
    page.click("#group-2")
    while not held:
        page.wait_for_timeout(10)
    assert page.evaluate("document.getElementById('siblings').inert")
    page.dispatch_event(".card[data-session='1']", "click")
    page.keyboard.press("ArrowRight")
    held[0].continue_()
    page.wait_for_selector(f".uid >> text={uid}")
    page.click(".card[data-session='1']")
    page.wait_for_selector(".trajectory-head >> text=session 1")
    assert f"uid={uid}" in page.url and page.inner_text(".uid") == uid


def test_a_link_that_is_put_in_is_followed(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url)
    page.evaluate("location.hash = 'split=train&step=2&uid=g0002-01&session=3&index=0'")
    page.wait_for_selector(".trajectory-head >> text=step 2 · session 3")
    page.wait_for_selector("[aria-selected=true] >> text=37 * 91")


def test_a_link_to_what_the_run_does_not_have_says_so(browser: Any, url: str) -> None:
    page = browser.new_page()
    page.goto(url + "#split=train&step=2&uid=nobody&session=3&index=0")
    page.wait_for_selector("#trajectory >> text=the run has no such trajectory")
    page.close()


@pytest.fixture
def growing(tmp_path: Path, tiny_model: Path, serve: Any) -> Iterator[tuple[Path, str]]:
    stored_run(tmp_path, tiny_model, steps=8, groups=10, sessions=2)
    with serve(RunView(tmp_path)) as server:
        yield tmp_path, server.url


def _play_on(folder: Path) -> None:
    start = {"index": 0, "split": "train", "place": "last", "role": "policy", "step": 99, "reward": 1.0}
    rows = [{**start, "uid": f"new-{number}", "session": 0, "response_ids": [5]} for number in range(30)]
    write_run(folder / "resumed", trajectories=rows)
    MetricsLog(folder).append(99, {"new/metric": 1.0})


@pytest.mark.slow
def test_what_a_run_writes_is_offered_and_shown_without_losing_the_place(
    open_page: Callable[..., Any], growing: tuple[Path, str]
) -> None:
    folder, url = growing
    page = open_page(url)
    page.evaluate("document.getElementById('list').scrollTop = 62 * 30 + 20")
    page.wait_for_selector(".group[aria-posinset='34']")
    page.click("#group-33")
    page.wait_for_selector("#group-33[aria-selected=true]")
    page.click(".card[data-session='1']")
    page.wait_for_selector(".trajectory-head >> text=session 1")
    uid, tops = page.inner_text(".uid"), "document.querySelector('[aria-selected=true]').getBoundingClientRect().top"
    before = page.evaluate(tops)
    _play_on(folder)
    page.click("#news:visible")
    page.wait_for_selector("#status >> text=30 new")
    page.wait_for_selector("#group-63[aria-selected=true]")
    assert page.evaluate(tops) == pytest.approx(before, abs=1)
    assert page.inner_text(".uid") == uid and page.inner_text(".trajectory-head h2").endswith("session 1")
    assert not page.is_visible("#news")
    page.keyboard.press("r")
    page.wait_for_selector("#status >> text=Nothing new")


@pytest.mark.slow
def test_following_shows_what_is_new_by_itself(open_page: Callable[..., Any], growing: tuple[Path, str]) -> None:
    folder, url = growing
    page = open_page(url)
    page.check("#follow")
    _play_on(folder)
    settled(page, "111 groups")
    page.click("#refresh")
    page.wait_for_selector("#status >> text=Nothing new")


def test_a_run_that_has_played_nothing_says_so(open_page: Callable[..., Any], tmp_path: Path, serve: Any) -> None:
    with serve(RunView(tmp_path)) as server:
        page = open_page(server.url)
        page.wait_for_selector("#trajectory >> text=No trajectories here yet")
        for tab, said in (("curves", "no metrics yet"), ("time", "no times yet"), ("findings", "No alarm")):
            page.click(f"#tab-{tab}")
            page.wait_for_selector(f"#panel-{tab} >> text={said}")
        page.context.close()
