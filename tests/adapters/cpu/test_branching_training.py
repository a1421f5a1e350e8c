"""Rollouts that branch after a tool's answer, under verl's own trainer: tokens and advantages of what they share."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl_runs import make_run

from verl_agentic.observe import load

pytestmark = pytest.mark.slow
ENV = dedent(
    '''
    """Answers whatever is said, twice: even a model that knows nothing is given something to branch after."""

    import zlib

    from verl_agentic.base.tools.tool_env import ToolEnv
    from verl_agentic.base.types import Message, Observation, Reward, StopReason


    class Env(ToolEnv):
        turns = 0

        async def step(self, action):
            self.turns += 1
            if self.turns == 3:
                return Observation(stop=StopReason.ANSWERED)
            return Observation((Message("tool", f"turn {self.turns}", name="echo"),))

        async def score(self, transcript):
            return Reward(float(zlib.crc32(transcript.final_answer.encode()) % 2))


    def make_env(row):
        return Env(row, [])
    '''
)


def test_branches_share_tokens_and_their_mean_advantage(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "__init__.py").write_text(ENV)
    run = make_run(tmp_path)
    _teach_to_end_turns(tmp_path / "model")
    run.settings = {
        "data.max_response_length": 192,
        "trainer.v1.trainer_mode": "agentic_sync",
        "algorithm.adv_estimator": "arpo",
        "actor_rollout_ref.rollout.n": 4,
        "actor_rollout_ref.rollout.calculate_log_probs": True,
        "agentic.env": tmp_path / "env",
        "agentic.limits.max_turns": 3,
        "agentic.log.dir": tmp_path,
        "agentic.branching": "{initial: 2, probability: 1.0, entropy_weight: 0.0}",
    }
    steps = run.finish()
    assert len(steps) == 2
    for step in steps:
        # All four samples of a prompt are there: two that began at once, and two that branched from them.
        assert step["episode/branched"] == 0.5 and step["episode/shared_tokens"] > 0
        assert step["audit/breaches"] == 0 and step["training/rollout_probs_diff_max"] < 1e-4
    columns = ["uid", "session", "trained_step", "response_ids", "response_mask", "advantages", "reward"]
    groups = list(load(tmp_path, columns).groupby(["trained_step", "uid"]))
    assert len(groups) == 8
    shared = [_shared_prefix(rows.to_dict("records")) for _, rows in groups]
    assert any(shared), "somebody branched after a turn that nobody says by chance"


def _teach_to_end_turns(folder: Path) -> None:
    """Trains a random model to end a turn after ten tokens in the mean, and to say anything before."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    eos = AutoTokenizer.from_pretrained(folder).eos_token_id
    vocab_size = model.config.vocab_size
    wanted = torch.full((vocab_size,), 0.9 / (vocab_size - 1))
    wanted[eos] = 0.1
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        logits = model(torch.randint(vocab_size, (8, 32), generator=generator)).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.expand(8 * 32, -1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert 0.06 < float(logits.detach().softmax(-1)[..., eos].mean()) < 0.15
    model.save_pretrained(folder)


def _shared_prefix(rows: list[dict[str, Any]]) -> list[float]:
    """Checks the copies of prefixes in a group, and returns the advantages on one of them; empty where none is long."""
    assert len(rows) == 4
    found: list[float] = []
    for row in rows:
        ids, mask = np.array(row["response_ids"]), np.array(row["response_mask"], dtype=bool)
        end = int(np.argmin(mask)) if not mask.all() else len(mask)  # the first turn
        copies = [one for one in rows if list(one["response_ids"][:end]) == ids[:end].tolist()]
        # Siblings that never branched may say the same in a turn of one token and its end.
        if len(copies) > 1 and end >= 3:
            own = [np.array(one["advantages"])[:end] for one in copies]
            assert all(np.allclose(one, own[0], atol=1e-6) for one in own), "every copy has the same advantage"
            last = [float(np.array(one["advantages"])[np.flatnonzero(one["response_mask"])[-1]]) for one in copies]
            assert own[0] == pytest.approx(np.full(end, np.mean(last)), abs=1e-5), "which is the mean of the branches"
            found = own[0].tolist()
    return found
