"""A discriminator between experts and the policy, and its logit as a reward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from samples import sample, value

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.graders.components.imitation import imitation
from verl_agentic.graders.models.discriminator import Discriminator

EXPERT = [f"First I check the units. Then {n} plus {n} is {2 * n}." for n in range(20)]
POLICY = [f"uh {n} {n} so maybe {2 * n}" for n in range(60)]


@pytest.fixture(scope="module")
def learned() -> Discriminator:
    return Discriminator.fit(EXPERT[:15], POLICY[:45])


def test_the_logit_of_experts_is_above_0_and_that_of_the_policy_below(learned: Discriminator) -> None:
    assert min(map(learned.logit, EXPERT[15:])) > 0 > max(map(learned.logit, POLICY[45:]))


def test_sets_of_any_size_weigh_the_same_and_the_result_repeats(learned: Discriminator) -> None:
    assert learned == Discriminator.fit(EXPERT[:15], POLICY[:45])
    # Nothing tells the sides apart: the logit is 0, however many texts there are of each.
    same = Discriminator.fit(["a b"] * 2, ["a b"] * 9)
    assert same.logit("a b") == pytest.approx(0.0, abs=1e-9)


def test_the_component_pays_the_logit_within_its_bound(learned: Discriminator, tmp_path: Path) -> None:
    path = tmp_path / "discriminator.json"
    learned.save(path)
    assert Discriminator.load(path) == learned
    options: dict[str, Any] = {"model": str(path)}
    expert, policy = sample(f"{EXPERT[15]}<|im_end|>"), sample(POLICY[50])
    assert value(imitation, expert, **options) == pytest.approx(min(5.0, learned.logit(EXPERT[15])))
    assert value(imitation, expert, **options) > 0 > value(imitation, policy, **options)  # type: ignore[operator]
    assert value(imitation, policy, bound=0.01, **options) == -0.01
    assert value(imitation, sample(""), **options) == -5.0


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="experts"):
        Discriminator.fit([], ["x"])
    with pytest.raises(ConfigError, match="discriminator"):
        imitation.make({"model": str(tmp_path / "none.json")})
    learned = tmp_path / "d.json"
    Discriminator.fit(["a"], ["b"]).save(learned)
    with pytest.raises(ConfigError, match="bound"):
        imitation.make({"model": str(learned), "bound": 0})
