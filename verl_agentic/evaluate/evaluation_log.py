"""The episodes of `verl-agentic evaluate` as a trajectory log for the viewer."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.data.stored_samples import EPISODES, STORED_SAMPLE, json_records
from verl_agentic.episode.records.counted_signs import signs_in
from verl_agentic.evaluate.policies.byte_tokenizer import ByteTokenizer
from verl_agentic.log.reader import write_run
from verl_agentic.log.secrets import own_secrets
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.sample_row import to_columns

logger = logging.getLogger(__name__)
_MAX_ID = 2**31 - 1
_PIECE = re.compile(r"\s*\S+|\s+")


def evaluation_folders(root: Path) -> list[Path]:
    """Returns the folders at or below `root` that hold an evaluation."""
    return sorted(path.parent for path in root.rglob(EPISODES))


def write_evaluation_run(root: Path, into: Path, *, only_exact: bool = False) -> Path:
    """Writes a trajectory log of all evaluations at or below a folder; returns its folder.

    Every attempt is a trajectory of step 0 and split `val`. For a repeated attempt, the last record counts. Ids that
    only counted bytes become one id per word, with a tokenizer of these words.

    Args:
        root: folder of the evaluations.
        into: folder of the log.
        only_exact: leave out episodes whose ids are not those that the server's model read and sampled.

    Raises:
        DataError: there is no evaluation, or a line is not a record of one.
    """
    folders = evaluation_folders(root)
    words = _Words()
    lines = [(folder, line) for folder in folders for line in _iter_last_records(folder)]
    usable_lines = [(folder, line) for folder, line in lines if not only_exact or line[1].get("token_ids") == "exact"]
    if len(usable_lines) < len(lines):
        logger.warning(
            "%d of %d episodes below %s have no exact token ids", len(lines) - len(usable_lines), len(lines), root
        )
    records = [
        record
        for folder, line in usable_lines
        for record in _log_records(
            line, _read_settings(folder), prefix=_make_prefix(folder, root, folders), words=words
        )
    ]
    if not records:
        raise DataError(
            f"no episode{' with exact token ids' if only_exact else ''} is in {EPISODES} below {root}; run "
            f"`verl-agentic evaluate{' --tokenizer MODEL' if only_exact else ''}` first"
        )
    secrets = own_secrets()
    write_run(into, trajectories=[secrets.removed(record) for record in records])
    _write_tokenizer(folders, into, words)
    return into


def segment_columns(trajectory: Any, rewards: Sequence[float]) -> dict[str, Any]:
    """Returns the stored columns of a trajectory besides its tokens: authors, turns, and reward positions."""
    return {
        "segments": [[s.start, s.end, s.kind.value, s.turn] for s in trajectory.segments()],
        "token_rewards": {str(place): reward for place, reward in enumerate(rewards) if reward},
    }


class _Words:
    """A tokenizer of words, for texts without the model's tokenizer."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        return [self.ids.setdefault(piece, len(self.ids)) for piece in _PIECE.findall(text)]

    def write(self, folder: Path) -> None:
        from tokenizers import Tokenizer, decoders, models

        tokenizer = Tokenizer(models.WordLevel(self.ids, unk_token=next(iter(self.ids))))
        tokenizer.decoder = decoders.Fuse()
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(folder / "tokenizer.json"))


def _iter_last_records(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    path = folder / EPISODES
    last = {record.get("key"): place for place, record in json_records(path)}
    # The evaluation may still run: records that came after the first reading are left out.
    yield from (pair for pair in json_records(path) if last.get(pair[1].get("key")) == pair[0])


def _read_settings(folder: Path) -> dict[str, Any]:
    try:
        settings = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}


def _make_prefix(folder: Path, root: Path, folders: Sequence[Path]) -> str:
    return f"{folder.relative_to(root)}:" if len(folders) > 1 else ""


def _log_records(
    line: tuple[str, dict[str, Any]], settings: Mapping[str, Any], *, prefix: str, words: _Words
) -> list[dict[str, Any]]:
    place, record = line
    try:
        shared = _make_shared_columns(record, settings, prefix)
        rows = [_make_row(trajectory, record, words) for trajectory in record["trajectories"]]
        for index, row in enumerate(rows):
            is_side, is_last = index < record.get("num_side_rows", 0), index == len(rows) - 1
            row |= {**shared, "index": index, "place": "side" if is_side else "last" if is_last else "earlier"}
        rows[-1] |= _make_text_columns(record)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as cause:
        raise DataError(
            f"{place} is no episode of an evaluation, got {type(cause).__name__}: {cause}; remove the line"
        ) from cause
    return rows


