"""Variance of the policy gradient per estimator: all estimators on the same episodes of the warm-started model.

The gradient of a group of siblings is one sample. With `s` the squared length of its mean and `v` its variance,
the gradients of two independent batches of b groups have the expected cosine `s / (s + v / b)`: their agreement. It
does not depend on the scale of the advantages. Axes: B rows, T response tokens, G groups, D dimensions of a sketch.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from verl_agentic.cpu.quickstart import tasks
from verl_agentic.cpu.quickstart.course import Course, load_course
from verl_agentic.credit.advantage import load_advantage
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.step_groups import steps_of
from verl_agentic.credit.credit.turn_states import TurnStates
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.records.step_keys import step_keys
from verl_agentic.log.files.rows import read_rows

_DENSE_REWARD = 0.5
_BATCH_GROUPS = 8
"""Groups of a training step."""
_ESTIMATORS: Mapping[str, Mapping[str, Any]] = {
    "safe_rloo": {},
    "safe_grpo": {},
    "gigpo": {},
    "salt": {},
    "spa": {},
    "turn_gae": {"whiten": False},
}
_REFERENCE = "safe_rloo"
"""An unbiased estimator, whose mean gradient is the direction of the others' comparison."""
_SKETCH = 2**15
_FOLDS, _RIDGE = 4, 1.0
_GAMMA = 0.99
_Advantages = Mapping[tuple[str, str], Tensor]
"""Rewards (`sparse`, `subgoals`) and estimator -> `[B, T]`."""


@dataclass(frozen=True, kw_only=True)
class GradientSize:
    """Amount of work."""

    groups: int
    siblings: int = 8


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Episodes as tensors, padded at the right. Sibling rows are neighbours."""

    ids: list[list[int]]
    prompts: list[int]
    """Length of each prompt."""
    batches: Mapping[str, CreditBatch]
    """Rewards -> the same rows with these rewards, and without values."""


def measure_gradients(out: Path, start: Path, recipe: str, size: GradientSize) -> None:
    """Writes `gradient/result.json`, unless it has the same inputs.

    Args:
        out: folder of the study.
        start: folder of the warm start.
        recipe: folder of the recipe.
        size: how many episodes.
    """
    path = out / "gradient" / "result.json"
    parts = [Path(__file__).read_text(), (start / "phases" / "eval_sft.json").read_text(), json.dumps(asdict(size))]
    mark = hashlib.sha256("".join(parts).encode()).hexdigest()[:16]
    if path.is_file() and json.loads(path.read_text())["fingerprint"] == mark:
        return
    from transformers import AutoModelForCausalLM

    model_path = start / "sft" / "model"
    rows = _roll_out(load_course(recipe), start, model_path, size)
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
    features_BTH = _features(model, rows, size)
    advantages = {
        (rewards, name): _with_values(batch, features_BTH, load_advantage(name), options)
        for rewards, batch in rows.batches.items()
        for name, options in _ESTIMATORS.items()
    }
    found = _figures(model, rows, advantages, size)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"fingerprint": mark, "groups": size.groups, "estimators": found}, indent=1) + "\n")


def gradient_table(out: Path) -> str:
    """Returns the table of the results below the folder of a study; empty without any."""
    path = out / "gradient" / "result.json"
    if not path.is_file():
        return ""
    found = json.loads(path.read_text())
    head = (
        "| estimator | rewards | agreement of two batches | of their first turns | variance over squared mean "
        "| cosine to RLOO's mean gradient | its first turns |"
    )
    lines = [
        f"| `{one['estimator']}` | {one['rewards']} | {_shown(one['all'], 'agreement')} "
        f"| {_shown(one['first'], 'agreement')} | {_shown(one['all'], 'noise', '{:.1f}')} "
        f"| {_shown(one['all'], 'cosine')} | {_shown(one['first'], 'cosine')} |"
        for one in found["estimators"]
    ]
    return "\n".join([head, "|---" * (head.count("|") - 1) + "|", *lines])


def _shown(figures: Mapping[str, Any], key: str, pattern: str = "{:.2f}") -> str:
    value, error = figures[key]
    return f"{pattern.format(value)} ± {pattern.format(error)}"


def _roll_out(course: Course, start: Path, model: Path, size: GradientSize) -> Rows:
    tasks_of_groups = read_rows(start / "data" / "train.jsonl")[: size.groups]
    local = tasks.local_model(course, model)
    make_env = functools.partial(course.package.make_env, dense_reward=_DENSE_REWARD)
    repeated = [row for row in tasks_of_groups for _ in range(size.siblings)]
    local = dataclasses.replace(local, make_env=make_env)
    episodes = local.run(repeated, temperature=1.0, seed=1)
    return _to_rows(episodes, size)


def _to_rows(episodes: list[Episode], size: GradientSize) -> Rows:
    rows = [episode.trajectories[-1] for episode in episodes]
    length = max(len(row.response_ids) for row in rows)

    def padded(values: list[list[Any]], filler: float) -> Tensor:
        return torch.tensor([[*one, *[filler] * (length - len(one))] for one in values])

    rewards = {
        "sparse": [
            row.token_rewards(outcome=episode.reward.total, turn_rewards={})
            for row, episode in zip(rows, episodes, strict=True)
        ],
        "subgoals": [episode.token_rewards()[-1] for episode in episodes],
    }
    batches = {
        name: CreditBatch.of(
            rewards=padded(values, 0.0),
            mask=padded([row.response_mask for row in rows], 0),
            groups=[index // size.siblings for index in range(len(rows))],
            turn_ids_BT=padded(
                [[*row.turn_ids, *[row.turn_ids[-1]] * (length - len(row.turn_ids))] for row in rows], 0
            ),
            steps=steps_of([step_keys(episode)[-1] for episode in episodes]),
        )
        for name, values in rewards.items()
    }
    return Rows(ids=[row.token_ids for row in rows], prompts=[len(row.prompt_ids) for row in rows], batches=batches)


def _features(model: Any, rows: Rows, size: GradientSize) -> Tensor:
    """Returns `[B, T, H]` hidden states that predict each response token: what a critic's head sees."""
    length = next(iter(rows.batches.values())).mask_BT.shape[1]
    found = torch.zeros(len(rows.ids), length, model.config.hidden_size)
    with torch.no_grad():
        for group in range(size.groups):
            for row, hidden_LH in zip(*_forward(model, rows, group, size, hidden=True), strict=True):
                count = len(rows.ids[row]) - rows.prompts[row]
                begin = rows.prompts[row] - 1
                found[row, :count] = hidden_LH[begin : begin + count]
    return found


