"""Signs of collapse in series of metrics."""

from __future__ import annotations

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.observe.health.collapse_signs import CollapseWatch

STEPS = 40
FALLING = [0.4 - 0.38 * i / (STEPS - 1) for i in range(STEPS)]
STEADY = [0.4 + 0.01 * (-1) ** i for i in range(STEPS)]
FLAT = [0.5 + 0.02 * (-1) ** i for i in range(STEPS)]
LEARNING = [0.5 + 0.5 * i / (STEPS - 1) for i in range(STEPS)]
WATCH = CollapseWatch()


def test_siblings_that_become_alike_for_nothing_raise_the_alarm() -> None:
    assert (FALLING[0], FALLING[-1]) == pytest.approx((0.4, 0.02))
    signs = WATCH.signs(reward_std=FALLING, reward=FLAT)
    assert signs["alarm"] == signs["reward_std_fell"] == signs["reward_flat"] == 1.0
    assert signs["entropy_fell"] == signs["grad_norm_rose"] == 0.0


def test_siblings_that_become_alike_by_succeeding_do_not() -> None:
    signs = WATCH.signs(reward_std=FALLING, reward=LEARNING)
    assert signs["alarm"] == signs["reward_flat"] == 0.0 and signs["reward_std_fell"] == 1.0


def test_how_much_the_reward_must_rise_is_told_by_its_deviation() -> None:
    # A quarter of .4 is .1.
    for gain, alarm in ((0.09, 1.0), (0.15, 0.0)):
        reward = [0.5] * 20 + [0.5 + gain] * 20
        assert WATCH.signs(reward_std=[0.4] * 20 + [0.02] * 20, reward=reward)["alarm"] == alarm


def test_a_reward_that_falls_does_not_excuse_it() -> None:
    assert WATCH.signs(reward_std=FALLING, reward=LEARNING[::-1])["alarm"] == 1.0


def test_a_steady_run_raises_none() -> None:
    assert set(WATCH.signs(reward_std=STEADY, reward=FLAT, entropy=STEADY, grad_norm=STEADY).values()) == {0.0, 1.0}
    assert WATCH.signs(reward_std=STEADY, reward=FLAT, entropy=STEADY, grad_norm=STEADY)["alarm"] == 0.0


@pytest.mark.parametrize(("rising", "alarm"), [(True, 1.0), (False, 0.0)])
def test_entropy_and_gradients_raise_it_together_only(rising: bool, alarm: float) -> None:
    grad_norm = FALLING[::-1] if rising else STEADY
    signs = WATCH.signs(reward_std=STEADY, reward=FLAT, entropy=FALLING, grad_norm=grad_norm)
    assert (signs["entropy_fell"], signs["grad_norm_rose"], signs["alarm"]) == (1.0, alarm, alarm)


def test_short_series_say_nothing() -> None:
    assert set(WATCH.signs(reward_std=FALLING[-19:], reward=FLAT[:19]).values()) == {0.0}
    assert CollapseWatch(window=2).signs(reward_std=[0.4, 0.4, 0.02, 0.02], reward=[0.5] * 4)["alarm"] == 1.0


def test_one_odd_step_is_no_sign() -> None:
    odd = [*STEADY[:-1], 0.0]
    assert WATCH.signs(reward_std=odd, reward=FLAT)["alarm"] == 0.0


def test_levels_that_are_zero_have_not_changed() -> None:
    signs = WATCH.signs(reward_std=[0.0] * STEPS, reward=FLAT, entropy=[0.0] * STEPS, grad_norm=[0.0] * STEPS)
    assert signs["reward_std_fell"] == signs["entropy_fell"] == signs["grad_norm_rose"] == signs["alarm"] == 0.0


@pytest.mark.parametrize("wrong", [{"window": 0}, {"fallen_to": 1.5}, {"risen_to": 0.5}, {"gain": -1.0}])
def test_thresholds_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"^{next(iter(wrong))} must be a"):
        CollapseWatch(**wrong)  # pyright: ignore[reportArgumentType]
