"""verl's SGLang server and its client with a fake of SGLang behind them, which takes and gives what SGLang does.

Facts of sglang 0.5.12, which verl 0.9.1 pins: fields of `SamplingParams` (`srt/sampling/sampling_params.py`), the order
of `Req.check_finished` (`srt/managers/schedule_batch.py`), and `skip_tokenizer_init` (`srt/managers/scheduler.py`).
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

SAMPLING_FIELDS = frozenset(
    (
        *("max_new_tokens", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p", "top_k", "min_p"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens", "n", "json_schema"),
        *("regex", "ebnf", "structural_tag", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens"),
        *("no_stop_trim", "custom_params", "stream_interval", "logit_bias", "sampling_seed"),
    )
)
_VERLS = "verl.workers.rollout.sglang_rollout"


class _Anything(ModuleType):
    """A module that has every name: a class that keeps its keyword arguments."""

    __version__ = "0.5.12"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (SimpleNamespace,), {})
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.partition(".")[0] == "sglang":
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return _Anything(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is executed."""


@contextlib.contextmanager
def verls_server() -> Iterator[type]:
    """Gives verl's class of the server, imported with a fake of SGLang in the place of the package."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module(f"{_VERLS}.async_sglang_server").SGLangHttpServer
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "sglang" or name.startswith(_VERLS)]:
            del sys.modules[name]


class SGLang:
    """SGLang's tokenizer manager and scheduler in one: samples the texts of a list."""

    def __init__(self, tokenizer: Any, texts: Sequence[str], *, has_tokenizer: bool, aborts_at: int | None) -> None:
        self.tokenizer = tokenizer
        self.texts = list(texts)
        self.has_tokenizer = has_tokenizer
        self.aborts_at = aborts_at
        """The first request is aborted after this many tokens."""
        self.requests: list[Any] = []
        self._rest: list[int] = []

    async def generate_request(self, request: Any, _: Any) -> Any:
        params = request.sampling_params
        unknown = sorted(set(params) - SAMPLING_FIELDS)
        if unknown:
            raise TypeError(f"SamplingParams.__init__() got an unexpected keyword argument {unknown[0]!r}")
        if params.get("stop") and not self.has_tokenizer:
            raise AttributeError("'NoneType' object has no attribute 'decode'")
        self.requests.append(request)
        planned = self._rest or [*self.tokenizer.encode(self.texts.pop(0)), self.tokenizer.eos_token_id]
        sampled: list[int] = []
        while (finish := self._finish(sampled, params)) is None:
            sampled.append(planned[len(sampled)])
        self._rest = planned[len(sampled) :] if finish["type"] == "abort" else []
        log_probs = [(-0.5, token, None) for token in sampled]
        yield {"output_ids": sampled, "meta_info": {"finish_reason": finish, "output_token_logprobs": log_probs}}

    def _finish(self, sampled: list[int], params: Any) -> dict[str, Any] | None:
        if self.aborts_at is not None and len(sampled) == self.aborts_at:
            self.aborts_at = None
            return {"type": "abort", "message": "Aborted"}
        if len(sampled) >= params["max_new_tokens"]:
            return {"type": "length", "length": params["max_new_tokens"]}
        ends = {self.tokenizer.eos_token_id, *(params.get("stop_token_ids") or ())}
        if sampled and sampled[-1] in ends:
            return {"type": "stop", "matched": sampled[-1]}
        text = self.tokenizer.decode(sampled)
        matched = [stop for stop in params.get("stop") or () if stop in text]
        return {"type": "stop", "matched": matched[0]} if matched else None


def make_server(verls: type, behind: SGLang, *, max_model_len: int = 1024) -> Any:
    """Returns verl's server, without the engine that it would start."""
    server: Any = object.__new__(verls)
    server._disaggregation_role, server.replica_rank, server.global_steps = "null", 0, 7
    server.config = SimpleNamespace(
        max_model_len=max_model_len,
        prompt_length=512,
        response_length=256,
        enable_rollout_routing_replay=False,
        mtp=None,
    )
    server.model_config = SimpleNamespace(lora_rank=0, lora={})
    server.tokenizer_manager = behind
    return server


def make_client(base: type, server: Any) -> Any:
    """Returns a client of verl's that reaches the server without Ray."""

    async def _remote(**arguments: Any) -> Any:
        # Ray copies them: the server changes the parameters that it gets.
        return await server.generate(**copy.deepcopy(arguments))

    class Client(base):  # type: ignore[misc]  # the base is a variable
        async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:
            return "one", SimpleNamespace(generate=SimpleNamespace(remote=_remote))

        def _release_server(self, server_id: str, request_id: str | None = None) -> None:
            """Nothing was acquired."""

    rollout = SimpleNamespace(name="sglang", response_length=256, full_determinism=False)
    return Client(SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout)))
