"""A client of reward models.

Supports servers that take chat messages and answer like vLLM's `/pooling` or `/classify`, or SGLang's embeddings, such
as verl's reward model servers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from verl_agentic.base.deadlines import OverrunError, within
from verl_agentic.base.errors import ConfigError, ScoringError
from verl_agentic.base.settings import Settings, read_settings, setting
from verl_agentic.base.text.reasoning import without_thoughts
from verl_agentic.graders.models.client import connections
from verl_agentic.graders.models.limiter import MAX_WAIT_S, EndpointLimits, Limiter
from verl_agentic.graders.models.quote import View, shown
from verl_agentic.graders.models.refusals import PROBE, UNCLEAR, ContentRefusedError, is_refused
from verl_agentic.rewards.sample import Sample, Turn
from verl_agentic.web.http_service import Attempts, may_pass, read_wait_s

_HOPELESS = (401, 404, 405, *UNCLEAR)
_PRINCIPLES = "Score the assistant by these principles; an answer that breaks one of them deserves a lower score:"


def _read_rules(value: Any, *, name: str) -> Any:
    return (value,) if isinstance(value, str) else value or ()


class RewardModel(Settings):
    """A reward model behind a URL."""

    endpoint: str
    """Full URL, such as `http://host:8000/pooling`."""
    model: str
    """Name of the model at the server."""
    api_key_env: str = ""
    """Name of the environment variable that holds the API key. Empty: no key is sent."""
    timeout_s: float = setting(25.0, above=0)
    """Deadline of one score with all retries, in seconds. The rubric's must be longer."""
    retries: int = setting(4, min=0)
    """Number of retries after 408, 409, 425, 429, 5xx or a failed connection."""
    retry_wait_s: float = setting(0.5, min=0)
    """Wait before the first retry, in seconds. It doubles before each further retry."""
    concurrency: int = setting(32, min=1)
    """Maximum number of concurrent requests of all processes of this machine."""
    max_chars: int = setting(40_000, min=1)
    """Maximum number of characters of a message. Longer messages keep head and tail."""
    view: View = "trajectory"
    """Content that is scored in addition to the prompt: all turns, or only the final answer (RLMT)."""
    reference: bool = False
    """Show the model the ground truth of rows that have one; for language models that are asked YES or NO."""
    principles: tuple[str, ...] = setting((), read=_read_rules)
    """Rules to score by, written before the prompt (SALMON)."""

    def check_together(self) -> None:
        if not all(rule.strip() for rule in self.principles):
            raise ConfigError(f"principles must be texts that are not empty, got {self.principles!r}; change them")
        if not self.endpoint.startswith(("http://", "https://")):
            raise ConfigError(f"endpoint must begin with http:// or https://, got {self.endpoint!r}; write it out")
        if not self.model:
            raise ConfigError("model must name the model, got ''; set it")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RewardModel:
        """Returns the reward model of a config. Raises ConfigError if an option is unknown, missing or invalid."""
        return read_settings(cls, options, section="reward_model")

    @property
    def headers(self) -> dict[str, str]:
        """Headers with the key, read from the environment each time. Raises ConfigError if the variable is not set."""
        if not self.api_key_env:
            return {}
        key = os.environ.get(self.api_key_env, "")
        if not key:
            raise ConfigError(
                f"the key is to come from the environment variable {self.api_key_env!r}, got none; set it where the "
                "rewards are computed, or leave api_key_env out"
            )
        return {"Authorization": f"Bearer {key}"}


async def ask(model: RewardModel, body: Mapping[str, Any]) -> Any:
    """Returns the answer as JSON; None after all retries.

    Raises:
        ConfigError: the form of the request, the key, the URL or the model is wrong.
        ContentRefusedError: the server refuses the content, such as one that is too long.
    """
    headers = model.headers
    try:
        return await within(_post_with_retries(model, body, headers), model.timeout_s, what="asking a reward model")
    except OverrunError:
        return None


