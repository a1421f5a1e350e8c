"""Products and goals from WebShop's files.

- Items (`items_shuffle.json`, `items_shuffle_1000.json`): a list of products as they were crawled.
- Attributes (`items_ins_v2.json`, `items_ins_v2_1000.json`): product -> its attributes.
- Human goals (`items_human_ins.json`): product -> instructions with attributes and options.

Paper: https://arxiv.org/abs/2207.01206, data: https://github.com/princeton-nlp/WebShop
"""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_agentic import DataError

from .catalogue import Catalogue
from .product import Goal, Product

_SHUFFLE_SEED = 233
_PRICE_STEPS = [10.0 * number for number in range(1, 100)]
NO_LIMIT = 1_000_000.0
"""Price limit of instructions without one."""
_DEFAULT_PRICE = 100.0
_MAX_ASIN_CHARS = 10


@functools.cache
def file_catalogue(products: str, attributes: str) -> Catalogue:
    """Returns the catalogue of files, always the same one in a process; they are read at the first use."""
    return Catalogue(lambda: read_products(products, attributes))


@functools.cache
def read_products(products: str, attributes: str) -> tuple[Product, ...]:
    """Returns the products of an items file; later ones of a number are left out, as in the original.

    Raises:
        DataError: a file is missing or has another format.
    """
    attributes_by_asin = _read_json(attributes, dict)
    products_by_asin: dict[str, Product] = {}
    for place, item in enumerate(_read_json(products, list)):
        try:
            asin = item["asin"]
            if asin != "nan" and len(asin) <= _MAX_ASIN_CHARS and asin not in products_by_asin:
                products_by_asin[asin] = _read_product(item, attributes_by_asin.get(asin) or {})
        except (KeyError, TypeError, AttributeError, ValueError) as cause:
            raise DataError(
                f"{products}, item {place}: not an item of WebShop, got {type(cause).__name__}: {cause}; see "
                "items_shuffle_1000.json of WebShop for the format"
            ) from cause
    return tuple(products_by_asin.values())


def read_goals(path: str, products: Sequence[Product], *, seed: int) -> list[tuple[str, Goal]]:
    """Returns instructions and goals of people, in the order that WebShop's splits refer to.

    The original draws price limits anew in every process; here they follow from `seed`.

    Raises:
        DataError: the file is missing or has another format.
    """
    records, rng = _read_json(path, dict), random.Random(f"prices/{seed}")
    goals: list[tuple[str, Goal]] = []
    for product in products:
        for record in records.get(product.asin) or ():
            try:
                if record["instruction_attributes"]:
                    goals.append(_read_goal(record, product, rng))
            except (KeyError, TypeError, AttributeError) as cause:
                raise DataError(
                    f"{path}, product {product.asin}: not an instruction of WebShop, got {type(cause).__name__}: "
                    f"{cause}; it has instruction, instruction_attributes and instruction_options"
                ) from cause
    random.Random(_SHUFFLE_SEED).shuffle(goals)
    return goals


def price_limit(price: float, rng: random.Random) -> float:
    """Returns a price limit: the higher one of two of the next four multiples of 10 dollars; see `NO_LIMIT`."""
    above = [step for step in _PRICE_STEPS if step > price][:4]
    return max(rng.sample(above, 2)) if len(above) >= 2 else NO_LIMIT


def price_text(limit: float) -> str:
    """Returns the end of an instruction with a price limit."""
    return "" if limit == NO_LIMIT else f", and price lower than {limit:.2f} dollars"


def _read_goal(record: Mapping[str, Any], product: Product, rng: random.Random) -> tuple[str, Goal]:
    options = record["instruction_options"]
    values = options.values() if isinstance(options, Mapping) else options
    goal = Goal(
        asin=product.asin,
        attributes=tuple(record["instruction_attributes"]),
        options=tuple(_normalize_value(value) for value in values),
        price_upper=price_limit(product.price, rng),
    )
    return record["instruction"].strip(".") + price_text(goal.price_upper), goal


def _read_product(item: Mapping[str, Any], extra: Mapping[str, Any]) -> Product:
    prices = [float(re.sub(r"[^\d.]", "", part)) for part in (item.get("pricing") or "").split("$")[1:]]
    price, tag = _DEFAULT_PRICE, f"${_DEFAULT_PRICE}"
    if prices:
        # The original draws a price of the range in every process; the upper end is the same everywhere.
        price, tag = max(prices[:2]), " to ".join(f"${price}" for price in prices[:2])
    features = item["small_description"] or []
    return Product(
        asin=item["asin"],
        title=item["name"],
        category=item["product_category"],
        query=item["query"].lower().strip(),
        price=price,
        price_tag=tag,
        attributes=tuple(extra.get("attributes") or ()),
        options=_read_options(item.get("customization_options") or {}),
        description=item["full_description"] or "",
        features=tuple(features if isinstance(features, list) else [features]),
        rating=str(item.get("average_rating") or "N.A."),
    )


def _read_options(customization: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {
        name.lower(): tuple(_normalize_value(content["value"]) for content in contents)
        for name, contents in customization.items()
        if contents is not None
    }


def _normalize_value(text: str) -> str:
    """Returns the value of an option as pages show it."""
    return " ".join(text.replace("/", " | ").lower().split())


def _read_json(path: str, kind: type) -> Any:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise DataError(
            f"cannot read a file of WebShop, got {path!r}: {cause}; download it with its setup.sh"
        ) from cause
    if not isinstance(content, kind):
        raise DataError(f"{path} must hold a JSON {kind.__name__}, got {type(content).__name__}; is it the right file?")
    return content
