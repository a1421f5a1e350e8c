"""Every report page: one file without requests or scripts, readable in light and dark and on a phone."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from looks import check_looks
from sample_pages import EVIL, PAGES

_LOADING = {"src", "href", "xlink:href", "srcset", "data", "action", "background", "poster"}


class Tags(HTMLParser):
    """All start tags of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


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
    assert "&lt;script&gt;" in html and EVIL not in html


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_nothing_and_runs_nothing(pages: dict[str, Path], name: str) -> None:
    html = pages[name].read_text(encoding="utf-8")
    tags = Tags(html).found
    assert not {tag for tag, _ in tags} & {"script", "img", "link", "iframe", "object", "embed", "form", "base"}
    assert not {key for tag, attrs in tags for key in attrs if tag != "a"} & _LOADING
    assert not any(key.startswith("on") for _, attrs in tags for key in attrs)
    links = [attrs["href"] or "" for tag, attrs in tags if tag == "a"]
    assert not any(urlsplit(link).scheme or urlsplit(link).netloc for link in links), "links lead to files beside it"
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert style and "url(" not in style and "@import" not in style
    assert "default-src 'none'" in html


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