def _with_values(
    batch: CreditBatch, features_BTH: Tensor, estimator: Callable[..., Any], options: Mapping[str, Any]
) -> Tensor:
    """Returns the estimator's advantages; a critic is a linear function of the policy's features.

    It is fitted to discounted returns by ridge regression, on the groups of the other folds.
    """
    if "values_BT" not in getattr(estimator, "needs", ()):
        return estimator(batch, **options).advantages_BT
    states = TurnStates.of(batch)
    row_N, turn_N = states.exists_BK.nonzero(as_tuple=True)
    place_N = states.first_BK[row_N, turn_N]
    x_NH = features_BTH[row_N, place_N].double()
    x_NH = torch.cat([x_NH, torch.ones(len(x_NH), 1, dtype=torch.float64)], dim=1)
    returns_BK = torch.zeros_like(states.rewards_BK, dtype=torch.float64)
    later_B = torch.zeros(len(returns_BK), dtype=torch.float64)
    for turn in reversed(range(returns_BK.shape[1])):
        later_B = states.rewards_BK[:, turn].double() + _GAMMA * later_B
        returns_BK[:, turn] = later_B
    y_N, fold_N = returns_BK[row_N, turn_N], batch.group_B[row_N] % _FOLDS
    values_BT = torch.zeros(batch.mask_BT.shape)
    for fold in range(_FOLDS):
        is_in = fold_N != fold
        a = x_NH[is_in].T @ x_NH[is_in] + _RIDGE * torch.eye(x_NH.shape[1], dtype=torch.float64)
        weights = torch.linalg.solve(a, x_NH[is_in].T @ y_N[is_in])
        values_BT[row_N[~is_in], place_N[~is_in]] = (x_NH[~is_in] @ weights).float()
    return estimator(dataclasses.replace(batch, values_BT=values_BT), **options).advantages_BT


def _figures(model: Any, rows: Rows, advantages: _Advantages, size: GradientSize) -> list[dict[str, Any]]:
    sketches = {part: _sketches(model, rows, advantages, size, part=part) for part in ("all", "first")}
    return [
        {
            "rewards": rewards,
            "estimator": name,
            **{part: _jackknife(found[rewards, name], found[rewards, _REFERENCE]) for part, found in sketches.items()},
        }
        for rewards, name in advantages
    ]


