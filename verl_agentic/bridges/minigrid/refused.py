"""Levels that are not tasks of this bridge."""

from __future__ import annotations

from collections.abc import Mapping

_ONE_LEVEL = "all seeds make the same level, so training and test would share it"
_NO_EXPERT = "there is no expert: BabyAI's bot needs rooms and an instruction, and there is no goal tile"
_LONG = "the expert needs more than 64 actions"
_HIDDEN = "keys are hidden in boxes, where BabyAI's bot does not look for them"
_CARRYING = "BabyAI's bot cannot solve it, as its documentation says"

REFUSED: Mapping[str, str] = {
    r"MiniGrid-Empty-\d+x\d+-v0": _ONE_LEVEL,
    r"MiniGrid-DistShift\d-v0": _ONE_LEVEL,
    r"MiniGrid-LavaGapS5-v0": "there are three levels, so training and test would share them",
    r"MiniGrid-(Fetch|GoToDoor|GoToObject|Memory|Playground|PutNear|RedBlueDoors).*": _NO_EXPERT,
    r"(MiniGrid-KeyCorridorS[56]R3|BabyAI-KeyCorridor(S[56]R3)?)-v0": _LONG,
    r"MiniGrid-LockedRoom-v0": "the search for a way takes 20 s",
    r"MiniGrid-MultiRoom-N4-S5-v0": "gymnasium calls it out of date; use v1",
    r"MiniGrid-ObstructedMaze-(1Dlhb?|2Dlhb?|1Q|2Q|Full)-v\d": _HIDDEN,
    r"MiniGrid-WFC-.*": "it needs minigrid's extra `wfc`",
    r"BabyAI-(KeyInBox|PutNext\w+Carrying)-v0": _CARRYING,
    r"BabyAI-UnlockToUnlock-v0": "BabyAI's bot does not end on some seeds",
}
"""Pattern of ids -> reason."""
