"""The generated catalogue, and catalogues with a search index."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from verl_agentic.tools.search.bm25 import Bm25Index
from verl_agentic.tools.search.local_retriever import LocalRetriever
from verl_agentic.tools.search.retriever import Passage

from .product import Product

PRODUCTS_PER_KIND = 36
_SEED = 20_260
_ATTRIBUTES = 3
"""Attributes of a product; one is in its title, the others only on its page of features."""
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_USES = ("every day", "a gift", "small homes", "travel", "busy weeks", "the whole family")
_OPINIONS = ("Arrived on time.", "Just as described.", "I would buy it again.", "Good value.", "My second one.")


class Catalogue:
    """Products by their number, with a search index; both are loaded in a thread at the first use."""

    def __init__(self, read: Callable[[], Sequence[Product]]) -> None:
        """Takes a function that returns the products."""
        self._read = read
        self._products: Mapping[str, Product] = {}
        self._retriever = LocalRetriever(self._load_index)

    async def ready(self) -> None:
        """Waits until the products are loaded."""
        await self._retriever.ready()

    def product(self, asin: str) -> Product | None:
        """Returns a product of a loaded catalogue, or None if there is none of this number."""
        return self._products.get(asin)

    async def search(self, keywords: str, *, count: int) -> list[Product]:
        """Returns the products that fit keywords best."""
        (passages,) = await self._retriever.search([keywords], top_k=count)
        return [self._products[passage.id] for passage in passages]

    def _load_index(self) -> Bm25Index:
        products = self._read()
        self._products = {product.asin: product for product in products}
        return make_index(products)


def make_index(products: Sequence[Product]) -> Bm25Index:
    """Returns the index of products: title, description, first feature and options, as in WebShop's index."""
    return Bm25Index.from_passages([_build_passage(product) for product in products])


@functools.cache
def generated_products() -> tuple[Product, ...]:
    """Returns the products of the generated catalogue, which is the same everywhere."""
    rng = random.Random(_SEED)
    return tuple(_generate_products(rng))


@functools.cache
def generated_catalogue() -> Catalogue:
    """Returns the generated catalogue of this process."""
    return Catalogue(generated_products)


@functools.cache
def goods() -> Mapping[str, Any]:
    """Returns the kinds of goods, and their attributes and options."""
    return yaml.safe_load((Path(__file__).parent / "goods.yaml").read_text(encoding="utf-8"))


def _generate_products(rng: random.Random) -> Iterator[Product]:
    asins = (f"B{number:09d}" for number in rng.sample(range(10**9), len(goods()["kinds"]) * PRODUCTS_PER_KIND))
    brands = list(dict.fromkeys(_draw_name(rng) for _ in range(60)))
    for kind, (group, category, low, high) in goods()["kinds"].items():
        for _ in range(PRODUCTS_PER_KIND):
            options = {
                name: _draw_values(rng, goods()["values"][values])
                for name, values in goods()["groups"][group]["options"].items()
            }
            attributes = tuple(rng.sample(goods()["groups"][group]["attributes"], _ATTRIBUTES))
            brand = rng.choice(brands)
            cents = rng.randrange(low * 100, high * 100)
            yield Product(
                asin=next(asins),
                title=f"{brand} {_draw_name(rng)} {attributes[0].title()} {kind.title()}",
                category=category,
                query=kind,
                price=cents / 100,
                price_tag=f"${cents / 100:.2f}",
                attributes=attributes,
                options=options,
                description=f"A {kind} by {brand}, made for {rng.choice(_USES)}.",
                features=tuple(f"{name.capitalize()}" for name in rng.sample(attributes, len(attributes))),
                reviews=tuple(
                    f"{rng.randint(2, 5)} stars: {text}" for text in rng.sample(_OPINIONS, rng.randint(0, 3))
                ),
                rating=f"{rng.randint(30, 50) / 10:.1f}",
            )


def _draw_values(rng: random.Random, values: Sequence[str]) -> tuple[str, ...]:
    """Returns more than half of the values, in their order."""
    chosen = set(rng.sample(values, rng.randint(len(values) // 2 + 1, len(values))))
    return tuple(value for value in values if value in chosen)


def _draw_name(rng: random.Random) -> str:
    return "".join(rng.choice(_CONSONANTS if kind == "C" else _VOWELS) for kind in "CVCVC").capitalize()


def _build_passage(product: Product) -> Passage:
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    text = ". ".join([product.description, *product.features[:1], options])
    return Passage(title=product.title, text=text, id=product.asin)
