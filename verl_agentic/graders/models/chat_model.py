"""A language model behind an OpenAI-compatible endpoint, as a section of a configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.base.types import Message
from verl_agentic.graders.models.client import ChatClient, Patience, Reply, connections
from verl_agentic.graders.models.limiter import EndpointLimits, Limiter


class ChatModel(Settings):
    """Settings of a model, and how it is asked."""

    url: str
    """URL that ends with `/v1`."""
    model: str
    """Name of the model at the endpoint."""
    api_key_env: str = ""
    """Name of the environment variable that holds the API key. Empty: no key is sent."""
    temperature: float = setting(0.0, min=0)
    """Sampling temperature."""
    max_tokens: int = setting(512, min=1)
    """Maximum number of tokens of a reply, reasoning included."""
    timeout_s: float = setting(50.0, above=0)
    """Deadline of a reply with all retries, in seconds."""
    concurrency: int = setting(32, min=1)
    """Maximum number of concurrent requests of this machine to the endpoint."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of every request."""

    def check_together(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"the URL of a model begins with http:// or https://, got {self.url!r}; write it out")

    async def ask(
        self, messages: Sequence[Message | Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Reply:
        """Returns the reply, see `ChatClient.ask`. Raises ConfigError if key, URL or model is wrong.

        Args:
            messages: the conversation; mappings are sent as they are.
            tools: function schemas that the model may call.
        """
        body = {
            "model": self.model,
            "messages": [message.to_dict() if isinstance(message, Message) else message for message in messages],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            **({"tools": list(tools)} if tools else {}),
            **self.request,
        }
        async with connections() as shared:
            limiter = shared.limiters.get(self.url)
            if limiter is None:
                limits = EndpointLimits(concurrency=self.concurrency)
                limiter = shared.limiters[self.url] = Limiter(limits, name=self.url)
            patience = Patience(timeout_s=self.timeout_s)
            client = ChatClient(shared.http, limiter, url=self.url, api_key=self._api_key(), patience=patience)
            return await client.ask(body)

    def _api_key(self) -> str:
        key = os.environ.get(self.api_key_env, "") if self.api_key_env else ""
        if self.api_key_env and not key:
            raise ConfigError(
                f"the key of {self.model!r} comes from the environment variable {self.api_key_env!r}, got none; set it"
            )
        return key
