"""Advantages as verl's trainers ask for them: by name, with the keys of the rows."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from stored_rows import StoredRows, algorithm, to_data
from verl.protocol import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.core_algos import AdvantageEstimator
from verl.trainer.ppo.v1 import trainer_base
from verl.utils import device

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.credit.advantage import advantage_names
from verl_agentic.credit.credit.batch import last_valid_rows
from verl_agentic.credit.trainer_context import TrainerContext, use_context
from verl_agentic.verl import guard
from verl_agentic.verl.trainer import advantages as credit

ADVANTAGES: Any = cast("Any", trainer_base).compute_advantage_for_multi_trajectories
VERLS: Any = ADVANTAGES.__wrapped__
TOKEN_BASELINES = {"optimal_token_baseline", "tir_optimal_token_baseline"}
HANDED_OVER = {"gdpo", "remax", *TOKEN_BASELINES}
"""Estimators that verl's V1 trainers cannot run."""
NATIVE = sorted({estimator.value for estimator in AdvantageEstimator} - HANDED_OVER)
COMPARING = ["grpo", "gpg", "grpo_vectorized", "opo", "reinforce_plus_plus_baseline", "rloo", "rloo_vectorized"]
"""verl's that compare sessions of a group, and run under all trainers; `grpo_passk` looks at the best one only."""


def compute(function: Any, data: DataProto, keys: Sequence[str], name: Any, *, n: int = 4, **options: Any) -> DataProto:
    """Returns a copy of the data with the advantages that a function gives."""
    config = algorithm(**options)
    return function(
        copy.deepcopy(data),
        batch_keys=list(keys),
        adv_estimator=name,
        gamma=config.gamma,
        lam=config.lam,
        num_repeat=n,
        norm_adv_by_std_in_grpo=config.norm_adv_by_std_in_grpo,
        config=config,
    )


def per_row(data: DataProto) -> list[float]:
    """Returns the advantage of each row, which must be the same on its sampled tokens and 0 elsewhere."""
    mask, advantages = data.batch["response_mask"].bool(), data.batch["advantages"]
    values = torch.where(mask, advantages, -math.inf).amax(dim=1)
    values = torch.where(mask.any(dim=1), values, 0.0)
    assert torch.equal(advantages, torch.where(mask, values.unsqueeze(1), 0.0))
    return values.tolist()


def healthy(*, dense: bool = False, tokens: int = 7) -> tuple[DataProto, list[str]]:
    """Returns four groups of four sessions of one row, with observations in between, in mixed order."""
    draw = torch.Generator().manual_seed(3)
    keys = [f"u{place % 4}_{place // 4}_0" for place in range(16)]
    lengths = torch.randint(2, tokens + 1, (16, 1), generator=draw)
    mask = (torch.rand(16, tokens, generator=draw) < 0.7).long() * (torch.arange(tokens) < lengths)
    mask.scatter_(1, lengths - 1, 1)
    rewards = torch.zeros(16, tokens).scatter_(1, lengths - 1, torch.randint(0, 5, (16, 1), generator=draw) / 7)
    if dense:
        rewards += torch.rand(16, tokens, generator=draw) * mask
    columns = {
        "values": torch.randn(16, tokens, generator=draw),
        "old_log_probs": -torch.rand(16, tokens, generator=draw),
        "rollout_log_probs": -torch.rand(16, tokens, generator=draw),
    }
    return to_data(keys, rewards, mask, **columns), keys


def assert_same_on_sampled(got: DataProto, wanted: DataProto, *, rows: Any = slice(None)) -> None:
    """Asserts equality to the bit wherever the policy sampled."""
    mask = wanted.batch["response_mask"].bool()
    for column in ("advantages", "returns"):
        assert torch.equal(got.batch[column][rows][mask], wanted.batch[column][mask]), column


# Healthy batches.


