"""Asks a panel of judges concurrently, with a cache and cost accounting."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from verl_agentic.base.deadlines import in_thread
from verl_agentic.graders.judge.judge_verdict import Invalid, Item, read_verdict
from verl_agentic.graders.judge.options import JudgeOptions, Member
from verl_agentic.graders.judge.prompts import VERSION, JudgePrompt, item_prompt
from verl_agentic.graders.judge.vote import combined, passed
from verl_agentic.graders.models.answer_cache import VerdictCache, key_of
from verl_agentic.graders.models.client import ChatClient, Connections, Reply, connections
from verl_agentic.graders.models.limiter import Limiter
from verl_agentic.graders.models.quote import Block
from verl_agentic.rewards.component import Graded

logger = logging.getLogger(__name__)
T = TypeVar("T")
INFO = (
    "judge_cost",
    "judge_latency_s",
    "judge_failures",
    "judge_cache_hits",
    "judge_invalid",
    "judge_cut",
    "judge_paused",
)
"""Info keys of the components that ask judges."""
_TOLD: set[tuple[str, str, str]] = set()


@dataclass(frozen=True, kw_only=True)
class Opinion(Generic[T]):
    """The answer of one judge."""

    value: T | None = None
    """None if it gave no valid verdict."""
    failure: str | None = None
    is_invalid: bool = False
    """Whether it gave an invalid answer, rather than none."""
    is_cut: bool = False
    """Whether that answer was cut at `max_tokens`."""
    cost: float = 0.0
    latency_s: float = 0.0
    is_cached: bool = False
    is_paused: bool = False
    """Whether it was not asked, because the judges have cost `max_cost`."""


@dataclass(frozen=True, kw_only=True)
class CostTotal:
    """The costs of requests to judges."""

    cost: float = 0.0
    latency_s: float = 0.0
    """Latency of the slowest answer."""
    failures: int = 0
    """Judges that gave no valid verdict."""
    cache_hits: int = 0
    invalid: int = 0
    """Judges with an invalid answer."""
    cut: int = 0
    """Those of them whose answer was cut at `max_tokens`."""
    paused: int = 0
    """Judges that were not asked, because of `max_cost`."""

    @classmethod
    def of(cls, opinions: Sequence[Opinion[Any]]) -> CostTotal:
        """Returns the costs of concurrent judges."""
        return cls(
            cost=sum(opinion.cost for opinion in opinions),
            latency_s=max((opinion.latency_s for opinion in opinions), default=0.0),
            failures=sum(opinion.value is None for opinion in opinions),
            cache_hits=sum(opinion.is_cached for opinion in opinions),
            invalid=sum(opinion.is_invalid for opinion in opinions),
            cut=sum(opinion.is_cut for opinion in opinions),
            paused=sum(opinion.is_paused for opinion in opinions),
        )

    @classmethod
    def together(cls, totals: Iterable[CostTotal]) -> CostTotal:
        """Returns the costs of several concurrent questions."""
        all_totals = list(totals)
        return cls(
            cost=sum(costs.cost for costs in all_totals),
            latency_s=max((costs.latency_s for costs in all_totals), default=0.0),
            failures=sum(costs.failures for costs in all_totals),
            cache_hits=sum(costs.cache_hits for costs in all_totals),
            invalid=sum(costs.invalid for costs in all_totals),
            cut=sum(costs.cut for costs in all_totals),
            paused=sum(costs.paused for costs in all_totals),
        )

    def to_info(self) -> dict[str, float]:
        """Returns the numbers under the names of `INFO`."""
        numbers = (self.cost, self.latency_s, self.failures, self.cache_hits, self.invalid, self.cut, self.paused)
        return dict(zip(INFO, map(float, numbers), strict=True))


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """The decision of a panel."""

    value: float | None
    """Weighted mean of the items, from 0 to 1; None if the panel abstains on any item."""
    items: dict[str, float | None]
    costs: CostTotal
    failures: tuple[str, ...] = ()

    def to_graded(self) -> Graded:
        """Returns the ruling as the result of a component."""
        return Graded(value=self.value, info=self.costs.to_info())


async def rule(blocks: Sequence[Block], options: JudgeOptions) -> Ruling:
    """Returns the panel's decision on one sample.

    value = sum_i(w_i * v_i) / sum_i(w_i), where v_i is the vote of more than half of all judges on item i. Without such
    a majority the panel abstains. An invalid answer is a vote against each item with `on_invalid: zero`, and no vote
    with `abstain`.

    Raises:
        ConfigError: the key, the URL or a model is wrong.
    """
    content = [[block.to_list() for block in blocks], [_item_key(item) for item in options.items]]
    opinions = await ask_all(
        options,
        content,
        prompt=lambda: item_prompt(blocks, options.items),
        read=lambda text, canary: read_verdict(text, items=options.items, canary=canary),
    )
    items = {item.name: _decide_item(item, opinions, options) for item in options.items}
    decided = [(item.weight, value) for item in options.items if (value := items[item.name]) is not None]
    is_whole = len(decided) == len(options.items)
    return Ruling(
        value=sum(w * v for w, v in decided) / sum(w for w, _ in decided) if is_whole else None,
        items=items,
        costs=CostTotal.of(opinions),
        failures=tuple(opinion.failure for opinion in opinions if opinion.failure is not None),
    )


def _decide_item(item: Item, opinions: Sequence[Opinion[dict[str, float]]], options: JudgeOptions) -> float | None:
    votes = [None if opinion.value is None else opinion.value[item.name] for opinion in opinions]
    against = sum(opinion.is_invalid for opinion in opinions) if options.on_invalid == "zero" else 0
    if item.scale is None:
        return passed(votes, num_against=against)
    return combined(votes, aggregate=options.aggregate, max_spread=options.max_spread, num_zeros=against)


def _item_key(item: Item) -> list[Any]:
    return [item.name, item.question, item.scale]  # weights do not affect verdicts


async def ask_all(
    options: JudgeOptions, content: Any, *, prompt: Callable[[], JudgePrompt], read: Callable[[str, str], Any]
) -> list[Opinion[Any]]:
    """Asks all judges concurrently.

    Args:
        content: JSON that identifies the question for the cache: all inputs of the prompt except random ones.
        prompt: makes a request, with fresh secrets each time.
        read: (answer, canary) -> verdict, or `Invalid`.
    """
    cache = _make_cache(options)
    async with connections() as shared:
        clients = [(member, _make_client(shared, member, options)) for member in options.members]
        return await gathered(
            [
                _ask_member(client, member, options, content, prompt=prompt, read=read, cache=cache)
                for member, client in clients
            ]
        )


def _make_cache(options: JudgeOptions) -> VerdictCache | None:
    if options.cache is None:
        return None
    return VerdictCache(Path(options.cache).expanduser(), max_mb=options.cache_mb)


def _make_client(shared: Connections, member: Member, options: JudgeOptions) -> ChatClient:
    limiter_key = (member.url, options.limits)
    if limiter_key not in shared.limiters:
        shared.limiters[limiter_key] = Limiter(options.limits, name=member.url)
    return ChatClient(
        shared.http, shared.limiters[limiter_key], url=member.url, api_key=member.api_key, patience=options.patience
    )


async def gathered(jobs: Sequence[Awaitable[T]]) -> list[T]:
    """Returns the results of all jobs; raises the first exception after all have ended."""
    results = await asyncio.gather(*jobs, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast("list[T]", results)


async def _ask_member(
    client: ChatClient,
    member: Member,
    options: JudgeOptions,
    content: Any,
    *,
    prompt: Callable[[], JudgePrompt],
    read: Callable[[str, str], Any],
    cache: VerdictCache | None,
) -> Opinion[Any]:
    parameters = {
        "model": member.model,
        "temperature": options.temperature,
        "max_tokens": options.max_tokens,
        **({} if member.seed is None else {"seed": member.seed}),
        **options.request,
    }
    key = key_of([VERSION, member.url, parameters, content])
    if cache is not None and (entry := await in_thread(cache.get, key)) is not None and "value" in entry:
        return Opinion(value=entry["value"], is_cached=True)
    cap = options.cost_cap
    if cap is not None and (reason := await cap.find_pause()) is not None:
        return Opinion(failure=reason, is_paused=True)
    request = prompt()
    reply = await client.ask({**parameters, "messages": request.messages})
    cost = member.price.of(reply.input_tokens, reply.output_tokens)
    if cap is not None:
        await cap.add(cost)
    verdict = Invalid(reason="") if reply.content is None else read(reply.content, request.canary)
    if isinstance(verdict, Invalid):
        return _make_failed_opinion(verdict, reply, member)
    if cache is not None:
        with contextlib.suppress(OSError):  # a full disk costs money, not the reward
            await in_thread(cache.put, key, {"value": verdict})
    return Opinion(value=verdict, cost=cost, latency_s=reply.latency_s)


def _make_failed_opinion(invalid: Invalid, reply: Reply, member: Member) -> Opinion[Any]:
    is_invalid = reply.content is not None or reply.is_refused
    reason = reply.failure or invalid.reason
    outcome = "no valid verdict" if is_invalid else "no answer"
    if (warning_key := (member.url, member.model, outcome)) not in _TOLD:
        _TOLD.add(warning_key)
        logger.warning(
            "judge %s at %s gives %s: %s; judge_failures counts how often (logged once)",
            member.model,
            member.url,
            outcome,
            reason,
        )
    cost = member.price.of(reply.input_tokens, reply.output_tokens)
    return Opinion(
        failure=f"{outcome}: {reason}", is_invalid=is_invalid, is_cut=reply.is_cut, cost=cost, latency_s=reply.latency_s
    )
