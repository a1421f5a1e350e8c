"""The pages of the shop, and the actions `search[...]` and `click[...]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .catalogue import Catalogue
from .product import Product

BACK, NEXT, PREVIOUS, BUY = "back to search", "next >", "< prev", "buy now"
_DETAILS = ("description", "features", "reviews")
_ACTION = re.compile(r"\s*(search|click)\s*\[(.+)\]\s*", re.DOTALL | re.IGNORECASE)
_MAX_KEYWORDS_CHARS = 500
HELP = (
    "Each action is search[keywords], on the search page, or click[text], where the text is that of a button or an "
    "option in brackets."
)


class RefusedError(Exception):
    """The action is not possible on this page; the message says why."""


@dataclass(kw_only=True)
class Store:
    """The browser of one customer: the page, the chosen options and the purchase."""

    catalogue: Catalogue
    page_size: int
    max_results: int
    results: Sequence[Product] = ()
    page: int = 0
    """Page of results; 0 is the search page."""
    product: Product | None = None
    """Product whose page is open."""
    detail: str = ""
    """Opened part of the product's page: description, features or reviews."""
    chosen: dict[str, str] = field(default_factory=dict)
    """Name of an option -> the chosen value."""
    bought: Product | None = None

    async def act(self, action: str) -> str:
        """Carries out an action and returns the next page.

        Raises:
            RefusedError: the action is not possible.
        """
        match = _ACTION.fullmatch(action)
        if match is None:
            raise RefusedError(HELP)
        text = " ".join(match[2].lower().split())
        if not text:
            raise RefusedError(HELP)
        if match[1].lower() == "search":
            await self._search_products(text)
        else:
            self._click_button(text)
        return self.view()

    def view(self) -> str:
        """Returns the page as text; buttons and options are in brackets, chosen options in double ones."""
        if self.bought is not None:
            return "Thank you for shopping."
        if self.product is not None:
            return _detail_page(self.product, self.detail) if self.detail else _product_page(self.product, self.chosen)
        if not self.page:
            return "[Search]"
        start = (self.page - 1) * self.page_size
        lines = [f"[{item.asin}] {item.title}, {item.price_tag}" for item in self.results[start:][: self.page_size]]
        buttons = [f"[{name.capitalize()}]" for name in self.buttons() if name in (BACK, NEXT, PREVIOUS)]
        return "\n".join([f"Page {self.page} (Total results: {len(self.results)})", " ".join(buttons), *lines])

    def buttons(self) -> list[str]:
        """Returns the texts that can be clicked on this page, in lower case."""
        if self.product is not None:
            if self.detail:
                return [BACK, PREVIOUS]
            values = [value for values in self.product.options.values() for value in values]
            return [BACK, PREVIOUS, *values, *_DETAILS, BUY]
        if not self.page:
            return []
        start = (self.page - 1) * self.page_size
        asins = [item.asin.lower() for item in self.results[start:][: self.page_size]]
        more = [NEXT] if start + self.page_size < len(self.results) else []
        return [BACK, *([PREVIOUS] if self.page > 1 else []), *more, *asins]

    async def _search_products(self, keywords: str) -> None:
        if self.page or self.product is not None:
            raise RefusedError("there is no search bar on this page; go back to it with click[back to search]")
        if len(keywords) > _MAX_KEYWORDS_CHARS:
            raise RefusedError(f"keywords have at most {_MAX_KEYWORDS_CHARS} characters")
        self.results = await self.catalogue.search(keywords, count=self.max_results)
        self.page = 1

    def _click_button(self, text: str) -> None:
        if text not in self.buttons():
            possible = " ".join(f"[{name}]" for name in self.buttons()) or "none; use search[keywords]"
            raise RefusedError(f"there is no such button on this page; buttons: {possible}")
        if text == BACK:
            self.page, self.product, self.detail, self.chosen = 0, None, "", {}
        elif self.product is None:
            self._click_result(text)
        elif text == PREVIOUS:
            if not self.detail:
                self.product, self.chosen = None, {}
            self.detail = ""
        elif text in _DETAILS:
            self.detail = text
        elif text == BUY:
            self.bought = self.product
        else:
            name = next(name for name, values in self.product.options.items() if text in values)
            self.chosen[name] = text

    def _click_result(self, text: str) -> None:
        if text in (NEXT, PREVIOUS):
            self.page += 1 if text == NEXT else -1
        else:
            self.product = next(item for item in self.results if item.asin.lower() == text)


def _product_page(product: Product, chosen: dict[str, str]) -> str:
    def shown(name: str, value: str) -> str:
        return f"[[{value}]]" if chosen.get(name) == value else f"[{value}]"

    options = [
        f"{name}: {' '.join(shown(name, value) for value in values)}" for name, values in product.options.items()
    ]
    return "\n".join(
        [
            "[Back to search] [< Prev]",
            *options,
            product.title,
            f"Price: {product.price_tag}",
            f"Rating: {product.rating}",
            "[Description] [Features] [Reviews] [Buy now]",
        ]
    )


def _detail_page(product: Product, detail: str) -> str:
    texts = {"description": (product.description,), "features": product.features, "reviews": product.reviews}[detail]
    return "\n".join(["[Back to search] [< Prev]", *(texts or (f"No {detail}.",))])
