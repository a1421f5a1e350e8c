"""Tells a refusal of the content of a request from a wrong key, URL or setting.

A policy writes a part of what a judge is asked. So an endpoint that refuses the content is answered like an invalid
verdict, never like a failure: else a policy could void its failures by a filtered word or an endless answer.

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

Any other 400, 403 or 422 is decided by a probe: the same request without the policy's text.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any

from verl_agentic.errors import DataError

UNCLEAR = (400, 403, 422)
"""Statuses by which endpoints refuse content, and also requests of a wrong key or form."""
PROBE = ({"role": "user", "content": "Answer with one word: yes."},)
"""Messages of a probe."""
_PROBE_HOLDS_S = 60.0  # so that a key that is revoked later is recognised, too
_CODES = re.compile(
    r"content_filter|content_policy|context_length|ResponsibleAIPolicyViolation|moderation|"
    r"exceed_context_size|request_too_large|string_above_max_length|string_too_long",
    re.IGNORECASE,
)
_MESSAGES = re.compile(
    r"context (length|window|size)|(prompt|input|request) (is|was) too (long|large)|too many (input )?tokens|"
    r"content (filter|management policy|policy)|(requires|flagged by|blocked by) moderation|input was flagged",
    re.IGNORECASE,
)
_FLAGS = {"flagged_input", "reasons", "content_filter_result"}
_succeeded: dict[Hashable, float] = {}


class ContentRefusedError(DataError):
    """An endpoint refuses the content of a request."""


def is_content_refusal(status: int, answer: Any) -> bool:
    """Returns whether an answer says that the content of the request is refused.

    Args:
        status: of the response. With 200, the error in the answer has the status.
        answer: the parsed JSON, or a text.
    """
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}
    if status == 200 and first.get("finish_reason") == "content_filter":
        return True
    error = _error_of(answer, first)
    if status == 200 and isinstance(error.get("code"), int):
        status = error["code"]
    if status == 413:
        return True
    if status not in UNCLEAR:
        return False
    details = error.get("metadata"), error.get("innererror")
    if any(isinstance(part, Mapping) and _FLAGS & set(part) for part in details):
        return True
    codes = (part.get(key) for part in (error, *details) if isinstance(part, Mapping) for key in ("code", "type"))
    return any(_CODES.search(str(code)) for code in codes) or bool(_MESSAGES.search(str(error.get("message", ""))))


async def is_refused(response: Any, *, key: Hashable, send: Callable[[], Awaitable[Any]]) -> bool:
    """Returns whether an endpoint refuses the content of a request.

    An unclear answer is decided by a probe, whose success counts for a minute.

    Args:
        response: of httpx.
        key: endpoint, model and key.
        send: sends `PROBE` and returns the response.
    """
    import httpx

    try:
        answer = response.json()
    except (ValueError, RecursionError):
        answer = response.text
    if is_content_refusal(response.status_code, answer):
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


def _error_of(answer: Any, first: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the error of an answer, wherever an endpoint writes it; empty without a documented form."""
    if not isinstance(answer, Mapping):
        return {}
    errors = (part["error"] for part in (answer, first) if "error" in part)
    error = next(errors, answer)
    return error if isinstance(error, Mapping) else {}