@pytest.mark.parametrize("hands_over", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("name", NATIVE)
def test_on_healthy_batches_verls_estimators_give_what_they_give_without_us(
    name: str, norm: bool, dense: bool, hands_over: bool
) -> None:
    data, keys = healthy(dense=dense)
    context = TrainerContext(columns={"uses_B": torch.ones(16, dtype=torch.int64)} if hands_over else {})
    with use_context(context):
        got = compute(ADVANTAGES, data, keys, name, norm_adv_by_std_in_grpo=norm, gamma=0.9)
    wanted = compute(VERLS, data, keys, name, norm_adv_by_std_in_grpo=norm, gamma=0.9)
    assert_same_on_sampled(got, wanted)
    assert got.batch["advantages"][~data.batch["response_mask"].bool()].count_nonzero() == 0
    assert context.metrics["credit/sessions"] == 16


@pytest.mark.parametrize("num_padding", [1, 5])
@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "gae"])
def test_padding_rows_change_no_metric(name: str, num_padding: int) -> None:
    data, keys = healthy()
    columns = {key: torch.cat([data.batch[key], 9 * torch.ones_like(data.batch[key][:num_padding])])
               for key in ("values", "old_log_probs", "rollout_log_probs")}  # fmt: skip
    nothing = torch.zeros_like(data.batch["response_mask"][:num_padding])
    mask = torch.cat([data.batch["response_mask"], nothing])
    rewards = torch.cat([data.batch["token_level_rewards"], nothing.float()])
    padded = [*keys, *(f"pad{'0123456789abcdef' * 2}_{place}_0" for place in range(num_padding))]
    metrics = []
    for rows, its_keys in ((data, keys), (to_data(padded, rewards, mask, **columns), padded)):
        with use_context(context := TrainerContext()):
            compute(ADVANTAGES, rows, its_keys, name)
        metrics.append(context.metrics)
    assert metrics[1] == pytest.approx(metrics[0], nan_ok=True) and metrics[0]["credit/void_session_frac"] == 0


def test_the_name_may_be_a_member_of_verls_enumeration() -> None:
    data, keys = healthy()
    wanted = compute(VERLS, data, keys, AdvantageEstimator.RLOO)
    assert_same_on_sampled(compute(ADVANTAGES, data, keys, AdvantageEstimator.RLOO), wanted)


def _by_hand(name: str, data: DataProto, columns: dict[str, Any], config: Any) -> tuple[torch.Tensor, torch.Tensor]:
    given: dict[str, Any] = {name: data.batch[name] for name in ("token_level_rewards", "response_mask")}
    index = data.non_tensor_batch["uid"]
    if name == "remax":
        return core_algos.compute_remax_outcome_advantage(**given, reward_baselines=columns["baseline_B"])
    if name == "gdpo":
        prompts = torch.zeros(len(index), 3)
        # verl pads responses at the right.
        lengths = torch.where(given["response_mask"].bool(), torch.arange(7) + 1, 0).amax(dim=1, keepdim=True)
        attention = torch.cat([torch.ones(len(index), 3), (torch.arange(7) < lengths).float()], dim=1)
        parts = {key: np.array(part.tolist(), dtype=object) for key, part in columns["parts"].items()}
        batch = {"prompts": prompts, "attention_mask": attention.long()}
        return core_algos.compute_gdpo_outcome_advantage(
            **given, index=index, config=config, non_tensor_batch=parts, batch=batch
        )
    raise AssertionError(name)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("name", sorted(HANDED_OVER - TOKEN_BASELINES))
def test_what_verls_trainers_cannot_run_gives_what_its_function_gives_by_hand(
    name: str, dense: bool, weighted: bool
) -> None:
    data, keys = healthy(dense=dense)
    draw = torch.Generator().manual_seed(5)
    if weighted:
        data.batch["rollout_is_weights"] = torch.rand(16, 7, generator=draw)
    columns = {
        "baseline_B": torch.rand(4, generator=draw).repeat(4),
        "sum_pi_squared_BT": torch.rand(16, 7, generator=draw),
        "parts": {name: torch.randint(0, 4, (16,), generator=draw) / 3 for name in ("acc", "format")},
    }
    options: dict[str, Any] = {"gdpo_reward_keys": ["acc", "format"], "gdpo_reward_weights": [1.0, 0.5]}
    with use_context(TrainerContext(columns=columns)):
        got = compute(ADVANTAGES, data, keys, name, **options)
    advantages, returns = _by_hand(name, data, columns, algorithm(**options))
    mask = data.batch["response_mask"].bool()
    assert torch.equal(got.batch["advantages"][mask], advantages[mask])
    assert torch.equal(got.batch["returns"][mask], returns[mask])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", sorted(TOKEN_BASELINES))
