"""An OpenAI-compatible server as a policy with token ids: records exactly the sampled ids.

For servers with messages only, see `chat_messages.py`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from verl_agentic.base.deadlines import OverrunError, within
from verl_agentic.base.errors import ConfigError, PolicyError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.base.types import Message
from verl_agentic.episode.policies.policy import Completion, FinishReason
from verl_agentic.graders.models.chat_choice import finish_of, first_choice, parse_answer
from verl_agentic.graders.models.refusals import Refusal, passing_failure, refusal_of
from verl_agentic.web.http_service import Attempts, open_http, read_wait_s

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger(__name__)
_HOPELESS = {401: "see the key", 403: "see the key", 404: "see the URL, which ends with /v1, and the model"}
_MAX_WAIT_S = 60.0
_LENGTHS = ("max_tokens", "max_completion_tokens")
"""Fields of a request that the episode loop sets."""


class EndpointConfig(Settings):
    """Address, timeouts and retries of a served model."""

    url: str
    """Base URL of the API; `/v1` is added if it has no path."""
    model: str
    """Name of the model in requests."""
    api_key: str = field(default="", repr=False)
    """Bearer token; empty: none."""
    request_timeout_s: float = setting(600.0, above=0)
    """Deadline of one request, in seconds."""
    max_retries: int = setting(6, min=0)
    """Maximum number of retries after 408, 409, 425, 429, 5xx, a failure within an answer, a failed connection or
    a missed deadline."""
    retry_wait_s: float = setting(0.5, min=0)
    """Wait before the first retry, in seconds; doubles up to 60 s, and at least the server's request."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of every request."""

    def check_together(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"url must begin with http:// or https://, got {self.url!r}; write it out")
        if lengths := {name: self.extra[name] for name in _LENGTHS if name in self.extra}:
            raise ConfigError(
                f"the budgets of the episode set the length of an answer, got {lengths} for every request, which hides "
                "the reason of a cut; limit turns by --limit max_turn_tokens=N"
            )


class TurnRefusedError(PolicyError):
    """A server refuses the content of a request, which is no failure of the server."""

    def __init__(self, message: str, *, refusal: Refusal) -> None:
        super().__init__(message)
        self.completion = Completion(token_ids=(), log_probs=None, finish_reason=refusal)
        """The turn in place of an answer."""


