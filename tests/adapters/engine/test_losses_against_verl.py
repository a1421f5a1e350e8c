"""verl's own losses give the checklist's vectors, and ours are verl's where both are defined."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import verl.trainer
from hydra import compose, initialize_config_dir
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.ray_trainer import apply_kl_penalty
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights
from verl.trainer.ppo.utils import need_reference_policy
from verl.workers.config import ActorConfig

from verl_agentic.credit.losses.kl import kl_per_token
from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss

Tensor = torch.Tensor

LOG_PROB = torch.tensor([[-1.0, -0.5, -2.0, -0.7, -1.2], [-0.3, -0.9, -0.4, -1.1, 0.0]])
OLD_LOG_PROB = torch.tensor([[-1.1, -0.9, -2.0, -0.6, -1.0], [-0.2, -1.5, -0.4, -1.0, 0.0]])
MASK = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 0, 1, 0]]).bool()
ADVANTAGES = torch.tensor([[1.0], [-1.0]]).expand(2, 5)


def actor_config(**options: Any) -> ActorConfig:
    """Returns verl's config of an actor, as far as losses read it."""
    return ActorConfig(strategy="fsdp2", rollout_n=2, use_dynamic_bsz=True, **options)


def verl_loss(mode: str, *, log_prob: Tensor, agg: Any = "token-mean", **given: Any) -> tuple[Tensor, dict[str, Any]]:
    """Returns what one of verl's policy losses makes of a batch; V-PPO-MASK where nothing else is given."""
    tensors = {"old_log_prob": OLD_LOG_PROB, "advantages": ADVANTAGES, "response_mask": MASK}
    tensors.update({name: value for name, value in given.items() if isinstance(value, torch.Tensor)})
    config = actor_config(**{name: value for name, value in given.items() if name not in tensors})
    config.global_batch_info.update(loss_scale_factor=config.loss_scale_factor)
    return cast("Any", core_algos.get_policy_loss_fn(mode))(
        log_prob=log_prob, loss_agg_mode=agg, config=config, **tensors
    )


def slope(total: Tensor, log_prob: Tensor) -> Tensor:
    """Returns the gradient."""
    return torch.autograd.grad(total, log_prob)[0]


@pytest.mark.parametrize(
    ("agg", "scale", "expected"),
    [
        ("token-mean", None, -0.056706),
        ("token-sum", None, -0.396945),
        ("seq-mean-token-mean", None, 0.101707),
        ("seq-mean-token-sum", None, -0.198473),
        ("seq-mean-token-sum-norm", None, -0.039695),
        ("seq-mean-token-sum-norm", 8, -0.024809),
    ],
)
@pytest.mark.parametrize("garbage", [0.0, 5.0, -50.0])
def test_masked_ppo_in_verls_aggregations_is_the_vector(
    agg: str, scale: int | None, expected: float, garbage: float
) -> None:
    log_prob = torch.where(MASK, LOG_PROB, LOG_PROB + garbage)
    loss, _ = verl_loss("vanilla", log_prob=log_prob, agg=agg, loss_scale_factor=scale)
    assert float(loss) == pytest.approx(expected, abs=1e-6)
    batch = LossBatch(log_prob_BT=log_prob, old_log_prob_BT=OLD_LOG_PROB, advantages_BT=ADVANTAGES, mask_BT=MASK)
    per_token_BT = cast("Tensor", load_policy_loss("masked_ppo")(batch).per_token_BT)
    ours = core_algos.agg_loss(per_token_BT, MASK, agg, loss_scale_factor=scale)
    assert float(ours) == pytest.approx(expected, abs=1e-6)


def test_without_a_mask_the_vector_would_be_wrong() -> None:
    loss, _ = verl_loss("vanilla", log_prob=LOG_PROB, response_mask=torch.ones_like(MASK))
    assert float(loss) == pytest.approx(0.060305, abs=1e-6)


def test_verls_gradient_is_the_vector() -> None:
    log_prob = LOG_PROB.clone().requires_grad_()
    loss, _ = verl_loss("vanilla", log_prob=log_prob)
    expected = [[-0.157882, 0.0, 0.0, -0.129262, -0.116962], [0.129262, 0.260303, 0.0, 0.129262, 0.0]]
    torch.testing.assert_close(slope(loss, log_prob), torch.tensor(expected), atol=1e-6, rtol=0)


