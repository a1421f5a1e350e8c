"""Mutual information of prompts and responses, from the log-prob of every text under every prompt.

It detects "template collapse": a policy may vary its words (high entropy) and still ignore the task.

Paper: https://arxiv.org/abs/2604.06268
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from verl_agentic.base.metric import Metric
from verl_agentic.base.settings import Settings, setting

_TEXTS = "up to `prompts` texts with different prompts"
METRICS = (
    Metric(name="batch/prompt_information", unit="nats", per="text", rows=_TEXTS),
    Metric(name="batch/prompt_information_per_token", unit="nats", per="text", rows=_TEXTS),
    Metric(name="batch/prompt_retrieval", unit="share", per="text", rows=_TEXTS),
)


class PromptInformationSettings(Settings):
    """Mutual information of prompts and texts: the section `agentic.prompt_information`.

    A measurement computes `prompts ** 2` rows.
    """

    every: int = setting(10, min=1)
    """Steps between two measurements. The first step is measured."""
    prompts: int = setting(8, min=2)
    """Maximum number of distinct prompts of a batch. The metric is at most its logarithm."""
    tokens: int = setting(256, min=1)
    """Maximum number of tokens of the first turn of a session."""


def prompt_information(log_prob_MM: Tensor, count_M: Tensor) -> dict[str, float]:
    """Returns the information of texts about their prompts, in nats. All prompts count the same.

    - `prompt_information`: mean of `log p(text | own prompt) - log mean_j p(text | prompt j)`. It is 0 if the policy
      ignores the prompt, and `ln M` if each text is possible only under its own prompt.
    - `prompt_information_per_token`: the same with each log-prob divided by the number of tokens. It has no bound,
      while long texts reach the bound `ln M` of the first metric early.
    - `prompt_retrieval`: share of texts that are most likely under their own prompt.

    Args:
        log_prob_MM: `[M, M]` float: sum over the tokens of text i, given prompt j.
        count_M: `[M]` int64: tokens of the texts, 1 or more.
    """
    log_prob_MM = log_prob_MM.double()
    own_M = log_prob_MM.diagonal()
    others_MM = log_prob_MM.masked_fill(torch.eye(len(own_M), dtype=torch.bool, device=own_M.device), -torch.inf)
    return {
        "prompt_information": _compute_gain(log_prob_MM),
        "prompt_information_per_token": _compute_gain(log_prob_MM / count_M.unsqueeze(-1)),
        "prompt_retrieval": float((own_M > others_MM.amax(dim=-1)).double().mean()),
    }


def _compute_gain(log_prob_MM: Tensor) -> float:
    marginal_M = log_prob_MM.logsumexp(dim=-1) - math.log(len(log_prob_MM))
    return float((log_prob_MM.diagonal() - marginal_M).mean())
