"""Limits and advice that alarms and lines of `diagnose` share.

An alarm and a line with the same advice found the same fault. `warn` is the default of the alarm and the limit from
which on the diagnosis warns. `fail` is for the diagnosis only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Judgement = Literal["ok", "warn", "fail"]
ORDER: tuple[Judgement, ...] = ("ok", "warn", "fail")
"""Statuses from good to bad."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit of a metric. If `fail` is below `warn`, small values are bad."""

    warn: float
    fail: float

    def judge(self, value: float) -> Judgement:
        """Returns the status of a value; a value at a limit has reached it."""
        sign = -1.0 if self.fail < self.warn else 1.0
        if sign * value >= sign * self.fail:
            return "fail"
        return "warn" if sign * value >= sign * self.warn else "ok"


KL_REFERENCE = Limit(warn=0.5, fail=10.0)
"""Nats per token to the reference policy. Healthy runs stay near 0.1 or below."""
KL_UPDATE = Limit(warn=0.1, fail=0.5)
"""Nats per token of one step's updates. PPO's usual targets are 0.01 to 0.02."""
KL_ROLLOUT = Limit(warn=0.1, fail=0.5)
"""Nats per token to the rollout policy."""
_SLOWER = (
    "lower actor_rollout_ref.actor.optim.lr or actor_rollout_ref.actor.ppo_epochs, or make mini-batches larger "
    "(actor_rollout_ref.actor.ppo_mini_batch_size)"
)
KL_ADVICE = {
    "reference": "hold the policy closer (actor_rollout_ref.actor.kl_loss_coef, "
    "actor_rollout_ref.actor.use_kl_loss=true), " + _SLOWER,
    "update": _SLOWER,
    "rollout": "see rollout_mismatch, which looks the same; correct for old samples "
    "(algorithm.rollout_correction.rollout_is=token), or avoid them (trainer.v1.trainer_mode=sync)",
}
ENTROPY_LEFT = Limit(warn=0.3, fail=0.1)
"""Share of the entropy at the beginning, while the reward has not risen."""
ENTROPY_FLOOR = 0.005
"""Nats per token: nearly every token has a probability of 99.9 %."""
ENTROPY_SOLVED = 0.95
"""Outcome from which on low entropy is fine."""
ENTROPY_ADVICE = (
    "clip higher (actor_rollout_ref.actor.clip_ratio_high=0.28), reward entropy "
    "(actor_rollout_ref.actor.entropy_coeff=0.001), hold the policy (actor_rollout_ref.actor.use_kl_loss=true), raise "
    "actor_rollout_ref.rollout.temperature towards 1, or lower actor_rollout_ref.actor.optim.lr; go back to a "
    "checkpoint from before that step"
)
TRUNCATED = Limit(warn=0.25, fail=0.5)
"""Share of episodes that end because tokens ran out."""
TRUNCATED_ADVICE = {
    "max_tokens": "raise data.max_response_length (and agentic.limits.max_turn_tokens, max_episode_tokens), keep room "
    "for an answer (limits.answer_reserve_tokens), teach short answers (component overlong in "
    "agentic.rubric.components), or keep cut episodes out of the loss (mask_overlong)",
    "context_full": "raise actor_rollout_ref.rollout.max_model_len, or shorten old turns (agentic.compaction) and "
    "observations (limits.max_observation_tokens)",
}
"""By stop reason."""
ALL_0 = Limit(warn=0.7, fail=0.95)
"""Share of groups without a success: at 0.7, only three groups in ten give a signal."""
ALL_1 = Limit(warn=0.8, fail=0.95)
"""Share of groups without a failure; higher, because a good policy reaches it."""
ZERO_SIGNAL = Limit(warn=0.9, fail=0.95)
"""Share of groups whose siblings have one result."""
SIGNAL_ADVICE = {
    "all_0": "the tasks are too hard: use easier ones (agentic.curriculum), a checkpoint after SFT, more siblings "
    "(actor_rollout_ref.rollout.n) or turns (agentic.limits.max_turns), or reward "
    "progress (agentic.rubric.components); the gate zero_variance drops such groups",
    "all_1": "the tasks are too easy: use harder ones (agentic.curriculum), or end the run; the gate zero_variance "
    "drops such groups",
    "solved_at_first": "first test the grader on wrong answers (verl-agentic reward audit, verl-agentic env validate): "
    "it may pay everything. If it is right, the tasks are too easy: use harder ones (agentic.curriculum)",
    "mixed": "drop such groups and refill: agentic.sampling.gates=[void_groups,zero_variance], and "
    "spread the difficulty (agentic.curriculum.name=learnability)",
}
"""Advice by the most frequent result."""
UNKNOWN_TOOL = Limit(warn=0.1, fail=0.3)
"""Share of calls that name a tool that does not exist. Small, because the prompt lists the tools."""
UNKNOWN_TOOL_ADVICE = (
    "compare these names with the tools in the prompt (verl-agentic preflight). If tools were renamed since SFT, or "
    "the base model knows other names, rename the tool, warm up on its name (SFT), or add the component tool_validity "
    "(agentic.rubric.components)"
)
TOOL_CALLS_LEFT = Limit(warn=0.1, fail=0.02)
"""Calls per episode, as a share of the highest level before."""
TOOL_CALLS_WERE = 0.1
"""Minimum calls per episode before."""
TOOLS_NOT_NEEDED = 0.9
"""Outcome from which on the tasks need no tools."""
TOOL_USE_ADVICE = {
    "never": "check that the policy uses the right format (actor_rollout_ref.rollout.multi_turn.format), that the "
    "prompt offers the tools (verl-agentic preflight), and that answers without tools score less (verl-agentic reward "
    "audit); else warm it up on demonstrations with calls (SFT)",
    "fallen": "check the cost of calls: errors of the tools (episode/tool_errors), penalties in "
    "agentic.rubric.components, budgets (agentic.limits); hold the policy to its start "
    "(actor_rollout_ref.actor.use_kl_loss=true), or reward the outcome only",
}
NEVER_SOLVED = Limit(warn=0.9, fail=0.95)
"""Share of the prompts seen that no attempt has solved."""
NEVER_SOLVED_ADVICE = (
    "check that gold answers score (verl-agentic reward audit, verl-agentic env validate); then start from a model "
    "that solves some tasks (SFT), use easier ones, or reward partial success (agentic.rubric.components); a "
    "curriculum only repeats the few solved tasks"
)
VOID = Limit(warn=0.05, fail=0.2)
"""Share of void episodes. Slow and hard tasks are void more often, so that the other episodes are biased."""
VOID_ADVICE = {
    "env": "see the `error` of these trajectories (verl-agentic view); test the part alone (verl-agentic env validate, "
    "verl-agentic sandbox backends); allow more retries (agentic.limits.max_retries)",
    "sandbox": "check sandbox limits and the machine's load (verl-agentic doctor); run fewer episodes at once "
    "(actor_rollout_ref.rollout.agent.num_workers, data.train_batch_size)",
    "policy": "the generation server fails: see its log; lower actor_rollout_ref.rollout.gpu_memory_utilization and "
    "max_num_seqs",
    "scoring": "a scorer fails: see agentic.rubric.components and its deadline (timeout_s)",
    "timeout": "see time/*, tool_time/* and the tools' own deadlines (timeout_s); allow more time: "
    "agentic.limits.turn_timeout_s or episode_timeout_s",
    "cancelled": "the server aborted episodes and did not resume them: see partial rollouts in trainer.v1 and its log",
}
"""Advice by the failed part, or the stop reason; `env` if neither is known."""