def test_verls_token_baselines_are_ours(name: str, weighted: bool) -> None:
    """The numbers of verl's function, in sessions of as many sampled tokens; observations lie anywhere."""
    draw = torch.Generator().manual_seed(5)
    keys = [f"u{place % 4}_{place // 4}_0" for place in range(16)]
    mask = (torch.rand(16, 7, generator=draw).argsort(dim=1) < 4).long()
    place = (mask * torch.arange(7)).argmax(dim=1, keepdim=True)
    rewards = torch.zeros(16, 7).scatter_(1, place, torch.rand(16, 1, generator=draw))
    data = to_data(keys, rewards, mask, old_log_probs=-torch.rand(16, 7, generator=draw))
    if weighted:
        data.batch["rollout_is_weights"] = torch.rand(16, 7, generator=draw) + 0.1
    sum_pi_squared = torch.rand(16, 7, generator=draw) + 1.0
    with use_context(TrainerContext(columns={"sum_pi_squared_BT": sum_pi_squared})):
        got = compute(ADVANTAGES, data, keys, name)
    advantages, _ = core_algos.compute_multi_turn_optimal_token_baseline_advantage(
        rewards,
        mask,
        index=data.non_tensor_batch["uid"],
        old_log_probs=data.batch["old_log_probs"],
        sum_pi_squared=sum_pi_squared,
        rollout_is_weights=data.batch.get("rollout_is_weights", None),
    )
    torch.testing.assert_close(got.batch["advantages"], advantages)


@pytest.mark.parametrize("name", sorted(HANDED_OVER))
def test_under_verls_own_trainers_their_error_says_what_to_set(name: str) -> None:
    data, keys = healthy()
    with pytest.raises(ConfigError, match=f"'{name}' cannot run .* set trainer.v1.trainer_mode to agentic_sync"):
        compute(ADVANTAGES, data, keys, name, gdpo_reward_keys=["acc"])


# Rows that say nothing about the policy.

SIBLINGS = ["u_0_0", "u_1_0", "u_2_0", "u_3_0", "v_0_0", "v_1_0"]


def siblings(kind: str) -> tuple[DataProto, list[str]]:
    """Returns outcomes 1, -, 0, 0 of one group, and 1, 0 of another; the second row is not to count."""
    mask = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 1, 0], [1, 1, 1], [1, 1, 0], [1, 0, 1]])
    rewards = torch.tensor([[0.0, 0, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 0]])
    keys = list(SIBLINGS)
    if kind == "nan":
        rewards[1, 2] = math.nan
    elif kind == "inf":
        rewards[1, 0] = math.inf
    else:
        mask[1] = 0
        keys[1] = "padx_0_0" if kind == "padding" else keys[1]
    draw = torch.Generator().manual_seed(1)
    columns = {name: -torch.rand(6, 3, generator=draw) for name in ("values", "old_log_probs")}
    return to_data(keys, rewards, mask, **columns), keys


@pytest.mark.parametrize("kind", ["void", "padding", "nan", "inf"])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("name", NATIVE)
def test_siblings_get_what_they_get_without_the_row(name: str, norm: bool, kind: str) -> None:
    data, keys = siblings(kind)
    left = [0, 2, 3, 4, 5]
    got = compute(ADVANTAGES, data, keys, name, norm_adv_by_std_in_grpo=norm)
    part, part_keys = data.select_idxs(left), [keys[row] for row in left]
    assert_same_on_sampled(got, compute(VERLS, part, part_keys, name, norm_adv_by_std_in_grpo=norm), rows=left)
    assert got.batch["advantages"][1].count_nonzero() == 0
    targets = got.batch["returns"][1]
    mask = data.batch["response_mask"][1]
    assert torch.equal(targets, data.batch["values"][1] * mask), "a critic learns nothing from it"


@pytest.mark.parametrize("name", ["grpo", "dr_grpo"])
def test_a_masked_sibling_does_not_move_the_baseline(name: str) -> None:
    data, keys = siblings("void")
    # V-MASKEDSIB; verl gives .5, 0, -.5, -.5.
    assert per_row(compute(ADVANTAGES, data, keys, name))[:4] == pytest.approx([2 / 3, 0, -1 / 3, -1 / 3])


