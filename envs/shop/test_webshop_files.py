"""Contract of the readers of WebShop's files: rows in its format, written for this test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import Action, DataError
from verl_agentic.base.errors import ConfigError

from .env import make_env
from .gold import gold
from .product import Goal
from .rows import Split, make_rows
from .webshop_files import NO_LIMIT, read_goals, read_products

ITEM: dict[str, Any] = {
    "asin": "B07TESTAAA",
    "name": "Fjordline Women's Fleece Jacket, Full Zip",
    "category": "fashion",
    "query": "Women's Jackets ",
    "product_category": "Clothing, Shoes & Jewelry › Women › Clothing › Coats",
    "full_description": "A warm jacket for cold mornings.",
    "small_description": ["Machine washable", "Two pockets"],
    "pricing": "$39.99$59.50",
    "images": ["https://example.org/1.jpg"],
    "customization_options": {
        "Color": [
            {"value": " Navy/White ", "image": "https://example.org/2.jpg", "asin": "B07TESTAAB", "is_selected": False},
            {"value": "Red", "image": None, "asin": "B07TESTAAC", "is_selected": True},
        ],
        "Size": [{"value": "Large"}, {"value": "X-Large"}],
        "Style": None,
    },
    "average_rating": 4.4,
}
ITEMS = [
    ITEM,
    {**ITEM, "name": "A later product of the same number"},
    {**ITEM, "asin": "nan"},
    {**ITEM, "asin": "B07TESTTOOLONG"},
    {**ITEM, "asin": "B07TESTBBB", "pricing": None, "small_description": "One text", "customization_options": ""},
    {**ITEM, "asin": "B07TESTCCC", "pricing": "$1,299.00", "full_description": None, "customization_options": None},
]
ATTRIBUTES = {"B07TESTAAA": {"attributes": ["machine wash", "long sleeve"], "instruction": None}}
ASKED = {
    "asin": "B07TESTAAA",
    "instruction": "i want a machine washable fleece jacket in navy, x-large.",
    "instruction_attributes": ["machine wash", "long sleeve"],
    "instruction_options": ["navy | white", "x-large"],
    "options": ["color: navy | white", "size: x-large"],
}
GOALS = {
    "B07TESTAAA": [
        ASKED,
        {**ASKED, "instruction_attributes": []},
        {**ASKED, "instruction_options": ["green", "small"]},
    ],
    "B07TESTCCC": [{**ASKED, "instruction_attributes": ["machine wash"], "instruction_options": []}],
    "B00MISSING": [ASKED],
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    contents = {"products": ITEMS, "product_attributes": ATTRIBUTES, "goals": GOALS}
    for name, content in contents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return {name: str(tmp_path / f"{name}.json") for name in contents}


def test_items_become_products(files: dict[str, Any]) -> None:
    first, second, third = read_products(files["products"], files["product_attributes"])
    assert (first.title, first.query, first.price, first.price_tag) == (
        "Fjordline Women's Fleece Jacket, Full Zip", "women's jackets", 59.5, "$39.99 to $59.5",
    )  # fmt: skip
    assert first.options == {"color": ("navy | white", "red"), "size": ("large", "x-large")}
    assert (first.attributes, first.features, first.rating) == (
        ("machine wash", "long sleeve"), ("Machine washable", "Two pockets"), "4.4",
    )  # fmt: skip
    assert (second.price, second.price_tag, second.features, second.options) == (100.0, "$100.0", ("One text",), {})
    assert (third.price, third.description, third.attributes) == (1299.0, "", ())


def test_human_goals_have_price_limits_that_follow_from_the_seed(files: dict[str, Any]) -> None:
    products = read_products(files["products"], files["product_attributes"])
    goals = read_goals(files["goals"], products, seed=0)
    assert goals == read_goals(files["goals"], products, seed=0) and len(goals) == 3
    texts = {goal.asin + str(goal.options): (text, goal.price_upper) for text, goal in goals}
    text, limit = texts["B07TESTAAA('navy | white', 'x-large')"]
    assert text == f"i want a machine washable fleece jacket in navy, x-large, and price lower than {limit:.2f} dollars"
    assert limit in (70.0, 80.0, 90.0)
    assert texts["B07TESTCCC()"] == ("i want a machine washable fleece jacket in navy, x-large", NO_LIMIT)
    limits = {goal.price_upper for seed in range(9) for _, goal in read_goals(files["goals"], products, seed=seed)}
    assert len(limits) > 2


async def test_a_human_goal_is_solved_and_one_that_its_product_cannot_meet_is_left_out(files: dict[str, Any]) -> None:
    rows = make_rows(split="train", count=2, seed=0, **files)
    assert {Goal.read(row.ground_truth).options for row in rows} == {("navy | white", "x-large"), ()}
    with pytest.raises(ConfigError, match="count"):
        make_rows(split="train", count=3, seed=0, **files)
    assert len(make_rows(split="train", count=3, seed=0, keep_unsolvable=True, **files)) == 3
    for row in rows:
        env = make_env(row, products=files["products"], attributes=files["product_attributes"])
        messages, policy, stop = list(await env.start()), gold(row), None
        while stop is None:
            turn = policy(messages)
            observation = await env.step(Action(turn=0, text="", content="", tool_calls=turn.tool_calls))
            messages += [turn, *observation.messages]
            stop = observation.stop
        assert (await env.score(None)).outcome == 1.0  # type: ignore[arg-type]


def test_large_files_have_the_published_splits(tmp_path: Path) -> None:
    cases: tuple[tuple[Split, int], ...] = (("test", 500), ("train", 600))
    many = {"B07TESTAAA": [{**ASKED, "instruction": f"request {number}"} for number in range(2_100)]}
    files = {"products": [ITEM], "product_attributes": ATTRIBUTES, "goals": many}
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    paths: dict[str, Any] = {name: str(tmp_path / f"{name}.json") for name in files}
    ids = {
        split: {row.extra["task_id"] for row in make_rows(split=split, count=count, seed=0, **paths)}
        for split, count in cases
    }
    assert ids["test"] == {f"webshop-{n}" for n in range(500)}
    assert ids["train"] == {f"webshop-{n}" for n in range(1_500, 2_100)}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("products", [{"asin": "B1"}], "item 0"),
        ("products", {}, "must hold a JSON list, got dict"),
        ("product_attributes", [], "must hold a JSON dict, got list"),
        ("goals", {"B07TESTAAA": [{"instruction": "x"}]}, "B07TESTAAA"),
    ],
)
def test_other_files_are_refused_with_the_place(files: dict[str, Any], name: str, content: Any, message: str) -> None:
    Path(files[name]).write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        make_rows(split="train", count=1, seed=0, **files)


def test_a_missing_file_is_named(files: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"setup\.sh"):
        make_rows(split="train", count=1, seed=0, **{**files, "products": "/none/items.json"})
    with pytest.raises(ConfigError, match="products"):
        make_rows(split="train", count=1, seed=0, products=files["products"])
