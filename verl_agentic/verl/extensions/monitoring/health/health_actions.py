"""Actions of alarms: `stop` ends a run, `rollback` loads the last healthy checkpoint."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

from omegaconf import open_dict

from verl_agentic.base.errors import HealthError
from verl_agentic.observe.health.health_finding import HealthFinding
from verl_agentic.observe.health.monitor import ROLLED_BACK_TO
from verl_agentic.verl.extensions.monitoring.health.health_watch import HealthWatch
from verl_agentic.verl.sections import AGENTIC

logger = logging.getLogger(__name__)
_KEEP = ("max_actor_ckpt_to_keep", "max_critic_ckpt_to_keep")


def target_of_rollback(watch: HealthWatch, findings: Sequence[HealthFinding]) -> int | None:
    """Returns the step to roll back to; None if no alarm asks for it, or another alarm stops the run."""
    levels = {finding.level for finding in findings}
    if "rollback" not in levels or "stop" in levels or watch.num_rollbacks >= watch.health.settings.max_rollbacks:
        return None
    return watch.checkpoints.newest(watch.health.healthy_until())


def act(trainer: Any, watch: HealthWatch, metrics: dict[str, Any], findings: Sequence[HealthFinding]) -> None:
    """Rolls back or stops the run as the alarms in `metrics` require. Raises HealthError if the run stops."""
    if ROLLED_BACK_TO in metrics:
        _roll_back(trainer, watch, step=int(metrics[ROLLED_BACK_TO]))
    elif serious := [finding for finding in findings if finding.level in ("stop", "rollback")]:
        _stop_run(trainer, watch, metrics, serious)


def _roll_back(trainer: Any, watch: HealthWatch, *, step: int) -> None:
    """Loads a checkpoint into trainer and rollout.

    Steps, data and random state of the driver continue, so the bad batches are not repeated.
    """
    folder = watch.checkpoints.folder(step)
    trainer.checkpoint_manager.sleep_replicas()
    trainer.actor_rollout_wg.load_checkpoint(local_path=str(folder / "actor"), del_local_after_load=False)
    if trainer.use_critic:
        trainer.critic_wg.load_checkpoint(local_path=str(folder / "critic"), del_local_after_load=False)
    if hasattr(trainer.replay_buffer, "load"):
        trainer.replay_buffer.load(folder)  # groups that are replayed
    trainer.checkpoint_manager.update_weights(trainer.global_steps)
    watch.health.forget(after=step)
    watch.num_rollbacks += 1
    watch.checkpoints.put_aside(after=step)
    logger.warning(
        "step %d goes on from the weights of step %d, the last healthy checkpoint (rollback %d of %d)",
        trainer.global_steps,
        step,
        watch.num_rollbacks,
        watch.health.settings.max_rollbacks,
    )


def _stop_run(trainer: Any, watch: HealthWatch, metrics: dict[str, Any], findings: Sequence[HealthFinding]) -> None:
    """Makes the last healthy checkpoint the newest, saves the weights separately, and ends the run."""
    healthy = watch.checkpoints.newest(watch.health.healthy_until())
    aside = _put_aside(trainer, watch, healthy=healthy or 0)
    with contextlib.suppress(Exception):  # the error has the reason anyway
        numbers = {name: value for name, value in metrics.items() if isinstance(value, Real)}
        trainer.logger.log(data=numbers, step=trainer.global_steps)
    summary = "; ".join(f"{finding.check}: {finding.found}" for finding in findings)
    went_back = f" after {watch.num_rollbacks} rollbacks" if watch.num_rollbacks else ""
    if healthy is None:
        resume = "no healthy checkpoint was saved: fix the cause and start again, with a lower trainer.save_freq"
    else:
        resume = (
            f"the last healthy checkpoint is that of step {healthy}: fix the cause and resume from it with "
            f"trainer.resume_mode=resume_path trainer.resume_from_path={watch.checkpoints.folder(healthy)}"
        )
    raise HealthError(
        f"the run is not well at step {trainer.global_steps}{went_back}, got {summary}; {resume}. {aside}, or set "
        f"{AGENTIC}.health.actions.<alarm> to warn"
    )


def _put_aside(trainer: Any, watch: HealthWatch, *, healthy: int) -> str:
    """Saves the unhealthy weights; returns how to continue from them after a false alarm."""
    step, checkpoints = trainer.global_steps, watch.checkpoints
    is_saved = checkpoints.has(step)
    checkpoints.put_aside(after=healthy)
    folder = checkpoints.aside / f"global_step_{step}"
    try:
        if not is_saved:
            with _saving_into(trainer.config, str(checkpoints.aside)):
                trainer._save_checkpoint()
    except Exception as cause:  # the alarm must be raised even if saving fails
        logger.exception("the weights of step %d were not saved", step)
        return f"The weights of step {step} were not saved ({type(cause).__name__}: {cause})"
    return f"If this is a false alarm, resume from {folder}"


@contextlib.contextmanager
def _saving_into(config: Any, folder: str) -> Iterator[None]:
    """Makes verl save into another folder without removing checkpoints."""
    before = {name: config.trainer.get(name) for name in ("default_local_dir", *_KEEP)}
    with open_dict(config.trainer):
        config.trainer.update({"default_local_dir": folder, **dict.fromkeys(_KEEP)})
    try:
        yield
    finally:
        with open_dict(config.trainer):
            config.trainer.update(before)
