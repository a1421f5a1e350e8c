"""Measures what the log of a run and the audit of its batches cost, on 512 trajectories of 4,096 tokens in 8 turns.

`log_share_of_step` and `audit_share_of_step`: seconds of a processor that they take, in all of a run's processes, over
the time of the least step: one forward pass and one update (forward and backward) of the quickstart's model of half a
million parameters on the same tokens, as if all cores of this machine worked on it without a pause. Of the step's
playing, and of larger models, nothing is counted, so that no real step is shorter. The log is what agent loops record
of every episode, what the trainer fetches from a real TransferQueue and records of every row, and all that the writers'
threads do. The audit is the check of every text in the agent loops, and what the trainer fetches and checks.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
import torch
import transfer_queue as tq
import verl.trainer.ppo.v1.trainer_base  # noqa: F401  # loads the adapters
from _report import Target, median, progress, report
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_agentic.base.env import EnvRow
from verl_agentic.base.trajectory import Trajectory
from verl_agentic.base.types import Action, Message, Reward, StopReason, ToolCall
from verl_agentic.cpu.tiny_model import make_tiny_model
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.records.episode_log import EpisodeHeader, EpisodeLog
from verl_agentic.episode.records.text_audit import text_breach
from verl_agentic.log.log_options import LogOptions
from verl_agentic.log.writer import log_writer
from verl_agentic.rewards.sample_row import score_of
from verl_agentic.rewards.verl_result import PLACE
from verl_agentic.verl.extensions.monitoring.health.batch_audit import audit_batch
from verl_agentic.verl.extensions.monitoring.health.trainer_log import log_updates

_ROWS, _TOKENS, _TURNS, _GROUP_SIZE = 512, 4096, 8, 8
_TARGETS = {
    "log_share_of_step": Target(bound=0.01, at_least=False),
    "audit_share_of_step": Target(bound=0.01, at_least=False),
}


def main() -> int:
    """Runs the measurements and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer trajectories and repeats")
    quick = parser.parse_args().quick
    rows, repeats = (32, 3) if quick else (_ROWS, 5)
    with tempfile.TemporaryDirectory(prefix="trajectory_log") as folder:
        return _measure(Path(folder), rows=rows, repeats=repeats)


def _measure(folder: Path, *, rows: int, repeats: int) -> int:
    make_tiny_model(folder / "model", seed=0)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    progress("the least step")
    step_s = median([_least_step(folder / "model") for _ in range(repeats)]) * rows
    progress("episodes")
    episodes = [_episode(tokenizer, seed) for seed in range(rows)]
    decode = lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False)  # noqa: E731
    options = [LogOptions(dir=str(folder / f"run{number}")) for number in range(repeats)]
    stored = [_stored_by_loop(episode) for episode in episodes]
    loops_s = median([_cpu(lambda o=o: _log_episodes(stored, o, decode)) for o in options])
    texts_s = median([_cpu(lambda: [text_breach(e, decode=decode) for e in episodes]) for _ in range(repeats)])
    progress("the trainer's side, with a TransferQueue")
    ray.init(num_cpus=32, include_dashboard=False, log_to_driver=False, _temp_dir=str(folder / "ray"))
    try:
        tq.init()
        batch = _stored(episodes)
        audit_s = median([_cpu(lambda: _audit(batch)) for _ in range(repeats)])
        updates_s = median([_cpu(lambda o=o: _log_updates(batch, o)) for o in options])
    finally:
        ray.shutdown()
    written = sum(path.stat().st_size for path in (folder / "run0").rglob("*.arrows"))
    return report(
        "trajectory_log",
        ratios={
            "log_share_of_step": (loops_s + updates_s) / step_s,
            "audit_share_of_step": (texts_s + audit_s) / step_s,
        },
        figures={
            "trajectories": rows,
            "tokens_each": _TOKENS,
            "least_step_s": step_s,
            "log_of_agent_loops_s": loops_s,
            "log_of_trainer_s": updates_s,
            "audit_of_texts_s": texts_s,
            "audit_of_trainer_s": audit_s,
            "bytes_per_token": written / (rows * _TOKENS),
        },
        targets=_TARGETS,
    )


