"""Runs as they lie on disk, made up: tokens are those of the tiny model, numbers are drawn."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from verl_agentic.log.reader import write_run

HOSTILE = (
    "<script>window.broken = 1</script><img src=x onerror='window.broken = 2'></script><!--<script>"
    "\x1b[2J\x1b]0;owned\x07 \u202eecilA\u202c \u2066x\u2069 a\u200bb\u00a0c \x00 </td>&lt;b&gt;\r\n\u0085"
)
"""Text that a model might write to take the page over, or to look like something else."""
KINDS = ("answered", "max_turns", "answered", "env_done", "max_tokens")
QUESTIONS = ("a train to Kyoto", "37 * 91", "the capital of Kenya", "primes below 60", "a knight's tour")


_THOUGHTS = (
    "First I write down what is asked.", "That is close to π ≈ 3.14159, but not the same.",
    "Wait, I should check this.",
    "Let me compute it with the tool instead of guessing.", "Thirty-seven times ninety is 3330.", "So the rest is 37.",
    "I am not sure about the last digit.", "Adding both parts gives a candidate.",
)  # fmt: skip


def encoder(tiny_model: Path | None) -> Any:
    """Returns text -> token ids; the bytes themselves without a tokenizer."""
    if tiny_model is None:
        return lambda text: list(text.encode())
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def episode(encode: Any, chance: random.Random, *, step: int, group: int, session: int, words: int = 40) -> Any:
    """Returns what one trajectory is in both tables: `(trajectory, update)`."""
    question = QUESTIONS[group % len(QUESTIONS)]
    is_right = chance.random() < 0.3 + 0.02 * step
    pieces, calls = _story(question, chance, words=words, is_right=is_right)
    ids, mask, turn_ids, segments = _tokens(encode, pieces)
    size, key = len(ids), {"uid": f"g{step:04d}-{group:02d}", "session": session, "index": 0}
    reward = float(is_right) + 0.1
    trainer = [-chance.expovariate(2.5) * m for m in mask]
    advantage = chance.choice((-1.3, -0.4, 0.4, 1.7)) if chance.random() < 0.8 else 0.0
    turns = [
        {"index": 0, "text": pieces[0][0], "content": "", "calls": calls, "observations": [pieces[1][0]],
         "num_tokens": segments[0]["end"], "mean_log_prob": -0.4, "reward": 0.0},
        {"index": 1, "text": pieces[2][0], "content": pieces[2][0], "calls": [], "observations": [],
         "num_tokens": size - segments[1]["end"], "mean_log_prob": -0.3, "reward": reward},
    ]  # fmt: skip
    rollout = [min(0.0, p + chance.gauss(0, 0.05) * m) for p, m in zip(trainer, mask, strict=True)]
    generated = chance.uniform(0.8, 3.0)
    trajectory = {
        **key, "split": "train", "step": step, "place": "last", "role": "policy", "loop": "env_agent",
        "env": "python_math", "task_id": f"{question} #{group}", "data_source": "made_up",
        "time": 1.7e9 + 60 * step + session, "seed": f"s{session}",
        "temperature": 1.0, "weights_min": step - 1, "weights_max": step - 1, "stop_reason": KINDS[chance.randrange(5)],
        "is_void": False, "error": "", "reward": reward, "acc": float(is_right), "num_turns": 2,
        "num_calls": len(calls),
        "num_call_errors": sum(call["is_error"] for call in calls), "tools": sorted({call["name"] for call in calls}),
        "hacking": ["git_history", "network"] if session == 1 and step == 2 else [],
        "num_model_tokens": sum(mask), "num_response_tokens": size,
        "numbers": {"reward/math": float(is_right), "generate_s": generated, "stop/answered": 1.0},
        "prompt_ids": encode(f"You are careful.\nWhat is {question}?"), "response_ids": ids, "response_mask": mask,
        "turn_ids": turn_ids, "segments": segments, "rollout_log_probs": rollout,
        "token_rewards": [0.0] * (size - 1) + [reward], "turns": turns, "final_answer": pieces[2][0],
        "prompt": [{"role": "system", "content": "You are careful.", "name": "", "calls": ""},
                   {"role": "user", "content": f"What is {question}?", "name": "", "calls": ""}],
        "spans": [{"kind": "start", "label": "", "turn": 0, "start_s": 0.0, "end_s": 0.3},
                  {"kind": "generate", "label": "", "turn": 0, "start_s": 0.3, "end_s": 0.3 + generated},
                  {"kind": "step", "label": "", "turn": 0, "start_s": 0.3 + generated, "end_s": 1.5 + generated},
                  {"kind": "tool", "label": "python", "turn": 0, "start_s": 0.4 + generated, "end_s": 1.4 + generated},
                  {"kind": "generate", "label": "", "turn": 1, "start_s": 1.5 + generated, "end_s": 2.2 + generated},
                  {"kind": "score", "label": "", "turn": 1, "start_s": 2.2 + generated, "end_s": 2.3 + generated}],
        "ground_truth": json.dumps("3367"), "extra": json.dumps({"index": group}), "env_score": None,
        "score": {"score": reward, "acc": float(is_right), "reward/math": float(is_right), "reward/tool_validity": 1.0,
                  "weighted/math": float(is_right), "weighted/tool_validity": 0.1,
                  "weighted/overlong": -0.05 * (session % 2), "abstained/math": 0.0}, "breach": "",
    }  # fmt: skip
    update = {
        **key, "trained_step": step, "paid": reward, "mean_advantage": advantage, "num_trained_tokens": sum(mask),
        "advantages": [advantage * m for m in mask], "returns": [], "values": [0.5 - chance.random() for _ in mask],
        "old_log_probs": trainer, "entropies": [chance.expovariate(1.2) * m for m in mask],
    }  # fmt: skip
    return trajectory, update


def stored_run(
    folder: Path, tiny_model: Path | None, *, steps: int = 5, groups: int = 4, sessions: int = 4, words: int = 40
) -> Path:
    """Writes a run: a group of validation, a void trajectory, a breach and a hostile one are in its last step."""
    encode, chance = encoder(tiny_model), random.Random(7)
    played = [
        episode(encode, chance, step=step, group=group, session=session, words=words)
        for step in range(1, steps + 1)
        for group in range(groups)
        for session in range(sessions)
    ]
    trajectories, updates = [t for t, _ in played], [u for _, u in played]
    trajectories[-1] |= {
        "is_void": True,
        "stop_reason": "infra_error",
        "error": "the sandbox has gone",
        "reward": None,
        "acc": None,
    }
    trajectories[-2] |= {"breach": "row 3: a token with mask 1 in an observation, tokens 4 to 9"}
    _make_hostile(trajectories[-sessions], encode)
    validation, _ = episode(encode, chance, step=steps, group=0, session=0)
    trajectories.append({**validation, "split": "val", "uid": "held-out"})
    write_run(
        folder,
        trajectories=trajectories,
        updates=updates,
        metrics=[(step, _metrics(step)) for step in range(1, steps + 1)],
    )
    findings = [
        {"step": 2, "time": 1.7e9, "name": "entropy_collapse", "level": "warn",
         "message": "batch/entropy fell below 0.1",
         "evidence": {"batch/entropy": 0.08}, "advice": "raise entropy_coeff"},
        {"step": steps, "time": 1.7e9, "name": "void_rows", "level": "stop", "message": "too many rows are void",
         "evidence": {"share": 0.4}, "advice": "look at the sandbox"},
    ]  # fmt: skip
    (folder / "health.jsonl").write_text(
        "".join(json.dumps(finding) + "\n" for finding in findings) + '{"step": 3, "na'
    )
    if tiny_model is not None:
        (folder / "tokenizer").mkdir(exist_ok=True)
        (folder / "tokenizer" / "tokenizer.json").write_bytes((tiny_model / "tokenizer.json").read_bytes())
    return folder


def _make_hostile(trajectory: dict[str, Any], encode: Any) -> None:
    ids = encode(HOSTILE)
    turn = {**trajectory["turns"][0], "text": HOSTILE, "observations": [HOSTILE]}
    turn["calls"] = [
        {
            "name": HOSTILE,
            "arguments": HOSTILE,
            "result": HOSTILE,
            "is_error": True,
            "error_kind": HOSTILE,
            "elapsed_s": 0.1,
        }
    ]
    message = {"role": "user", "content": HOSTILE, "name": HOSTILE, "calls": HOSTILE}
    names = ("response_mask", "turn_ids", "rollout_log_probs", "token_rewards")
    trajectory |= {name: [0] * len(ids) for name in names} | {
        "segments": [{"start": 0, "end": len(ids), "kind": "model", "turn": 0}], "response_ids": ids,
        "task_id": HOSTILE, "response_mask": [1] * len(ids), "turns": [turn], "prompt": [message],
        "final_answer": HOSTILE, "error": HOSTILE, "ground_truth": HOSTILE, "extra": HOSTILE,
        "env_score": json.dumps({"outcome": HOSTILE, "details": patch_of(HOSTILE)}),
        "numbers": {HOSTILE: 1.0}, "score": {HOSTILE: 1.0},
        "stop_reason": HOSTILE, "tools": [HOSTILE], "hacking": [HOSTILE], "env": HOSTILE, "breach": HOSTILE,
        "spans": [{"kind": HOSTILE, "label": HOSTILE, "turn": 0, "start_s": 0.0, "end_s": 1.0}],
    }  # fmt: skip


def patch_of(text: str) -> dict[str, Any]:
    """Returns the details of an episode on a repository, with a text in all places."""
    return {"is_graded": True, "patch": f"--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n+{text}\n", "accepted": [text],
            "refused": {text: text}, "f2p": {text: "passed", "test_two": "failed"}, "p2p": {text: text},
            "p2p_passed": 3, "why": {text: text}, "forged": [text], "tampered": [text], "flags": [text]}  # fmt: skip


def _story(
    question: str, chance: random.Random, *, words: int, is_right: bool
) -> tuple[list[tuple[str, str]], list[Any]]:
    """Returns `(text, author)` of three blocks, and the calls of the first."""
    said = " ".join(chance.choice(_THOUGHTS) for _ in range(max(1, words // 10)))
    code, failed = f"print({chance.randrange(9)} * 37)", chance.random() < 0.2
    result = "Traceback: NameError" if failed else str(37 * chance.randrange(9))
    call = {"name": "python", "arguments": json.dumps({"code": code}), "result": result, "is_error": failed,
            "error_kind": "tool_timeout" if failed else "", "elapsed_s": chance.uniform(0.05, 1.2)}  # fmt: skip
    calls = [call] * (4 if chance.random() < 0.05 else 1)
    first = (
        f"I wonder about {question}: {said}\n<tool_call>\n"
        + json.dumps({"name": "python", "arguments": {"code": code}})
        + "\n</tool_call>"
    )
    return [(first, "model"), (f"\n<tool_response>\n{result}\n</tool_response>\n", "tool"),
            ("The answer is " + ("3367." if is_right else "I do not know."), "model")], calls  # fmt: skip


def _tokens(encode: Any, pieces: list[tuple[str, str]]) -> tuple[list[int], list[int], list[int], list[dict[str, Any]]]:
    ids, mask, turn_ids, segments = [], [], [], []
    for number, (text, kind) in enumerate(pieces):
        more, turn = encode(text), number // 2
        segments.append({"start": len(ids), "end": len(ids) + len(more), "kind": kind, "turn": turn})
        ids += more
        mask += [int(kind == "model")] * len(more)
        turn_ids += [turn] * len(more)
    return ids, mask, turn_ids, segments


def _metrics(step: int) -> dict[str, float]:
    return {
        "episode/acc": 0.3 + 0.4 * (1 - math.exp(-step / 8)), "batch/entropy": 0.2 + 1.5 * math.exp(-step / 6),
        "response_length/mean": 120 + 3.0 * step, "actor/grad_norm": 0.5 + 0.3 * math.sin(step),
        "critic/score/mean": 0.2 + 0.02 * step,
        "episode/tool_calls": 1.0 + 0.1 * math.cos(step), "actor/ppo_kl": 0.001 * step, "<b>odd</b>": float(step),
        "time/generate_s": 6.0 + math.sin(step), "time/tool_s": 2.0 + 0.5 * math.cos(step), "time/reward_s": 0.7,
        "time/update_actor_s": 4.0, "time/old_log_prob_s": 1.1, "time/weight_sync_s": 0.4, "time/other_s": 0.2,
        "timing_s/step": 15.0, "timing_s/gen": 9.0,
    }  # fmt: skip
