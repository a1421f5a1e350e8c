"""The section `reward.rubric`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verl_agentic.adapters.sections import plain, section

if TYPE_CHECKING:
    from verl_agentic.rewards.rubric import Rubric


@section("reward.rubric", of="reward")
def rubric(reward: Any) -> Rubric | None:
    """Returns the rubric of the section `reward`; None where another reward manager scores."""
    from verl_agentic.rewards.rubric import Rubric

    manager = reward.get("reward_manager") or {}
    return Rubric.from_config(plain(reward)) if manager.get("name") == "rubric" else None
