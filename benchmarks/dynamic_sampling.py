"""Measures what dynamic sampling costs beside verl's own `algorithm.filter_groups`, in the synchronous trainer.

Both fill the same batches from the same stream of simulated tasks, many of which are always or never solved. The
rollout has a fixed number of slots and runs in simulated time, so the figures are exact and do not depend on the
machine; TransferQueue is replaced by the same stand-in for both.

`tokens_vs_verl`: generated tokens per group that is trained on, over verl's.
`wall_vs_verl`: simulated time until a batch is full and nothing is played any more, over verl's. What a poll costs is
not in it, and verl polls every 2 s.
`tokens_vs_verl_keeping`, `wall_vs_verl_keeping`: the same with `keep_surplus: 1`.

The ratios are medians over seeds, of the mix in which they are worst; figures tell all mixes.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from _report import Target, median, progress, report
from _simulated_rollout import Engine, Mix, Rollout, in_place
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from verl_agentic.verl.replay_buffer.gated_buffer import GatedReplayBuffer

_ENGINE = Engine(slots=256, group_size=8, mean_tokens=1500.0, sigma=0.8, tokens_per_s=50.0)
_BATCH, _STEPS, _SEEDS = 64, 8, 5
_EVEN = (1.0, 1.0)
_MIXES = {
    "hard": Mix(parts=((0.6, 0.05, 3.0), (0.1, 3.0, 0.05), (0.3, *_EVEN))),
    "mixed": Mix(parts=((0.3, 0.05, 3.0), (0.3, 3.0, 0.05), (0.4, *_EVEN))),
    "easy": Mix(parts=((0.1, 0.05, 3.0), (0.6, 3.0, 0.05), (0.3, *_EVEN))),
    "rich": Mix(parts=((0.1, 0.05, 3.0), (0.1, 3.0, 0.05), (0.8, *_EVEN))),
}
_SIDES = ("verl", "ours", "keeping")


def main() -> int:
    """Runs the simulations and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer seeds and steps")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    seeds, steps = (2, 3) if options.quick else (_SEEDS, _STEPS)
    worst: dict[str, list[float]] = {}
    figures: dict[str, Any] = {"batch_groups": _BATCH, "group_size": _ENGINE.group_size, "steps": steps, "seeds": seeds}
    for name, mix in _MIXES.items():
        runs = [{side: run(side, mix, seed=seed, steps=steps) for side in _SIDES} for seed in range(seeds)]
        for side in _SIDES:
            for place, what in enumerate(("tokens_per_useful_group", "rollout_s_per_step", "groups_per_useful_group")):
                figures[f"{name}/{side}/{what}"] = median([one[side][place] for one in runs])
        for side, suffix in (("ours", ""), ("keeping", "_keeping")):
            for place, what in enumerate(("tokens_vs_verl", "wall_vs_verl")):
                ratio = median([one[side][place] / one["verl"][place] for one in runs])
                worst.setdefault(what + suffix, []).append(ratio)
                figures[f"{name}/{what}{suffix}"] = ratio
        told = {key: value for key, value in figures.items() if key.startswith(f"{name}/") and "_vs_" in key}
        progress(f"{name}: {told}")
    return report(
        "dynamic_sampling",
        ratios={name: max(values) for name, values in worst.items()},
        figures=figures,
        targets={name: Target(bound=1.0, at_least=False) for name in worst},
    )


def run(side: str, mix: Mix, *, seed: int, steps: int) -> tuple[float, float, float]:
    """Returns generated tokens per useful group, seconds per step, and generated groups per useful one."""
    with in_place(Rollout(_ENGINE, mix, seed=seed)) as rollout:
        buffer = _buffer(side, rollout)
        for step in range(1, steps + 1):
            rollout.step = step
            rollout.submit(_BATCH)
            batch, _ = buffer.sample(global_steps=step, partition_id="train", batch_size=_BATCH)
            groups = {key.split("_")[0] for key in batch.keys}
            assert len(groups) == _BATCH and len(batch.keys) == _BATCH * _ENGINE.group_size
            rollout.kv_clear(keys=batch.keys, partition_id="train")
        useful = steps * _BATCH
        return rollout.num_tokens / useful, rollout.now_s / steps, rollout.num_groups / useful


def _buffer(side: str, rollout: Rollout) -> Any:
    """Returns a buffer made as verl's synchronous trainer makes it."""
    common: dict[str, Any] = {
        "trainer_mode": "sync",
        "trainer_config": OmegaConf.create({}),
        "max_off_policy_threshold": 8,
        "max_off_policy_strategy": "drop",
        "refill_fn": rollout.submit,
    }
    if side == "verl":
        own = {"filter_groups_metric": "acc", "train_batch_size": _BATCH, "gen_batch_size": 1}
        return ReplayBuffer(**common, **own, sampler_kwargs=OmegaConf.create({}))
    kwargs = {"gates": ["zero_variance"], "keep_surplus": 1 if side == "keeping" else 0}
    return GatedReplayBuffer(**common, sampler_kwargs=OmegaConf.create(kwargs))


if __name__ == "__main__":
    sys.exit(main())
