"""The environment `model_router`: one tool, `search`, asks a model of the pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from verl_agentic import ConfigError, EnvRow, Message, Reward, StopReason, ToolEnv, ToolResult, Transcript
from verl_agentic.rewards.answers.short_answers import exact_match, golden_answers_of

from .pool import PoolModel, make_pool

MAX_ROUTES = 4
_SLACK_S = 10.0
_MAX_QUERY_CHARS = 4_000
_MILLION = 1_000_000


class RouteTool:
    """Asks a model of the pool: the argument `query` is `model: question`."""

    name = "search"

    def __init__(self, pool: Mapping[str, PoolModel], *, max_routes: int) -> None:
        self.schema: Mapping[str, Any] = {
            "type": "function",
            "function": {
                "name": self.name,
                "description": f"Asks another language model; at most {max_routes} times.",
                "parameters": {
                    "type": "object",
                    "properties": {"query": {"type": "string", "description": "`model: question`"}},
                    "required": ["query"],
                },
            },
        }
        self._pool, self._max_routes = pool, max_routes
        self.costs = {"cost": 0.0, "routes": 0.0, "route_input_tokens": 0.0, "route_output_tokens": 0.0}
        """Totals of the episode; the cost is tokens times price per million, in millionths."""

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Returns the reply of the model. Raises EnvError if it cannot be asked."""
        query = arguments.get("query")
        if not isinstance(query, str) or len(query) > _MAX_QUERY_CHARS:
            return _build_refusal(f"query must be a text of at most {_MAX_QUERY_CHARS} characters")
        name, _, question = (part.strip() for part in query.partition(":"))
        if not question:
            return _build_refusal("write the name of a model, a colon and the question")
        model = self._pool.get(name.lower())
        if model is None:
            return _build_refusal(f"there is no model {name[:80]!r}; ask one of {', '.join(self._pool)}")
        if self.costs["routes"] >= self._max_routes:
            return _build_refusal(f"you have asked {self._max_routes} times, which is the limit; answer now")
        self.costs["routes"] += 1  # before the wait, so that parallel calls count
        reply = await model.ask(question)
        self.costs["cost"] += _MILLION * model.price.of(reply.input_tokens, reply.output_tokens)
        self.costs["route_input_tokens"] += reply.input_tokens
        self.costs["route_output_tokens"] += reply.output_tokens
        return ToolResult(reply.text or "(an empty reply)")


class ModelRouterEnv(ToolEnv):
    """A question, a pool of models, and one or several right answers (`row.ground_truth`)."""

    def __init__(self, row: EnvRow, pool: Mapping[str, PoolModel], *, max_routes: int, timeout_s: float) -> None:
        self._route = RouteTool(pool, max_routes=max_routes)
        super().__init__(row, [self._route], tool_timeout_s=timeout_s)
        listed = "".join(f"\n- {name}: {model.description}" for name, model in pool.items())
        self._models = f"\n\nLanguage models that can be asked, at most {max_routes} times:{listed}"
        self._golden_answers = golden_answers_of(row.ground_truth)

    async def start(self) -> tuple[Message, ...]:
        """Returns the prompt of the row with the list of models."""
        *before, last = self.row.prompt
        return (*before, replace(last, content=last.content + self._models))

    async def score(self, transcript: Transcript) -> Reward:
        """Returns 1 for the right answer, with the costs of the episode as information."""
        is_answered = transcript.stop_reason is StopReason.ANSWERED
        outcome = exact_match(transcript.final_answer, self._golden_answers) if is_answered else 0.0
        return Reward(outcome, info=self._route.costs)


def make_env(row: EnvRow, *, models: Mapping[str, Any] | None = None, max_routes: int = MAX_ROUTES) -> ModelRouterEnv:
    """Returns the environment of one episode.

    Args:
        row: question and golden answers.
        models: name -> `{description, output_price, input_price, endpoint: {url, model, ...}}` of models behind
            OpenAI-compatible endpoints. None: the scripted specialists, which know the questions of `make_rows`.
        max_routes: maximum number of answered routes of an episode.

    Raises:
        ConfigError: an option is out of its range.
    """
    if max_routes < 1:
        raise ConfigError(f"max_routes must be at least 1, got {max_routes!r}")
    pool = make_pool(models)
    # The endpoint's deadline has the better error, and is no error of the policy.
    slowest_s = max(model.timeout_s for model in pool.values())
    return ModelRouterEnv(row, pool, max_routes=max_routes, timeout_s=slowest_s + _SLACK_S)


def _build_refusal(reason: str) -> ToolResult:
    return ToolResult(f"Error: {reason}", is_error=True, error_kind="wrong_arguments")