@pytest.mark.parametrize("name", [*COMPARING, "grpo_passk"])
def test_a_survivor_without_siblings_gets_nothing_and_is_not_there_for_others(name: str) -> None:
    keys = ["u_0_0", "u_1_0", "v_0_0", "v_1_0"]
    data = to_data(keys, [[0.0, 3.0], [0, 1], [0, 1], [0, 0]], [[1, 1], [0, 0], [1, 1], [1, 1]])
    got = compute(ADVANTAGES, data, keys, name, n=2)
    assert got.batch["advantages"][:2].count_nonzero() == 0
    wanted = compute(VERLS, data.select_idxs([2, 3]), keys[2:], name, n=2)
    assert_same_on_sampled(got, wanted, rows=[2, 3])


def test_where_groups_are_of_one_the_bare_reward_stays() -> None:
    data = to_data(["u_0_0", "v_0_0"], [[0.0, 3.0], [0, 1]], [[1, 1], [1, 1]])
    assert per_row(compute(ADVANTAGES, data, ["u_0_0", "v_0_0"], "grpo", n=1)) == [3.0, 1.0]


@pytest.mark.parametrize("name", ["remax", "safe_remax"])
def test_a_session_without_a_baseline_is_taken_out_and_one_without_siblings_is_not(name: str) -> None:
    keys = ["u_0_0", "u_1_0", "v_0_0"]
    data = to_data(keys, [[0.0, 3.0], [0, 1], [0, 5]], [[1, 1], [0, 0], [1, 1]])
    context = TrainerContext(columns={"baseline_B": torch.tensor([1.0, 1.0, math.nan])})
    with use_context(context):
        got = compute(ADVANTAGES, data, keys, name)
    assert per_row(got) == [2.0, 0.0, 0.0] and context.metrics["credit/nonfinite_sessions"] == 1


@pytest.mark.parametrize("name", [*NATIVE, *sorted(set(advantage_names()) & {"dr_grpo", "batch_baseline", "lite_ppo"})])
def test_a_batch_without_any_valid_row_has_no_advantages(name: str) -> None:
    data = to_data(["u_0_0", "u_1_0"], [[0.0, 3.0], [0, 1]], torch.zeros(2, 2, dtype=torch.int64))
    data.batch["values"] = torch.ones(2, 2)
    assert per_row(compute(ADVANTAGES, data, ["u_0_0", "u_1_0"], name)) == [0.0, 0.0]


# Several rows of a session.

ROWS = ["u_0_1", "u_1_0", "u_0_0", "u_0_2"]
"""Three rows of a session that earns 1 and one row of a session that earns 0, in any order."""
EQUAL = [0.5, -0.5, 0.5, 0.5]


def several(queue: StoredRows, rewards: Sequence[float], *, place: str | None) -> DataProto:
    """Stores the rows, with a reward on the last token of each; with a place, as ours."""
    tokens = [[0.0, reward] for reward in rewards]
    for key, row in zip(ROWS, tokens, strict=True):
        queue.put_row(key, row, place=place if place is None else "last" if key in ("u_1_0", "u_0_2") else place)
    return to_data(ROWS, tokens, [[1, 1]] * 4)


@pytest.mark.parametrize(
    ("rewards", "place"),
    [
        ([0.0, 0.0, 0.0, 1.0], "earlier"),  # the outcome
        ([0.25, 0.0, 0.25, 0.5], "earlier"),  # and turn rewards on earlier rows
        ([1.0, 0.0, 1.0, 1.0], None),  # verl's copies for other loops
    ],
)
@pytest.mark.parametrize("name", ["grpo", "dr_grpo"])
def test_a_session_of_three_rows_has_one_vote_and_one_advantage(
    queue: StoredRows, name: str, rewards: list[float], place: str | None
) -> None:
    data = several(queue, rewards, place=place)
    assert per_row(compute(ADVANTAGES, data, ROWS, name, n=2)) == EQUAL


