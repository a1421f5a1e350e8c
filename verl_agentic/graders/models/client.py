"""A client of OpenAI-compatible endpoints that counts costs and returns failures as data."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verl_agentic.base.deadlines import OverrunError, within
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.text.reasoning import strip_thoughts
from verl_agentic.graders.models.chat_choice import ChatChoice, parse_answer, read_choice
from verl_agentic.graders.models.limiter import MAX_WAIT_S, Limiter
from verl_agentic.graders.models.refusals import PROBE, is_refused, passing_failure
from verl_agentic.web.http_service import Attempts, open_http, read_wait_s
from verl_agentic.web.per_loop import SharedPerLoop

if TYPE_CHECKING:
    import httpx

_HOPELESS = {
    401: "set the right key",
    403: "set the right key; the endpoint refuses a request without any text of the policy, too",
    404: "see the URL, which ends with /v1, and the model",
}
_CHARS_PER_TOKEN = 4


@dataclass(frozen=True, kw_only=True)
class Price:
    """The price of a model per million tokens, in any currency."""

    input: float = 0.0
    output: float = 0.0

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """Returns the cost of tokens."""
        return (input_tokens * self.input + output_tokens * self.output) / 1_000_000


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The result of a request."""

    text: str | None
    """The whole answer, without the thoughts before it. None if the endpoint gave none."""
    content: str | None = None
    """What the model wrote, with thoughts in it, and also if it is not whole."""
    failure: str | None = None
    """Reason why there is no answer, or no whole one."""
    is_cut: bool = False
    """Whether the answer was cut at `max_tokens`."""
    is_refused: bool = False
    """Whether the endpoint refuses what it was asked (`refusals`), rather than failing."""
    calls: Sequence[Mapping[str, Any]] = ()
    """Tool calls as the endpoint wrote them: `{"id", "type", "function": {"name", "arguments"}}`."""
    input_tokens: int = 0
    output_tokens: int = 0
    latency_s: float = 0.0
    """Time from the first wait for the rate limit to the answer, retries included."""
    attempts: int = 0


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Timeout and retries of a request."""

    timeout_s: float = 25.0
    """Deadline of a request with all waits and retries, in seconds."""
    retries: int = 4
    """After 408, 409, 425, 429, 5xx or a failed connection."""
    retry_wait_s: float = 0.5
    """Wait before the first retry; doubles before each further one, and at least the endpoint's request."""


