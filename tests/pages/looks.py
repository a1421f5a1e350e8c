"""Checks of the look of every page, in a real browser."""

from __future__ import annotations

from typing import Any

# Returns every text whose contrast with what lies behind it is below 4.5 (3 where it is large).
FAINT_TEXTS = """() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reduceRight((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const light = (colour) => colour.slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!says || !element.checkVisibility({ contentVisibilityAuto: true })) continue;
    const style = getComputedStyle(element);
    const back = behind(element.closest("svg") ? element.closest("svg") : element);
    const colour = parse(element instanceof SVGElement ? style.fill : style.color);
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    const front = over([...colour.slice(0, 3), colour[3] * opacity], back);
    const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    const needed = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
    if (ratio < needed) faint.push([ratio.toFixed(2), element.className, element.textContent.slice(0, 40)]);
  }
  return faint;
}"""

# Returns every text that is drawn with letters of less than 10.5 pixels.
_TINY_TEXTS = """() => [...document.querySelectorAll("body *")].filter((one) => {
  const says = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!says || !one.checkVisibility()) return false;
  const matrix = one.getScreenCTM && one.closest("svg") ? one.getScreenCTM() : null;
  const size = parseFloat(getComputedStyle(one).fontSize) * (matrix ? matrix.a : 1);
  return size > 0 && size < 10.5; // labels for screen readers have size 0
}).map((one) => one.textContent.slice(0, 40))"""
WIDTHS = (390, 1300)


def open_folds(page: Any) -> None:
    """Opens every `details`."""
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")


def check_looks(page: Any, *, scheme: str) -> None:
    """Fails when the page overflows its width, is not in the colour scheme, or has text that cannot be read."""
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (int(background.strip("rgb()").split(",")[0]) < 60) == (scheme == "dark"), background
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 850})
        page.wait_for_timeout(250)
        open_folds(page)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width
        assert page.evaluate(FAINT_TEXTS) == [], width
        assert page.evaluate(_TINY_TEXTS) == [], width
