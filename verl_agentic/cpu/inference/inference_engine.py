"""The engine: an async interface to a scheduler in its own thread.

The event loop never waits for computation, and the thread sleeps while there is no work.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from verl_agentic.base.errors import ConfigError, DataError, PolicyError, boundary
from verl_agentic.cpu.inference.decoder import make_decoder
from verl_agentic.cpu.inference.load_model import load_causal_lm
from verl_agentic.cpu.inference.request import Generation, Running, SamplingParams
from verl_agentic.cpu.inference.scheduler import EngineConfig, Scheduler

T = TypeVar("T")
LoadWeights = Callable[[Iterable[tuple[str, Tensor]]], None]


class InferenceEngine:
    """Serves one model to many concurrent callers."""

    def __init__(self, model: Any, tokenizer: Any, config: EngineConfig | None = None) -> None:
        """Takes over `model`, a causal language model of transformers, on the device where it is.

        Raises:
            ConfigError: the engine cannot serve the model.
        """
        self._decoder = make_decoder(model.eval())
        self._scheduler = Scheduler(self._decoder, tokenizer, config or EngineConfig())
        self._max_positions: int = model.config.max_position_embeddings
        self._vocab_size: int = model.get_input_embeddings().weight.shape[0]
        self._end_ids = _end_ids(model, tokenizer)
        self._commands: deque[tuple[Callable[[], None], Callable[[Exception], None]]] = deque()
        self._wake = threading.Condition()
        self._paused = self._closed = False
        self._death: PolicyError | None = None
        self._spoiled: PolicyError | None = None
        self._thread = threading.Thread(target=self._run_thread, name="inference", daemon=True)
        self._thread.start()

    @classmethod
    def from_pretrained(
        cls, path: str | Path, config: EngineConfig | None = None, *, device: str = "cpu", dtype: str = "float32"
    ) -> InferenceEngine:
        """Returns an engine that serves a Hugging Face folder.

        Raises:
            DataError: the folder is not loadable, or lacks weights.
        """
        from transformers import AutoTokenizer

        with boundary(DataError, f"loading the model {str(path)!r}"):
            model = load_causal_lm(path, dtype=getattr(torch, dtype), attn_implementation="sdpa")
            tokenizer = AutoTokenizer.from_pretrained(path)
        return cls(model.to(device), tokenizer, config)

    async def generate(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, request_id: str | None = None
    ) -> Generation:
        """Samples one continuation. Cancelling the call frees its place in the batch.

        While the engine is paused, the request waits.

        Args:
            prompt_ids: the whole stream; a cached prefix is not computed again.
            request_id: for the caller's own records.

        Raises:
            ConfigError: the prompt is empty, holds unknown ids, or does not fit.
            PolicyError: a step of the model failed, the engine was closed or died, or the last update failed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Generation] = loop.create_future()
        request = self._make_request(prompt_ids, params, lambda outcome: _settle_future(loop, future, outcome))
        self._add_command(lambda: self._submit_request(request), request.deliver)
        try:
            return await future
        except asyncio.CancelledError:
            with suppress(PolicyError):  # a closed engine has dropped it already
                self._add_command(lambda: self._scheduler.drop(request), lambda _: None)
            raise

    async def update_weights(self, weights: Iterable[tuple[str, Tensor]], *, version: int) -> None:
        """Loads new weights between two steps and clears the cache; see `receive_weights`."""
        await self.receive_weights(lambda load: load(weights), version=version)

    async def receive_weights(self, receive: Callable[[LoadWeights], None], *, version: int) -> None:
        """Calls `receive` between two steps, which passes weights on to its argument piece by piece.

        Running requests are aborted first, with their partial output, so that no sequence mixes weights. verl's
        asynchronous client sends them again.

        Raises:
            DataError: unknown names or other shapes than the model's; the engine serves nothing until an update
                succeeds.
        """

        def update() -> None:
            self._scheduler.finish_all("aborted")
            self._scheduler.forget_prefixes()
            try:
                receive(self._decoder.update)
            except Exception as cause:
                self._spoiled = PolicyError(
                    f"the weights are partly old and partly new, got {type(cause).__name__} in their last update: "
                    f"{cause}; update them again"
                )
                raise
            self._spoiled = None
            self._scheduler.weights_version = version

        await self._call_in_thread(update)

    async def abort_all(self) -> int:
        """Ends all requests with their partial output and pauses; returns their number."""

        def abort() -> int:
            self._paused = True
            return self._scheduler.finish_all("aborted")

        return await self._call_in_thread(abort)

    async def resume(self) -> None:
        """Ends the pause."""

        def resume() -> None:
            self._paused = False

        await self._call_in_thread(resume)

    async def clear_cache(self) -> None:
        """Drops all kept prefixes; running requests continue."""
        await self._call_in_thread(self._scheduler.forget_prefixes)

    async def release_memory(self) -> None:
        """Aborts all requests and frees the cache's memory."""

        def release() -> None:
            self._scheduler.finish_all("aborted")
            self._scheduler.forget()
            _return_memory()

        await self._call_in_thread(release)

    @property
    def max_positions(self) -> int:
        """Maximum number of tokens of prompt and response together."""
        return self._max_positions

    @property
    def weights_version(self) -> int:
        """Version of the present weights."""
        return self._scheduler.weights_version

    def stats(self) -> dict[str, float]:
        """Returns the present load, and totals since the start."""
        scheduler = self._scheduler
        return {
            "running": float(len(scheduler.running)),
            "waiting": float(len(scheduler.waiting)),
            "cached_tokens": float(scheduler.cached_tokens),
            **{name: float(count) for name, count in scheduler.counts.items()},
        }

    async def close(self) -> None:
        """Ends all requests with an error, stops the thread, and frees weights and cache. Nothing works afterwards."""
        with self._wake:
            if self._closed:
                return
            self._closed = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)
        del self._decoder, self._scheduler
        _return_memory()

    def _make_request(
        self, prompt_ids: Sequence[int], params: SamplingParams, deliver: Callable[[Generation | Exception], None]
    ) -> Running:
        room = self._max_positions - len(prompt_ids)
        if not prompt_ids or room < 1:
            raise ConfigError(
                f"a prompt must have 1 to {self._max_positions - 1} tokens, got {len(prompt_ids)}; shorten it"
            )
        if not 0 <= min(prompt_ids) <= max(prompt_ids) < self._vocab_size:
            raise ConfigError(
                f"a prompt id lies outside the vocabulary of {self._vocab_size}, got {min(prompt_ids)} to "
                f"{max(prompt_ids)}; use the model's own tokenizer"
            )
        if not all(0 <= token < self._vocab_size for token in params.allowed_token_ids):
            raise ConfigError(
                f"allowed_token_ids must lie in the vocabulary of {self._vocab_size}, got {params.allowed_token_ids}; "
                "use the model's own tokenizer"
            )
        generator = None
        if params.seed is not None:
            generator = torch.Generator().manual_seed(params.seed)
        return Running(
            prompt_ids=tuple(prompt_ids),
            params=params,
            max_tokens=min(room, params.max_tokens or room),
            stop_ids=frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._end_ids),
            deliver=deliver,
            generator=generator,
        )

    def _submit_request(self, request: Running) -> None:
        try:
            if self._spoiled is not None:
                raise self._spoiled
            self._scheduler.submit(request)
        except (ConfigError, PolicyError) as error:
            request.deliver(error)

    def _add_command(self, run: Callable[[], None], fail: Callable[[Exception], None]) -> None:
        """Makes the engine's thread call `run` between two steps, or `fail` if it ends before."""
        with self._wake:
            if self._closed:
                raise self._death or PolicyError(
                    "the inference engine is closed, got a new request; start another engine"
                )
            self._commands.append((run, fail))
            self._wake.notify()

    async def _call_in_thread(self, function: Callable[[], T]) -> T:
        """Runs a function in the engine's thread, between two steps."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def command() -> None:
            try:
                _settle_future(loop, future, function())
            except Exception as error:
                _settle_future(loop, future, error)

        self._add_command(command, lambda error: _settle_future(loop, future, error))
        return await future

    def _run_thread(self) -> None:
        error = PolicyError("the inference engine was closed while the request was served; send it again")
        try:
            while self._serve_once():
                pass
        except BaseException as cause:  # waiting callers must get the error
            error = PolicyError(f"the inference engine died, got {type(cause).__name__}: {cause}; start another engine")
            error.__cause__ = cause
            self._death = error
        with self._wake:
            self._closed = True
            open_commands, self._commands = self._commands, deque()
        for _, fail in open_commands:
            fail(error)
        for request in self._scheduler.running + list(self._scheduler.waiting):
            request.deliver(error)

    def _serve_once(self) -> bool:
        """Sleeps until there is work and does a piece of it; returns whether to continue."""
        with self._wake:
            self._wake.wait_for(self._has_work)
            if self._closed:
                return False
        while self._commands:
            self._commands[0][0]()
            self._commands.popleft()  # last: the caller must get an error if this kills the thread
        if not self._paused and (self._scheduler.running or self._scheduler.waiting):
            self._step_scheduler()
        return True

    def _has_work(self) -> bool:
        is_busy = bool(self._scheduler.running or self._scheduler.waiting) and not self._paused
        return self._closed or bool(self._commands) or is_busy

    def _step_scheduler(self) -> None:
        try:
            self._scheduler.step()
        except Exception as cause:  # the callers get it, and the engine continues with the next request
            error = PolicyError(f"a step of the model failed, got {type(cause).__name__}: {cause}")
            error.__cause__ = cause
            self._scheduler.fail(error)


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    ids: set[int] = set()
    for value in (model.generation_config.eos_token_id, model.config.eos_token_id, tokenizer.eos_token_id):
        ids.update([value] if isinstance(value, int) else value or ())
    return frozenset(ids)


def _settle_future(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], outcome: Any) -> None:
    """Sets the result of a future of another thread's loop, unless it is done or its loop is closed."""

    def settle() -> None:
        if future.done():
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _return_memory() -> None:
    """Returns freed memory to the system, which glibc would keep for this process."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
