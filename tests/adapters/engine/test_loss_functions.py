"""Our policy losses inside verl's `ppo_loss`: what they are given, and that micro-batches make no difference."""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import pickle
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import hydra
import pytest
import torch
import verl.trainer
from omegaconf import OmegaConf, open_dict
from tensordict import TensorDict
from verl.trainer.ppo import core_algos
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import AggregationType
from verl.workers.utils import losses

import verl_agentic.verl.engine.loss_config  # noqa: F401
from verl_agentic.base.errors import ConfigError
from verl_agentic.checks.preflight.checks.policy_loss import SPLIT_LOSSES
from verl_agentic.config.recipe_groups import load_recipe, recipe_names
from verl_agentic.credit.policy_loss import Loss, LossBatch, policy_loss_names
from verl_agentic.verl.engine import loss_functions

Tensor = torch.Tensor
PROMPTS, RESPONSES = [3, 1, 2, 1], [2, 4, 1, 3]
LENGTHS = [p + r for p, r in zip(PROMPTS, RESPONSES, strict=True)]
COLUMNS = ["ref_log_prob", "rollout_log_probs", "values", "teacher_log_prob", "old_mean_log_prob"]


def to_config(loss_mode: str, **more: Any) -> Any:
    """Returns verl's config of an actor, made as verl makes it."""
    actor = _composed().copy()
    with open_dict(actor):
        actor.policy_loss.loss_mode = loss_mode
        actor.update({"ppo_micro_batch_size_per_gpu": 4, "rollout_n": 4, "strategy": "fsdp2"})
        options = more.pop("options", None)
        if options is not None:
            actor.policy_loss.options = options
        for key, value in more.items():
            OmegaConf.update(actor, key, value)
    return omega_conf_to_dataclass(actor)


@functools.cache
def _composed() -> Any:
    with hydra.initialize_config_dir(str(Path(verl.trainer.__file__).parent / "config"), version_base=None):
        config = hydra.compose("ppo_trainer")
    OmegaConf.resolve(config)
    return config.actor_rollout_ref.actor


