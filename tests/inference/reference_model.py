"""References for the engine: transformers' own passes, and a scheduler that is stepped by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from verl_agentic.cpu.inference.decoder import make_decoder
from verl_agentic.cpu.inference.request import Generation, Running, SamplingParams
from verl_agentic.cpu.inference.scheduler import EngineConfig, Scheduler

VARIANTS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.6},
    {"top_k": 5},
    {"top_p": 0.7},
    {"repetition_penalty": 1.4},
    {"allowed_token_ids": (5, 6, 7, 8)},
    {"stop": ("e", "th")},
]
"""Sampling parameters of every kind."""


def prompt(seed: int, length: int) -> list[int]:
    """Returns ids that every vocabulary of these tests has."""
    rng = random.Random(seed)
    return [rng.randrange(1, 250) for _ in range(length)]


@torch.inference_mode()
def plain_logits(model: Any, token_ids: Sequence[int]) -> torch.Tensor:
    """Returns `[T, V]` logits of one forward pass of transformers, without a cache."""
    return model(input_ids=torch.tensor([list(token_ids)])).logits[0].float()


def plain_log_probs(
    model: Any, prompt_ids: Sequence[int], new_ids: Sequence[int], temperature: float = 1.0
) -> list[float]:
    """Returns what a trainer computes for the new ids."""
    logits = plain_logits(model, [*prompt_ids, *new_ids])[len(prompt_ids) - 1 : -1] / temperature
    return torch.log_softmax(logits, -1).gather(-1, torch.tensor(new_ids)[:, None])[:, 0].tolist()


@torch.inference_mode()
def hf_greedy(model: Any, prompt_ids: Sequence[int], count: int, **options: Any) -> list[int]:
    """Returns the new ids of transformers' own greedy generation."""
    ids = torch.tensor([list(prompt_ids)])
    rows = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
        **options,
    )
    return rows[0, len(prompt_ids) :].tolist()


class Stepped:
    """A scheduler without its thread."""

    def __init__(self, model: Any, tokenizer: Any, **config: Any) -> None:
        self.scheduler = Scheduler(make_decoder(model), tokenizer, EngineConfig(**config))
        self.most_cached = 0

    def submit(self, prompt_ids: Sequence[int], **params: Any) -> list[Generation | Exception]:
        """Queues a greedy request; returns the list that its outcome will be put into."""
        sampling = SamplingParams(**{"temperature": 0.0, **params})
        outcome: list[Generation | Exception] = []
        self.scheduler.submit(
            Running(
                prompt_ids=tuple(prompt_ids),
                params=sampling,
                max_tokens=sampling.max_tokens or 1,
                stop_ids=frozenset(sampling.stop_token_ids),
                deliver=outcome.append,
            )
        )
        return outcome

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.scheduler.step()
            self.most_cached = max(self.most_cached, self.scheduler.cached_tokens)

    def finish(self) -> None:
        """Steps until nothing is left."""
        for _ in range(10_000):
            if not self.scheduler.running and not self.scheduler.waiting:
                return
            self.step()
        raise AssertionError("requests that never end")


def serve_mixed(stepped: Stepped, *, seed: int) -> list[Generation]:
    """Serves requests of every kind, which arrive, are dropped and end at any time."""
    rng, outcomes = random.Random(seed), []
    for case in range(24):
        variant = VARIANTS[case % len(VARIANTS)]
        ids = prompt(7, rng.choice((0, 30))) + prompt(100 * seed + case, rng.randint(1, 90))
        outcome: list[Any] = []
        params = SamplingParams(seed=case, max_tokens=rng.randint(2, 30), **variant)
        stepped.scheduler.submit(
            Running(
                prompt_ids=tuple(ids),
                params=params,
                max_tokens=params.max_tokens or 1,
                stop_ids=frozenset((11, 12)),
                deliver=outcome.append,
                generator=torch.Generator().manual_seed(case),
            )
        )
        outcomes.append(outcome)
        stepped.step(rng.randint(0, 6))
        if case in (9, 17):
            stepped.scheduler.drop(stepped.scheduler.running[0])
        if case == 12:
            stepped.scheduler.finish_all("aborted")
            stepped.scheduler.forget()
    stepped.finish()
    return [outcome[0] for outcome in outcomes if outcome]
