"""The page in a real browser: one trajectory, its tokens, and the views over steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from looks import check_looks
from stored_runs import patch_of, stored_run

from verl_agentic.log.reader import write_run
from verl_agentic.observe.viewer.run_view import RunView

LINK = "#split=train&step=2&uid=g0002-01&session=1&index=0"
COLOURS = ("mask", "advantage", "log_prob", "gap", "entropy", "value")


def at_link(open_page: Callable[..., Any], url: str, **options: Any) -> Any:
    page = open_page(url + LINK, **options)
    page.wait_for_selector(".t")
    return page


def test_tokens_are_coloured_by_keys_and_by_buttons(open_page: Callable[..., Any], url: str, view: RunView) -> None:
    page = at_link(open_page, url)
    shown = view.trajectory(("train", 2, "g0002-01", 1, 0))["tokens"]
    legends = set()
    for key, name in enumerate(COLOURS, 1):
        page.keyboard.press(str(key))
        assert page.is_checked(f"input[name=colour][value={name}]")
        classes = page.locator(".t").evaluate_all("all => all.map(one => one.className.slice(2))")
        legends.add(page.inner_text("#legend") + str(page.locator("#legend .swatch").count()))
        if name == "mask":
            assert classes == ["m1" if mask else "m0" for mask in shown["mask"]]
            continue
        column = shown["columns"][name]
        values = column if isinstance(column, list) else [column] * len(classes)
        signs = {"": 0, "n": -1, "p": 1, "s": 1 if name == "entropy" else -1}
        assert [signs[c[:1]] for c in classes] == [0 if not v else (1 if v > 0 else -1) for v in values]
        # The further from 0, the stronger the colour.
        sizes = sorted((abs(v or 0.0), int(c[1:] or 0)) for c, v in zip(classes, values, strict=True))
        assert [level for _, level in sizes] == sorted(level for _, level in sizes)
    assert len(legends) >= 5
    page.get_by_label("Entropy").check(force=True)
    assert "colour=entropy" in page.url


@pytest.mark.slow
def test_all_numbers_of_a_token_are_shown_on_hover_and_on_focus(
    open_page: Callable[..., Any], url: str, view: RunView
) -> None:
    page = at_link(open_page, url)
    columns = view.trajectory(("train", 2, "g0002-01", 1, 0))["tokens"]["columns"]
    page.hover(".t >> nth=4")
    tip = page.inner_text("#tip")
    for name in ("log_prob", "trainer_log_prob", "gap", "entropy", "value"):
        assert page.evaluate("value => viewer.number(value)", columns[name][4]) in tip, (name, tip)
    page.mouse.move(2, 2)
    page.wait_for_selector("#tip", state="hidden")

    page.keyboard.press("2")
    page.focus(".t[tabindex='0']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    focused = "document.activeElement.dataset.i"
    assert page.evaluate(focused) == "2"
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert "token 2 of turn 0, mask 1" in label and "Advantage" in label
    assert page.is_visible("#tip") and "2 · turn 0" in page.inner_text("#tip")
    page.keyboard.press("ArrowDown")
    first_of_tool = page.evaluate("document.activeElement.closest('.segment').getAttribute('aria-label')")
    assert first_of_tool == "tool · turn 0"
    for key, place in (("End", "last"), ("Home", "first"), ("ArrowLeft", "first")):
        page.keyboard.press(key)
        count = page.locator(".t").count()
        assert page.evaluate(focused) == {"last": str(count - 1), "first": "0"}[place]
    assert page.locator(".t[tabindex='0']").count() == 1, "Tab passes the tokens in one step"
    page.keyboard.press("Escape")
    assert not page.is_visible("#tip")


def test_the_text_of_the_stream_is_the_text_that_was_sampled(open_page: Callable[..., Any], url: str) -> None:
    page = at_link(open_page, url)
    blocks = page.locator(".segment.kind-model .stream").all_text_contents()
    assert blocks[0].replace("↵", "").startswith("I wonder about 37 * 91: ")
    assert blocks[1].startswith("The answer is ")
    assert "π" in page.inner_text("#trajectory") or "3330" in page.inner_text("#trajectory")
    authors = page.locator(".segment .author b").all_inner_texts()
    assert authors == ["model", "tool", "model"]


def test_calls_are_folded_with_arguments_result_and_time(open_page: Callable[..., Any], url: str) -> None:
    page = at_link(open_page, url)
    call = page.locator("details.call").first
    assert not call.locator("pre").first.is_visible()
    assert call.locator(".elapsed").inner_text().endswith("s")
    call.locator("summary").click()
    assert (
        "print(" in call.locator("pre").nth(0).inner_text() and '\n  "code"' in call.locator("pre").nth(0).inner_text()
    )
    assert call.locator("pre").nth(1).inner_text()
    page.evaluate("location.hash = 'split=train&step=1&uid=g0001-00&session=0&index=0'")
    page.wait_for_selector(".trajectory-head >> text=step 1 · session 0")


@pytest.mark.slow
def test_reward_parts_time_and_what_is_known_are_shown(open_page: Callable[..., Any], url: str) -> None:
    page = at_link(open_page, url)
    assert page.locator(".bar .name").all_inner_texts() == ["math", "tool_validity", "overlong"]
    assert page.locator(".bar .number").all_inner_texts()[1:] == ["0.1", "-0.05"], "as weighted, not raw"
    assert page.locator(".bar .negative").count() == 1, "a penalty points to the other side"
    assert page.locator(".strip rect").count() == 6
    page.hover("[data-span='1']")
    assert page.inner_text(".strip-box .strip-value").startswith("generate · turn 0 · ")
    page.focus(".strip [tabindex='0']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".strip-box .strip-value").startswith("tool python · turn 0 · ")
    page.click("summary >> text=Prompt")
    assert "What is 37 * 91?" in page.inner_text(".fold[open]")
    page.click("summary >> text=Answer and truth")
    page.wait_for_selector(".fold[open] >> text=3367")
    page.click("summary >> text=About")
    assert "made_up" in page.inner_text(".fold[open] >> nth=2") and "generate_s" in page.inner_text(
        ".fold[open] >> nth=2"
    )
    page.wait_for_selector(".fold[open] >> text=abstained/math")


def test_a_void_trajectory_and_a_breach_are_told_at_the_top(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url + "#split=train&step=5&uid=g0005-03&session=3&index=0")
    page.wait_for_selector(".banner.void >> text=the sandbox has gone")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(".banner.breach >> text=tokens 4 to 9")


@pytest.mark.slow
def test_without_a_tokenizer_ids_are_shown_and_what_the_turns_said(
    open_page: Callable[..., Any], tmp_path: Path, serve: Any
) -> None:
    stored_run(tmp_path, None, steps=2, groups=2, sessions=2)
    with serve(RunView(tmp_path)) as server:
        page = at_link(open_page, server.url)
        assert page.locator(".t .id").count() == page.locator(".t").count() > 20
        assert page.inner_text(".t >> nth=0") == "73", "the byte of I"
        said = page.locator(".segment .said").all_inner_texts()
        assert said[0].startswith("I wonder about 37 * 91") and said[1].strip().startswith("<tool_response>")
        page.context.close()


@pytest.mark.slow
def test_curves_are_chosen_by_name_and_read_with_the_keyboard(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url)
    page.keyboard.press("c")
    page.wait_for_selector(".chart[data-metric='episode/acc'] polyline")
    assert page.locator(".chart").count() == 6
    page.fill("#metric-filter", "GRAD")
    assert page.locator(".metric").count() == 1
    page.check(".metric input")
    page.wait_for_selector(".chart[data-metric='actor/grad_norm']")
    page.fill("#metric-filter", "")
    page.click("#metric-clear")
    page.wait_for_selector("#charts >> text=Choose metrics")
    page.check(".metric:has-text('<b>odd</b>') input")
    page.check(".metric:has-text('batch/entropy') input")
    page.wait_for_selector(".chart >> nth=1")
    chart = page.locator(".chart[data-metric='<b>odd</b>']")
    chart.locator("svg").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert chart.locator("output").inner_text() == "step 2: 2"
    other = page.locator(".chart[data-metric='batch/entropy'] output")
    assert other.inner_text().startswith("step 2: 1."), "all curves point at one step"
    assert "m=batch%2Fentropy" in page.url
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel-trajectories:visible")
    page.wait_for_selector("#count >> text=4 groups")


@pytest.mark.slow
def test_findings_are_marked_on_the_curves_they_speak_of_and_listed(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url + "#tab=curves")
    page.wait_for_selector(".chart polyline >> nth=5")
    marks = {
        chart.get_attribute("data-metric"): chart.locator(".mark").count() for chart in page.locator(".chart").all()
    }
    assert marks["batch/entropy"] == 2 and marks["episode/acc"] == 1, "one names no metric and so speaks of all"
    assert (
        page.locator(".mark.warn title").first.text_content()
        == "step 2: entropy_collapse – batch/entropy fell below 0.1"
    )
    assert page.locator("#chart-findings .finding").count() == 2
    page.keyboard.press("f")
    assert page.inner_text("#tab-findings") == "Findings · 2"
    assert page.inner_text("#findings .finding >> nth=0").startswith("stop")
    page.click("#findings summary >> nth=1")
    page.wait_for_selector("#findings pre >> text=0.08")
    page.click("#findings .link-button >> nth=1")
    page.wait_for_selector("#count >> text=4 groups")


def test_the_time_of_steps_is_stacked_and_summed(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url)
    page.keyboard.press("i")
    page.wait_for_selector("svg.stack rect")
    assert page.locator("svg.stack rect").count() == 5 * 7
    names = page.locator(".ledger tbody th").all_inner_texts()
    assert names[:2] == ["generate", "update_actor"] and "other" in names and "gen" not in names
    shares = [float(text.split()[0]) for text in page.locator(".ledger td:nth-child(3)").all_inner_texts()]
    assert sum(shares) == pytest.approx(100, abs=0.5) and shares == sorted(shares, reverse=True)
    page.focus("svg.stack")
    page.keyboard.press("Home")
    assert page.inner_text("#time output").startswith("step 1: ")


@pytest.mark.slow
def test_tabs_are_reached_by_mouse_and_arrows_and_told_to_readers(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url)
    page.focus("#tab-trajectories")
    for name in ("curves", "time", "findings", "trajectories"):
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(f"#panel-{name}:visible")
        assert page.get_attribute(f"#tab-{name}", "aria-selected") == "true"
        assert page.locator("[role=tab][aria-selected=true]").count() == 1
        assert page.evaluate("document.activeElement.id") == f"tab-{name}"
    page.click("#tab-time")
    page.wait_for_selector("#panel-time:visible")
    page.keyboard.press("t")
    page.wait_for_selector("#panel-trajectories:visible")


def test_help_lists_the_keys_and_escape_closes_it(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url)
    for opened in (lambda: page.keyboard.press("?"), lambda: page.click("#help-button")):
        opened()
        page.wait_for_selector("#help[open]")
        assert "next, previous group" in page.inner_text("#help-keys")
        page.keyboard.press("j")
        assert page.get_attribute("#group-0", "aria-selected") == "true", "keys rest while help is open"
        page.keyboard.press("Escape")
        page.wait_for_selector("#help", state="hidden")


@pytest.mark.slow
def test_every_control_has_a_name_and_can_be_seen_when_it_has_the_focus(
    open_page: Callable[..., Any], url: str
) -> None:
    page = at_link(open_page, url)
    page.click("#filters summary")
    nameless = page.evaluate("""() => {
      const named = (one) => one.getAttribute("aria-label") || one.textContent.trim()
        || [...(one.labels || [])].some((label) => label.textContent.trim());
      const all = [...document.querySelectorAll("button, input, select, [role=listbox], [tabindex='0']")];
      return all.filter((one) => one.offsetParent !== null && !named(one)).map((one) => one.outerHTML);
    }""")
    assert nameless == []
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.tagName"))
        shown = page.evaluate("""() => {
          const one = document.activeElement;
          const styles = [one, one.parentElement].map((element) => getComputedStyle(element));
          return styles.some((style) => style.outlineStyle !== "none" || style.strokeWidth === "3px");
        }""")
        assert shown, page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
    assert {"BUTTON", "INPUT", "SELECT", "SUMMARY"} <= seen


@pytest.mark.parametrize("is_graded", [True, False])
def test_a_patch_is_shown_with_its_files_and_tests(
    open_page: Callable[..., Any], serve: Any, tmp_path: Path, is_graded: bool
) -> None:
    details = patch_of("tests/a.py") if is_graded else {"is_graded": False, "patch": "+x"}
    score = json.dumps({"outcome": 0.0, "parts": {}, "info": {}, "details": details})
    key = {"uid": "u", "session": 0, "index": 0, "split": "train", "step": 1, "place": "last", "role": "policy"}
    run = write_run(tmp_path, trajectories=[{**key, "response_ids": [65], "response_mask": [1], "env_score": score}])
    with serve(RunView(run)) as server:
        page = open_page(server.url)
        page.wait_for_selector(".patch")
        title = page.inner_text(".patch > summary")
        assert page.inner_text(".diff .added").strip() == ("+tests/a.py" if is_graded else "+x")
        check_looks(page, scheme="light")
    if is_graded:
        assert title == "Patch · 1 of 2 tests fixed · 3 of 4 tests kept · 2 changed lines · 1 refused file"
        assert page.locator(".patch .badge").all_inner_texts() == ["passed", "failed", "tests/a.py", "tests/a.py"]
        assert "Forged results: tests/a.py, tests/a.py" in page.inner_text(".patch .banner")
    else:
        assert title == "Patch · not submitted, not graded · 1 changed line"
