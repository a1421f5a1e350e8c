"""Instructions for BabyAI's bot in levels of MiniGrid, which have none."""

from __future__ import annotations

from typing import Any


def instruct(level: Any) -> bool:
    """Gives a level the instruction that its mission means; returns whether it has one now.

    Args:
        level: an unwrapped `MiniGridEnv` after its reset.
    """
    if hasattr(level, "instrs"):
        return True
    instruction = _make_instruction(level) if hasattr(level, "room_from_pos") else None  # the bot asks for rooms
    if instruction is not None:
        instruction.reset_verifier(level)
        level.instrs = instruction
    return instruction is not None


def _make_instruction(level: Any) -> Any:
    from minigrid.envs.babyai.core.verifier import ObjDesc, OpenInstr, PickupInstr

    if hasattr(level, "obj"):  # KeyCorridor, ObstructedMaze, UnlockPickup
        return PickupInstr(ObjDesc(level.obj.type, level.obj.color))
    if hasattr(level, "door"):  # Unlock
        return OpenInstr(ObjDesc("door", level.door.color))
    return None