class ChatClient:
    """A client of one endpoint for many concurrent samples; used within `connections`."""

    def __init__(
        self, http: httpx.AsyncClient, limiter: Limiter, *, url: str, api_key: str, patience: Patience
    ) -> None:
        self._http = http
        self._limiter = limiter
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._patience = patience

    async def ask(self, body: Mapping[str, Any]) -> Reply:
        """Returns the reply, without text on temporary failures and if the endpoint refuses the content.

        Raises:
            ConfigError: key, URL or model is wrong.
        """
        started = time.monotonic()
        attempts = Attempts(self._patience.retries + 1, first_s=self._patience.retry_wait_s, max_s=MAX_WAIT_S)
        try:
            reply = await within(self._ask_repeatedly(body, attempts), self._patience.timeout_s, what="asking a judge")
        except OverrunError:
            reply = Reply(text=None, failure=f"no answer within {self._patience.timeout_s:g} s")
        return Reply(**{**vars(reply), "latency_s": time.monotonic() - started, "attempts": attempts.number})

    async def _ask_repeatedly(self, body: Mapping[str, Any], attempts: Attempts) -> Reply:
        import httpx

        estimate = _estimate_tokens(body)
        failure: str | None = None
        async for _ in attempts:
            async with self._limiter.request(estimate):
                try:
                    response = await self._http.post(self._url, json=body, headers=self._headers)
                except httpx.TransportError as cause:
                    failure = f"{type(cause).__name__}: {cause}"
                    continue
                # Proxies and login pages may send bodies of any kind.
                except (httpx.HTTPError, UnicodeError) as cause:
                    return Reply(text=None, failure=f"{type(cause).__name__}: {cause}")
            answer = parse_answer(response)
            if (failure := passing_failure(response.status_code, answer)) is None:
                if await self._is_refused(response, body):
                    refusal = f"the endpoint refuses the content, {response.status_code}: {response.text[:300]}"
                    return Reply(text=None, failure=refusal, is_refused=True)
                reply = self._read_reply(response, answer, body)
                self._limiter.correct(reply.input_tokens + reply.output_tokens - estimate)
                return reply
            if asked_s := min(read_wait_s(response.headers.get("retry-after")), MAX_WAIT_S):
                attempts.asked_s = asked_s
                self._limiter.pause(asked_s)
        return Reply(text=None, failure=failure)

    async def _is_refused(self, response: httpx.Response, body: Mapping[str, Any]) -> bool:
        probe = {**body, "messages": list(PROBE)}

        async def send() -> httpx.Response:
            async with self._limiter.request(_estimate_tokens(probe)):
                return await self._http.post(self._url, json=probe, headers=self._headers)

        key = (self._url, body.get("model"), self._headers.get("Authorization"))
        return await is_refused(response, key=key, send=send)

    def _read_reply(self, response: httpx.Response, answer: Any, body: Mapping[str, Any]) -> Reply:
        if hint := _HOPELESS.get(response.status_code):
            raise ConfigError(f"{self._url} answers {response.status_code}, got {response.text[:300]!r}; {hint}")
        if response.status_code != 200:
            return Reply(text=None, failure=f"the endpoint answers {response.status_code}: {response.text[:300]}")
        try:
            choice = read_choice(answer)
        except ValueError:
            return Reply(text=None, failure=f"the endpoint answers {response.text[:100]!r}")
        usage = answer.get("usage")
        counted = usage if isinstance(usage, Mapping) else {}
        failure = _why_not_whole(choice, body)
        return Reply(
            text=strip_thoughts(choice.content) if failure is None else None,
            content=None if choice.finish in ("aborted", "error") else choice.content,
            failure=failure,
            is_cut=choice.finish == "length",
            calls=[call for call in choice.calls if isinstance(call, Mapping)],
            input_tokens=_count_tokens(counted.get("prompt_tokens"), _num_chars(body)),
            output_tokens=_count_tokens(counted.get("completion_tokens"), len(choice.content)),
        )


def _why_not_whole(choice: ChatChoice, body: Mapping[str, Any]) -> str | None:
    """Returns why an answer is not whole; None if it is."""
    if choice.finish == "stop":
        return None
    if choice.finish == "length":
        limit = next((body[name] for name in ("max_completion_tokens", "max_tokens") if body.get(name)), None)
        whose = " within its thoughts" if not strip_thoughts(choice.content) else ""
        return f"the answer is cut at max_tokens={limit}{whose}; raise max_tokens, which includes the thoughts"
    return f"the answer ends with finish_reason {choice.reason!r}, so it may not be whole"


def _estimate_tokens(body: Mapping[str, Any]) -> int:
    """Returns the estimated maximum number of tokens of a request."""
    return _num_chars(body) // _CHARS_PER_TOKEN + int(body.get("max_tokens") or 0)


def _num_chars(body: Mapping[str, Any]) -> int:
    return sum(len(message.get("content") or "") for message in body["messages"])


def _count_tokens(counted: Any, num_chars: int) -> int:
    """Returns the endpoint's token count, else one token per four characters."""
    is_count = isinstance(counted, int) and not isinstance(counted, bool) and counted >= 0
    return counted if is_count else -(-num_chars // _CHARS_PER_TOKEN)


class Connections:
    """The connections and limiters that concurrent callers of one event loop share."""

    def __init__(self) -> None:
        """Makes the client. Raises MissingDependencyError if httpx is not installed."""
        self.http = open_http(extra="judge", what="a judge")
        self.limiters: dict[Any, Limiter] = {}

    async def close(self) -> None:
        """Closes the connections, so that the event loop can end."""
        await self.http.aclose()


_connections: SharedPerLoop[None, Connections] = SharedPerLoop(lambda _: Connections())


def connections() -> AbstractAsyncContextManager[Connections]:
    """Provides the connections of the event loop, which are closed when the last caller has left."""
    return _connections.lend(None)
