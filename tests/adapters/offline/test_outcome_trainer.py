"""The loss of the outcome trainer, whose data and runs are tested in test_reference_trainer and cpu/."""

from __future__ import annotations

import math
from typing import Any

import pytest
from jagged import MASK, ROWS, log_probs_of, nested
from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl.extensions.offline.outcome_trainer import OutcomeSettings, OutcomeTrainer, row_loss

# Returns with beta 0.5: 0.5 (-3 + 2) = -0.5, 0.5 (-0.5 + 1) = 0.25, 0.5 (-4 + 4) = 0, 0.5 (-1 + 3) = 1.
BATCH = {
    "loss_mask": MASK,
    "ref_log_prob": nested([-2.0], [-1.0], [-4.0], [-3.0]),
    "outcome": nested([0.0], [0.0], [1.0], [0.75]),
    "global_batch_size": 8,
    "dp_size": 2,
}


def test_the_loss_is_the_share_of_this_part_in_the_mean_over_all_rows() -> None:
    _, log_probs = log_probs_of(*ROWS)
    loss, metrics = row_loss({"log_probs": log_probs}, BATCH, settings=OutcomeSettings(beta=0.5))
    expected = [
        math.log1p(math.exp(-0.5)),
        math.log1p(math.exp(0.25)),
        math.log(2),
        0.75 * math.log1p(math.exp(-1)) + 0.25 * math.log1p(math.exp(1)),
    ]
    assert loss.item() == pytest.approx(sum(expected) / 8 * 2, rel=1e-6)
    assert metrics == {"train/accuracy": 2 / 8}, "the first and the last; of the third nothing is said yet"


def test_only_sampled_tokens_learn_successes_up_and_failures_down() -> None:
    leaf, log_probs = log_probs_of(*ROWS)
    row_loss({"log_probs": log_probs}, BATCH, settings=OutcomeSettings(beta=0.5))[0].backward()
    assert leaf.grad is not None and leaf.grad.nonzero().flatten().tolist() == [0, 2, 5, 7, 10]
    # sigmoid(1) is 0.73, a little less than the last outcome.
    assert leaf.grad[[0, 2, 5]].min() > 0 > leaf.grad[[7, 10]].max()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"lora_rank": 8}, "lora_rank=8"),
        ({"lora": {"rank": 4}}, "lora_rank=4"),
        ({"lora_adapter_path": "a"}, "lora_adapter_path=a"),
    ],
)
def test_adapters_are_refused_before_anything_is_read(model: dict[str, Any], message: str) -> None:
    trainer = OutcomeTrainer.__new__(OutcomeTrainer)
    trainer.config = OmegaConf.create({"model": {"lora_rank": 0, "lora_adapter_path": None, **model}})
    with pytest.raises(ConfigError, match=rf"trained whole, got .*{message}"):
        trainer._build_config()