def _least_step(model_dir: Path) -> float:
    """Returns the seconds that one trajectory takes of all cores in a step that does nothing but train on it."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, attn_implementation="sdpa")
    ids = torch.randint(0, model.config.vocab_size, (1, _TOKENS))

    def train() -> None:
        with torch.no_grad():
            model(input_ids=ids)
        model(input_ids=ids, labels=ids).loss.backward()

    return _cpu(train) / (os.cpu_count() or 1)


def _cpu(function: Callable[[], Any]) -> float:
    """Returns the seconds of a processor that a function takes, its threads included."""
    started = time.process_time()
    function()
    return time.process_time() - started


def _episode(tokenizer: Any, seed: int) -> Episode:
    """Returns an episode of 8 turns; half of its tokens are the policy's."""
    generator = torch.Generator().manual_seed(seed)
    trajectory, actions, messages = Trajectory(prompt_ids=[1] * 64), [], [Message("user", "Go on.")]
    size = _TOKENS // (2 * _TURNS)
    for turn in range(_TURNS):
        ids = torch.randint(300, len(tokenizer), (2 * size,), generator=generator).tolist()
        log_probs = (-torch.rand(size, generator=generator)).tolist()
        trajectory.append_sampled(ids[:size], log_probs, turn=turn)
        text = tokenizer.decode(ids[:size], skip_special_tokens=False)
        call = ToolCall("python", {"code": text[:100]}, call_id=str(turn))
        actions.append(Action(turn=turn, text=text, content=text, tool_calls=(call,)))
        messages.append(actions[-1].to_message())
        if turn + 1 < _TURNS:
            trajectory.append_context(ids[size:], turn=turn)
            messages.append(Message("tool", tokenizer.decode(ids[size:]), name="python", elapsed_s=0.1))
        else:
            trajectory.append_sampled(ids[size:], [-1.0] * size, turn=turn)
            actions[-1] = Action(turn=turn, text=tokenizer.decode(ids), content="", tool_calls=(call,))
            messages[-1] = actions[-1].to_message()
    return Episode(
        trajectories=(trajectory,),
        num_side_rows=0,
        stop_reason=StopReason.ANSWERED,
        messages=tuple(messages),
        num_prompt_messages=1,
        actions=tuple(actions),
        reward=Reward(float(seed % 2)),
        turn_rewards={},
        info={},
        error=None,
        error_kind=None,
        retries=0,
        generate_s=1.0,
        env_s=1.0,
        min_weights_version=0,
        max_weights_version=0,
    )


@dataclass(frozen=True)
class _StoredEpisode:
    """An episode, and what an agent loop has of it before it logs: with or without a log, verl stores this."""

    episode: Episode
    mask: Any
    token_rewards: list[float]
    numbers: dict[str, float]


def _stored_by_loop(episode: Episode) -> _StoredEpisode:
    (rewards,) = episode.token_rewards()
    mask = torch.tensor(episode.trajectories[0].response_mask).numpy()
    return _StoredEpisode(episode, mask, rewards, dict(episode.numbers()))


def _log_episodes(stored: list[_StoredEpisode], options: LogOptions, decode: Any) -> None:
    """Has the episodes logged as an agent loop does, and waits for the disk."""
    writer = log_writer("trajectories", options)
    for number, one in enumerate(stored):
        columns = {"uid": str(number // _GROUP_SIZE), "session": number % _GROUP_SIZE, "step": 1, "split": "train"}
        header = EpisodeHeader(columns=columns, append=writer.append, decode=decode)
        log = EpisodeLog(header=header, episode=one.episode, row=EnvRow(prompt=()))
        log.add(0, mask=one.mask, rewards=one.token_rewards, void=None)
        reward = one.episode.reward
        log.finish(numbers=one.numbers, score=score_of(reward), acc=reward.outcome)
    writer.close()


def _stored(episodes: list[Episode]) -> KVBatchMeta:
    """Puts the rows into the queue, as loops and trainer do before advantages; returns verl's name for them."""
    keys = [f"{number // _GROUP_SIZE}_{number % _GROUP_SIZE}_0" for number in range(len(episodes))]
    tags = [{"status": "success", "seq_len": _TOKENS + 64} for _ in keys]
    fields = list_of_dict_to_tensordict([_columns(episode) for episode in episodes])
    tq.kv_batch_put(keys=keys, partition_id="train", fields=fields, tags=tags)
    return KVBatchMeta(keys=keys, tags=tags, partition_id="train", fields=None, extra_info={})


def _columns(episode: Episode) -> dict[str, Any]:
    (trajectory,), (rewards,) = episode.trajectories, episode.token_rewards()
    log_probs = torch.tensor(trajectory.log_probs)
    return {
        "response_mask": torch.tensor(trajectory.response_mask),
        "rm_scores": torch.tensor(rewards),
        "rollout_log_probs": log_probs,
        "old_log_probs": log_probs - 0.01,
        "entropy": -log_probs,
        "advantages": log_probs,
        "returns": log_probs,
        "extra_fields": {
            PLACE: "last",
            "breach": "",
            "segments": [[s.start, s.end, s.kind.value, s.turn] for s in trajectory.segments()],
            "reward_extra_info": episode.numbers(),
        },
    }


def _audit(batch: KVBatchMeta) -> None:
    config = {
        "actor_rollout_ref": {"rollout": {"n": _GROUP_SIZE, "custom": {"agentic": {}}}},
        "data": {},
        "trainer": {"default_local_dir": "checkpoints"},
    }
    trainer: Any = SimpleNamespace(config=OmegaConf.create(config), global_steps=1)
    metrics: dict[str, Any] = {}
    audit_batch(trainer, batch, metrics)
    assert metrics["audit/breaches"] == 0


def _log_updates(batch: KVBatchMeta, options: LogOptions) -> None:
    log_updates(options, batch, step=1)
    log_writer("updates", options).close()


if __name__ == "__main__":
    sys.exit(main())
