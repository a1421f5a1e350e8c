"""Stop texts that an environment sets for a turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from verl_agentic.agent_loops.codec.clipping import TextTokenizer
from verl_agentic.agent_loops.policies.policy import Completion


def cut_at_stop(completion: Completion, stop_texts: Sequence[str], *, tokenizer: TextTokenizer) -> Completion:
    """Returns the turn up to the token that completes the first stop text.

    A part of a sample is a sample of the part, so the kept tokens are trained with their own log-probs.
    """
    ids = completion.token_ids

    def has_stop(length: int) -> bool:
        text = tokenizer.decode(list(ids[:length]), clean_up_tokenization_spaces=False)
        return any(stop in text for stop in stop_texts)

    if not stop_texts or not has_stop(len(ids)):
        return completion
    low, high = 1, len(ids)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if has_stop(middle) else (middle + 1, high)
    log_probs = None if completion.log_probs is None else completion.log_probs[:low]
    return replace(completion, token_ids=ids[:low], log_probs=log_probs, finish_reason="stop")