@given(
    seed=st.integers(0, 2**31),
    low=st.floats(0.05, 0.9),
    high=st.floats(0.05, 0.9),
    dual=st.floats(1.5, 10.0),
    is_weighted=st.booleans(),
)
def test_masked_ppo_is_vanilla_in_value_gradient_and_metrics(
    seed: int, low: float, high: float, dual: float, is_weighted: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    log_prob, old, advantages = (torch.randn(4, 9, generator=generator) for _ in range(3))
    mask = torch.rand(4, 9, generator=generator) < 0.7
    mask[0, 0] = True
    weights = torch.rand(4, 9, generator=generator) if is_weighted else None
    log_prob.requires_grad_()
    theirs, metrics = verl_loss(
        "vanilla",
        log_prob=log_prob,
        old_log_prob=old,
        advantages=advantages,
        response_mask=mask,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=dual,
        **({} if weights is None else {"rollout_is_weights": weights}),
    )
    batch = LossBatch(
        log_prob_BT=log_prob,
        old_log_prob_BT=old,
        advantages_BT=advantages,
        mask_BT=mask,
        clip_low=low,
        clip_high=high,
        clip_dual=dual,
        is_weights_BT=weights,
    )
    loss = load_policy_loss("masked_ppo")(batch)
    ours = core_algos.agg_loss(cast("Tensor", loss.per_token_BT), mask, "token-mean")
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(slope(ours, log_prob), slope(theirs, log_prob))
    for name in ("pg_clipfrac", "pg_clipfrac_lower", "ppo_kl"):
        assert loss.metrics[name] == pytest.approx(metrics[f"actor/{name}"], abs=1e-6)


def test_clip_higher_and_dual_clip_are_the_vector() -> None:
    ratios, advantages = [1.25, 1.35, 0.7, 5.0, 0.5], [1.0, 1.0, -1.0, -1.0, 1.0]
    got = [
        float(
            verl_loss(
                "vanilla",
                log_prob=torch.tensor([[math.log(ratio)]]),
                old_log_prob=torch.zeros(1, 1),
                advantages=torch.tensor([[advantage]]),
                response_mask=torch.ones(1, 1),
                clip_ratio_low=0.2,
                clip_ratio_high=0.28,
                clip_ratio_c=3.0,
            )[0]
        )
        for ratio, advantage in zip(ratios, advantages, strict=True)
    ]
    assert got == pytest.approx([-1.25, -1.28, 0.8, 3.0, -0.5])


def test_dr_grpos_normaliser_is_the_vector() -> None:
    """On policy, lengths 2 and 4, A = .5 and -.5, C = 8."""
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]]).bool()
    log_prob = torch.full((2, 4), -1.0, requires_grad=True)
    given_all: dict[str, Any] = {
        "log_prob": log_prob,
        "old_log_prob": log_prob.detach(),
        "advantages": torch.tensor([[0.5], [-0.5]]).expand(2, 4),
        "response_mask": mask,
    }
    grpo, _ = verl_loss("vanilla", agg="seq-mean-token-mean", **given_all)
    dr_grpo, _ = verl_loss("vanilla", agg="seq-mean-token-sum-norm", loss_scale_factor=8, **given_all)
    assert float(grpo.detach()) == pytest.approx(0.0, abs=1e-7)
    assert float(dr_grpo.detach()) == pytest.approx(0.0625)
    assert slope(grpo, log_prob)[:, 0].tolist() == pytest.approx([-0.125, 0.0625])
    assert slope(dr_grpo, log_prob)[:, 0].tolist() == pytest.approx([-0.03125, 0.03125])


@pytest.mark.parametrize(
    ("mask", "low", "high", "expected"),
    [
        ([1, 1, 0, 1, 1], 0.2, 0.2, -1.161834),
        ([1, 1, 0, 1, 1], 3e-4, 4e-4, -1.0004),
        ([1, 1, 1, 1, 1], 10.0, 10.0, -8.16617),  # with the observation
    ],
)
def test_gspo_is_the_vector(mask: list[int], low: float, high: float, expected: float) -> None:
    loss, _ = verl_loss(
        "gspo",
        agg="seq-mean-token-mean",
        log_prob=torch.tensor([[0.1, 0.4, 9.9, -0.1, 0.2]]),
        old_log_prob=torch.zeros(1, 5),
        advantages=torch.ones(1, 5),
        response_mask=torch.tensor([mask]),
        clip_ratio_low=low,
        clip_ratio_high=high,
    )
    assert float(loss) == pytest.approx(expected, abs=1e-5)