class Endpoint:
    """A client of one server, for many episodes at once."""

    def __init__(self, config: EndpointConfig, *, max_connections: int = 64) -> None:
        """Makes a client; nothing is sent yet. Raises MissingDependencyError if httpx is not installed."""
        self.config = config
        options = {"token": config.api_key, "max_connections": max_connections}
        self._client = open_http(config.url, extra="serve", what="talking to a server", **options)
        url = config.url.rstrip("/")
        self._url = url if urlsplit(url).path.strip("/") else f"{url}/v1"
        self.retries = 0
        self._refusals: set[Refusal] = set()

    async def close(self) -> None:
        await self._client.aclose()

    async def models(self) -> dict[str, Mapping[str, Any]]:
        """Returns the server's models by name; empty if it does not list them.

        Raises:
            ConfigError: the server rejects the key.
            PolicyError: it is unreachable.
        """
        response, answer = await self._send_request("GET", "/models", None)
        if response.status_code != 200:
            self._check_key(response)
            return {}
        listed = answer.get("data") if isinstance(answer, Mapping) else None
        return {str(model.get("id")): model for model in listed} if isinstance(listed, list) else {}

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer to a request.

        Raises:
            ConfigError: the key, the URL or the model is wrong.
            TurnRefusedError: the conversation is longer than the model's context, or a filter refuses it.
            PolicyError: the server rejects the request, or all retries failed.
        """
        response, answer = await self._send_request(
            "POST", path, {"model": self.config.model, **body, **self.config.extra}
        )
        status, choice = response.status_code, first_choice(answer)
        if status == 200 and choice and finish_of(choice) != "error":
            return answer
        if (refusal := refusal_of(status, answer)) is not None:
            self._log_refusal(refusal, _read_reason(response))
            raise TurnRefusedError(f"the server answers {status}, got {_read_reason(response)}", refusal=refusal)
        if status == 200:
            failure = passing_failure(status, answer)
            raise PolicyError(failure or f"an answer must be JSON with a choice, got {response.text[:200]!r}")
        self._check_key(response)
        hint = _HOPELESS.get(status)
        if hint is not None:
            raise ConfigError(f"{self._url}{path} answers {status}, got {_read_reason(response)}; {hint}")
        raise PolicyError(f"the server answers {status}, got {_read_reason(response)}")

    def _log_refusal(self, refusal: Refusal, reason: str) -> None:
        if refusal not in self._refusals:
            self._refusals.add(refusal)
            logger.warning(
                "%s refuses a conversation, got %s; such episodes end with %s and are scored. If first turns are "
                "refused, lower max_context_tokens or max_response_tokens of the limits (logged once)",
                *(self._url, reason, refusal),
            )

    def _check_key(self, response: httpx.Response) -> None:
        if response.status_code in (401, 403):
            key_state = "a key" if self.config.api_key else "no key"
            raise ConfigError(f"{self._url} refuses {key_state}, got {_read_reason(response)}; set the right one")

    async def _send_request(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[httpx.Response, Any]:
        """Returns the response and the answer in it, after retries."""
        from httpx import TransportError

        failure = ""
        attempts = Attempts(self.config.max_retries + 1, first_s=self.config.retry_wait_s, max_s=_MAX_WAIT_S)
        async for number in attempts:
            self.retries += number > 1
            sending = self._client.request(method, self._url + path, json=body)
            try:
                response = await within(sending, self.config.request_timeout_s, what=f"{method} {path}")
            except (OverrunError, TransportError) as error:
                failure = f"{type(error).__name__}: {error}"
                continue
            answer = parse_answer(response)
            if attempts.is_last or passing_failure(response.status_code, answer) is None:
                return response, answer
            attempts.asked_s = read_wait_s(response.headers.get("retry-after"))
        raise PolicyError(
            f"{self._url}{path} cannot be reached, got {failure} in {attempts.number} attempts; check the address, and "
            "that the server runs"
        )


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Sampling parameters; None leaves one to the server."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None

    def to_body(self) -> dict[str, Any]:
        """Returns the fields of a request."""
        fields = {"temperature": self.temperature, "top_p": self.top_p, "seed": self.seed}
        return {name: value for name, value in fields.items() if value is not None}


class CompletionsPolicy:
    """`/completions` with token ids in and out, as in vLLM and `verl-agentic serve`; one per episode."""

    def __init__(
        self, endpoint: Endpoint, *, sampling: Sampling, stop_texts: Sequence[str], stop_token_ids: Sequence[int]
    ) -> None:
        """Makes the policy of an episode."""
        self._endpoint = endpoint
        self._body: dict[str, Any] = {**sampling.to_body(), "logprobs": 1, "return_token_ids": True}
        if stop_texts:
            self._body.update(stop=list(stop_texts), include_stop_str_in_output=True)
        if stop_token_ids:
            self._body["stop_token_ids"] = list(stop_token_ids)
        self.usage: Counter[str] = Counter()
        """Tokens as the server counts them."""

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        """Samples one turn; see `Policy.generate`. Raises ConfigError if the server gives no token ids."""
        body = {**self._body, "prompt": list(prompt_ids), "max_tokens": max_tokens}
        try:
            answer = await self._endpoint.post("/completions", body)
        except TurnRefusedError as refused:
            return refused.completion
        self.usage.update(usage_of(answer))
        choice = first_choice(answer)
        token_ids = token_ids_of(choice)
        if token_ids is None:
            raise ConfigError(
                "the server gives no token ids with return_token_ids, got the fields "
                f"{sorted(choice)}; use one that does, or speak messages with it (--mode chat)"
            )
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        is_whole = isinstance(logprobs, list) and len(logprobs) == len(token_ids) and None not in logprobs
        return Completion(
            token_ids=token_ids, log_probs=logprobs if is_whole else None, finish_reason=finish_reason_of(choice)
        )


def token_ids_of(choice: Mapping[str, Any]) -> list[int] | None:
    """Returns the sampled ids of an answer to a request with `return_token_ids`; None if the server gives none."""
    return _read_ids(choice, "token_ids", "response_token_ids")  # the second one: chats of SGLang


def prompt_ids_of(answer: Mapping[str, Any], choice: Mapping[str, Any]) -> list[int] | None:
    """Returns the ids of the prompt, which servers give in the answer or in its choice; None if they give none."""
    return _read_ids(answer, "prompt_token_ids") or _read_ids(choice, "prompt_token_ids")


def _read_ids(section: Mapping[str, Any], *names: str) -> list[int] | None:
    values = (section.get(name) for name in names)
    ids = (value for value in values if isinstance(value, list) and all(isinstance(token, int) for token in value))
    return next(ids, None)


def finish_reason_of(choice: Mapping[str, Any]) -> FinishReason:
    """Returns why a turn ended. Raises PolicyError for an unknown reason, which may mean anything."""
    finish = finish_of(choice)
    if finish == "unknown" or finish == "error":
        raise PolicyError(f"a turn must end with a known finish_reason, got {choice.get('finish_reason')!r}")
    return finish


def usage_of(answer: Mapping[str, Any]) -> dict[str, int]:
    """Returns the server's token counts."""
    usage = answer.get("usage")
    counted = usage if isinstance(usage, Mapping) else {}
    names = ("prompt_tokens", "completion_tokens")
    return {"requests": 1, **{name: counted[name] for name in names if isinstance(counted.get(name), int)}}


def _read_reason(response: httpx.Response) -> str:
    """Returns a server's error message."""
    try:
        error = response.json()["error"]
        return str(error["message"] if isinstance(error, dict) else error)[:500]
    except (ValueError, KeyError, TypeError):
        return repr(response.text[:500])
