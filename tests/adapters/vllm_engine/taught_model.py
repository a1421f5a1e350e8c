"""Teaches a tiny model to play an environment as a script does, so that a run on it calls tools from its first step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from verl_agentic.base.env import EnvRow
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.collect import Script, run_episodes, scripted
from verl_agentic.verl.rollout.model_codec import load_codec

_IGNORED = -100
_MAX_STEPS, _BATCH = 300, 8


def teach(
    model: Path,
    rows: Sequence[EnvRow],
    *,
    make_env: Callable[[EnvRow], Any],
    script: Script,
    protocol: str,
    limits: EpisodeLimits,
    loss_below: float = 0.02,
) -> None:
    """Trains the model in its folder on the turns of scripted episodes, until it knows them by heart."""
    tokenizer, codec = load_codec(str(model), protocol=protocol)

    def setup_for(index: int, row: EnvRow) -> Any:
        return scripted(script, codec=codec, tokenizer=tokenizer, limits=limits)

    episodes = asyncio.run(run_episodes(rows, make_env=make_env, setup_for=setup_for))
    played = [trajectory for episode in episodes for trajectory in episode.trajectories]
    assert played and not any(episode.is_void for episode in episodes), [episode.error for episode in episodes]
    network: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    torch.manual_seed(0)
    for _ in range(_MAX_STEPS):
        chosen = [played[int(index)] for index in torch.randint(len(played), (_BATCH,))]
        ids, labels = _batch([(trajectory.token_ids, trajectory.response_mask) for trajectory in chosen])
        loss = network(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if loss.item() < loss_below:
            network.save_pretrained(model)
            return
    raise AssertionError(f"the model has not learned its script, got a loss of {loss.item()}")


def _batch(rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns ids and labels, padded on the right; only what the script wrote has labels."""
    width = max(len(ids) for ids, _ in rows)
    ids_BT = torch.zeros(len(rows), width, dtype=torch.long)
    labels_BT = torch.full((len(rows), width), _IGNORED)
    for row, (ids, mask) in enumerate(rows):
        ids_BT[row, : len(ids)] = torch.tensor(ids)
        written = torch.tensor([*([0] * (len(ids) - len(mask))), *mask], dtype=torch.bool)
        labels_BT[row, : len(ids)][written] = ids_BT[row, : len(ids)][written]
    return ids_BT, labels_BT
