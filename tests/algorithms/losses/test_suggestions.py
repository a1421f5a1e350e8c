"""A policy gradient on suggestions that users accepted or rejected."""

from __future__ import annotations

import random

import pytest
import torch

from verl_agentic.methods.losses.suggestions import SuggestionSettings, suggestion_loss, suggestion_reward

SETTINGS = SuggestionSettings(clip=0.2, max_drift=0.5)


def test_a_suggestion_is_worth_0_where_a_quarter_is_accepted() -> None:
    accepted, rejected, hidden = map(suggestion_reward, ("accepted", "rejected", "hidden"))
    assert (accepted, rejected, hidden) == (0.75, -0.25, 0.0)
    assert 0.25 * accepted + 0.75 * rejected == hidden


def slope(log_ratio: float, reward: float) -> float:
    """Returns the gradient of one token's loss, whose author found it likely with 1/2."""
    log_prob_N = torch.tensor([-0.7 + log_ratio], requires_grad=True)
    suggestion_loss(log_prob_N, torch.tensor([-0.7]), reward=reward, settings=SETTINGS).loss_N.sum().backward()
    assert log_prob_N.grad is not None
    return log_prob_N.grad.item()


def test_a_token_moves_with_its_reward_until_it_leaves_the_clip_range() -> None:
    assert slope(0.0, 0.75) == pytest.approx(-0.75) and slope(0.0, -0.25) == pytest.approx(0.25)
    assert slope(0.3, 0.75) == 0.0 and slope(-0.3, -0.25) == 0.0
    assert slope(-0.3, 0.75) < 0 < slope(0.3, -0.25), "back into the range"


def test_a_suggestion_of_a_policy_that_has_drifted_away_has_no_loss() -> None:
    log_prob_N = torch.tensor([-0.1, -3.0], requires_grad=True)
    loss = suggestion_loss(log_prob_N, torch.tensor([-1.1, -2.9]), reward=0.75, settings=SETTINGS)
    assert not loss.is_used and loss.loss_N.tolist() == [0.0, 0.0]
    near = suggestion_loss(log_prob_N, torch.tensor([-1.0, -2.9]), reward=0.75, settings=SETTINGS)
    assert near.is_used and bool((near.loss_N != 0).all())


def test_a_model_learns_from_its_log_when_to_be_silent() -> None:
    """Two kinds of places in a file: users accept 60 % of the suggestions at one, and 10 % at the other.

    Each log is that of the last but one model, and is used for three updates.
    """
    chances, generator = (0.6, 0.1), random.Random(0)
    logits = torch.zeros(2, 2, requires_grad=True)  # of showing and hiding, at each kind
    optimizer = torch.optim.SGD([logits], lr=5.0)
    served = logits.detach().log_softmax(-1)
    for _ in range(40):
        newest = logits.detach().log_softmax(-1)
        log = []
        for place in [0, 1] * 16:
            action = int(generator.random() > served[place, 0].exp())
            is_accepted = generator.random() < chances[place]
            verdict = "hidden" if action else "accepted" if is_accepted else "rejected"
            log.append((place, action, served[place, action], suggestion_reward(verdict)))
        for _ in range(3):
            log_probs = logits.log_softmax(-1)
            losses = [
                suggestion_loss(log_probs[place, action : action + 1], author.reshape(1), reward=reward,
                                settings=SETTINGS).loss_N
                for place, action, author, reward in log
            ]  # fmt: skip
            optimizer.zero_grad()
            (torch.cat(losses).sum() / len(log)).backward()
            optimizer.step()
        served = newest
    shown = logits.detach().softmax(-1)[:, 0].tolist()
    assert shown[0] > 0.8 and shown[1] < 0.2
