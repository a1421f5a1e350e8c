"""A judge of style that says of the same text now this, now that: the shaping under which filters are compared."""

from __future__ import annotations

import zlib

from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample


@component(inline=True)
def style(sample: Sample) -> float:
    """Returns a number from 0 to 1 that depends on which episode it is, and not on what was written in it."""
    return zlib.crc32(sample.id.encode()) / 2**32
