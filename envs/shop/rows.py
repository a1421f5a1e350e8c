"""Dataset rows: instructions about the generated catalogue, or WebShop's human instructions."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from typing import Literal

from verl_agentic import ConfigError, EnvRow, Message
from verl_agentic.tools.search.bm25 import Bm25Index

from .catalogue import generated_products, make_index
from .product import Goal, Product, rate
from .store import HELP
from .webshop_files import price_limit, price_text, read_goals, read_products

Split = Literal["train", "test"]
_TEST_PART = 5  # every fifth product is for tests
_WEBSHOP_TEST, _WEBSHOP_TRAIN = 500, 1_500
_MAX_MISSES = 2_000


def make_rows(
    *,
    split: Split,
    count: int,
    seed: int,
    attributes: int | None = None,
    max_rank: int = 50,
    products: str = "",
    product_attributes: str = "",
    goals: str = "",
    keep_unsolvable: bool = False,
) -> list[EnvRow]:
    """Returns `count` different instructions as dataset rows; equal arguments give equal rows.

    Args:
        split: of the generated catalogue, train and test ask for different products. Of WebShop's goals in their
            original order, test is the first 500 and train begins at 1,500; of fewer than 2,000, test is the first
            fifth.
        count: how many.
        seed: of the choice, the order and the price limits.
        attributes: requested attributes of a generated instruction, 1 to 3; None: 1 or 2.
        max_rank: the demonstrated search finds the product among so many results; generated instructions only.
        products: WebShop's file of items; empty: the generated catalogue.
        product_attributes: WebShop's file of attributes; needed with `products`.
        goals: WebShop's file of human goals; needed with `products`.
        keep_unsolvable: keeps human goals whose own product scores below 1, as in the original.

    Raises:
        ConfigError: there are too few instructions, or an argument is invalid.
        DataError: a file of WebShop is missing or malformed.
    """
    if split not in ("train", "test"):
        raise ConfigError(f"split must be 'train' or 'test', got {split!r}")
    if len({bool(products), bool(product_attributes), bool(goals)}) > 1:
        raise ConfigError(
            "give all of products, product_attributes and goals, or none, "
            f"got {products!r}, {product_attributes!r} and {goals!r}"
        )
    if products:
        rows = _human_rows(split, seed, read_products(products, product_attributes), goals, keep_unsolvable)
        if len(rows) < count:
            raise ConfigError(f"count must be at most {len(rows)} for split {split!r} of {goals}, got {count}")
        return rows[:count]
    if attributes not in (None, 1, 2, 3):
        raise ConfigError(f"attributes must be 1 to 3, or None, got {attributes!r}")
    return list(_generate_rows(split, count, seed, attributes, max_rank))


def _generate_rows(split: Split, count: int, seed: int, attributes: int | None, max_rank: int) -> Iterator[EnvRow]:
    rng, products = random.Random(f"shop/{split}/{seed}"), generated_products()
    fitting, index = [product for product in products if _split_of(product) == split], make_index(products)
    goals: set[str] = set()
    misses = 0
    while len(goals) < count:
        product = rng.choice(fitting)
        goal = _make_goal(product, rng, attributes or rng.randint(1, 2))
        words = " ".join([product.query, *goal.attributes, *goal.options])
        if goal.to_json() not in goals and _is_found(product, words, index, max_rank):
            goals.add(goal.to_json())
            misses = 0
            yield _build_row(
                _build_instruction(product, goal), goal, search=words, task_id=f"{split}-{seed}-{len(goals)}"
            )
            continue
        misses += 1
        if misses == _MAX_MISSES:
            raise ConfigError(
                f"there are hardly more than {len(goals)} instructions for {split!r} with max_rank={max_rank}, got "
                f"count={count}; lower count, or raise max_rank"
            )


def _make_goal(product: Product, rng: random.Random, attributes: int) -> Goal:
    return Goal(
        asin=product.asin,
        attributes=tuple(rng.sample(product.attributes, attributes)),
        options=tuple(rng.choice(values) for values in product.options.values()),
        price_upper=price_limit(product.price, rng),
    )


def _build_instruction(product: Product, goal: Goal) -> str:
    options = ", and ".join(f"{name}: {value}" for name, value in zip(product.options, goal.options, strict=True))
    return f"Find me {', '.join(goal.attributes)} {product.query} with {options}{price_text(goal.price_upper)}"


def _is_found(product: Product, words: str, index: Bm25Index, max_rank: int) -> bool:
    return any(passage.id == product.asin for passage in index.search(words, top_k=max_rank))


def _human_rows(split: Split, seed: int, products: Sequence[Product], path: str, keep_unsolvable: bool) -> list[EnvRow]:
    goals = list(enumerate(read_goals(path, products, seed=seed)))
    is_whole = len(goals) >= _WEBSHOP_TEST + _WEBSHOP_TRAIN
    end, begin = (_WEBSHOP_TEST, _WEBSHOP_TRAIN) if is_whole else (len(goals) // _TEST_PART,) * 2
    by_asin = {product.asin: product for product in products}
    rows = [
        _build_row(text, goal, search=by_asin[goal.asin].title, task_id=f"webshop-{number}")
        for number, (text, goal) in (goals[:end] if split == "test" else goals[begin:])
        if keep_unsolvable or _is_solvable(by_asin[goal.asin], goal)
    ]
    random.Random(f"{split}/{seed}").shuffle(rows)
    return rows


def _is_solvable(product: Product, goal: Goal) -> bool:
    chosen = {n: value for n, values in product.options.items() for value in values if value in goal.options}
    return rate(product, product, goal, chosen=chosen).score >= 1.0


def _build_row(instruction: str, goal: Goal, *, search: str, task_id: str) -> EnvRow:
    prompt = f"Buy in the shop what the instruction asks for. {HELP}\nInstruction: {instruction}\n[Search]"
    return EnvRow(
        prompt=(Message("user", prompt),),
        ground_truth=goal.to_json(),
        data_source="shop",
        extra={"task_id": task_id, "search": search},
    )


def _split_of(product: Product) -> Split:
    return "test" if hashlib.sha256(product.asin.encode()).digest()[0] % _TEST_PART == 0 else "train"
