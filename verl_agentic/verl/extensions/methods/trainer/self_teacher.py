"""Log-probs of responses under the same policy with feedback in its prompt: the teacher of the loss `sdpo`.

The feedback is the response of a successful sibling, without its reasoning. Without one, it is what the environment
answered in the row itself, if the row failed. Rows without feedback get NaN and no loss, as do rows that would exceed
`rollout.log_prob_max_token_len_per_gpu` with it. With `algorithm.self_teacher: {tau: 0.05}` the teacher is a moving
average of the policy (`verl.extensions.methods.engine.ema_teacher`), else the policy before the step's updates.

With `top_tokens` of the loss, the pass for old log-probs chooses the most likely tokens of the policy at every place,
and the teacher gives its log-probs of these (`verl.extensions.methods.engine.top_log_probs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings
from verl_agentic.base.text.reasoning import outside_reasoning
from verl_agentic.credit.policy_loss import needs_of_loss
from verl_agentic.episode.codec.control_tokens import Markers, special_tokens
from verl_agentic.methods.losses.target_network import TargetSettings
from verl_agentic.verl.batches.row_store import split_key
from verl_agentic.verl.extensions.methods.method_sections import count_top_tokens
from verl_agentic.verl.extensions.methods.trainer.extra_rows import compute_columns, extra_row, max_row_tokens
from verl_agentic.verl.sections import plain_section
from verl_agentic.verl.trainer.trainer_part import TrainerPart, read_outcomes, store_columns

COLUMN, TOP_COLUMN = "teacher_log_prob", "teacher_top_log_probs"
_FIELDS = ["prompts", "responses", "response_mask"]
SECTION = "algorithm.self_teacher"
# Read and set by `ema_teacher` and `top_log_probs` in the workers; no other adapter imports them.
_TEACHER_TAU = "teacher_tau"
_TEACHER_PASS = "teacher_pass"
_TOP_TOKENS, _TOP_IDS, _TOP_LOG_PROBS = "calculate_top_tokens", "top_ids", "top_log_probs"
_MARK = "LASTMESSAGE"
_SOLUTION_TEXT = "\n\nA correct solution:\n{text}\n\nNow solve it yourself."
_FEEDBACK_TEXT = "\n\nFeedback on an earlier attempt that failed:\n{text}\n\nNow solve it yourself."
_MAX_FEEDBACK_TOKENS = 1024
"""Tokens of the environment's feedback, the last ones."""


def teacher_tau(config: Any) -> float | None:
    """Returns the teacher's `tau`; None: it is the actor. Raises ConfigError if the section is invalid."""
    raw_settings = plain_section(config, SECTION)
    if raw_settings is None:
        return None
    tau = read_settings(TargetSettings, raw_settings, section=SECTION).tau
    actor = config.actor_rollout_ref.actor
    loss = str(OmegaConf.select(actor, "policy_loss.loss_mode"))
    if "teacher_log_prob_BT" not in needs_of_loss(loss):
        raise ConfigError(
            f"{SECTION} is the teacher of the loss sdpo, got actor_rollout_ref.actor.policy_loss.loss_mode={loss}; set "
            "that, or unset it"
        )
    if actor.strategy != "fsdp2":
        raise ConfigError(f"{SECTION} needs actor_rollout_ref.actor.strategy=fsdp2, got {actor.strategy!r}; set it")
    return tau


class SelfTeacher(TrainerPart):
    """Stores the log-probs of the teacher, if the loss learns from them."""

    def before_log_probs(self, batch: Any) -> None:
        """Asks the engine for the most likely tokens."""
        if count := count_top_tokens(self.config):
            batch.extra_info[_TOP_TOKENS] = count

    def after_log_probs(self, batch: Any) -> Any:
        """Returns the batch; a reference has no use for these tokens."""
        batch.extra_info.pop(_TOP_TOKENS, None)
        return batch

    def after_advantages(self, trainer: Any, batch: Any, columns: Mapping[str, Any]) -> Any:
        """See `store_teacher_log_probs`."""
        if not self.loss_needs("teacher_log_prob_BT"):
            return batch
        outcome_B = read_outcomes(columns, why=f"the loss {self.loss} learns from siblings that did the task")
        return store_teacher_log_probs(trainer, batch, outcome_B=outcome_B.tolist())

    def before_update(self, batch: Any) -> None:
        """Asks the engine for the log-probs of these tokens under the updated policy."""
        self.before_log_probs(batch)


