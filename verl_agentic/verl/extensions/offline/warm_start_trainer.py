"""SFT that ends before it overfits: `torchrun ... -m verl_agentic.verl.extensions.offline.warm_start_trainer`.

It takes the configuration of `verl.trainer.sft_trainer` and the section `warm_start` (`WarmStartSettings`). Each saved
checkpoint runs episodes of held-out tasks. `warm_start.json` beside the checkpoints names the one that RL begins with.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import torch
from verl.trainer.sft_trainer import SFTTrainer

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings, setting
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.evaluate.evaluation_log import EvaluationLog
from verl_agentic.evaluate.evaluation_run import attempts, summarise
from verl_agentic.evaluate.local_model import LocalModel
from verl_agentic.evaluate.model_probe import probe_figures
from verl_agentic.evaluate.warm_start import WarmStartCheck, WarmStartRule, choose_check, make_check, reason_to_stop
from verl_agentic.log.files.rows import read_rows
from verl_agentic.verl.extensions.offline.pair_trainer import run
from verl_agentic.verl.rollout.model_codec import load_codec
from verl_agentic.verl.sections import plain

RECORD = "warm_start.json"


class WarmStartSettings(WarmStartRule):
    """The section `warm_start`."""

    section: ClassVar[str] = "warm_start"

    rows: str
    """File of tasks, as `verl-agentic prepare` writes it. They must not be those of the demonstrations."""
    env: str
    """Environment, as in `agentic.env`."""
    env_config: Mapping[str, Any] = setting(factory=dict)
    """Options of the environment."""
    limits: EpisodeLimits
    """Budgets of an episode, with `max_response_tokens` and `max_context_tokens`."""
    protocol: str = "chat"
    """Format of actions, as in `agentic.protocol`."""
    tool_format: str = "hermes"
    """verl's tool parser, as in `rollout.multi_turn.format`."""
    dtype: str = "float32"
    """Type in which episodes are generated."""


class WarmStartEnd(Exception):
    """Ends the training of all ranks."""


class WarmStartTrainer(SFTTrainer):
    """verl's SFT trainer, which checks each checkpoint that it saves."""

    def _build_config(self) -> None:
        self.settings = read_settings(
            WarmStartSettings, plain(self.config.get("warm_start")), section=WarmStartSettings.section
        )
        check_config(self.config, self.settings)
        super()._build_config()

    def _build_ckpt_handler(self) -> None:
        super()._build_ckpt_handler()
        save = self.ckpt_handler.save_checkpoint

        def save_and_check(step: int) -> None:
            save(step=step)
            self._check_checkpoint(step)

        self.ckpt_handler.save_checkpoint = save_and_check

    def fit(self) -> None:
        """Trains until the last step, or until the stop criterion holds."""
        before = read_checks(self._record) if self.resume_global_step else []
        self._checks = [check for check in before if check.step <= self.resume_global_step]
        with contextlib.suppress(WarmStartEnd):
            super().fit()

    @property
    def _record(self) -> Path:
        return Path(self.config.trainer.default_local_dir) / RECORD

    def _check_checkpoint(self, step: int) -> None:
        """Runs the held-out tasks on the first rank. Raises WarmStartEnd on all ranks if the criterion holds."""
        reason = [""]
        if self.rank == 0:
            self._checks.append(self._run_tasks(step))
            reason = [write_record(self._record, self._checks, self.settings)]
        torch.distributed.broadcast_object_list(reason, src=0)
        if reason[0]:
            raise WarmStartEnd

    def _run_tasks(self, step: int) -> WarmStartCheck:
        settings, folder = self.settings, Path(self.config.trainer.default_local_dir)
        model = folder / f"global_step_{step}" / "huggingface"
        tokenizer, codec = load_codec(str(model), tool_format=settings.tool_format, protocol=settings.protocol)
        make_env = functools.partial(load_env_package(settings.env).make_env, **settings.env_config)
        local = LocalModel(
            model_path=model, tokenizer=tokenizer, codec=codec, make_env=make_env, limits=settings.limits,
            device=self.device_name, dtype=settings.dtype,
        )  # fmt: skip
        plan = attempts(read_rows(Path(settings.rows))[: settings.tasks], settings.samples)
        episodes_folder = folder / "warm_start" / f"step_{step}"
        shutil.rmtree(episodes_folder, ignore_errors=True)  # of an earlier run, whose weights may differ
        log = EvaluationLog(episodes_folder, {"env": settings.env, "temperature": 1.0})
        try:
            episodes = local.sample(plan, log=log, temperature=1.0, seed=self.config.trainer.seed)
        finally:
            log.close()
        return make_check(step, probe_figures(episodes, summarise([rows[-1] for rows in episodes])))


def check_config(config: Any, rule: WarmStartRule) -> None:
    """Raises ConfigError if the checkpoints of a run cannot be checked, or the chosen one may be deleted."""
    contents = list(config.checkpoint.save_contents)
    if config.trainer.save_freq == -1 or "hf_model" not in contents:
        raise ConfigError(
            f"section warm_start checks saved models, got trainer.save_freq={config.trainer.save_freq} and "
            f"checkpoint.save_contents={contents}; set a frequency, and add hf_model"
        )
    if config.model.get("lora_rank") or config.model.get("lora_adapter_path"):
        raise ConfigError("section warm_start loads whole models, and LoRA saves parts; unset model.lora_rank")
    max_kept = config.trainer.get("max_ckpt_to_keep")
    if max_kept is not None and max_kept <= rule.patience:
        raise ConfigError(
            f"trainer.max_ckpt_to_keep must be above warm_start.patience, got {max_kept} and {rule.patience}; raise it"
        )


def write_record(path: Path, checks: list[WarmStartCheck], rule: WarmStartRule) -> str:
    """Writes and prints the state of a warm start; returns why it ends, empty while it goes on."""
    reason, last, chosen = reason_to_stop(checks, rule), checks[-1], choose_check(checks, rule)
    record = {"chosen": chosen.step, "stopped": reason, "k": rule.samples, "checks": [asdict(each) for each in checks]}
    path.write_text(json.dumps(record, indent=2) + "\n")
    print(
        f"warm start, step {last.step}: success {last.pass_at_1:.3f}, pass@{rule.samples} {last.pass_at_k:.3f}, "
        f"entropy {last.entropy:.3f} nats; RL begins with step {chosen.step}" + (f"; ends: {reason}" if reason else "")
    )
    return reason


def read_checks(path: Path) -> list[WarmStartCheck]:
    """Returns the checks of an earlier part of a run."""
    return [WarmStartCheck(**each) for each in json.loads(path.read_text())["checks"]] if path.is_file() else []


if __name__ == "__main__":
    run(WarmStartTrainer)