@pytest.mark.parametrize("name", [*COMPARING, "grpo_passk"])
@pytest.mark.parametrize(("rewards", "place"), [([0.25, 0.0, 0.25, 0.5], "earlier"), ([1.0, 0.0, 1.0, 1.0], None)])
def test_every_row_of_a_session_gets_what_a_session_of_one_row_gets(
    queue: StoredRows, name: str, rewards: list[float], place: str | None
) -> None:
    got = compute(ADVANTAGES, several(queue, rewards, place=place), ROWS, name, n=2)
    keys = ["u_0_2", "u_1_0"]
    data = to_data(keys, [[0.0] * 5 + [1.0], [0.0] * 6], [[1] * 6, [1] * 2 + [0] * 4])
    wanted = compute(VERLS, data, keys, name, n=2)
    one, other = per_row(wanted)
    assert per_row(got) == [one, other, one, one]


@pytest.mark.parametrize("name", ["gae", "reinforce_plus_plus"])
@pytest.mark.parametrize("place", ["earlier", None])
def test_verls_estimators_of_tokens_see_a_session_as_one_row(queue: StoredRows, name: str, place: str | None) -> None:
    data = several(queue, [0.0, 0.0, 0.0, 1.0] if place else [1.0, 0.0, 1.0, 1.0], place=place)
    data.batch["values"] = torch.rand(4, 2, generator=torch.Generator().manual_seed(0))
    got = compute(ADVANTAGES, data, ROWS, name, gamma=0.9)
    # Rows 2, 0 and 3 are the session's first, second and third.
    values, order = data.batch["values"], [2, 0, 3]
    whole = torch.stack([values[order].flatten(), torch.cat([values[1], torch.zeros(4)])])
    rewards, mask = [[0.0] * 5 + [1.0], [0.0] * 6], [[1] * 6, [1] * 2 + [0] * 4]
    keys = ["u_0_0", "u_1_0"]
    wanted = compute(VERLS, to_data(keys, rewards, mask, values=whole), keys, name, gamma=0.9)
    for column in ("advantages", "returns"):
        torch.testing.assert_close(got.batch[column][order].flatten(), wanted.batch[column][0])
        torch.testing.assert_close(got.batch[column][1], wanted.batch[column][1, :2])


def test_what_a_rejected_row_earned_is_its_sessions(queue: StoredRows) -> None:
    data = several(queue, [0.25, 0.0, 0.75, 1.0], place="earlier")
    data.batch["response_mask"][3] = 0
    assert per_row(compute(ADVANTAGES, data, ROWS, "grpo", n=2)) == [1.0, -1.0, 1.0, 0.0]


def test_a_session_is_spoken_for_by_its_last_row_wherever_that_stands() -> None:
    keys = ["u_0_1", "u_1_0", "u_0_0"]
    batch = credit.to_batch(to_data(keys, torch.zeros(3, 1), [[1]] * 3), keys, {}, by_session=False)
    assert last_valid_rows(batch).tolist() == [0, 1]


# Rewards that verl puts on what was not sampled.


@pytest.mark.parametrize("name", [*COMPARING, "grpo_passk"])
def test_a_score_on_an_observation_counts(name: str) -> None:
    keys = ["u_0_0", "u_1_0"]
    mask = [[1, 1, 0], [1, 1, 1]]
    data = to_data(keys, [[0.0, 0.0, 1.0], [0, 0, 0]], mask)
    assert_same_on_sampled(compute(ADVANTAGES, data, keys, name), compute(VERLS, data, keys, name))
    given = data.batch["token_level_rewards"]
    assert given.tolist() == [[0, 0, 1], [0, 0, 0]], "what verl logs is left alone"


def test_a_score_on_an_observation_is_learned_from_at_the_last_sampled_token() -> None:
    data = to_data(["u_0_0"], [[0.0, 0.0, 1.0]], [[1, 1, 0]])
    wanted = to_data(["u_0_0"], [[0.0, 1.0, 0.0]], [[1, 1, 0]])
    got = compute(ADVANTAGES, data, ["u_0_0"], "reinforce_plus_plus", gamma=0.5)
    assert_same_on_sampled(got, compute(VERLS, wanted, ["u_0_0"], "reinforce_plus_plus", gamma=0.5))


# Estimators of others, and the section algorithm.credit.