def store_teacher_log_probs(trainer: Any, batch: Any, *, outcome_B: Sequence[float]) -> Any:
    """Returns the batch with the column `teacher_log_prob`: `[R]` float, NaN without a solution; with `top_tokens` also
    `teacher_top_log_probs`: `[R, K]` float.

    Args:
        trainer: verl's, with an actor.
        outcome_B: raw outcome of the row's session; at least 1 is a solution, and less is a failure.
    """
    count = count_top_tokens(trainer.config)
    fields = [*_FIELDS, *([_TOP_IDS] if count else [])]
    fetched = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    prompts, responses, masks = (fetched[name].unbind() for name in _FIELDS)
    top_columns = [{_TOP_IDS: ids} for ids in fetched[_TOP_IDS].unbind()] if count else [{} for _ in prompts]
    solutions = _find_solutions(batch.keys, outcome_B, masks)
    max_tokens, closing = max_row_tokens(trainer.config), closing_ids(trainer.tokenizer)
    # Computes all rows, also those without a solution, because a batch must be divisible by the ranks.
    rows, is_taught, control = [], [], Markers(special_tokens(trainer.tokenizer))
    for place, (prompt, response, mask) in enumerate(zip(prompts, responses, masks, strict=True)):
        taught_prompt = prompt
        if (solution := solutions[place]) is not None:
            template, ids = _SOLUTION_TEXT, responses[solution][masks[solution].bool()]
            text = _decode_solution(trainer.tokenizer, ids)
        else:
            template, ids = _FEEDBACK_TEXT, _find_feedback(response, mask, outcome=outcome_B[place])
            text = trainer.tokenizer.decode(ids.tolist(), skip_special_tokens=True)
        if len(ids):
            text = template.format(text=control.neutralise(text)[0])
            taught_prompt = _add_text(trainer.tokenizer, prompt, text, closing=closing)
        is_taught.append(len(ids) > 0 and len(taught_prompt) + len(response) <= max_tokens)
        rows.append({**extra_row(taught_prompt if is_taught[-1] else prompt, response, mask), **top_columns[place]})
    taught_keys = [f"told-{key}" for key in batch.keys]
    tau = teacher_tau(trainer.config)
    columns = compute_columns(
        trainer,
        batch,
        rows,
        keys=taught_keys,
        beside=range(len(rows)),
        asks={**({} if tau is None else {_TEACHER_TAU: tau}), **({_TOP_TOKENS: count} if count else {})},
        answers=[*([] if tau is None else [_TEACHER_PASS]), *([_TOP_LOG_PROBS] if count else [])],
    )
    teacher_rows = [
        row if taught else torch.full_like(row, torch.nan)
        for row, taught in zip(columns["log_probs"].unbind(), is_taught, strict=True)
    ]
    stored = {COLUMN: torch.nested.as_nested_tensor(teacher_rows, layout=torch.jagged)}
    if count:
        stored[TOP_COLUMN] = columns[_TOP_LOG_PROBS]
    return store_columns(batch, stored)


def _find_solutions(keys: Sequence[str], outcome_B: Sequence[float], masks: Sequence[torch.Tensor]) -> list[int | None]:
    """Returns for every row the last row of a successful sibling, or None."""
    parsed = [split_key(key) for key in keys]
    by_uid: dict[str, dict[str, tuple[int, int]]] = {}
    for place, ((uid, session, index), outcome, mask) in enumerate(zip(parsed, outcome_B, masks, strict=True)):
        if outcome >= 1 and bool(mask.any()):
            rows_by_session = by_uid.setdefault(uid, {})
            rows_by_session[session] = max(rows_by_session.get(session, (index, place)), (index, place))
    return [
        next((place for other, (_, place) in by_uid.get(uid, {}).items() if other != session), None)
        for uid, session, _ in parsed
    ]


def _find_feedback(response: torch.Tensor, mask: torch.Tensor, *, outcome: float) -> torch.Tensor:
    """Returns the last tokens that the environment wrote into a failed row; none of a success or of a void row."""
    if outcome >= 1 or not bool(mask.any()):
        return response[:0]
    return response[~mask.bool()][-_MAX_FEEDBACK_TOKENS:]


def _decode_solution(tokenizer: Any, ids: torch.Tensor) -> str:
    """Returns the text of a response without special tokens, and without its reasoning, as in the authors' code."""
    text = tokenizer.decode(ids.tolist())  # tags of reasoning may be special tokens
    if (answer := outside_reasoning(text)) in ("", text):
        return tokenizer.decode(ids.tolist(), skip_special_tokens=True)
    for special in tokenizer.all_special_tokens:
        answer = answer.replace(special, "")
    return answer


def _add_text(tokenizer: Any, prompt: torch.Tensor, text: str, *, closing: Sequence[int]) -> torch.Tensor:
    """Returns the prompt with a text at the end of its last message."""
    added = tokenizer(text, add_special_tokens=False)["input_ids"]
    special = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}
    ends = [*(token for token in closing[:1] if token in special), tokenizer.eos_token_id]
    place = _end_of_last_message(prompt.tolist(), closing=closing, ends=ends)
    return torch.cat([prompt[:place], torch.tensor(added, dtype=prompt.dtype), prompt[place:]])


def closing_ids(tokenizer: Any) -> list[int]:
    """Returns the ids that the chat template adds after the last message of a prompt; empty without a template."""
    if not getattr(tokenizer, "chat_template", None):
        return []
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": _MARK}], tokenize=False, add_generation_prompt=True
    )
    return list(tokenizer(text.rpartition(_MARK)[2], add_special_tokens=False)["input_ids"])


def _end_of_last_message(prompt: Sequence[int], *, closing: Sequence[int], ends: Sequence[int]) -> int:
    """Returns the end of the last message of a prompt by tokens that close messages, else the end of the prompt."""
    if closing and list(prompt[-len(closing) :]) == list(closing):
        return len(prompt) - len(closing)
    # Another kind of header (of a reasoning model); the same token closes its message.
    for token in ends:
        if token in prompt:
            return len(prompt) - 1 - list(reversed(prompt)).index(token)
    return len(prompt)
