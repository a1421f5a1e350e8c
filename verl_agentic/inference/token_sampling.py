"""Samples the next token of every row of a batch, each row by its own parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from verl_agentic.inference.request import Running


def sample(logits_BV: Tensor, rows: Sequence[Running], *, generator: torch.Generator) -> tuple[list[int], list[float]]:
    """Returns one sampled id per row, and its log-prob under `log_softmax(logits / temperature)`.

    Allowed ids, top-k, top-p and repetition penalty change the sampled distribution but not the log-prob, which equals
    a trainer's for the same logits. At temperature 0 the log-prob is that of temperature 1.

    Args:
        logits_BV: `[B, V]` logits of the last position.
        rows: the B requests.
        generator: source of randomness of rows without a seed.
    """
    logits_BV = logits_BV.float()
    temperatures = [row.params.temperature for row in rows]
    if all(t == 1.0 for t in temperatures):
        log_probs_BV = torch.log_softmax(logits_BV, dim=-1)
    else:
        divisor_B1 = logits_BV.new_tensor([t or 1.0 for t in temperatures])[:, None]
        log_probs_BV = torch.log_softmax(logits_BV / divisor_B1, dim=-1)
    shaped_BV = _shape(logits_BV, log_probs_BV, rows)
    ids_B = torch.argmax(shaped_BV if not any(temperatures) else shaped_BV - _noise(shaped_BV, rows, generator), dim=-1)
    chosen_B = log_probs_BV.gather(-1, ids_B[:, None])[:, 0]
    return ids_B.tolist(), chosen_B.tolist()


def _noise(shaped_BV: Tensor, rows: Sequence[Running], generator: torch.Generator) -> Tensor:
    """Returns log e with e ~ Exp(1), and 0 for greedy rows.

    argmax(p / e) draws from p without a cumulative sum, and log p - log e has the same argmax.
    """
    noise_BV = torch.empty_like(shaped_BV).exponential_(generator=generator).log_()
    for i, row in enumerate(rows):
        if row.params.temperature == 0.0:
            noise_BV[i] = 0.0
        elif row.generator is not None:
            noise_BV[i].exponential_(generator=row.generator).log_()
    return noise_BV


def _shape(logits_BV: Tensor, log_probs_BV: Tensor, rows: Sequence[Running]) -> Tensor:
    """Returns the log-probs to sample from, with penalty, allowed ids, top-k and top-p of each row."""
    vocab = logits_BV.shape[-1]
    special = [
        i
        for i, row in enumerate(rows)
        if row.params.repetition_penalty != 1.0
        or 0 < row.params.top_k < vocab
        or row.params.top_p < 1.0
        or row.params.allowed_token_ids
    ]
    if not special:
        return log_probs_BV
    shaped_BV = log_probs_BV.clone()
    for i in special:
        params = rows[i].params
        logits_V = logits_BV[i]
        if params.repetition_penalty != 1.0:
            logits_V = _penalise(logits_V, rows[i].token_ids, params.repetition_penalty)
        if params.allowed_token_ids:
            allowed = torch.tensor(params.allowed_token_ids, device=logits_V.device)
            logits_V = torch.full_like(logits_V, -torch.inf).index_copy(0, allowed, logits_V[allowed])
        row_V = torch.log_softmax(logits_V / (params.temperature or 1.0), dim=-1)
        if 0 < params.top_k < vocab:
            floor = torch.topk(row_V, params.top_k).values[-1]
            row_V = torch.log_softmax(row_V.masked_fill(row_V < floor, -torch.inf), dim=-1)
        shaped_BV[i] = _keep_top_p(row_V, params.top_p)
    return shaped_BV


def _penalise(logits_V: Tensor, token_ids: Sequence[int], penalty: float) -> Tensor:
    """Divides positive and multiplies negative logits of all seen tokens. Paper: https://arxiv.org/abs/1909.05858."""
    seen = torch.tensor(sorted(set(token_ids)), device=logits_V.device)
    seen = seen[seen < logits_V.shape[-1]]
    values = logits_V[seen]
    return logits_V.index_put((seen,), torch.where(values > 0, values / penalty, values * penalty))


def _keep_top_p(log_probs_V: Tensor, top_p: float) -> Tensor:
    """Removes all but the fewest tokens whose mass reaches `top_p`. Paper: https://arxiv.org/abs/1904.09751."""
    if top_p >= 1.0:
        return log_probs_V
    sorted_V, order_V = torch.sort(log_probs_V, descending=True)
    mass_before_V = torch.cumsum(sorted_V.exp(), dim=-1) - sorted_V.exp()
    removed_V = torch.empty_like(mass_before_V, dtype=torch.bool)
    removed_V[order_V] = mass_before_V >= top_p
    return log_probs_V.masked_fill(removed_V, -torch.inf)
