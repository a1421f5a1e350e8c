"""Additions of the episode loop, in whole runs of `python -m verl.trainer.main_ppo` on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from patience import PATIENCE_S
from verl_runs import Run, make_run

# Whatever the policy says, it is told to go on; four turns fill the row more than once.
_TALK = """
from collections import Counter

from verl_agentic.base.types import Message, Observation, Reward, StopReason

SCORED = Counter()  # sessions of a prompt, in the one worker that plays them: one of two succeeds

class Env:
    tools = ()

    def __init__(self, row, broken=False):
        self.row, self.broken, self.turns = row, broken, 0

    async def start(self):
        return self.row.prompt

    async def step(self, action):
        if self.broken:
            raise ConnectionError("the service is gone")
        self.turns += 1
        if self.turns == 4:
            return Observation(stop=StopReason.ENV_DONE)
        return Observation((Message("tool", "go on " * 3),))

    async def score(self, transcript):
        SCORED[self.row.prompt[-1].content] += 1
        return Reward(float(SCORED[self.row.prompt[-1].content] % 2))

    async def close(self):
        pass

make_env = Env
"""


def talk(folder: Path) -> Run:
    run = make_run(folder)
    env = folder / "talk"
    env.mkdir()
    (env / "__init__.py").write_text(_TALK)
    # A random model hardly ever ends a turn: every fourth token shall.
    generation = folder / "model/generation_config.json"
    config = json.loads(generation.read_text())
    generation.write_text(json.dumps({**config, "eos_token_id": [*config["eos_token_id"], *range(0, 600, 4)]}))
    run.settings = {"agentic.env": env, "agentic.limits.max_turns": 8}
    return run


def test_shortened_conversations_are_trained_with_the_context_and_the_temperature_that_were_sampled(
    tmp_path: Path,
) -> None:
    run = talk(tmp_path)
    run.settings |= {
        "agentic.compaction": "{strategy:drop_observations,keep_last:1,min_room_tokens:72}",
        "data.max_response_length": 96,
        "agentic.temperature_schedule": "{start:1.5,end:0.5,steps:2}",
        "agentic.max_turns_schedule": "{stages:[2,8],every:1}",
    }
    steps = run.finish()
    assert [step["episode/temperature"] for step in steps] == [1.0, 0.5]
    assert steps[0]["episode/num_turns"] <= 2 < steps[1]["episode/num_turns"]
    assert max(step["episode/rows"] for step in steps) > 1
    for step in steps:
        assert step["episode/void"] == 0 and step["actor/grad_norm"] > 0
        assert step["training/rollout_probs_diff_max"] < 1e-4


@pytest.mark.slow
def test_a_run_whose_environments_all_fail_stops_and_says_why(tmp_path: Path) -> None:
    run = talk(tmp_path)
    run.settings |= {
        "+agentic.env_config.broken": True,
        "data.train_batch_size": 16,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 16,
    }
    with run.start() as process:
        assert process.wait(PATIENCE_S) != 0
    log = (run.folder / "metrics.log").read_text(errors="replace")
    assert "InfrastructureError: 100% of the last 32 episodes are void" in log
    assert "ConnectionError: the service is gone" in log
