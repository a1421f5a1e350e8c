"""Samples the next token of every row of a batch, each row by its own parameters.

Axes: B rows, S rows that sample from another distribution than that of their logits, V ids of the vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from verl_agentic.base.errors import PolicyError
from verl_agentic.cpu.inference.decode_rows import SamplingRows

_BLOCK_IDS = 256
_PIECE_LOGITS = 1 << 19
"""2 MiB of float32, which stay in the cache of a processor."""


def sample(logits_BV: Tensor, rows: SamplingRows) -> Tensor:
    """Returns one sampled id per row, and its log-prob under `log_softmax(logits / temperature)`.

    Allowed ids, top-k, top-p and repetition penalty change the sampled distribution but not the log-prob, which equals
    a trainer's for the same logits. At temperature 0 the log-prob is that of temperature 1. The id of a row does not
    depend on the other rows.

    Args:
        logits_BV: `[B, V]` logits of the last position.
        rows: parameters and random numbers of the B rows.

    Returns:
        Ids and log-probs on the device of the logits, `[2, B]` float64; see `read_sampled`.
    """
    batch, vocab = logits_BV.shape
    num_rows = max(_PIECE_LOGITS // vocab, 1) if logits_BV.device.type == "cpu" else batch
    inputs_2B = torch.from_numpy(np.stack([rows.uniform_B, rows.temperature_B])).to(logits_BV.device)
    pieces = [slice(start, min(start + num_rows, batch)) for start in range(0, batch, num_rows)]
    uniform_B, temperature_B = inputs_2B
    sampled = [choose(logits_BV[piece], uniform_B[piece], temperature_B[piece], rows[piece]) for piece in pieces]
    return torch.cat(sampled, dim=-1)


def read_sampled(sampled_2B: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids and log-probs of `sample` as arrays. Reads the device once.

    Raises:
        PolicyError: the largest logit of a row is not finite, so that its logits are no distribution.
    """
    ids_B, log_probs_B = sampled_2B.cpu().numpy()
    if num_invalid := int(np.isnan(log_probs_B).sum()):
        raise PolicyError(
            f"the largest logit is not finite in {num_invalid} of {len(ids_B)} rows; check the weights of the model: "
            "has training diverged?"
        )
    return ids_B.astype(np.int64), log_probs_B


def choose(logits_BV: Tensor, uniform_B: Tensor, temperature_B: Tensor, rows: SamplingRows | None = None) -> Tensor:
    """Returns the ids and log-probs of `sample`; NaN where nothing can be drawn.

    Without `rows` it depends on no value of the host, so that a graph may hold it. No row is then shaped.
    """
    logits_BV = logits_BV.float()
    is_greedy_B = temperature_B == 0.0
    temperatures = None if rows is None else rows.temperature_B
    if temperatures is None or not np.isin(temperatures, (0.0, 1.0)).all():
        logits_BV = logits_BV / torch.where(is_greedy_B, 1.0, temperature_B).float()[:, None]
    shaped_BV = logits_BV if rows is None else _shape_logits(logits_BV, rows)
    masses_BV = torch.softmax(shaped_BV, dim=-1)
    ids_B = None if temperatures is not None and not temperatures.any() else _draw_ids(masses_BV, uniform_B)
    if temperatures is None or not temperatures.all():
        largest_ids_B = shaped_BV.argmax(dim=-1)
        ids_B = largest_ids_B if ids_B is None else torch.where(is_greedy_B, largest_ids_B, ids_B)
    assert ids_B is not None
    if shaped_BV is not logits_BV:
        masses_BV = torch.softmax(logits_BV, dim=-1)
    # The largest mass is exp(0) over the total: the logarithm of a chosen mass might be that of 0.
    largest_B = logits_BV.amax(dim=-1)
    chosen_B = logits_BV.gather(-1, ids_B[:, None])[:, 0] - largest_B + masses_BV.amax(dim=-1).log()
    if shaped_BV is not logits_BV:
        largest_B = shaped_BV.amax(dim=-1)
    return torch.stack((ids_B.double(), chosen_B.where(largest_B.isfinite(), torch.nan).double()))


def _draw_ids(masses_BV: Tensor, uniform_B: Tensor) -> Tensor:
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

    The returned index has a positive mass, however sums are rounded. Without a finite end it is any index.
    """
    last_B1 = ends_BN[:, -1:]
    below_B1 = torch.nextafter(last_B1, torch.zeros_like(last_B1))
    index_B1 = torch.searchsorted(ends_BN, torch.minimum(target_B1, below_B1), right=True)
    return index_B1.clamp(max=ends_BN.shape[-1] - 1)


def _shape_logits(logits_BV: Tensor, rows: SamplingRows) -> Tensor:
    """Returns the logits to sample from, with penalty, allowed ids, top-k and top-p of each row."""
    special = np.flatnonzero(rows.is_shaped_B)
    if not special.size:
        return logits_BV
    special_S = torch.from_numpy(special).to(logits_BV.device)
    logits_SV = logits_BV[special_S]
    options_3S = torch.from_numpy(np.stack([rows.penalty_B, rows.top_k_B, rows.top_p_B])[:, special])
    penalty_S, top_k_S, top_p_S = options_3S.to(logits_BV.device)
    if rows.seen_BV is not None:
        logits_SV = _penalise_tokens(logits_SV, rows.seen_BV[special_S], penalty_S.float()[:, None])
    if rows.allowed_BV is not None:
        logits_SV = logits_SV.masked_fill(~rows.allowed_BV[special_S], -torch.inf)
    top_ks = rows.top_k_B[special]
    if (top_ks < logits_SV.shape[-1]).any():
        is_cut = top_ks < logits_SV.shape[-1]
        largest_SK = torch.topk(logits_SV, int(top_ks[is_cut].max())).values
        last_S1 = (top_k_S.long().clamp(max=largest_SK.shape[-1]) - 1)[:, None]
        is_cut_S1 = (top_k_S < logits_SV.shape[-1])[:, None]
        logits_SV = logits_SV.masked_fill(is_cut_S1 & (logits_SV < largest_SK.gather(-1, last_S1)), -torch.inf)
    shaped_SV = torch.log_softmax(logits_SV, dim=-1)
    if (rows.top_p_B < 1.0).any():
        shaped_SV = _keep_top_p(shaped_SV, top_p_S.float()[:, None])
    return logits_BV.index_copy(0, special_S, shaped_SV)


def _penalise_tokens(logits_SV: Tensor, seen_SV: Tensor, penalty_S1: Tensor) -> Tensor:
    """Divides positive and multiplies negative logits of all seen tokens. Paper: https://arxiv.org/abs/1909.05858."""
    penalised_SV = torch.where(logits_SV > 0, logits_SV / penalty_S1, logits_SV * penalty_S1)
    # A row without a penalty has no marks of its own: those of an earlier request may be left in its place.
    return torch.where(seen_SV & (penalty_S1 != 1.0), penalised_SV, logits_SV)


def _keep_top_p(log_probs_SV: Tensor, top_p_S1: Tensor) -> Tensor:
    """Removes all but the fewest tokens whose mass reaches `top_p`. Paper: https://arxiv.org/abs/1904.09751."""
    sorted_SV, order_SV = torch.sort(log_probs_SV, descending=True)
    mass_before_SV = torch.cumsum(sorted_SV.exp(), dim=-1) - sorted_SV.exp()
    is_removed_SV = (mass_before_SV >= top_p_S1) & (top_p_S1 < 1.0)
    return log_probs_SV.masked_fill(torch.zeros_like(is_removed_SV).scatter(-1, order_SV, is_removed_SV), -torch.inf)