def void_advice(shares: Mapping[str, float]) -> str:
    """Returns the advice for the largest share; names may have a prefix, as metrics do."""
    worst = max(shares, key=lambda name: shares[name], default="")
    return VOID_ADVICE.get(worst.rpartition("/")[2] if shares.get(worst) else "", VOID_ADVICE["env"])


MISMATCH = Limit(warn=0.05, fail=0.3)
"""Mean of |log pi_train - log pi_rollout| in nats. Correct engines in bfloat16 differ by 0.005 to 0.03."""
MISMATCH_PROBS = Limit(warn=0.03, fail=0.1)
"""The same as a difference of probabilities."""
LATER_TURNS = 4.0
"""Maximum ratio of a later turn's mismatch to the first turn's."""
LATER_TURNS_MIN = 0.03
"""Nats: smaller mismatches of later turns are noise."""
MISMATCH_ADVICE = {
    "all_turns": "make engines agree: the same weights, dtype (actor_rollout_ref.rollout.dtype) and temperature, "
    "top_p=1, top_k=-1; correct for the rest (algorithm.rollout_correction.rollout_is=token); if samples are old "
    "(training/off_policy/*), use trainer.v1.trainer_mode=sync",
    "later_turns": "only later turns differ, because their context differs from the rollout's. Pass token ids and do "
    "not encode text again (agent loop env_agent); look at the first tokens after an observation in the viewer. "
    "Possible causes: a chat template that strips reasoning from earlier turns, or another tool parser",
}
PART_SHARE = Limit(warn=0.5, fail=0.7)
"""A shaping part's share of the reward while the outcome does not rise."""
PART_ADVICE = (
    "lower weight or cap of {part}, or give it only with the outcome (only_if) in agentic.rubric.components; read "
    "episodes that get it without the outcome (verl-agentic reward lab); if no task is solved, use easier tasks first "
    "(agentic.curriculum)"
)
HACKING = 0.1
"""Share of episodes that attempt reward hacking. An attempt may be innocent, so the diagnosis only warns."""
_CLOSE = {
    "test_edits": "protect tests: restore them before scoring, or refuse patches that change them",
    "git_history": "remove the history before the task's commit from the repository (and its remotes)",
    "network": "block the sandbox's network, and packages that contain the solution",
    "harness": "keep the grader out of the process and the file system that the policy's code runs in",
    "config_edits": "refuse configuration of tests, and start-up files, from the policy (rewards.repository does)",
    "links": "refuse links from the policy (rewards.repository does)",
    "forged_results": "grade with poisoned tests (rewards.repository does)",
    "suspicious_pass": "read the patches; code that inspects its tests is paid only with env_config.pay_suspicious",
    "installed_packages": "remove the solved version of the package from the sandbox",
    "echoed_answer": "make the grader refuse answers that repeat the question (verl-agentic judge probe)",
}
HACKING_ADVICE = {
    kind: f"read some of these episodes (filter `{kind}` in verl-agentic view). If the task does not ask for it, "
    f"{close}; score those episodes 0"
    for kind, close in _CLOSE.items()
}
"""Advice by kind of attempt."""
MEMORY_GROWTH = 0.2
"""Growth of memory in `MEMORY_WINDOW` steps, as a share of the memory before."""
MEMORY_MIN_GB = 1.0
"""Minimum growth in the window."""
MEMORY_STEADINESS = 0.8
"""Minimum of Kendall's tau with time. A leak only grows; caches and other users of the machine also give memory
back."""
MEMORY_WINDOW = 30
"""Steps."""
MEMORY_ADVICE = {
    "host": "see which process grows (`ray memory`, py-spy): environments or sandboxes that are not released "
    "(Env.close), tools or workers that keep results, data.dataloader_num_workers, caches of a judge; meanwhile resume "
    "from a checkpoint (trainer.save_freq) before it is full",
    "device": "lower actor_rollout_ref.actor.ppo_max_token_len_per_gpu, or cap data.max_response_length",
}
_MIN_GAIN = 0.05


def has_risen(before: float, now: float, *, min_gain: float = _MIN_GAIN) -> bool:
    """Returns whether a reward has risen by at least 0.05, or 5 % of its size if that is more."""
    return now - before >= min_gain * max(1.0, abs(before))
