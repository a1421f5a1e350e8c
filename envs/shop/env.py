"""The environment `shop`: one tool, `act`, with the actions `search[...]` and `click[...]`; buying ends the episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from verl_agentic import (
    Action,
    ConfigError,
    EnvRow,
    Message,
    Observation,
    Reward,
    StopReason,
    ToolEnv,
    ToolResult,
    Transcript,
)

from .catalogue import Catalogue, generated_catalogue
from .product import Goal, Product, rate
from .store import HELP, RefusedError, Store
from .webshop_files import file_catalogue

Metric = Literal["score", "success"]
MAX_STEPS, PAGE_SIZE, MAX_RESULTS = 15, 10, 50
"""WebShop's limits: actions of an episode, results of a page and of a search."""


class BrowseTool:
    """Carries out the argument `action` in a store."""

    name = "act"
    schema: Mapping[str, Any] = {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Uses the shop. {HELP}",
            "parameters": {"type": "object", "properties": {"action": {"type": "string"}}, "required": ["action"]},
        },
    }

    def __init__(self, store: Store, *, max_steps: int) -> None:
        self.store = store
        self.steps_left = max_steps

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Returns the next page, or why the action is not possible; both count as a step."""
        action = arguments.get("action")
        if not isinstance(action, str) or set(arguments) != {"action"}:
            return _build_refusal('the arguments must be {"action": "<text>"}')
        if self.store.bought is not None or not self.steps_left:
            return _build_refusal("the visit is over; nothing was done", kind=None)
        self.steps_left -= 1
        try:
            return ToolResult(await self.store.act(action))
        except RefusedError as refused:
            return _build_refusal(str(refused))


class ShopEnv(ToolEnv):
    """An instruction (`row.ground_truth` is its goal), and a shop with products that fit more or less."""

    def __init__(self, row: EnvRow, catalogue: Catalogue, tool: BrowseTool, *, metric: Metric) -> None:
        # One call after the other: every action needs the page of the one before.
        super().__init__(row, [tool], max_parallel_calls=1)
        self._goal = Goal.read(row.ground_truth)
        self._catalogue = catalogue
        self._tool = tool
        self._metric: Metric = metric

    async def start(self) -> tuple[Message, ...]:
        """Returns the prompt; the first episode of a process waits for the catalogue.

        Raises:
            ConfigError: the row was made for another catalogue.
        """
        await self._catalogue.ready()
        self._find_goal_product()
        return self.row.prompt

    async def step(self, action: Action) -> Observation:
        """Carries out the calls in order; a purchase, the last step, or a turn without a call ends the episode."""
        if not action.tool_calls:
            return Observation(stop=StopReason.NO_ACTION)
        observation = await super().step(action)
        is_over = self._tool.store.bought is not None or not self._tool.steps_left
        return replace(observation, stop=StopReason.ENV_DONE if is_over else None)

    def state_key(self) -> str:
        """Returns the page, with the search that led to it."""
        asins = ",".join(product.asin for product in self._tool.store.results)
        return f"{self._tool.store.view()}\n{asins}"

    async def score(self, transcript: Transcript) -> Reward:
        """Returns WebShop's score of the purchase, or whether it is 1; 0 without a purchase."""
        store = self._tool.store
        if store.bought is None:
            return Reward(0.0, info={"bought": 0.0})
        purchase = rate(store.bought, self._find_goal_product(), self._goal, chosen=store.chosen)
        is_success = float(purchase.score >= 1.0)
        outcome = is_success if self._metric == "success" else purchase.score
        info = {"bought": 1.0, "shop_score": purchase.score, "shop_success": is_success, **purchase.info}
        return Reward(outcome, info=info)

    def _find_goal_product(self) -> Product:
        product = self._catalogue.product(self._goal.asin)
        if product is None:
            raise ConfigError(
                f"the catalogue must be the one that the row was made for, got no product {self._goal.asin!r}; set "
                "env_config.products to its file, or make the rows anew"
            )
        return product


def make_env(
    row: EnvRow,
    *,
    products: str = "",
    attributes: str = "",
    metric: Metric = "score",
    max_steps: int = MAX_STEPS,
    page_size: int = PAGE_SIZE,
    max_results: int = MAX_RESULTS,
) -> ShopEnv:
    """Returns the environment of one episode.

    Args:
        row: an instruction, as `make_rows` writes it.
        products: WebShop's file of items, such as `items_shuffle.json`; empty: the generated catalogue.
        attributes: WebShop's file of attributes, such as `items_ins_v2.json`; needed with `products`.
        metric: outcome: `score` is WebShop's score, `success` is 1 if the score is 1, else 0.
        max_steps: actions after which the visit ends.
        page_size: results on a page.
        max_results: results of a search.

    Raises:
        ConfigError: an option is out of its range.
        DataError: the row has no valid goal.
    """
    if metric not in get_args(Metric):
        raise ConfigError(f"metric must be one of {get_args(Metric)}, got {metric!r}")
    if min(max_steps, page_size, max_results) < 1:
        raise ConfigError(
            f"max_steps, page_size and max_results must be at least 1, got {max_steps}, {page_size}, {max_results}"
        )
    if bool(products) != bool(attributes):
        raise ConfigError(f"give both products and attributes, or neither, got {products!r} and {attributes!r}")
    catalogue = file_catalogue(products, attributes) if products else generated_catalogue()
    store = Store(catalogue=catalogue, page_size=page_size, max_results=max_results)
    return ShopEnv(row, catalogue, BrowseTool(store, max_steps=max_steps), metric=metric)


def _build_refusal(reason: str, *, kind: str | None = "wrong_arguments") -> ToolResult:
    return ToolResult(f"Error: {reason}", is_error=True, error_kind=kind)
