"""Samples the next token of every row of a batch, each row by its own parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from verl_agentic.errors import PolicyError
from verl_agentic.inference.request import Running

_BLOCK_IDS = 256
_PIECE_LOGITS = 1 << 19
"""2 MiB of float32, which stay in the cache of a processor."""


def sample(logits_BV: Tensor, rows: Sequence[Running], *, generator: torch.Generator) -> tuple[list[int], list[float]]:
    """Returns one sampled id per row, and its log-prob under `log_softmax(logits / temperature)`.

    Allowed ids, top-k, top-p and repetition penalty change the sampled distribution but not the log-prob, which equals
    a trainer's for the same logits. At temperature 0 the log-prob is that of temperature 1. A row with a seed takes
    one number from its generator; its id does not depend on the other rows.

    Args:
        logits_BV: `[B, V]` logits of the last position.
        rows: the B requests.
        generator: source of randomness of rows without a seed.

    Raises:
        PolicyError: the largest logit of a row is not finite, so that its logits are no distribution.
    """
    uniform_B = torch.rand(len(rows), dtype=torch.float64, generator=generator, device=logits_BV.device)
    for i, row in enumerate(rows):
        if row.generator is not None:
            uniform_B[i].uniform_(generator=row.generator)
    num_rows = len(rows) if logits_BV.is_cuda else max(_PIECE_LOGITS // logits_BV.shape[-1], 1)
    pieces = [
        _sample_piece(logits_BV[start : start + num_rows], rows[start : start + num_rows], uniform_B[start:])
        for start in range(0, len(rows), num_rows)
    ]
    ids, log_probs = torch.cat(pieces, dim=-1).tolist()
    if num_invalid := sum(map(math.isnan, log_probs)):
        raise PolicyError(
            f"the largest logit is not finite in {num_invalid} of {len(rows)} rows; check the weights of the model: "
            "has training diverged?"
        )
    return [int(token_id) for token_id in ids], log_probs


def _sample_piece(logits_BV: Tensor, rows: Sequence[Running], uniform_B: Tensor) -> Tensor:
    """Returns ids and log-probs as float64, `[2, B]`, so that a device is read once; NaN where nothing can be drawn."""
    logits_BV = logits_BV.float()
    temperatures = [row.params.temperature for row in rows]
    if not all(t in (0.0, 1.0) for t in temperatures):
        logits_BV = logits_BV / logits_BV.new_tensor([t or 1.0 for t in temperatures])[:, None]
    shaped_BV = _shape(logits_BV, rows)
    masses_BV = torch.softmax(shaped_BV, dim=-1)
    ids_B = _draw(masses_BV, uniform_B[: len(rows)]) if any(temperatures) else shaped_BV.argmax(dim=-1)
    if any(temperatures) and not all(temperatures):
        is_greedy_B = torch.tensor([t == 0.0 for t in temperatures], device=ids_B.device)
        ids_B = torch.where(is_greedy_B, shaped_BV.argmax(dim=-1), ids_B)
    if shaped_BV is not logits_BV:
        masses_BV = torch.softmax(logits_BV, dim=-1)
    # The largest mass is exp(0) over the total: the logarithm of a chosen mass might be that of 0.
    largest_B = logits_BV.amax(dim=-1)
    chosen_B = logits_BV.gather(-1, ids_B[:, None])[:, 0] - largest_B + masses_BV.amax(dim=-1).log()
    if shaped_BV is not logits_BV:
        largest_B = shaped_BV.amax(dim=-1)
    return torch.stack((ids_B.double(), chosen_B.where(largest_B.isfinite(), torch.nan).double()))


def _draw(masses_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Returns the id of each row at which the cumulative mass passes the share `uniform_B` of the whole mass.

    Finds the block of ids first, so that most of the masses are only added up.
    """
    batch, vocab = masses_BV.shape
    masses_BNI = torch.nn.functional.pad(masses_BV, (0, -vocab % _BLOCK_IDS)).view(batch, -1, _BLOCK_IDS)
    ends_BN = masses_BNI.sum(dim=-1).double().cumsum(dim=-1)
    target_B1 = uniform_B[:, None] * ends_BN[:, -1:]
    block_B1 = _first_above(ends_BN, target_B1)
    before_B1 = torch.where(block_B1 > 0, ends_BN.gather(1, (block_B1 - 1).clamp(min=0)), 0.0)
    masses_BI = masses_BNI[torch.arange(batch, device=masses_BNI.device), block_B1[:, 0]]
    place_B1 = _first_above(masses_BI.double().cumsum(dim=-1), target_B1 - before_B1)
    return (block_B1 * _BLOCK_IDS + place_B1)[:, 0].clamp(max=vocab - 1)  # for masses that are not finite


def _first_above(ends_BN: Tensor, target_B1: Tensor) -> Tensor:
    """Returns the first index whose end is above the target, or above all smaller numbers than the last end.

    What it returns has a positive mass, however sums are rounded. Without a finite end it is any index.
    """
    last_B1 = ends_BN[:, -1:]
    below_B1 = torch.nextafter(last_B1, torch.zeros_like(last_B1))
    index_B1 = torch.searchsorted(ends_BN, torch.minimum(target_B1, below_B1), right=True)
    return index_B1.clamp(max=ends_BN.shape[-1] - 1)


def _shape(logits_BV: Tensor, rows: Sequence[Running]) -> Tensor:
    """Returns the logits to sample from, with penalty, allowed ids, top-k and top-p of each row."""
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
        return logits_BV
    shaped_BV = logits_BV.clone()
    for i in special:
        params, row_V = rows[i].params, logits_BV[i]
        if params.repetition_penalty != 1.0:
            row_V = _penalise(row_V, rows[i].token_ids, params.repetition_penalty)
        if params.allowed_token_ids:
            allowed = torch.tensor(params.allowed_token_ids, device=row_V.device)
            row_V = torch.full_like(row_V, -torch.inf).index_copy(0, allowed, row_V[allowed])
        if 0 < params.top_k < vocab:
            row_V = row_V.masked_fill(row_V < torch.topk(row_V, params.top_k).values[-1], -torch.inf)
        shaped_BV[i] = _keep_top_p(torch.log_softmax(row_V, dim=-1), params.top_p)
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
