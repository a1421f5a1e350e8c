"""SDPO over the most likely tokens under verl's own trainer, queue and engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from verl_runs import make_run

pytestmark = pytest.mark.slow
_REWARD = """
from verl_agentic.rewards.component import component

@component(kind="outcome", inline=True)
def alternating(sample):
    return float(sample.id.endswith("/0"))
"""


def test_the_policy_learns_from_its_teacher_over_the_most_likely_tokens(tmp_path: Path) -> None:
    (tmp_path / "outcomes.py").write_text(_REWARD)
    run = make_run(tmp_path)
    run.settings = {
        "trainer.v1.trainer_mode": "agentic_sync",
        "actor_rollout_ref.actor.policy_loss.loss_mode": "sdpo",
        "+agentic.policy_loss.options": "{alpha: 0.5, top_tokens: 8}",
        "agentic.rubric.components": f"[{{use: '{tmp_path}/outcomes.py:alternating'}}]",
        "data.max_prompt_length": 256,
    }
    for step in run.finish():
        assert 0 < step["actor/sdpo_teacher_frac"] < 1, "one of two siblings has a solution to read"
        assert step["actor/sdpo_divergence"] > 0 and step["actor/grad_norm"] > 0
