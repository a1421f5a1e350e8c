"""Every report page: one file without requests or scripts, readable in light and dark and on a phone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from looks import check_looks
from sample_pages import EVIL, PAGES

_ASSET = re.compile(r"""<(?!a\b)[a-z]+[^>]*\s(?:src|href|srcset|data|xlink:href)\s*=|url\(|@import""", re.IGNORECASE)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, write in PAGES.items():
        write(folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in PAGES}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_with_its_result_and_a_picture_and_is_one_file(pages: dict[str, Path], name: str) -> None:
    html = pages[name].read_text(encoding="utf-8")
    body = html[html.index("<body>") :]
    assert re.match(r"<body>\s*<header>\s*<h1 class=\"result\">[^<]*\d[^<]*</h1>\s*<p>[^<]", body)
    assert body.index("</header>") < body.index("<figure>") < body.index("<main>")
    assert len(re.findall("<figcaption>[^<]", html)) == html.count("<figure>"), "every figure has a title"
    assert "default-src 'none'" in html and _ASSET.search(html) is None
    assert "&lt;script&gt;" in html and "<script" not in html and EVIL not in html


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_in_both_schemes_and_on_a_phone(
    browser: Any, pages: dict[str, Path], name: str, scheme: str
) -> None:
    context, requests = browser.new_context(color_scheme=scheme), []
    try:
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.goto(pages[name].as_uri())
        check_looks(page, scheme=scheme)
        assert page.evaluate("window.broken") is None and requests == [pages[name].as_uri()]
    finally:
        context.close()