def test_cispo_is_the_vector() -> None:
    log_prob = torch.tensor([[-1.0, -0.5, -2.0, -0.2]], requires_grad=True)
    loss, _ = verl_loss(
        "cispo",
        log_prob=log_prob,
        old_log_prob=log_prob.detach() - torch.tensor([[0.5, 1.0, 1.5, 4.0]]).log(),
        advantages=torch.tensor([[1.0, 1.0, -1.0, -1.0]]),
        response_mask=torch.ones(1, 4),
        clip_ratio_low=1.0,
        clip_ratio_high=0.28,
    )
    assert float(loss.detach()) == pytest.approx(-0.454)
    torch.testing.assert_close(slope(loss, log_prob), torch.tensor([[-0.125, -0.25, 0.32, 0.32]]))


@pytest.mark.parametrize(
    ("kind", "values", "slope_at_second"),
    [
        ("k1", [0.5, -1.0, 0.0], 1.0),
        ("k2", [0.125, 0.5, 0.0], -1.0),
        ("k3", [0.106531, 0.718282, 0.0], -1.718282),
        ("k3+", [0.106531, 0.718282, 0.0], -1.0),
    ],
)
def test_verls_kl_estimators_are_the_vector_and_ours(kind: str, values: list[float], slope_at_second: float) -> None:
    p = torch.tensor([[-1.0, -2.0, -0.7]], requires_grad=True)
    q = torch.tensor([[-1.5, -1.0, -0.7]])
    theirs = core_algos.kl_penalty(cast("Any", p), cast("Any", q), kind)
    torch.testing.assert_close(theirs.detach(), torch.tensor([values]), atol=1e-6, rtol=0)
    their_slope = slope(theirs.sum(), p)
    assert float(their_slope[0, 1]) == pytest.approx(slope_at_second, abs=1e-6)
    # On policy, k3 weighted with pi / pi_old is verl's `k3+`.
    ours = kl_per_token(
        cast("Any", {"k3+": "k3_is"}.get(kind, kind)),
        log_prob_BT=p,
        ref_log_prob_BT=q,
        old_log_prob_BT=p.detach(),
        mask_BT=torch.ones(1, 3, dtype=torch.bool),
    )
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(slope(ours.sum(), p), their_slope)


@given(difference=st.floats(-30, 30))
def test_our_k3_has_verls_bounds(difference: float) -> None:
    p, q = torch.tensor([[-difference]], requires_grad=True), torch.zeros(1, 1)
    mask = torch.ones(1, 1, dtype=torch.bool)
    ours = kl_per_token("k3", log_prob_BT=p, ref_log_prob_BT=q, old_log_prob_BT=q, mask_BT=mask)
    theirs = core_algos.kl_penalty(cast("Any", p), cast("Any", q), "k3")
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(slope(ours.sum(), p), slope(theirs.sum(), p), atol=1e-5, rtol=1e-5)


def test_the_kl_in_the_reward_is_the_vector() -> None:
    tensors = {
        "response_mask": torch.tensor([[1, 0, 1, 1]]),
        "token_level_scores": torch.tensor([[0.0, 0.0, 0.0, 1.0]]),
        "old_log_probs": torch.tensor([[-1.0, -3.0, -0.5, -0.2]]),
        "ref_log_prob": torch.tensor([[-1.2, -0.1, -0.9, -0.2]]),
    }
    data, _ = apply_kl_penalty(
        DataProto(batch=TensorDict(tensors, batch_size=1)), cast("Any", core_algos.FixedKLController(0.05))
    )
    torch.testing.assert_close(data.batch["token_level_rewards"], torch.tensor([[-0.01, 0.0, -0.02, 1.0]]))


def test_the_adaptive_kl_controller_is_the_vector() -> None:
    controller = core_algos.AdaptiveKLController(init_kl_coef=0.05, target_kl=0.1, horizon=10000)
    values = []
    for current in (0.2, 0.09):
        controller.update(current_kl=current, n_steps=512)
        values.append(controller.value)
    assert values == pytest.approx([0.050512, 0.050253], abs=1e-6)


