"""Requests and responses of OpenAI-compatible clients.

Names are OpenAI's, or else vLLM's.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.types import Message
from verl_agentic.cpu.inference.request import Generation, SamplingParams

# Known but unsupported fields: any other value than these is refused. None counts as missing.
_FIXED: Mapping[str, Any] = {
    "stream": False,
    "echo": False,
    "best_of": 1,
    "suffix": "",
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logit_bias": {},
    "top_logprobs": 0,
    "parallel_tool_calls": True,
    "response_format": {"type": "text"},
}
_IGNORED = ("user", "metadata", "store", "stream_options")
_MAX_CHOICES = 64


class _Request(BaseModel):
    """Fields that completions and chats share."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = -1
    repetition_penalty: float = 1.0
    n: int = Field(1, ge=1, le=_MAX_CHOICES)
    seed: int | None = None
    stop: str | list[str] = []
    stop_token_ids: list[int] = []
    allowed_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    return_token_ids: bool = False

    @property
    def stops(self) -> list[str]:
        """The texts that end the generation."""
        return [self.stop] if isinstance(self.stop, str) else self.stop

    def params(self, choice: int, *, max_tokens: int | None, logprobs: bool) -> SamplingParams:
        """Returns the sampling parameters of choice number `choice`. Raises ConfigError for a value out of range."""
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            repetition_penalty=self.repetition_penalty,
            max_tokens=max_tokens,
            seed=None if self.seed is None else self.seed + choice,
            stop=tuple(self.stops),
            stop_token_ids=tuple(self.stop_token_ids),
            allowed_token_ids=tuple(self.allowed_token_ids or ()),
            ignore_eos=self.ignore_eos,
            logprobs=logprobs,
        )


class CompletionRequest(_Request):
    """The body of `POST /v1/completions`."""

    prompt: str | list[int]
    max_tokens: int = Field(16, ge=1)
    logprobs: int | None = Field(None, ge=0, le=1)
    """0 and 1 both give the log-prob of the sampled token, and no alternatives."""


class ChatRequest(_Request):
    """The body of `POST /v1/chat/completions`."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] = []
    tool_choice: str | dict[str, Any] = "auto"
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False

    def to_messages(self) -> list[Message]:
        """Returns the conversation. Raises DataError if a message is malformed, or has parts other than text."""
        return [Message.from_dict({**message, "content": _text_of(message)}) for message in self.messages]


def parse_request(kind: type[CompletionRequest] | type[ChatRequest], body: Any) -> Any:
    """Parses the JSON body of a request.

    Raises:
        ConfigError: it is malformed, or a field is not supported; the message names the fields.
    """
    if not isinstance(body, dict):
        raise ConfigError(f"the body must be a JSON object, got {type(body).__name__}; send one")
    fields = {key: value for key, value in body.items() if value is not None and key not in _IGNORED}
    for key, only in _FIXED.items():
        value = fields.pop(key, only)
        if value != only:
            raise ConfigError(f"{key} is served as {only!r} only, got {value!r}; leave it out")
    try:
        return kind.model_validate(fields)
    except ValidationError as cause:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in cause.errors())
        raise ConfigError(f"the request cannot be served, got {problems}; fix these fields") from cause


def text_of(generation: Generation, request: _Request, tokenizer: Any) -> tuple[str, str | None]:
    """Returns the text of a generation, cut at a stop text unless the request includes it, and the stop text."""
    text = tokenizer.decode(generation.token_ids, skip_special_tokens=request.skip_special_tokens)
    hits = [(text.index(stop), stop) for stop in request.stops if stop in text]
    if not hits:
        return text, None
    start, stop = min(hits)
    return text[: start + len(stop) if request.include_stop_str_in_output else start], stop


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One response choice of a request."""

    generation: Generation
    body: dict[str, Any]
    """Fields of its kind of request."""


def completion_of(request: CompletionRequest, prompt_ids: Sequence[int], choices: Sequence[Choice]) -> dict[str, Any]:
    """Returns the body of the answer to a text completion."""
    token_fields = {"prompt_token_ids": list(prompt_ids)} if request.return_token_ids else {}
    bodies = [{**body, **token_fields} for body in _write_bodies(request, choices)]
    return {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "choices": bodies,
            **_write_common(request, prompt_ids, choices)}  # fmt: skip


def chat_completion_of(request: ChatRequest, prompt_ids: Sequence[int], choices: Sequence[Choice]) -> dict[str, Any]:
    """Returns the body of the answer to a chat."""
    token_fields = {"prompt_token_ids": list(prompt_ids)} if request.return_token_ids else {}
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": "chat.completion",
            "choices": _write_bodies(request, choices),
            **_write_common(request, prompt_ids, choices), **token_fields}  # fmt: skip


def _write_bodies(request: _Request, choices: Sequence[Choice]) -> list[dict[str, Any]]:
    bodies = []
    for index, choice in enumerate(choices):
        finish = {"aborted": "abort"}.get(choice.generation.finish_reason, choice.generation.finish_reason)
        token_fields = {"token_ids": choice.generation.token_ids} if request.return_token_ids else {}
        bodies.append({"index": index, "finish_reason": finish, **choice.body, **token_fields})
    return bodies


def _write_common(request: _Request, prompt_ids: Sequence[int], choices: Sequence[Choice]) -> dict[str, Any]:
    completion_tokens = sum(len(choice.generation.token_ids) for choice in choices)
    cached_tokens = sum(choice.generation.num_cached_tokens for choice in choices)
    usage = {
        "prompt_tokens": len(prompt_ids),
        "completion_tokens": completion_tokens,
        "total_tokens": len(prompt_ids) + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
    return {"created": int(time.time()), "model": request.model, "usage": usage}


def completion_logprobs(generation: Generation, tokenizer: Any) -> dict[str, Any] | None:
    """Returns the log-probs of the sampled tokens in the form of text completions."""
    if generation.log_probs is None:
        return None
    tokens = [tokenizer.decode([token]) for token in generation.token_ids]
    offsets = [sum(map(len, tokens[:index])) for index in range(len(tokens))]
    return {"tokens": tokens, "token_logprobs": generation.log_probs, "top_logprobs": None, "text_offset": offsets}


def chat_logprobs(generation: Generation, tokenizer: Any) -> dict[str, Any] | None:
    """Returns the log-probs of the sampled tokens in the form of chats."""
    if generation.log_probs is None:
        return None
    content = [
        {"token": tokenizer.decode([token]), "logprob": log_prob, "bytes": None, "top_logprobs": []}
        for token, log_prob in zip(generation.token_ids, generation.log_probs, strict=True)
    ]
    return {"content": content}


def _text_of(message: Mapping[str, Any]) -> Any:
    """Returns the content of a message; parts that are texts become one."""
    content = message.get("content")
    if not isinstance(content, list):
        return content
    if not all(isinstance(part, Mapping) and part.get("type") == "text" for part in content):
        raise DataError(f"the parts of a message must be texts, got {content!r:.200}; this server reads no images")
    return "".join(part.get("text") or "" for part in content)
