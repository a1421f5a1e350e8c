"""Products and goals of the shop, and WebShop's score of a purchase."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from verl_agentic import DataError
from verl_agentic.graders.answers.ground_truth import object_of
from verl_agentic.graders.components.webshop import type_score, webshop_score

from .fuzzy import token_set_ratio

_SIMILAR = 85
_WORD = re.compile(r"[a-z][a-z'-]*[a-z]")
_FUNCTION_WORDS = frozenset(
    {"and", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with", "without", "your"}
)


@dataclass(frozen=True, kw_only=True)
class Product:
    """A product of the catalogue."""

    asin: str
    title: str
    category: str
    """Path of categories, separated by ›."""
    query: str
    """Kind of product, as a customer would search for it."""
    price: float
    price_tag: str
    """The price as the pages show it."""
    attributes: tuple[str, ...]
    """Hidden attributes, which the score compares."""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of an option -> its values."""
    description: str = ""
    features: tuple[str, ...] = ()
    reviews: tuple[str, ...] = ()
    rating: str = "N.A."

    @property
    def nouns(self) -> frozenset[str]:
        """Words of the title that name things: all but function words, numbers and words of the attributes."""
        adjectives = set(" ".join(self.attributes).lower().split())
        return frozenset(_WORD.findall(self.title.lower())) - adjectives - _FUNCTION_WORDS


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The product that an instruction asks for."""

    asin: str
    """A product that fits."""
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    """Values of options."""
    price_upper: float

    @classmethod
    def read(cls, ground_truth: Any) -> Goal:
        """Parses a row's ground truth.

        Raises:
            DataError: it is malformed.
        """
        record = object_of(ground_truth, of="shop")
        try:
            goal = cls(
                asin=record["asin"],
                attributes=tuple(record["attributes"]),
                options=tuple(record["options"]),
                price_upper=float(record["price_upper"]),
            )
        except (KeyError, TypeError, ValueError) as cause:
            raise DataError(
                f"a goal has asin, attributes, options and price_upper, got {record}; fix the row"
            ) from cause
        if not all(isinstance(text, str) for text in (goal.asin, *goal.attributes, *goal.options)):
            raise DataError(f"asin, attributes and options of a goal must be texts, got {record}; fix the row")
        return goal

    def to_json(self) -> str:
        """Returns the ground truth of a row: JSON text, because goals have lists of different lengths."""
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class Purchase:
    """Comparison of a purchase with a goal; the component `webshop` reads `info`."""

    score: float
    info: Mapping[str, float]


def rate(bought: Product, target: Product, goal: Goal, *, chosen: Mapping[str, str]) -> Purchase:
    """Returns WebShop's score of a purchase.

    Args:
        bought: the product.
        target: the product of the goal; it defines the kind.
        goal: attributes, options and price that are asked for.
        chosen: name of an option -> its chosen value.

    Paper: https://arxiv.org/abs/2207.01206 (section 3.1)

    Deviations: nouns of a title are its words without function words and words of the attributes, where the original
    parses it with spaCy. Every wanted option counts once. The original counts chosen options, and also those
    whose text is in the title, and maps colours to basic ones first. Values with digits are compared exactly, not only
    sizes: the original's fuzzy comparison takes `12 ounce` for `2 ounce`.
    """
    attributes = sum(_has_attribute(bought, name) for name in goal.attributes)
    options = sum(any(_is_chosen(want, *choice) for choice in chosen.items()) for want in goal.options)
    shared, nouns = bought.nouns & target.nouns, target.nouns
    kind = type_score(
        len(shared) / len(nouns) if nouns else 0.2,
        query_match=bought.query == target.query,
        category_match=len(_split_categories(bought) & _split_categories(target)) >= 2,
    )
    is_cheap = bought.price <= goal.price_upper
    score = webshop_score(
        attributes=len(goal.attributes),
        matched_attributes=attributes,
        options=len(goal.options),
        matched_options=options,
        price_ok=is_cheap,
        type_score=kind,
    )
    info = {"matched_attributes": float(attributes), "matched_options": float(options), "price_ok": float(is_cheap)}
    return Purchase(score=score, info={**info, "type_score": kind})


def _has_attribute(product: Product, attribute: str) -> bool:
    if any(token_set_ratio(attribute, name) > _SIMILAR for name in product.attributes):
        return True
    return any(attribute.lower() in text.lower() for text in (product.title, *product.features, product.description))


def _is_chosen(option: str, name: str, value: str) -> bool:
    """Returns whether a chosen option is the wanted one; sizes and values with digits are compared exactly."""
    option, value = option.lower(), value.lower()
    if name == "size" or any(map(str.isdigit, option + value)):
        return option == value
    return token_set_ratio(option, value) > _SIMILAR


def _split_categories(product: Product) -> set[str]:
    return {name.strip() for name in product.category.split("›")}
