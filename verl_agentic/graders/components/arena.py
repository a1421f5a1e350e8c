"""A tournament between the samples of one prompt; a judge decides the matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verl_agentic.graders.groups.tournament_ranks import Match, rank_reward, tournament
from verl_agentic.graders.judge.options import JudgeOptions
from verl_agentic.graders.judge.pairs import PairComparison, compare
from verl_agentic.graders.judge.panel import INFO, CostTotal, gathered
from verl_agentic.graders.models.quote import Block
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.component import ABSTAIN, Graded, component
from verl_agentic.rewards.sample import Sample

_MOST_FAILED = 0.25
_CRITERION = "what the task asks for: correct first, then complete, then clear."


@component(
    scope="group",
    info=INFO,
    outcome_options={"on_invalid": "zero"},
    check=lambda **options: JudgeOptions.from_mapping(options),
)
async def arena(samples: Sequence[Sample], *, criterion: str = _CRITERION, **options: Any) -> list[Graded]:
    """Returns for each sample of a group `1 - rank / (N - 1)`, its rank in a seeded single-elimination tournament.

    N - 1 comparisons with the first sample seed the bracket, and N - 1 matches decide it: 2 (N - 1) instead of N (N -
    1) / 2. Each comparison is two requests, one per order; a judge that contradicts itself counts as a tie (see
    `tournament`). An estimator with group statistics, such as GRPO, turns the rewards into the paper's z-scores.

    All abstain in a group of one, and if more than a quarter of the comparisons failed. A failed comparison counts as a
    tie. With `on_invalid: zero` (the default of an outcome) an invalid verdict is a tie instead of a failure, and both
    samples lose the share of their reward that this comparison has. So a sample gains nothing by breaking the judge's
    form. Samples without an answer and without a call come last, with 0, and are not judged.

    Rounds run one after the other, so the rubric's `timeout_s` must exceed (1 + log2 N) times the judge's. Each sample
    gets an equal share of the group's judge metrics; `judge_latency_s` is the sum over the rounds.

    Args:
        criterion: definition of better, as the end of a sentence.
        options: see `JudgeOptions`; `items` are not used.

    Raises:
        ConfigError: see `judge`.

    Paper: https://arxiv.org/abs/2601.06487 (ArenaRL). Deviations: the pivot's rank within a round counts its N - 1
    points of the seeding round one by one; the authors' code takes their mean as one point.
    """
    settings = JudgeOptions.from_mapping(options)
    if len(samples) < 2:
        return [ABSTAIN] * len(samples)
    playing = [index for index, sample in enumerate(samples) if not is_silent(sample)]
    if len(playing) < 2:
        return [Graded(value=float(index in playing)) for index in range(len(samples))]
    ranks, rounds = await _play_tournament([settings.blocks(samples[index]) for index in playing], settings, criterion)
    played = [comparison for comparisons in rounds for comparison in comparisons.values()]
    info = _share_costs(
        [CostTotal.together(comparison.costs for comparison in comparisons.values()) for comparisons in rounds],
        len(samples),
    )
    is_strict = settings.on_invalid == "zero"
    failed = sum(comparison.points is None and not (is_strict and comparison.is_invalid) for comparison in played)
    if failed > _MOST_FAILED * len(played):
        return [Graded(info=info)] * len(samples)
    shares = _valid_shares(rounds, len(playing)) if is_strict else [1.0] * len(playing)
    values = dict.fromkeys(range(len(samples)), 0.0)
    for index, rank, share in zip(playing, ranks, shares, strict=True):
        values[index] = share * rank_reward(rank, len(samples))
    return [Graded(value=value, info=info) for value in values.values()]


def _valid_shares(rounds: Sequence[Mapping[Match, PairComparison]], count: int) -> list[float]:
    """Returns the share of valid verdicts among each player's comparisons."""
    total, invalid = [0] * count, [0] * count
    for comparisons in rounds:
        for match, comparison in comparisons.items():
            for player in match:
                total[player] += 1
                invalid[player] += comparison.is_invalid
    return [1.0 - bad / all_ for bad, all_ in zip(invalid, total, strict=True)]


async def _play_tournament(
    player_blocks: Sequence[Sequence[Block]], settings: JudgeOptions, criterion: str
) -> tuple[list[float], list[dict[Match, PairComparison]]]:
    """Returns the rank of each sample, and the comparisons of each round."""
    rounds: list[dict[Match, PairComparison]] = []
    play = tournament(len(player_blocks))
    matches = next(play)
    while True:
        comparisons = await gathered(
            [compare(player_blocks[a], player_blocks[b], settings, criterion) for a, b in matches]
        )
        rounds.append(dict(zip(matches, comparisons, strict=True)))
        try:
            matches = play.send([0.5 if comparison.points is None else comparison.points for comparison in comparisons])
        except StopIteration as end:
            return end.value, rounds


def _share_costs(totals: Sequence[CostTotal], count: int) -> dict[str, float]:
    """Returns each sample's share of the costs."""
    infos = [costs.to_info() for costs in totals]
    shares = {name: sum(info[name] for info in infos) / count for name in INFO}
    return shares | {"judge_latency_s": sum(costs.latency_s for costs in totals)}