@pytest.fixture
def ramp(monkeypatch: pytest.MonkeyPatch) -> str:
    """Registers a user's estimator, which tells tokens apart and looks at every row."""

    def estimator(token_level_rewards: Any, response_mask: Any, **kwargs: Any) -> Any:
        advantages = torch.arange(response_mask.shape[1]) * response_mask + token_level_rewards.sum()
        return advantages, advantages

    monkeypatch.setitem(core_algos.ADV_ESTIMATOR_REGISTRY, "ramp", estimator)
    return "ramp"


def test_a_users_estimator_keeps_its_advantages_per_token_and_its_rows(queue: StoredRows, ramp: str) -> None:
    data = several(queue, [1.0, 0.0, 1.0, 1.0], place=None)
    assert_same_on_sampled(compute(ADVANTAGES, data, ROWS, ramp), compute(VERLS, data, ROWS, ramp))


def test_what_is_not_finite_is_refused_with_the_estimators_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def estimator(response_mask: Any, **kwargs: Any) -> Any:
        return response_mask / 0, response_mask / 0

    monkeypatch.setitem(core_algos.ADV_ESTIMATOR_REGISTRY, "broken", estimator)
    data, keys = healthy()
    with pytest.raises(DataError, match="'broken'"):
        compute(ADVANTAGES, data, keys, "broken")


def test_the_section_credit_holds_for_verls_estimators() -> None:
    keys = ["u_0_0", "u_1_0"]
    data = to_data(keys, [[9.0], [0.0]], [[1], [1]])
    assert per_row(compute(ADVANTAGES, data, keys, "grpo", credit={"clip": 2.0})) == [2.0, -2.0]
    sources = TrainerContext(columns={"source_B": torch.tensor([0, 0])})
    with use_context(sources):
        got = compute(ADVANTAGES, data, keys, "grpo", credit={"by_source": True})
    # z-scores of 9 and 0 are 1 / sqrt 2 and its opposite; their mean is 0.
    assert per_row(got) == pytest.approx([0.5**0.5, -(0.5**0.5)])


def test_verls_registry_knows_our_estimators() -> None:
    data, keys = healthy()
    function = functools.partial(core_algos.get_adv_estimator_fn("dr_grpo"), config=algorithm())
    given = {name: data.batch[name] for name in ("token_level_rewards", "response_mask")}
    advantages, returns = function(**given, index=data.non_tensor_batch["uid"])
    assert torch.equal(advantages, compute(ADVANTAGES, data, keys, "dr_grpo").batch["advantages"])
    assert returns is advantages
    with pytest.raises(ConfigError, match="no options"):
        core_algos.get_adv_estimator_fn("dr_grpo")(**given, config=algorithm(credit={"options": {"ddof": 2}}))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"adv_estimator": "dr_grpo", "credit": {"clipping": 1}}, "clipping"),
        ({"adv_estimator": "grpo", "credit": {"clip": -1}}, "clip"),
        ({"adv_estimator": "dr_grpo", "credit": {"options": {"std": 1}}}, "std"),
        ({"adv_estimator": "grpo", "credit": {"options": {"std": 1}}}, "'grpo'"),
        ({"adv_estimator": "vapo_gae"}, "vapo_gae"),
    ],
)
def test_a_section_that_cannot_work_stops_a_run_of_any_trainer_before_it_starts(
    monkeypatch: pytest.MonkeyPatch, section: dict[str, Any], message: str
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(device, "auto_set_device", started.append)
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    guard.install_check(lambda names: None)
    config = OmegaConf.create({"algorithm": section, "trainer": {"v1": {"trainer_mode": "sync"}}})
    with pytest.raises(ConfigError, match=message):
        device.auto_set_device(config)
    assert not started
    config.algorithm.credit, config.critic = {"clip": 1.0}, {"enable": True}
    device.auto_set_device(config)
    assert started


@pytest.mark.parametrize("place", ["own_credit", "own_credit.py"])
def test_an_estimator_of_the_user_is_found_by_its_address(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_credit.py").write_text(
        "import torch\nfrom verl_agentic.credit.advantage import advantage\n\n"
        "@advantage()\ndef own(batch, *, value: float = 1.0):\n    return torch.full_like(batch.rewards_BT, value)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    data, keys = healthy()
    got = compute(ADVANTAGES, data, keys, f"{place}:own", credit={"options": {"value": 3.0}})
    assert got.batch["advantages"].tolist() == (3.0 * data.batch["response_mask"]).tolist()
