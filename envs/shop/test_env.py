"""The shop: pages and actions, WebShop's score, instructions, demonstrations, and WebShop's files."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import Action, ConfigError, DataError, EnvRow, Message, StopReason, ToolCall, Transcript, read_rows
from verl_agentic.graders.components.webshop import webshop
from verl_agentic.rewards.sample import Sample, to_turns

from .catalogue import generated_products
from .demos import demonstrator
from .env import ShopEnv, make_env
from .fuzzy import token_set_ratio
from .gold import gold
from .product import Goal, Product, rate
from .rows import Split, make_rows

EXAMPLES = read_rows(Path(__file__).with_name("example.jsonl"))
ROW = EXAMPLES[0]


class Visit:
    """An episode that a test plays action by action."""

    def __init__(self, row: EnvRow, **config: Any) -> None:
        self.env: ShopEnv = make_env(row, **config)
        self.messages: list[Message] = []
        self.actions: list[Action] = []
        self.stop: StopReason | None = None

    async def take(self, turn: Message | str) -> str:
        """Plays a turn, or an action, and returns what it is answered."""
        if not self.messages:
            self.messages += await self.env.start()
        if isinstance(turn, str):
            turn = Message("assistant", "", tool_calls=(ToolCall("act", {"action": turn}),))
        self.actions.append(Action(turn=len(self.actions), text="", content=turn.content, tool_calls=turn.tool_calls))
        observation = await self.env.step(self.actions[-1])
        self.messages += [self.actions[-1].to_message(), *observation.messages]
        self.stop = observation.stop
        return observation.messages[-1].content if observation.messages else ""

    async def play(self, policy: Any) -> float:
        """Plays a policy to the end and returns the outcome."""
        self.messages += await self.env.start()
        while self.stop is None:
            await self.take(policy(self.messages))
        return await self.outcome()

    async def outcome(self) -> float:
        return (await self.reward()).outcome

    async def reward(self) -> Any:
        stop = self.stop or StopReason.MAX_TURNS
        return await self.env.score(
            Transcript(messages=tuple(self.messages), actions=tuple(self.actions), stop_reason=stop)
        )


def a_product(**changes: Any) -> Product:
    product = Product(
        asin="B1", title="Acme Shirt", category="Clothing › Tops › Shirts", query="shirt", price=20.0,
        price_tag="$20.00", attributes=("red", "cotton"), options={"size": ("size m", "size l")},
    )  # fmt: skip
    return replace(product, **changes)


GOAL = Goal(asin="B1", attributes=("red", "cotton"), options=("size m",), price_upper=30.0)


# The catalogue and its pages.


def test_the_catalogue_has_a_thousand_different_products() -> None:
    products = generated_products()
    assert len(products) >= 1_000 and len({product.asin for product in products}) == len(products)
    assert len({product.title for product in products}) > 0.99 * len(products)
    assert all(len(product.attributes) == 3 and product.options for product in products)


async def test_results_have_pages_and_products_have_details() -> None:
    visit = Visit(ROW)
    first = await visit.take("search[hiking boots]")
    assert first.startswith("Page 1 (Total results: 36)\n[Back to search] [Next >]\n[B") and first.count("\n") == 11
    second = await visit.take("click[Next >]")
    assert (
        second.startswith("Page 2 ")
        and "[< prev]" in second
        and not set(first.split("\n")[2:]) & set(second.split("\n"))
    )
    assert await visit.take("click[< Prev]") == first
    asin = first.split("\n")[2][1:11]
    page = await visit.take(f"click[{asin}]")
    product = next(product for product in generated_products() if product.asin == asin)
    assert product.title in page and product.price_tag in page
    features = await visit.take("click[features]")
    assert all(name.capitalize() in features and name.capitalize() not in page for name in product.attributes[1:])
    assert await visit.take("click[< prev]") == page
    value = next(iter(product.options.values()))[-1]
    assert f"[[{value}]]" in await visit.take(f"click[{value}]")
    assert await visit.take("click[back to search]") == "[Search]"
    assert visit.env.state_key().startswith("[Search]")


@pytest.mark.parametrize("way", [["back to search"], ["< prev"]], ids=["to-search", "to-results"])
async def test_leaving_a_product_drops_its_options(way: list[str]) -> None:
    visit, goal = Visit(ROW), Goal.read(ROW.ground_truth)
    opened = [f"search[{ROW.extra['search']}]", f"click[{goal.asin}]"]
    for action in (*opened, f"click[{goal.options[0]}]", *(f"click[{button}]" for button in way)):
        page = await visit.take(action)
    again = await visit.take(opened[1] if page.startswith("Page") else opened[0])
    again = again if goal.asin not in again else await visit.take(opened[1])
    assert f"[{goal.options[0]}]" in again and "[[" not in again


@pytest.mark.parametrize(
    ("before", "action", "says"),
    [
        ([], "buy now", "search[keywords]"),
        ([], "search[ ]", "search[keywords]"),
        ([], "click[buy now]", "buttons: none; use search[keywords]"),
        ([], "search[" + "x " * 400 + "]", "at most 500 characters"),
        (["search[tea]"], "search[coffee]", "go back to it with click[back to search]"),
        (["search[tea]"], "click[buy now]", "no such button on this page; buttons: [back to search]"),
    ],
)
async def test_an_impossible_action_is_explained_and_changes_nothing(before: list[str], action: str, says: str) -> None:
    visit = Visit(ROW)
    for earlier in before:
        await visit.take(earlier)
    page = visit.env.state_key() if before else "[Search]\n"
    assert says in await visit.take(action)
    assert visit.messages[-1].is_error and visit.env.state_key() == page and visit.stop is None


async def test_the_visit_ends_after_its_steps_or_with_a_turn_without_an_action() -> None:
    visit = Visit(ROW)
    for _ in range(14):
        await visit.take("click[nothing]")
    assert visit.stop is None
    await visit.take("search[tea]")
    assert (visit.stop, await visit.outcome()) == (StopReason.ENV_DONE, 0.0)
    silent = Visit(ROW)
    await silent.take(Message("assistant", "I would buy B000000001"))
    assert (silent.stop, await silent.outcome()) == (StopReason.NO_ACTION, 0.0)


async def test_a_search_without_results_has_a_page() -> None:
    assert "Total results: 0" in await Visit(ROW).take("search[qqqq]")


# The score.


@pytest.mark.parametrize(
    ("bought", "chosen", "score"),
    [
        ({}, {"size": "size m"}, 1.0),
        ({"attributes": ("red",)}, {"size": "size m"}, 0.75),
        ({"attributes": ("red",), "query": "coat", "category": "Coats"}, {"size": "size m"}, 0.75),
        ({"price": 31.0}, {"size": "size m"}, 0.75),
        ({}, {}, 0.75),
        ({}, {"size": "size l"}, 0.75),
        ({"title": "Lamp"}, {"size": "size m"}, 0.0),
        ({"attributes": (), "features": ("Pure Cotton",)}, {"size": "size m"}, 0.75),
    ],
    ids=["full", "one-attribute", "kind-by-title", "price", "no-option", "other-option", "other-kind", "in-a-feature"],
)
def test_the_score_is_the_published_one(bought: dict[str, Any], chosen: dict[str, str], score: float) -> None:
    assert rate(a_product(**bought), a_product(), GOAL, chosen=chosen).score == pytest.approx(score)


def test_another_kind_that_shares_a_word_earns_half_and_with_many_words_a_tenth() -> None:
    target = a_product(title="Acme Wool Winter Garden Party Shirt")
    other = a_product(title="Acme Lamp", query="lamp", category="Home › Lamps", attributes=("red",))
    assert rate(other, target, GOAL, chosen={"size": "size m"}).score == pytest.approx(0.375)
    wordy = replace(target, title=target.title + " Outfit Sleeve Collar Button Pocket")
    assert rate(other, wordy, GOAL, chosen={"size": "size m"}).score == pytest.approx(0.075)


@pytest.mark.parametrize(
    ("option", "name", "value", "is_match"),
    [
        ("large", "size", "x-large", False),
        ("2 ounce", "volume", "12 ounce", False),
        ("navy blue", "color", "blue navy", True),
        ("navy", "color", "navy stripe", True),
        ("black", "color", "white", False),
    ],
)
def test_options_are_compared_by_words_unless_they_are_sizes_or_numbers(
    option: str, name: str, value: str, is_match: bool
) -> None:
    goal = replace(GOAL, options=(option,))
    assert rate(a_product(), a_product(), goal, chosen={name: value}).info["matched_options"] == is_match


def test_similar_words_have_a_high_ratio() -> None:
    assert token_set_ratio("machine washable", "machine wash") > 85 > token_set_ratio("quick dry", "dry clean only")
    assert (token_set_ratio("", "a"), token_set_ratio("a b", "b a")) == (0.0, 100.0)


async def test_the_solution_buys_what_is_asked_for_within_the_steps() -> None:
    for row in [*EXAMPLES, *make_rows(split="test", count=12, seed=3)]:
        assert await Visit(row, metric="success").play(gold(row)) == 1.0, row.extra["task_id"]


async def test_a_hasty_purchase_earns_a_part_of_the_score_and_is_no_success() -> None:
    goal = Goal.read(ROW.ground_truth)
    share = pytest.approx(1 - len(goal.options) / (len(goal.attributes) + len(goal.options) + 1))
    for metric, outcome in (("score", share), ("success", 0.0)):
        visit = Visit(ROW, metric=metric)
        assert await visit.play(demonstrator(ROW, rng=random.Random(0), kind="forgets_options")) == outcome
        reward = await visit.reward()
        assert (reward.info["shop_score"], reward.info["shop_success"]) == (share, 0.0)


@pytest.mark.parametrize("kind", ["careful", "forgets_options", "first_result", "wanders"])
async def test_the_component_computes_the_outcome_from_what_the_environment_reports(kind: Any) -> None:
    visit = Visit(ROW)
    outcome = await visit.play(demonstrator(ROW, rng=random.Random(0), kind=kind))
    assert visit.stop is not None
    sample = Sample(
        id="r",
        prompt=ROW.prompt,
        turns=to_turns(visit.messages[len(ROW.prompt) :], visit.actions),
        final_answer="",
        stop_reason=visit.stop,
        ground_truth=ROW.ground_truth,
        env=await visit.reward(),
    )
    assert webshop.make({})(sample) == pytest.approx(outcome)


# Rows and demonstrations.


def test_an_instruction_names_what_counts_and_no_product() -> None:
    for row in make_rows(split="train", count=30, seed=1, attributes=2):
        goal, text = Goal.read(row.ground_truth), row.prompt[0].content
        assert all(word in text for word in (*goal.attributes, *goal.options, f"{goal.price_upper:.2f}"))
        assert goal.asin not in text and len(goal.attributes) == 2


@pytest.mark.slow
def test_train_and_test_ask_for_different_products() -> None:
    cases: tuple[tuple[Split, int], ...] = (("train", 0), ("test", 0), ("test", 1))
    products = [
        {Goal.read(row.ground_truth).asin for row in make_rows(split=split, count=150, seed=seed)}
        for split, seed in cases
    ]
    assert not products[0] & (products[1] | products[2]) and products[1] != products[2]


@pytest.mark.slow
def test_a_low_rank_puts_the_product_among_the_first_results() -> None:
    with pytest.raises(ConfigError, match="max_rank"):
        make_rows(split="train", count=1, seed=0, max_rank=0)
    assert len(make_rows(split="train", count=5, seed=0, max_rank=1)) == 5


async def test_demonstrations_differ_in_quality() -> None:
    rows = make_rows(split="train", count=8, seed=0)
    means = {}
    for kind in ("careful", "forgets_options", "first_result", "wanders"):
        scores = [await Visit(row).play(demonstrator(row, rng=random.Random(0), kind=kind)) for row in rows]
        means[kind] = sum(scores) / len(scores)
    assert means["careful"] == 1.0 > means["forgets_options"] > means["wanders"] == 0.0
    assert 0.0 < means["first_result"] < 1.0


@pytest.mark.parametrize(
    ("config", "message"),
    [({"metric": "f1"}, "metric"), ({"max_steps": 0}, "50"), ({"products": "items.json"}, "attributes")],
)
def test_a_config_that_cannot_work_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(ROW, **config)


async def test_a_row_of_another_catalogue_stops_the_run_instead_of_scoring_0() -> None:
    goal = {**json.loads(ROW.ground_truth), "asin": "B0"}
    with pytest.raises(ConfigError, match=r"env_config\.products"):
        await make_env(replace(ROW, ground_truth=json.dumps(goal))).start()
    for broken in ("{}", json.dumps({**goal, "attributes": [1]}), "no goal"):
        with pytest.raises(DataError):
            make_env(replace(ROW, ground_truth=broken))