def nested(rows: Sequence[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


def drawn(lengths: Sequence[int], seed: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [-torch.rand(length, generator=draw) for length in lengths]


def batch_of(rows: Sequence[int], *, num_rows: int | None = None, dp_size: int = 1, **more: Any) -> TensorDict:
    """Returns a micro-batch of verl's actor: some of four kinds of rows, of a mini-batch of `num_rows`."""
    kinds = [row % 4 for row in rows]
    columns: dict[str, Any] = {
        "prompts": nested([torch.arange(PROMPTS[kind]) for kind in kinds]),
        "responses": nested([torch.arange(RESPONSES[kind]) for kind in kinds]),
        "response_mask": nested([_mask(row) for row in rows]),
        "turn_ids": nested([torch.arange(RESPONSES[kind]) // 2 for kind in kinds]),
        "credit_group": torch.tensor([row // 4 for row in rows]),
        "credit_group_size": torch.full((len(rows),), 4),
        "credit_outcome": torch.tensor([float(row % 2) for row in rows]),
        "credit_positive_share": torch.full((len(rows),), 0.6),
        "is_external": torch.tensor([int(row % 8 == 1) for row in rows]),
    }
    for seed, name in enumerate(["old_log_probs", "advantages", *COLUMNS]):
        drawn_rows = [drawn(RESPONSES, 100 * seed + row // 4)[row % 4] for row in rows]
        columns[name] = nested([row + 0.5 if name == "advantages" else row for row in drawn_rows])
    columns.update(more)
    data = TensorDict(columns, batch_size=len(rows))
    every_row = range(num_rows or len(rows))
    tu.assign_non_tensor(
        data,
        dp_size=dp_size,
        batch_num_tokens=int(sum(_mask(row).sum() for row in every_row)),
        global_batch_size=len(every_row),
    )
    return data


def _mask(row: int) -> Tensor:
    mask = torch.ones(RESPONSES[row % 4], dtype=torch.int64)
    if row == 5:
        mask[1:3] = 0  # an observation
    return mask * (row != 7 and row < 16)  # a void row, and padding


def output_of(rows: Sequence[int], weight: Tensor) -> dict[str, Tensor]:
    """Returns what a model says at every position of rows; it depends on a weight."""

    def column(seed: int, *, sign: int = 1) -> Tensor:
        values = [sign * drawn(LENGTHS, seed + row // 4)[row % 4] * (1 + 0.1 * weight) for row in rows]
        lengths = torch.tensor([0, *(len(value) for value in values)])
        return torch.nested.nested_tensor_from_jagged(torch.cat(values), lengths.cumsum(0))

    return {"log_probs": column(7000), "entropy": column(8000, sign=-1), "mean_log_prob": column(9000)}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[LossBatch]:
    """Registers a loss that writes down what it is given."""
    batches: list[LossBatch] = []

    def loss(batch: LossBatch, **options: Any) -> Loss:
        batches.append(batch)
        return Loss(per_token_BT=batch.log_prob_BT, metrics={"rows": float(len(batch.mask_BT))})

    monkeypatch.setattr(loss_functions, "load_policy_loss", lambda name: loss)
    monkeypatch.setattr(loss_functions, "is_policy_loss", {"spy"}.__contains__)
    monkeypatch.setattr(loss_functions, "_register_loss", lambda name: None)
    monkeypatch.setitem(core_algos.POLICY_LOSS_REGISTRY, "spy", loss_functions._adapt_loss("spy"))
    return batches


# What a loss is given.


def test_top_tokens_of_policy_and_teacher_are_padded_alike_and_keep_the_gradient() -> None:
    top = [torch.randn(length, 3) for length in RESPONSES]
    values = torch.cat(top).requires_grad_()
    offsets = torch.tensor([0, *RESPONSES]).cumsum(0)
    of_policy = torch.nested.nested_tensor_from_jagged(values, offsets)
    masks = nested([torch.ones(length, dtype=torch.int64) for length in RESPONSES])
    data = {"response_mask": masks, "teacher_top_log_probs": nested([2 * rows for rows in top])}
    columns = loss_functions._collect_columns({"top_log_probs": of_policy}, data)
    policy, teacher = columns["top_log_prob_BTK"], columns["teacher_top_log_prob_BTK"]
    assert policy.shape == teacher.shape == (4, max(RESPONSES), 3) and not teacher.requires_grad
    for number, rows in enumerate(top):
        assert torch.equal(policy[number, : len(rows)], rows) and torch.equal(teacher[number, : len(rows)], 2 * rows)
    (found,) = torch.autograd.grad(policy.sum(), values)
    assert torch.equal(found, torch.ones_like(values))
    assert not loss_functions._collect_columns({}, data) and not loss_functions._collect_columns(
        {"top_log_probs": of_policy}, {"response_mask": masks}
    )


@pytest.mark.slow
def test_every_column_is_aligned_with_the_log_probs_of_the_response(seen: list[LossBatch]) -> None:
    rows, weight = [0, 1, 2, 3], torch.zeros(())
    more: dict[str, Any] = {"turn_ids": nested([torch.arange(9) + 10 * row for row in rows])}  # padding keeps more
    data = batch_of(rows, **more)
    losses.ppo_loss(to_config("spy"), output_of(rows, weight), data)
    (batch,) = seen
    for row in rows:
        # What the model says at position p is about token p + 1: the response's begins one before it.
        window = slice(PROMPTS[row] - 1, LENGTHS[row] - 1)
        length = RESPONSES[row]
        assert torch.equal(batch.log_prob_BT[row, :length], drawn(LENGTHS, 7000)[row][window])
        assert torch.equal(batch.entropy_BT[row, :length], -drawn(LENGTHS, 8000)[row][window])  # type: ignore[index]
        for number, (name, got) in enumerate(
            [
                ("old_log_probs", batch.old_log_prob_BT),
                ("advantages", batch.advantages_BT - 0.5 * batch.mask_BT),
                ("ref_log_prob", batch.ref_log_prob_BT),
                ("rollout_log_probs", batch.rollout_log_prob_BT),
                ("values", batch.values_BT),
                ("teacher_log_prob", batch.teacher_log_prob_BT),
            ]
        ):
            torch.testing.assert_close(got[row, :length], drawn(RESPONSES, 100 * number)[row], msg=name)  # type: ignore[index]
        change = drawn(LENGTHS, 9000)[row][window] - drawn(RESPONSES, 600)[row]
        torch.testing.assert_close(batch.mean_log_ratio_BT[row, :length], change)  # type: ignore[index]
        assert batch.turn_ids_BT[row, :length].tolist() == [10 * row + token for token in range(length)]  # type: ignore[index]
        assert batch.mask_BT[row].tolist() == [token < length for token in range(4)]
    assert batch.group_B.tolist() == [0] * 4 and batch.group_size_B.tolist() == [4] * 4  # type: ignore[union-attr]
    assert batch.outcome_B.tolist() == [0, 1, 0, 1] and batch.is_external_B.tolist() == [0, 1, 0, 0]  # type: ignore[union-attr]
    assert batch.positive_share_B.tolist() == pytest.approx([0.6] * 4)  # type: ignore[union-attr]
    columns = {name: value for name, value in vars(batch).items() if name.endswith("_BT") and value is not None}
    assert {value.shape for value in columns.values()} == {(4, 4)} and len(columns) == 11


@pytest.mark.sample(1)
@pytest.mark.parametrize("place", ["own_losses", "own_losses.py"])
def test_a_loss_of_the_user_is_given_its_options_and_the_columns_of_the_batch(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_losses.py").write_text(
        "from verl_agentic.credit.policy_loss import Loss, policy_loss\n\n"
        "@policy_loss(needs=('outcome_B',))\n"
        "def own(batch, *, scale: float = 1.0):\n"
        "    return Loss(per_token_BT=batch.log_prob_BT, metrics={'own': scale * float(batch.outcome_B.sum())})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = to_config(f"{place}:own", options={"scale": 2.0})
    _, metrics = losses.ppo_loss(config, output_of([0, 1, 2, 3], torch.zeros(())), batch_of([0, 1, 2, 3]))
    assert metrics["actor/own"].aggregate() == 4.0
    with pytest.raises(Exception, match="'scael'"):
        to_config(f"{place}:own", options={"scael": 2.0})


def test_entropy_comes_with_its_gradient(seen: list[LossBatch]) -> None:
    weight = torch.zeros((), requires_grad=True)
    losses.ppo_loss(to_config("spy"), output_of([0, 1], weight), batch_of([0, 1]))
    assert seen[0].entropy_BT is not None
    (slope,) = torch.autograd.grad(seen[0].entropy_BT.sum(), weight)
    assert slope != 0


def test_what_a_micro_batch_has_not_is_none(seen: list[LossBatch]) -> None:
    data = batch_of([0]).select("prompts", "responses", "response_mask", "old_log_probs", "advantages")
    tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=2, global_batch_size=1)
    losses.ppo_loss(to_config("spy"), {"log_probs": output_of([0], torch.zeros(()))["log_probs"]}, data)
    known = {name for name, value in vars(seen[0]).items() if value is not None and name.endswith(("_B", "_BT"))}
    assert known == {"log_prob_BT", "old_log_prob_BT", "advantages_BT", "mask_BT"}


@pytest.mark.parametrize(
    ("clip", "expected"),
    [
        ({"clip_ratio": 0.3, "clip_ratio_low": None, "clip_ratio_high": None}, (0.3, 0.3, 3.0)),
        ({"clip_ratio_low": 0.1, "clip_ratio_high": 0.28, "clip_ratio_c": 5.0}, (0.1, 0.28, 5.0)),
    ],
)
def test_the_clip_range_is_verls(seen: list[LossBatch], clip: dict[str, Any], expected: tuple[float, ...]) -> None:
    given = {"clip_ratio": 0.2, "clip_ratio_c": 3.0, "global_batch_info": {}, **clip}
    config = SimpleNamespace(**given, get=given.get, policy_loss={})
    ones = torch.ones(1, 1)
    loss_functions._adapt_loss("spy")(ones, ones, ones, ones, config=config)
    assert (seen[0].clip_low, seen[0].clip_high, seen[0].clip_dual) == expected


# Micro-batches.

MODES: dict[str, dict[str, Any]] = {
    **{mode: {} for mode in ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean")},
    "seq-mean-token-sum-norm": {"loss_scale_factor": 9},
}
BY_SPLIT = {*SPLIT_LOSSES, "bypass_mode"}  # the latter calls another one, and refuses a micro-batch of padding
VERLS = {
    "dro": {"policy_loss.dro_beta": 0.1},
    "clip_cov": {"policy_loss.clip_cov_lb": -100.0, "policy_loss.clip_cov_ratio": 0.1},
}
_TERMS = {"entropy_coeff": 0.1, "use_kl_loss": True, "kl_loss_coef": 0.2, "kl_loss_type": "k3+"}
NULL_SCALE = {"loss_agg_mode": "seq-mean-token-sum-norm"}
OPTIONS = {"sequence_ppo": {"kl_coef": 0.1}, "masked_ppo": {"kl": "k3", "kl_coef": 0.1}}


def total_and_slope(
    name: str, parts: Sequence[Sequence[int]], *, num_rows: int = 16, **more: Any
) -> tuple[float, float]:
    """Returns the loss of the rows and its gradient, summed over micro-batches as engines do."""
    config, total, slope = to_config(name, **{"options": OPTIONS.get(name, {}), **more}), 0.0, 0.0
    for rows in parts:
        weight = torch.zeros((), requires_grad=True)
        loss, _ = losses.ppo_loss(config, output_of(rows, weight), batch_of(rows, num_rows=num_rows))
        total += float(loss.detach())
        slope += float(torch.autograd.grad(loss, weight)[0])
    return total, slope


def check_splits(name: str, **more: Any) -> None:
    """Checks 20 rows, of which one is void and four are padding, in micro-batches of different sizes."""
    draw, of_one = random.Random(name), name != "pacs"  # pacs needs whole groups
    units = [[row] for row in range(20)] if of_one else [list(range(start, start + 4)) for start in range(0, 20, 4)]
    whole = total_and_slope(name, [range(20)], num_rows=20, **more)
    assert whole[1] != 0
    for num_parts in (2, 4):
        draw.shuffle(units)
        cuts = [0, *sorted(draw.sample(range(1, len(units)), num_parts - 1)), len(units)]
        parts = [list(itertools.chain(*units[start:end])) for start, end in itertools.pairwise(cuts)]
        assert total_and_slope(name, parts, num_rows=20, **more) == pytest.approx(whole, rel=1e-4, abs=1e-7), parts


@pytest.mark.sample(3, slow=8)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [*policy_loss_names(), *sorted(set(core_algos.POLICY_LOSS_REGISTRY) - BY_SPLIT)])
def test_a_gradient_does_not_depend_on_the_split_into_micro_batches(name: str, mode: str) -> None:
    check_splits(name, **_TERMS, **MODES[mode], **VERLS.get(name, {}), loss_agg_mode=mode)


def test_the_loss_of_dr_grpo_is_a_sum_of_tokens_over_rows_and_the_longest_response() -> None:
    """Token losses of 1, 1, 1, 1 in one row and of 3 in another one: (4 + 3) / 2 rows / 4 tokens."""
    mode, info = "seq-mean-token-sum-norm", {"global_batch_size": 2, "loss_scale_factor": 4}
    rows = [torch.ones(1, 4), torch.tensor([[3.0]])]
    padded = torch.tensor([[1.0, 1.0, 1.0, 1.0], [3.0, 7.0, 7.0, 7.0]]), torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0]])
    split = sum(float(core_algos.agg_loss(row, torch.ones_like(row), mode, **info)) for row in rows)
    assert split == float(core_algos.agg_loss(*padded, mode, **info)) == 0.875


@pytest.mark.sample(3, slow=3)
@pytest.mark.parametrize("method", recipe_names("method"))
def test_the_gradient_of_a_bundled_method_does_not_depend_on_the_split(method: str) -> None:
    config = OmegaConf.create({"data": {"max_response_length": 9}})
    for value in load_recipe("method", method).values:
        OmegaConf.update(config, value.key, value.value)
    actor: Any = OmegaConf.to_container(config.actor_rollout_ref.actor, resolve=True)
    options = dict(OmegaConf.select(config, "agentic.policy_loss.options") or {})
    terms = {key: value for key, value in actor.items() if key.startswith(("clip", "loss", "kl", "use_kl", "ent"))}
    check_splits(actor["policy_loss"]["loss_mode"], options=options, **terms)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "more"), [*((name, VERLS.get(name, {})) for name in sorted(SPLIT_LOSSES)), ("vanilla", NULL_SCALE)]
)
def test_what_preflight_warns_of_depends_on_the_split(name: str, more: dict[str, Any]) -> None:
    torch.manual_seed(0)  # clip_cov draws tokens
    whole, split = (total_and_slope(name, of, **more)[1] for of in ([range(16)], [[0], [1, 2], range(3, 16)]))
    assert split != pytest.approx(whole, rel=1e-3)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", policy_loss_names())
def test_the_mean_over_two_ranks_is_that_of_one(name: str) -> None:
    ranks = []
    for rows in (range(8), range(8, 16)):
        weight = torch.zeros((), requires_grad=True)
        config = to_config(name, options=OPTIONS.get(name, {}))
        loss, _ = losses.ppo_loss(config, output_of(rows, weight), batch_of(rows, num_rows=16, dp_size=2))
        ranks.append(float(loss.detach()))
    assert sum(ranks) / 2 == pytest.approx(total_and_slope(name, [range(16)])[0], rel=1e-5, abs=1e-8)


def test_masked_ppo_is_verls_vanilla_in_value_and_gradient_and_its_metrics_are_means() -> None:
    verls = total_and_slope("vanilla", [range(16)])
    config, weight = to_config("masked_ppo"), torch.zeros((), requires_grad=True)
    loss, metrics = losses.ppo_loss(config, output_of(range(16), weight), batch_of(range(16)))
    assert (float(loss.detach()), float(torch.autograd.grad(loss, weight)[0])) == pytest.approx(verls, rel=1e-5)
    assert metrics["actor/pg_loss"].aggregation is AggregationType.SUM
    for name in ("actor/ppo_kl", "actor/pg_clipfrac", "actor/approx_kl"):
        assert metrics[name].aggregation is AggregationType.MEAN and math.isfinite(metrics[name].values[0])


def test_verls_own_losses_get_verls_own_config(monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[Any] = []

    def original(config: Any, *rest: Any) -> Any:
        configs.append(config)

    config = to_config("gspo")
    loss_functions._loss_with_columns(original, config, {}, {})
    assert configs == [config] and configs[0] is config


# Configuration, and other processes.


def test_options_stand_in_verls_config_and_are_checked_there() -> None:
    assert to_config("masked_ppo", options={"kl": "k1"}).policy_loss.options == {"kl": "k1"}
    assert to_config("vanilla").policy_loss.options == {}
    with pytest.raises(Exception, match="masked_ppo") as caught:
        to_config("masked_ppo", options={"kll": "k1"})
    assert isinstance(caught.value, ConfigError) or isinstance(caught.value.__cause__, ConfigError)


def test_options_reach_the_loss() -> None:
    def total(kl_coef: float) -> float:
        options = {"kl": "k3", "kl_coef": kl_coef}
        config, output = to_config("masked_ppo", options=options), output_of(range(16), torch.zeros(()))
        return float(losses.ppo_loss(config, output, batch_of(range(16)))[0])

    assert total(0.2) - total(0.0) == pytest.approx(2 * (total(0.1) - total(0.0))) != 0


def test_the_loss_travels_between_processes_by_name() -> None:
    config = to_config("masked_ppo")
    for dump, load in ((pickle.dumps, pickle.loads), (cloudpickle.dumps, cloudpickle.loads)):
        loss = load(dump(functools.partial(losses.ppo_loss, config=config)))
        assert loss.func is losses.ppo_loss
        got, _ = loss(model_output=output_of([0, 1], torch.zeros(())), data=batch_of([0, 1]))
        assert torch.isfinite(got)


@pytest.mark.parametrize("module", ["verl.trainer.distillation.losses", "verl.workers.engine_workers"])
def test_everyone_who_binds_verls_loss_by_name_has_ours(module: str) -> None:
    bound = importlib.import_module(module).ppo_loss
    assert bound is losses.ppo_loss and bound.__wrapped__ is not None


# Sessions that weigh the same.


def _gradient(loss_mode: str, rows: Sequence[tuple[str, slice]], **options: Any) -> tuple[Tensor, Tensor]:
    """Returns the loss and its gradient for 9 log-probs: tokens 0 to 5 of session a, 6 to 8 of session b."""
    draw = torch.Generator().manual_seed(0)
    leaf = (-torch.rand(9, generator=draw)).requires_grad_()
    columns = {name: torch.randn(9, generator=draw) for name in ("old_log_probs", "advantages", "ref_log_prob")}
    pieces = [part for _, part in rows]
    num_tokens = {"a": 6, "b": 3}
    data = TensorDict(
        {
            "prompts": nested([torch.zeros(1, dtype=torch.int64) for _ in rows]),
            "responses": nested([torch.arange(9)[part] for part in pieces]),
            "response_mask": nested([torch.ones(9, dtype=torch.int64)[part] for part in pieces]),
            **{name: nested([column[part] for part in pieces]) for name, column in columns.items()},
            "credit_session_weight": torch.tensor([1 / num_tokens[session] for session, _ in rows]),
            "credit_session": torch.tensor([session == "b" for session, _ in rows]).long(),
            "credit_group": torch.zeros(len(rows), dtype=torch.int64),
            "credit_group_size": torch.full((len(rows),), len(rows)),
            "credit_outcome": torch.tensor([float(session == "a") for session, _ in rows]),
        },
        batch_size=len(rows),
    )
    tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=9, global_batch_size=2)
    # A place tells of the token behind it.
    places = [torch.cat([leaf[part], leaf.new_zeros(1)]) for part in pieces]
    lengths = torch.tensor([0, *(len(place) for place in places)])
    output = {
        name: torch.nested.nested_tensor_from_jagged(torch.cat([f(place) for place in places]), lengths.cumsum(0))
        for name, f in {"log_probs": lambda place: place, "entropy": lambda place: place.square()}.items()
    }
    config = to_config(loss_mode, entropy_coeff=0.1, use_kl_loss=True, kl_loss_coef=0.2, **options)
    loss, _ = losses.ppo_loss(config, output, data)
    loss.backward()
    assert leaf.grad is not None
    return loss.detach(), leaf.grad


WHOLE = [("a", slice(0, 6)), ("b", slice(6, 9))]
IN_TWO = [("a", slice(0, 4)), ("b", slice(6, 9)), ("a", slice(4, 6))]


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
@pytest.mark.parametrize("name", ["vanilla", "cispo", "masked_ppo", "pacs"])
def test_per_session_a_session_in_two_rows_has_the_gradient_of_one(name: str, mode: str) -> None:
    options = {"policy_loss.per_session": True, "loss_agg_mode": mode}
    one, two = (_gradient(name, rows, **options) for rows in (WHOLE, IN_TWO))
    torch.testing.assert_close(two[0], one[0])
    torch.testing.assert_close(two[1], one[1])


def test_per_session_long_sessions_weigh_no_more() -> None:
    """A loss of 1 on every token: both sessions have half of it."""
    weights_B = torch.tensor([1 / 6, 1 / 3, 1 / 6])
    token = loss_functions._weights.set(weights_B)
    try:
        mask_BT = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]])
        loss_BT = torch.tensor([[1.0], [0.0], [1.0]]).expand(3, 4)
        for info in ({"global_batch_size": 2}, {}):
            total = core_algos.agg_loss(loss_mat=loss_BT, loss_mask=mask_BT, loss_agg_mode="token-mean", **info)
            assert float(total) == pytest.approx(0.5)
    finally:
        loss_functions._weights.reset(token)


def test_without_the_key_verls_aggregation_is_verls() -> None:
    one, two = (_gradient("vanilla", rows, loss_agg_mode="seq-mean-token-mean") for rows in (WHOLE, IN_TWO))
    assert not torch.allclose(one[1], two[1])
