"""Tells a refusal of the content of a request from a wrong key, URL or setting.

A policy writes a part of what a judge is asked. So an endpoint that refuses the content is answered like an invalid
verdict, never like a failure: else a policy could void its failures by a filtered word or an endless answer.

A policy of an evaluation that is refused is no failure either: its context is full, or its content is filtered.

Documented forms:

- OpenAI: 400 with `error.code` `context_length_exceeded`, `content_filter` or `content_policy_violation`
  (https://platform.openai.com/docs/guides/error-codes)
- Azure OpenAI: 400 with `error.code` `content_filter` and `error.innererror.code` `ResponsibleAIPolicyViolation`
  (https://learn.microsoft.com/azure/ai-services/openai/concepts/content-filter)
- OpenRouter: 403 for a flagged input, with `error.metadata` `reasons` and `flagged_input`; after the model has begun,
  the same error in an answer with status 200 (https://openrouter.ai/docs/api/reference/errors-and-debugging)
- Anthropic: 400 `invalid_request_error` with "prompt is too long", 413 `request_too_large`; 403 is a key without
  permission (https://docs.anthropic.com/en/api/errors)
- vLLM and SGLang: 400 with "maximum context length" or "context length" in the message, and no code
- DashScope, Moonshot, TensorRT-LLM, TabbyAPI, LMDeploy: 400 with "Range of input length", "model token limit",
  "max_num_tokens", "max_seq_len", "session_len" in the message
- llama.cpp: 400 with the type `exceed_context_size_error` and "exceeds the available context size"

Any other 400, 403 or 422 is decided by a probe: the same request without the policy's text.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Literal

from verl_agentic.base.errors import DataError
from verl_agentic.graders.models.chat_choice import error_of, finish_of, first_choice, parse_answer
from verl_agentic.web.http_service import may_pass

UNCLEAR = (400, 403, 422)
"""Statuses by which endpoints refuse content, and also requests of a wrong key or form."""
PROBE = ({"role": "user", "content": "Answer with one word: yes."},)
"""Messages of a probe."""
_PROBE_HOLDS_S = 60.0  # so that a key that is revoked later is recognised, too
_CONTEXT_CODES = re.compile(
    r"context_length|context_window|exceed_context_size|request_too_large|string_above_max_length|string_too_long",
    re.IGNORECASE,
)
_CONTEXT_MESSAGES = re.compile(
    r"context (length|window|size|limit)|(prompt|input|request) (is|was) too (long|large)|too many (input )?tokens|"
    r"maximum (model|prompt|input) length|(prompt|input)[^.]{0,40} longer than|input token count|model token limit|"
    r"(range of input|prompt) length|session_len|max_(seq_len|num_tokens)|"
    r"max_tokens must be at least 1, got -?\d|max_new_tokens`? must be <=",
    re.IGNORECASE,
)
_CONTENT_CODES = re.compile(
    r"content_filter|content_policy|ResponsibleAIPolicyViolation|moderation|data_inspection_failed", re.IGNORECASE
)
_CONTENT_MESSAGES = re.compile(
    r"content (filter|management policy|policy)|(requires|flagged by|blocked by) moderation|input was flagged|"
    r"inappropriate content|content exists risk",
    re.IGNORECASE,
)
Refusal = Literal["context_full", "content_filter"]
_FLAGS = {"flagged_input", "reasons", "content_filter_result"}
_succeeded: dict[Hashable, float] = {}


class ContentRefusedError(DataError):
    """An endpoint refuses the content of a request."""


def refusal_of(status: int, answer: Any) -> Refusal | None:
    """Returns why the content of a request is refused, if an answer says so: it is too long, or filtered.

    Args:
        status: of the response. With 200, the error in the answer has the status.
        answer: the parsed JSON, or a text.
    """
    error, first = error_of(answer), first_choice(answer)
    if status == 200 and finish_of(first) == "content_filter":
        return "content_filter"
    if status == 200 and error and isinstance(answer, Mapping):
        code = str(error.get("code"))
        status = int(code) if code.isdecimal() else UNCLEAR[0]
    if status == 413:
        return "context_full"
    if status not in UNCLEAR:
        return None
    details = [part for name in ("metadata", "innererror") if isinstance(part := error.get(name), Mapping)]
    codes = " ".join(str(part.get(key)) for part in (error, *details) for key in ("code", "type"))
    message = " ".join(str(part.get(key)) for part in (error, *details) for key in ("message", "raw"))
    if any(_FLAGS & set(part) for part in details) or _CONTENT_CODES.search(codes):
        return "content_filter"
    if _CONTEXT_CODES.search(codes) or _CONTEXT_MESSAGES.search(f"{message} {error.get('text')}"):
        return "context_full"
    return "content_filter" if _CONTENT_MESSAGES.search(message) else None


def passing_failure(status: int, answer: Any) -> str | None:
    """Returns why an answer is a failure of the server that may pass; None if it is no such failure.

    Servers that have begun to answer report later failures with status 200, as `finish_reason: "error"`.
    """
    if may_pass(status):
        return f"the endpoint answers {status}"
    choice, error = first_choice(answer), error_of(answer)
    is_failed = finish_of(choice) == "error" if choice else isinstance(answer, Mapping) and "error" in answer
    if status != 200 or not is_failed or refusal_of(status, answer) is not None:
        return None
    code = str(error.get("code"))
    if code.isdecimal() and not may_pass(int(code)):
        return None
    return f"the endpoint fails in the middle of its answer: {error.get('message') or error or 'no reason'}"[:300]


async def is_refused(response: Any, *, key: Hashable, send: Callable[[], Awaitable[Any]]) -> bool:
    """Returns whether an endpoint refuses the content of a request.

    An unclear answer is decided by a probe, whose success counts for a minute.

    Args:
        response: of httpx.
        key: endpoint, model and key.
        send: sends `PROBE` and returns the response.
    """
    import httpx

    if refusal_of(response.status_code, parse_answer(response)) is not None:
        return True
    if response.status_code not in UNCLEAR:
        return False
    if time.monotonic() - _succeeded.get(key, -_PROBE_HOLDS_S) < _PROBE_HOLDS_S:
        return True
    try:
        is_answered = (await send()).status_code == 200
    except httpx.HTTPError:
        is_answered = False
    if is_answered:
        _succeeded[key] = time.monotonic()
    return is_answered
