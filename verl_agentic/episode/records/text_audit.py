"""The text audit: trained tokens must decode to the policy's text, turn by turn."""

from __future__ import annotations

from verl_agentic.base.finding import TEXT_MISMATCH
from verl_agentic.episode.records.episode import Episode
from verl_agentic.log.row_audit import find_foreign_text
from verl_agentic.log.secrets import Decode


def text_breach(episode: Episode, *, decode: Decode) -> str:
    """Returns the first mismatch (row, span and reason), or empty; see `find_foreign_text`."""
    texts = {action.turn: action.text for action in episode.actions}
    for index, row in list(enumerate(episode.trajectories))[episode.num_side_rows :]:
        foreign = find_foreign_text(
            row.response_ids, mask=row.response_mask, turn_ids=row.turn_ids, texts=texts, decode=decode
        )
        if foreign:
            return f"{TEXT_MISMATCH}: row {index}, {foreign}"
    return ""
