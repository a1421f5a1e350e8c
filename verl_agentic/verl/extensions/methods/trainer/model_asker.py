"""Asks a language model beside the training: never waits, and never ends a run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from verl_agentic.base.settings import read_settings
from verl_agentic.base.types import Message
from verl_agentic.graders.models.chat_model import ChatModel

_log = logging.getLogger(__name__)


class ModelAsker:
    """One request at a time, in a thread of its own."""

    def __init__(self, raw_settings: Mapping[str, Any] | None, *, section: str) -> None:
        """Reads the settings of the model; None asks nothing. Raises ConfigError if they are invalid."""
        self._model = None if raw_settings is None else read_settings(ChatModel, dict(raw_settings), section=section)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="asks-a-model")
        self._request: Future[Any] | None = None

    @property
    def is_free(self) -> bool:
        """A request can be made now."""
        return self._model is not None and self._request is None

    def ask(self, text: str) -> None:
        """Sends a request."""
        assert self._model is not None and self._request is None
        self._request = self._threads.submit(asyncio.run, self._model.ask([Message("user", text)]))

    def answer(self) -> str | None:
        """Returns the answer once it has come, else None; failures are logged and give an empty answer."""
        if self._request is None or not self._request.done():
            return None
        request, self._request = self._request, None
        try:
            reply = request.result()
        except Exception:  # a helper of the training never ends it
            _log.exception("a model beside the training could not be asked")
            return ""
        if reply.text is None:
            _log.info("a model beside the training gave no answer, got %s", reply.failure)
        return reply.text or ""
