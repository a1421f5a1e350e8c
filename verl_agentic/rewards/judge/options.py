"""What a judge is asked, whom, and within which limits: the options of the components that ask one."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from verl_agentic.errors import ConfigError, boundary
from verl_agentic.rewards.component import OnInvalid
from verl_agentic.rewards.judge.judge_verdict import CORRECT, Item
from verl_agentic.rewards.judge.vote import Aggregate
from verl_agentic.rewards.models.client import Patience, Price
from verl_agentic.rewards.models.limiter import Limits
from verl_agentic.rewards.models.quote import View
from verl_agentic.settings import check_keys, read_settings

_MAX_MEMBERS = 5
_OF_MODELS = ("model", "endpoint", "api_key_env", "input_price", "output_price")


@dataclass(frozen=True, kw_only=True)
class Member:
    """One judge of a panel."""

    url: str
    model: str
    seed: int | None
    api_key_env: str
    price: Price

    @property
    def api_key(self) -> str:
        """The key, read anew each time and kept nowhere.

        Raises:
            ConfigError: the variable is not set.
        """
        if not self.api_key_env:
            return ""
        key = os.environ.get(self.api_key_env, "")
        if not key:
            raise ConfigError(
                f"the judge's key is to come from the environment variable {self.api_key_env!r}, got none; set it "
                "where the rewards are computed, or leave api_key_env out"
            )
        return key


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """A panel of judges and what it is asked."""

    endpoint: str
    """URL that ends with `/v1`."""
    models: tuple[Any, ...]
    """Names of models, or mappings `{model, endpoint, api_key_env, input_price, output_price}` where one differs."""
    seeds: int = 1
    """Verdicts of each model; several need a temperature."""
    temperature: float = 0.0
    """0 repeats itself, as far as the endpoint does."""
    api_key_env: str = ""
    """NAME of the environment variable with the key; empty sends none. The key itself stands in no config."""
    items: tuple[Item, ...] = (CORRECT,)
    """The questions; mappings `{name, question, weight, scale}` in a config."""
    aggregate: Aggregate = "median"
    """What the scores of several judges come to, for items with a scale."""
    max_spread: float = 0.5
    """Of such scores, as shares of the scale; judges that lie further apart disagree."""
    view: View = "trajectory"
    """What the judge sees, beside the task: all turns, or the final answer alone."""
    thoughts: bool = False
    """Show it what the policy thought, too."""
    on_invalid: OnInvalid = "abstain"
    """What an answer in another form than asked for is: `zero`, a vote against; `abstain`, no vote. For an outcome
    of the rubric the default is `zero`. A judge that gives no answer at all never has a vote."""
    reference: bool = True
    """Show it the ground truth of rows that have one."""
    max_chars: int = 40_000
    """Of all turns together, and of task, reference and final answer each; longer ones keep head and tail."""
    max_tokens: int = 2_048
    """Of a judge's answer, its thoughts included."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of every request, such as `response_format`."""
    timeout_s: float = 25.0
    """Deadline of a verdict with all waits and retries; the rubric's must be longer, else a slow judge is an error."""
    retries: int = 4
    cache: str | None = None
    """Folder of a cache of verdicts; none by default."""
    cache_mb: float = 256.0
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    concurrency: int = 32
    nodes: int = 1
    limit_folder: str | None = None
    """See `Limits` for these five; the limit is the endpoint's, all its models and seeds together."""
    input_price: float = 0.0
    output_price: float = 0.0
    """Per million tokens."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.members) <= _MAX_MEMBERS:
            raise ConfigError(
                f"a panel has 1 to {_MAX_MEMBERS} judges, got {len(self.models)} models and {self.seeds} seeds"
            )
        if self.seeds > 1 and not self.temperature > 0:
            raise ConfigError(f"{self.seeds} seeds at temperature 0 give one verdict {self.seeds} times; raise it")
        if len({item.name for item in self.items}) != len(self.items) or not self.items:
            raise ConfigError(f"a judge needs items, each with a name of its own, got {[i.name for i in self.items]}")
        for name, value, choices in (
            ("view", self.view, get_args(View)),
            ("aggregate", self.aggregate, get_args(Aggregate)),
            ("on_invalid", self.on_invalid, get_args(OnInvalid)),
        ):
            if value not in choices:
                raise ConfigError(f"a judge's {name} must be one of {choices}, got {value!r}")
        positive = {"max_chars": self.max_chars, "max_tokens": self.max_tokens, "timeout_s": self.timeout_s}
        for name, value in positive.items():
            if not 0 < value < math.inf:
                raise ConfigError(f"a judge's {name} must be greater than 0, got {value}")
        if min(self.input_price, self.output_price, self.temperature, self.max_spread, self.retries) < 0:
            raise ConfigError("a judge's prices, temperature, max_spread and retries must not be negative, got one")
        _ = self.limits  # refuses what cannot be one

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> JudgeOptions:
        """Returns the options of a config.

        Raises:
            ConfigError: unknown or missing ones, or values that cannot work.
        """
        values = check_keys(options, [f.name for f in fields(cls)], section="the options of a judge")
        if not values.get("endpoint") or not values.get("models"):
            raise ConfigError(f"a judge needs the options endpoint and models, got {sorted(values)}")
        models = values["models"]
        with boundary(ConfigError, "reading the options of a judge"):
            values["models"] = (models,) if isinstance(models, str | Mapping) else tuple(models)
            if "items" in values:
                values["items"] = tuple(i if isinstance(i, Item) else Item(**i) for i in values["items"])
            return read_settings(cls, values, section="the options of a judge")

    @property
    def members(self) -> tuple[Member, ...]:
        """The judges: each model once per seed.

        Raises:
            ConfigError: a model that is none, or a URL that is none.
        """
        seeds: Sequence[int | None] = range(self.seeds) if self.seeds > 1 else (None,)
        return tuple(self._member(model, seed) for model in self.models for seed in seeds)

    def _member(self, model: Any, seed: int | None) -> Member:
        own: Any = {"model": model} if isinstance(model, str) else model
        if not isinstance(own, Mapping) or not own.get("model") or not own.keys() <= set(_OF_MODELS):
            raise ConfigError(f"a judge's model must be a name or a mapping with {_OF_MODELS}, got {model!r}")
        url = own.get("endpoint", self.endpoint)
        if not str(url).startswith(("http://", "https://")):
            raise ConfigError(f"an endpoint's URL begins with http:// or https://, got {url!r}; write it out")
        return Member(
            url=url,
            model=own["model"],
            seed=seed,
            api_key_env=own.get("api_key_env", self.api_key_env),
            price=Price(
                input=own.get("input_price", self.input_price), output=own.get("output_price", self.output_price)
            ),
        )

    @property
    def limits(self) -> Limits:
        """The rate limit of each endpoint."""
        return Limits(
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
            concurrency=self.concurrency,
            nodes=self.nodes,
            folder=self.limit_folder,
        )

    @property
    def patience(self) -> Patience:
        """How long an answer is asked for."""
        return Patience(timeout_s=self.timeout_s, retries=self.retries)