def _make_shared_columns(record: Mapping[str, Any], settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    numbers = dict(record["numbers"])
    calls = [call["function"]["name"] for message in record["messages"] for call in message.get("tool_calls") or ()]
    return {
        "uid": f"{prefix}{record['task']}",
        "session": record["sample"],
        "step": 0,
        "split": "val",
        "role": "policy",
        "loop": "evaluate",
        "env": str(settings.get("env") or ""),
        "temperature": settings.get("temperature") or 0.0,
        "task_id": str(record.get("task_id") or record["row"]),
        "stop_reason": record["stop_reason"],
        "is_void": record["void"],
        "error": record["error"] or "",
        "reward": None if record["void"] else record["reward"] + _turn_rewards(record),
        "acc": None if record["void"] else record["outcome"],
        "num_turns": int(numbers.get("num_turns", 0)),
        "num_calls": int(numbers.get("tool_calls", len(calls))),
        "num_call_errors": int(numbers.get("tool_errors", 0)),
        "tools": list(dict.fromkeys(calls)),
        "hacking": signs_in(numbers),
        "numbers": numbers,
    }


def _turn_rewards(record: Mapping[str, Any]) -> float:
    """Returns the turn rewards, which `reward` does not contain."""
    stored = [sum((row.get("token_rewards") or {}).values()) for row in record["trajectories"]]
    return sum(stored) - record["reward"] if any("token_rewards" in row for row in record["trajectories"]) else 0.0


def _make_row(trajectory: Mapping[str, Any], record: Mapping[str, Any], words: _Words) -> dict[str, Any]:
    prompt_ids, ids, mask = (trajectory[name] for name in ("prompt_ids", "response_ids", "response_mask"))
    segments = trajectory.get("segments") or _make_segments(mask)
    rewards = {int(place): reward for place, reward in (trajectory.get("token_rewards") or {}).items()}
    row = {
        "agent": trajectory.get("agent", ""),
        "prompt_ids": prompt_ids,
        "response_ids": ids,
        "response_mask": mask,
        "rollout_log_probs": trajectory["log_probs"] or [],
        "token_rewards": [rewards.get(place, 0.0) for place in range(len(ids))],
        "segments": [dict(zip(("start", "end", "kind", "turn"), segment, strict=True)) for segment in segments],
    }
    if max([0, *prompt_ids, *ids]) > _MAX_ID:
        row = _encode_words(row, words)
    turns = [segment["turn"] for segment in row["segments"] for _ in range(segment["end"] - segment["start"])]
    num_tokens = {"num_model_tokens": sum(row["response_mask"]), "num_response_tokens": len(row["response_ids"])}
    return {**row, "turn_ids": turns, **num_tokens}


def _make_segments(mask: Sequence[int]) -> list[list[Any]]:
    """Returns segments for a record that was stored without them."""
    spans: list[list[Any]] = []
    start, turn = 0, -1
    for is_model, tokens in groupby(mask):
        end = start + len(list(tokens))
        turn += bool(is_model)
        spans.append([start, end, "model" if is_model else "tool", max(0, turn)])
        start = end
    return spans


def _encode_words(row: Mapping[str, Any], words: _Words) -> dict[str, Any]:
    """Returns a row with an id per word, without log-probs; a reward is on its segment's last word."""
    decode = ByteTokenizer().decode
    ids: list[int] = []
    mask: list[int] = []
    rewards: list[float] = []
    segments = []
    for segment in row["segments"]:
        old = slice(segment["start"], segment["end"])
        new = words.encode(decode(row["response_ids"][old]))
        if new:
            segments.append({**segment, "start": len(ids), "end": len(ids) + len(new)})
            ids += new
            mask += [int(any(row["response_mask"][old]))] * len(new)
            rewards += [0.0] * (len(new) - 1) + [sum(row["token_rewards"][old])]
    return {
        "agent": row["agent"],
        "prompt_ids": words.encode(decode(row["prompt_ids"])),
        "response_ids": ids,
        "response_mask": mask,
        "rollout_log_probs": [],
        "token_rewards": rewards,
        "segments": segments,
    }


def _make_text_columns(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of the last row: prompt, turns and answer."""
    stored = record.get(STORED_SAMPLE)
    extra_columns = {"spans": record.get("spans") or [], "traceback": record.get("traceback") or ""}
    if stored is not None:
        return {**to_columns(Sample.from_dict(stored["sample"])), "score": stored["score"], **extra_columns}
    # A void episode has no sample, only its conversation.
    messages = [{"role": m["role"], "content": m["content"], "name": "", "calls": ""} for m in record["messages"]]
    start = next((place for place, m in enumerate(messages) if m["role"] == "assistant"), len(messages))
    turns: list[dict[str, Any]] = []
    for message in messages[start:]:
        if message["role"] == "assistant":
            text = message["content"]
            turn = {"index": len(turns), "text": text, "content": text, "calls": [], "observations": []}
            turns.append({**turn, "num_tokens": 0, "mean_log_prob": None, "reward": 0.0})
        else:
            turns[-1]["observations"].append(message["content"])
    return {"prompt": messages[:start], "turns": turns, **extra_columns}


def _write_tokenizer(folders: Sequence[Path], into: Path, words: _Words) -> None:
    if words.ids:
        words.write(into / "tokenizer")
        return
    for folder in folders:
        named = _read_settings(folder).get("tokenizer")
        for path in (folder / "tokenizer" / "tokenizer.json", *([Path(named) / "tokenizer.json"] if named else [])):
            if path.is_file():
                (into / "tokenizer").mkdir(parents=True, exist_ok=True)
                shutil.copy(path, into / "tokenizer" / "tokenizer.json")
                return