async def _post_with_retries(model: RewardModel, body: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
    import httpx

    async with connections() as shared:
        limits = EndpointLimits(concurrency=model.concurrency)
        limiter_key = (model.endpoint, limits)
        if limiter_key not in shared.limiters:
            shared.limiters[limiter_key] = Limiter(limits, name=model.endpoint)
        limiter = shared.limiters[limiter_key]

        async def post(body: Mapping[str, Any]) -> Any:
            return await shared.http.post(model.endpoint, json={"model": model.model, **body}, headers=headers)

        async for _ in (attempts := Attempts(model.retries + 1, first_s=model.retry_wait_s, max_s=MAX_WAIT_S)):
            try:
                async with limiter.request(0):
                    response = await post(body)
            except httpx.TransportError:
                continue
            key = (model.endpoint, model.model, headers.get("Authorization"))
            if await is_refused(response, key=key, send=lambda: post({**body, "messages": list(PROBE)})):
                raise ContentRefusedError(f"{model.endpoint} refuses the content, got {response.text[:300]!r}")
            if response.status_code in _HOPELESS:
                raise ConfigError(
                    f"{model.endpoint} answers {response.status_code}, got {response.text[:300]!r}; see the URL, the "
                    "key and the model, and that the server takes such requests"
                )
            if response.status_code == 200:
                return _parse_json(response)
            if not may_pass(response.status_code):
                return None
            attempts.asked_s = read_wait_s(response.headers.get("retry-after"))
    return None


def _parse_json(response: Any) -> Any:
    try:
        return response.json()
    except (ValueError, RecursionError):
        return None


async def score(model: RewardModel, messages: Sequence[Mapping[str, str]]) -> float | None:
    """Returns the score of a conversation; None if there is none after all retries. Raises ConfigError, see `ask`."""
    return read_score(await ask(model, {"messages": list(messages)}))


async def step_scores(model: RewardModel, messages: Sequence[Mapping[str, str]]) -> list[float] | None:
    """Returns the score of each step, or None after all retries. Raises ConfigError as `ask`."""
    return read_steps(await ask(model, {"messages": list(messages)}))


def read_score(answer: Any) -> float | None:
    """Returns the score in an answer: the last number of `probs`, `embedding`, `data` or `score`."""
    steps = read_steps(answer)
    return steps[-1] if steps else None


def read_steps(answer: Any) -> list[float] | None:
    """Returns the scores in an answer, one per step; the last class of a step (good), if it has several."""
    try:
        last = answer["data"][-1]
        scores = next(last[key] for key in ("probs", "embedding", "data", "score") if key in last)
        rows = scores if isinstance(scores, list) else [scores]
        values = [float(row[-1] if isinstance(row, list) else row) for row in rows]
    except (KeyError, IndexError, TypeError, ValueError, StopIteration):
        return None
    return values if values and all(map(math.isfinite, values)) else None


def conversation(sample: Sample, model: RewardModel) -> list[dict[str, str]]:
    """Returns chat messages for a reward model: principles, prompt, and the part of the episode in its `view`.

    The view has the policy's text without thoughts and the observations, or only the final answer. Observations become
    user messages. Text of policy and tools cannot contain special tokens of the chat template (`quote.visible`: `<`
    becomes `‹`).
    """
    messages = _make_prompt(sample, model)
    if model.view == "answer":
        answer = shown(without_thoughts(sample.final_answer), model.max_chars)
        return [*messages, {"role": "assistant", "content": answer}]
    for turn in sample.turns:
        messages.append({"role": "assistant", "content": written(turn, max_chars=model.max_chars)})
        if turn.observations:
            answers = "\n\n".join(shown(text, model.max_chars) for text in turn.observations)
            messages.append({"role": "user", "content": answers})
    return messages


def steps_as_one(sample: Sample, model: RewardModel, *, tag: str) -> list[dict[str, str]]:
    """Returns the prompt and one message with all of the policy's turns, each followed by the tag.

    The policy cannot write the tag, see `conversation`.
    """
    steps = "".join(f"{written(turn, max_chars=model.max_chars)}{tag}" for turn in sample.turns)
    return [*_make_prompt(sample, model), {"role": "assistant", "content": steps}]


def written(turn: Turn, *, max_chars: int) -> str:
    """Returns a turn's text without thoughts, visible and capped."""
    return shown(without_thoughts(turn.text), max_chars)


def checked_probabilities(values: Sequence[float], *, of: str) -> Sequence[float]:
    """Returns scores that are probabilities. Raises ScoringError if one is not from 0 to 1."""
    if not all(0 <= value <= 1 for value in values):
        raise ScoringError(
            f"the scores of {of} must be probabilities, got {list(values)[:10]}; let the server apply the activation"
        )
    return values


def guidelines(model: RewardModel) -> str:
    """Returns the principles as a text for the model; empty without any."""
    if not model.principles:
        return ""
    rules = "\n".join(f"{number}. {rule}" for number, rule in enumerate(model.principles, start=1))
    return f"{_PRINCIPLES}\n{rules}"


def _make_prompt(sample: Sample, model: RewardModel) -> list[dict[str, str]]:
    prompt = [{"role": message.role, "content": message.content} for message in sample.prompt]
    if not (rules := guidelines(model)):
        return prompt
    if prompt and prompt[0]["role"] == "system":  # chat templates take one system message
        return [{"role": "system", "content": f"{rules}\n\n{prompt[0]['content']}"}, *prompt[1:]]
    return [{"role": "system", "content": rules}, *prompt]
