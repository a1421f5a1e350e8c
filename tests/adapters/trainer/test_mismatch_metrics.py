"""verl's own metrics of the gap between trainer and rollout: what they say is what we rely on."""

from __future__ import annotations

import pytest
import torch
from verl.trainer.ppo.rollout_corr_helper import compute_offpolicy_metrics


def metrics(train: torch.Tensor, rollout: torch.Tensor, mask: torch.Tensor) -> dict[str, float]:
    return compute_offpolicy_metrics(train, rollout, mask)


def test_policies_that_agree_have_no_gap() -> None:
    log_probs, mask = -torch.rand(3, 5), torch.ones(3, 5)
    found = metrics(log_probs, log_probs.clone(), mask)
    zero = ("kl", "k3_kl", "log_ppl_diff", "log_ppl_abs_diff", "chi2_token", "chi2_seq")
    assert [found[name] for name in zero] == pytest.approx([0.0] * len(zero), abs=1e-6)
    assert found["ppl_ratio"] == pytest.approx(1.0)


def test_a_gap_is_measured_on_sampled_tokens_only() -> None:
    rollout = torch.tensor([[-1.0, -2.0, -1.0, -9.0]])
    train = torch.tensor([[-1.1, -2.3, -1.0, -1.0]])
    found = metrics(train, rollout, torch.tensor([[1.0, 1.0, 1.0, 0.0]]))
    # Mean of .1, .3 and 0.
    assert found["kl"] == pytest.approx(0.4 / 3, abs=1e-6)
    assert found["log_ppl_abs_diff"] == pytest.approx(0.4 / 3, abs=1e-6)
