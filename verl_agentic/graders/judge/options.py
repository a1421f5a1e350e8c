"""Options of the components that ask judges: models, questions and limits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, check_value, read_settings, setting
from verl_agentic.graders.judge.cost_cap import CostCap
from verl_agentic.graders.judge.judge_verdict import CORRECT, Item
from verl_agentic.graders.judge.vote import Aggregate
from verl_agentic.graders.models.client import Patience, Price
from verl_agentic.graders.models.limiter import EndpointLimits
from verl_agentic.graders.models.quote import Block, View, blocks_of
from verl_agentic.rewards.component import OnInvalid
from verl_agentic.rewards.sample import Sample

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
        """The API key, read from the environment each time. Raises ConfigError if the variable is not set."""
        if not self.api_key_env:
            return ""
        key = os.environ.get(self.api_key_env, "")
        if not key:
            raise ConfigError(
                f"the judge's key comes from the environment variable {self.api_key_env!r}, got none; set it "
                "where the rewards are computed, or leave api_key_env out"
            )
        return key


def _read_models(value: Any, *, name: str) -> Any:
    return (value,) if isinstance(value, str | Mapping) else value


def _read_items(value: Any, *, name: str) -> Any:
    check_value(value, Sequence[Item], name=name)
    return tuple(
        item if isinstance(item, Item) else read_settings(Item, item, section=f"{name}[{place}]")
        for place, item in enumerate(value)
    )


class JudgeOptions(Settings):
    """A panel of judges and its questions."""

    endpoint: str
    """URL that ends with `/v1`."""
    models: tuple[Any, ...] = setting(read=_read_models)
    """Names of models, or mappings `{model, endpoint, api_key_env, input_price, output_price}` where one differs."""
    seeds: int = setting(1, min=1, max=_MAX_MEMBERS)
    """Number of verdicts of each model. More than one needs a temperature above 0."""
    temperature: float = setting(0.0, min=0)
    """Sampling temperature. 0 gives the same verdict again, as far as the endpoint does."""
    api_key_env: str = ""
    """Name of the environment variable that holds the API key. Empty: no key is sent."""
    items: tuple[Item, ...] = setting((CORRECT,), read=_read_items)
    """Questions: a list of `{name, question, weight, scale}`. Default: one question, whether the answer is correct."""
    aggregate: Aggregate = "median"
    """Method that combines the scores of several judges, for items with a scale."""
    max_spread: float = setting(0.5, min=0)
    """Maximum spread of such scores, as a share of the scale. Judges further apart disagree."""
    view: View = "trajectory"
    """Content that the judge reads in addition to the task: all turns, or only the final answer."""
    thoughts: bool = False
    """Show the judge the reasoning of the policy, too."""
    on_invalid: OnInvalid = "abstain"
    """Vote of a judge whose answer has the wrong form or is cut at `max_tokens`, or whose endpoint refuses the content
    (a filter, a text longer than its context): `zero`, a vote against, or `abstain`, no vote. The default for an
    outcome of the rubric is `zero`. A judge that gives no answer never votes."""
    reference: bool = True
    """Show the judge the ground truth of rows that have one."""
    max_chars: int = setting(40_000, min=1)
    """Maximum characters of all turns, and of task, reference and final answer each. Longer texts keep head and
    tail."""
    max_tokens: int = setting(2_048, min=1)
    """Maximum number of tokens of a judge's answer, reasoning included."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of every request, such as `response_format`."""
    timeout_s: float = setting(25.0, above=0)
    """Deadline of a verdict with all retries, in seconds. The rubric's must be longer, or a slow judge is an error."""
    retries: int = setting(4, min=0)
    """Number of retries of a request."""
    cache: str | None = None
    """Folder of a cache of verdicts. None: verdicts are not cached."""
    cache_mb: float = 256.0
    """Maximum size of the cache, in MiB."""
    requests_per_minute: float | None = setting(None, above=0)
    """Rate limit of the endpoint, for all its models and seeds together. None: no limit."""
    tokens_per_minute: float | None = setting(None, above=0)
    """Rate limit of the endpoint in tokens of prompts and answers. None: no limit."""
    concurrency: int = setting(32, min=1)
    """Maximum number of concurrent requests to the endpoint, at least 1 per node."""
    nodes: int = setting(1, min=1)
    """Machines that score. Each gets its share of the limits."""
    limit_folder: str | None = None
    """Folder of the shared rate limit, on a local disk. None: a temporary folder by endpoint."""
    input_price: float = setting(0.0, min=0)
    """Price of a million prompt tokens."""
    output_price: float = setting(0.0, min=0)
    """Price of a million answer tokens."""
    max_cost: float | None = setting(None, above=0)
    """Cost of all requests, in the currency of the prices, at which the judges are paused: they give no vote, and the
    metric `judge_paused` counts them. Raise it to go on. None: no limit."""
    cost_file: str | None = None
    """File with the cost so far, on a local disk of each node; needed by `max_cost`. A run that resumes with the same
    file goes on counting."""

    def check_together(self) -> None:
        if not 1 <= len(self.members) <= _MAX_MEMBERS:
            raise ConfigError(
                f"a panel has 1 to {_MAX_MEMBERS} judges, got {len(self.models)} models, {self.seeds} seeds"
            )
        if self.seeds > 1 and not self.temperature > 0:
            raise ConfigError(f"{self.seeds} seeds at temperature 0 give one verdict {self.seeds} times; raise it")
        if len({item.name for item in self.items}) != len(self.items) or not self.items:
            raise ConfigError(f"a judge needs items, each with a name of its own, got {[i.name for i in self.items]}")
        if self.max_cost is not None and not self.cost_file:
            raise ConfigError(f"max_cost needs a file for the cost so far, got max_cost={self.max_cost}; set cost_file")
        unpriced = [member.model for member in self.members if not (member.price.input or member.price.output)]
        if self.max_cost is not None and unpriced:
            raise ConfigError(f"max_cost needs a price of every model, got none of {unpriced}; set input_price")
        _ = self.limits  # raises for invalid limits

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> JudgeOptions:
        """Returns the options of a config. Raises ConfigError if an option is unknown, missing or out of range."""
        return read_settings(cls, options, section="judge")

    def blocks(self, sample: Sample) -> tuple[Block, ...]:
        """Returns a sample as the judges see it."""
        return blocks_of(
            sample, view=self.view, thoughts=self.thoughts, reference=self.reference, max_chars=self.max_chars
        )

    @property
    def members(self) -> tuple[Member, ...]:
        """The judges: each model once per seed. Raises ConfigError if a model or a URL is invalid."""
        seeds: Sequence[int | None] = range(self.seeds) if self.seeds > 1 else (None,)
        return tuple(self._make_member(model, seed) for model in self.models for seed in seeds)

    def _make_member(self, model: Any, seed: int | None) -> Member:
        entry: Any = {"model": model} if isinstance(model, str) else model
        if not isinstance(entry, Mapping) or not entry.get("model") or not entry.keys() <= set(_OF_MODELS):
            raise ConfigError(f"a judge's model must be a name or a mapping with {_OF_MODELS}, got {model!r}")
        url = entry.get("endpoint", self.endpoint)
        if not str(url).startswith(("http://", "https://")):
            raise ConfigError(f"an endpoint's URL begins with http:// or https://, got {url!r}; write it out")
        return Member(
            url=url,
            model=entry["model"],
            seed=seed,
            api_key_env=entry.get("api_key_env", self.api_key_env),
            price=Price(
                input=entry.get("input_price", self.input_price), output=entry.get("output_price", self.output_price)
            ),
        )

    @property
    def limits(self) -> EndpointLimits:
        """The rate limit of each endpoint."""
        return EndpointLimits(
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
            concurrency=self.concurrency,
            nodes=self.nodes,
            folder=self.limit_folder,
        )

    @property
    def cost_cap(self) -> CostCap | None:
        """The cap of this machine, its share of `max_cost`; None without a cap."""
        if self.max_cost is None or self.cost_file is None:
            return None
        return CostCap(Path(self.cost_file).expanduser(), max_cost=self.max_cost / self.nodes)

    @property
    def patience(self) -> Patience:
        """Timeout and retries of a request."""
        return Patience(timeout_s=self.timeout_s, retries=self.retries)