def _sketches(
    model: Any, rows: Rows, advantages: _Advantages, size: GradientSize, *, part: str
) -> dict[tuple[str, str], Tensor]:
    """Returns `[G, D]` random projections of the gradients of groups, which keep inner products in expectation.

    Args:
        part: `all` turns, or the `first` one.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    draw = torch.Generator().manual_seed(0)
    count = sum(p.numel() for p in parameters)
    bucket_P = torch.randint(_SKETCH, (count,), generator=draw)
    sign_P = torch.randint(2, (count,), generator=draw) * 2.0 - 1.0
    batch = next(iter(rows.batches.values()))
    found: dict[tuple[str, str], list[Tensor]] = {key: [] for key in advantages}
    for group in range(size.groups):
        members, log_probs = _forward(model, rows, group, size, hidden=False, only_first=part == "first")
        for key, advantages_BT in advantages.items():
            terms = [
                (log_prob_L * (advantages_BT * batch.mask_BT)[row, : len(log_prob_L)]).sum()
                for row, log_prob_L in zip(members, log_probs, strict=True)
            ]
            total = torch.stack(terms).sum()
            gradients = torch.autograd.grad(total, parameters, retain_graph=True)
            flat_P = torch.cat([g.flatten() for g in gradients])
            found[key].append(torch.zeros(_SKETCH).index_add_(0, bucket_P, flat_P * sign_P))
    return {key: torch.stack(sketches).double() for key, sketches in found.items()}


def _forward(
    model: Any, rows: Rows, group: int, size: GradientSize, *, hidden: bool, only_first: bool = False
) -> tuple[list[int], list[Tensor]]:
    """Returns the rows of a group, with their hidden states, or the log-probs of their response tokens."""
    members = list(range(group * size.siblings, (group + 1) * size.siblings))
    batch = next(iter(rows.batches.values()))
    assert batch.turn_ids_BT is not None
    kept = []
    for row in members:
        ids = rows.ids[row]
        first = int((batch.mask_BT[row] & (batch.turn_ids_BT[row] == batch.turn_ids_BT[row, 0])).sum())
        kept.append(ids[: rows.prompts[row] + first] if only_first else ids)
    longest = max(map(len, kept))
    ids_BL = torch.tensor([[*ids, *[0] * (longest - len(ids))] for ids in kept])
    # Rows are padded at the right, where causal attention does not look.
    if hidden:
        return members, list(model.model(input_ids=ids_BL).last_hidden_state)
    logits_BLV = model(input_ids=ids_BL).logits[:, :-1]
    log_probs_BL = torch.log_softmax(logits_BLV, dim=-1).gather(-1, ids_BL[:, 1:, None]).squeeze(-1)
    responses = [
        log_probs_BL[place, rows.prompts[row] - 1 : len(ids) - 1]
        for place, (row, ids) in enumerate(zip(members, kept, strict=True))
    ]
    return members, responses


def _jackknife(ours_GD: Tensor, reference_GD: Tensor) -> dict[str, tuple[float, float]]:
    """Returns figures of the groups' gradients with their standard errors, by leaving out one group at a time."""
    grams = ours_GD @ ours_GD.T, ours_GD @ reference_GD.T, reference_GD @ reference_GD.T
    count = len(ours_GD)
    whole = _statistics(*grams, torch.ones(count, dtype=torch.float64))
    parts = []
    for left_out in range(count):
        weight_G = torch.ones(count, dtype=torch.float64)
        weight_G[left_out] = 0.0
        parts.append(_statistics(*grams, weight_G))
    errors = {}
    for key in whole:
        values = torch.tensor([part[key] for part in parts])
        errors[key] = float(((count - 1) / count * ((values - values.mean()) ** 2).sum()).sqrt())
    return {key: (whole[key], errors[key]) for key in whole}


def _statistics(own_GG: Tensor, both_GG: Tensor, reference_GG: Tensor, weight_G: Tensor) -> dict[str, float]:
    count = float(weight_G.sum())

    def of_pairs(gram_GG: Tensor) -> float:
        """Returns the mean inner product of two different groups: unbiased for that of the mean gradients."""
        every = weight_G @ gram_GG @ weight_G
        return float((every - (gram_GG.diagonal() * weight_G).sum()) / (count * (count - 1)))

    squared_mean, reference = max(of_pairs(own_GG), 0.0), max(of_pairs(reference_GG), 0.0)
    variance = float((own_GG.diagonal() * weight_G).sum() / count) - squared_mean
    of_batch = squared_mean + variance / _BATCH_GROUPS
    return {
        "agreement": squared_mean / of_batch if of_batch > 0 else 0.0,
        "noise": variance / _BATCH_GROUPS / squared_mean if squared_mean > 0 else math.inf,
        "cosine": of_pairs(both_GG) / (squared_mean * reference) ** 0.5 if squared_mean * reference > 0 else 0.0,
    }