def test_the_total_loss_is_the_vector() -> None:
    """Policy + value - .01 entropy, each over sampled tokens; verl's 0.5 of the value is inside its value loss."""
    mask, probs = torch.tensor([[1, 0, 1]]), torch.tensor([[[0.5, 0.5], [0.9, 0.1], [0.25, 0.75]]])
    values, returns = torch.tensor([[0.2, 9.0, 0.6]]), torch.ones(1, 3)
    policy, _ = verl_loss("vanilla", log_prob=LOG_PROB)
    value, _ = core_algos.compute_value_loss(
        vpreds=values, returns=returns, values=values, response_mask=mask, cliprange_value=100.0
    )
    entropy = core_algos.compute_entropy_loss(probs.log(), mask)
    assert float(value) == pytest.approx(0.5 * 0.4)
    assert float(entropy) == pytest.approx(0.627741, abs=1e-6)
    assert float(policy + value - 0.01 * entropy) == pytest.approx(0.137017, abs=1e-6)
    unmasked, _ = core_algos.compute_value_loss(
        vpreds=values, returns=returns, values=values, response_mask=torch.ones(1, 3), cliprange_value=100.0
    )
    assert float(unmasked) == pytest.approx(0.5 * 21.6)


@pytest.mark.parametrize(
    ("level", "threshold", "expected"),
    [
        ("token", 2.0, [0.3, 1.0, 2.0, 2.0]),
        ("token", "0.5_5.0", [0.0, 1.0, 2.5, 0.0]),
        ("sequence", 2.0, [2.0, 2.0, 2.0, 2.0]),
    ],
)
def test_rollout_weights_are_the_vector(level: str, threshold: float | str, expected: list[float]) -> None:
    log_ratio = torch.from_numpy(np.log([[0.3, 1.0, 2.5, 8.0]])).float()
    weights, _ = compute_rollout_correction_weights(
        log_ratio, torch.ones(1, 4), rollout_is=level, rollout_is_threshold=threshold
    )
    torch.testing.assert_close(weights, torch.tensor([expected]))


def test_ratio_masked_weighs_with_what_verl_would_hand_it_as_weights() -> None:
    rollout = OLD_LOG_PROB - torch.tensor([[0.3, 1.0, 2.5, 8.0, 1.5]]).log()
    batch = LossBatch(
        log_prob_BT=LOG_PROB,
        old_log_prob_BT=OLD_LOG_PROB,
        advantages_BT=ADVANTAGES,
        mask_BT=MASK,
        rollout_log_prob_BT=rollout,
    )
    ours = cast("Tensor", load_policy_loss("ratio_masked")(batch, of="rollout").per_token_BT)
    weights, _ = compute_rollout_correction_weights(
        OLD_LOG_PROB - rollout, MASK.float(), rollout_is="token", rollout_is_threshold="0.5_5.0"
    )
    theirs, _ = verl_loss("vanilla", log_prob=LOG_PROB, rollout_is_weights=weights)
    torch.testing.assert_close(core_algos.agg_loss(ours, MASK, "token-mean"), theirs)


def test_decoupled_ppo_is_the_vector() -> None:
    """Behaviour -1, proximal -.5, policy -.4: with verl's weights, and what one ratio for all would give."""
    one = torch.ones(1, 1)
    weights, _ = compute_rollout_correction_weights(
        torch.tensor([[-0.5 - -1.0]]), one, rollout_is="token", rollout_is_threshold=5.0
    )
    assert float(weights) == pytest.approx(1.648721, abs=1e-6)
    same: dict[str, Any] = {"log_prob": -0.4 * one, "advantages": one, "response_mask": one}
    decoupled, _ = verl_loss("vanilla", old_log_prob=-0.5 * one, rollout_is_weights=weights, **same)
    naive, _ = verl_loss("vanilla", old_log_prob=-1.0 * one, **same)
    assert float(decoupled) == pytest.approx(-1.822119, abs=1e-6)
    assert float(naive) == pytest.approx(-1.2)


@pytest.mark.slow
def test_verls_defaults_have_no_entropy_bonus_and_without_a_kl_no_reference_policy() -> None:
    folder = str(Path(cast("str", verl.trainer.__file__)).parent / "config")
    with initialize_config_dir(config_dir=folder, version_base=None):
        plain = compose("ppo_trainer")
        in_reward = compose("ppo_trainer", overrides=["algorithm.use_kl_in_reward=true"])
        in_loss = compose("ppo_trainer", overrides=["actor_rollout_ref.actor.use_kl_loss=true"])
    assert plain.actor_rollout_ref.actor.entropy_coeff == 0
    assert [need_reference_policy(config) for config in (plain, in_reward, in_loss)] == [False, True, True]
