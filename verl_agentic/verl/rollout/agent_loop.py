"""Patches verl: `AgentLoopWorker._run_agent_loop`, `agent_loop.hydra`; registers our episode as an agent loop.

Set `rollout.agent.default_agent_loop=env_agent` to use it.

It is configured by the section `agentic` (`episode.loop_settings`). The environment scores its
episodes, unless verl has a reward manager `rubric` or a custom reward function: then those do, from the episode's
record.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
import logging
import operator
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import hydra
from omegaconf import DictConfig, OmegaConf
from verl.experimental.agent_loop import agent_loop, tool_parser
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
    AgentLoopWorker,
    DictConfigWrap,
    ToolListWrap,
    register,
)
from verl.utils.tokenizer import continuous_token_wiring

from verl_agentic.base.env import EnvFactory, EnvRow, is_training
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.registry import load_address
from verl_agentic.base.trajectory import Trajectory
from verl_agentic.base.types import Message
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import Exploration
from verl_agentic.episode.codec.codec import Codec
from verl_agentic.episode.codec.decoding import exact_decoder
from verl_agentic.episode.codec.threads import offload_if_long
from verl_agentic.episode.env_package import choose_env, load_env
from verl_agentic.episode.loop_settings import GREEDY_SESSION, INSTRUCTION, NOT_SHARED
from verl_agentic.episode.policies.policy import Completion, FinishReason
from verl_agentic.episode.protocols.factory import make_codec
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.records.episode_log import EpisodeHeader, EpisodeLog
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.episode.records.step_keys import step_keys
from verl_agentic.episode.records.text_audit import text_breach
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.log.files.parquet import env_row
from verl_agentic.log.writer import log_writer
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.sample_row import score_of
from verl_agentic.rewards.verl_result import AGENT
from verl_agentic.verl.patching import replace, wrap
from verl_agentic.verl.rollout import external_sessions, verl_rows
from verl_agentic.verl.rollout.episode_rows import EnvAgentOutput
from verl_agentic.verl.rollout.rollout_features import loop_settings
from verl_agentic.verl.rollout.token_builder import give_token_builder

# verl logs every call that it cannot read; the loop answers and counts them.
tool_parser.logger.setLevel(logging.CRITICAL)
# It logs two lines for every row.
continuous_token_wiring.logger.setLevel(logging.WARNING)
_SETTINGS = {"env", "env_config", "limits", "compaction", "exploration", "protocol", "protocol_options", "guidance"}
_ERROR_CHARS = 300
_MIN_NEW_OBJECTS = 10_000
"""New objects after which a worker collects garbage; Python's 700 are those of 8 turns, and an episode keeps them."""
_BRANCHING = "verl_agentic.methods.branching:run_branching_episode"
_is_validation: ContextVar[bool] = ContextVar("is_validation", default=False)


def is_scored_by_verl(config: Any) -> bool:
    """Tells whether a reward manager of ours or a reward function of the user's scores the episodes."""
    reward = config.get("reward") or {}
    function = reward.get("custom_reward_function") or {}
    return (reward.get("reward_manager") or {}).get("name") == "rubric" or function.get("path") is not None


class ServerPolicy:
    """verl's rollout servers as a policy."""

    def __init__(
        self,
        client: Any,
        *,
        sampling_params: Mapping[str, Any],
        codec: Codec,
        end_ids: Sequence[int] = (),
        engine: str = "",
    ) -> None:
        self._client = client
        self._end_ids = {*end_ids, *codec.stop_token_ids}
        self._sampling_params = dict(sampling_params)
        if codec.stop_token_ids:
            self._sampling_params["stop_token_ids"] = list(codec.stop_token_ids)
        if codec.stop_texts:
            self._sampling_params["stop"] = list(codec.stop_texts)
            # The text was sampled: without it, the policy would never learn to write it. SGLang never drops it, and
            # refuses the field.
            if engine != "sglang":
                self._sampling_params["include_stop_str_in_output"] = True

    @property
    def temperature(self) -> float:
        """The sampling temperature."""
        return float(self._sampling_params.get("temperature") or 0.0)

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        """Samples one turn on a server; the log-probs are those of the processed distribution."""
        return await self._sample_tokens(prompt_ids, max_tokens=max_tokens, request_id=request_id)

    async def _sample_tokens(
        self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str, **params: Any
    ) -> Completion:
        output = await self._client.generate(
            request_id=request_id,
            prompt_ids=list(prompt_ids),
            sampling_params={**self._sampling_params, "max_tokens": max_tokens, **params},
        )
        return Completion(
            token_ids=output.token_ids,
            log_probs=output.log_probs,
            finish_reason=self._finish_reason(output, max_tokens),
            min_weights_version=output.extra_fields.get("min_global_steps"),
            max_weights_version=output.extra_fields.get("max_global_steps"),
        )

    def _finish_reason(self, output: Any, max_tokens: int) -> FinishReason:
        if output.stop_reason in ("aborted", "abort"):
            return "aborted"
        if output.extra_fields.get("finish_reason"):
            return output.extra_fields["finish_reason"]
        # vLLM's server says "completed" for a turn that ended and for one that was cut. SGLang's, and verl's client of
        # partial rollouts, say "length" for every full budget. SGLang cuts earlier where the context is full.
        is_full = output.stop_reason == "length" or len(output.token_ids) >= max_tokens
        has_ended = bool(output.token_ids) and output.token_ids[-1] in self._end_ids
        return "length" if is_full and not has_ended else "stop"


class ChoosingServerPolicy(ServerPolicy):
    """verl's servers of vLLM and of ours, which can restrict a token to some ids. SGLang's cannot."""

    async def choose(self, prompt_ids: Sequence[int], *, allowed: Sequence[int], request_id: str) -> Completion:
        """Samples one of the allowed tokens; see `Chooser.choose`."""
        allowed_ids = list(allowed)
        return await self._sample_tokens(prompt_ids, max_tokens=1, request_id=request_id, allowed_token_ids=allowed_ids)


@register("env_agent")
class EnvAgentLoop(AgentLoopBase):
    """Plays one episode per session and hands its training rows to verl."""

    def __init__(self, *args: Any, tools: Any = None, **kwargs: Any) -> None:
        """Reads the section `agentic`, with `kwargs` of an agent loop YAML laid over it.

        Raises:
            ConfigError: unknown keys, no environment, or multimodal models.
        """
        named = {key: kwargs.pop(key) for key in list(kwargs) if key in _SETTINGS}
        super().__init__(*args, **kwargs)
        if self.processor is not None:
            raise ConfigError(
                "env_agent is text-only, got a model with a multimodal processor; use verl's tool_agent loop for it"
            )
        give_token_builder(self)
        self._envs: dict[str, EnvFactory] = {}
        _collect_rarely()
        self._settings = loop_settings(self.config, _to_plain_dict(named))
        self._is_scored_by_verl = is_scored_by_verl(self.config)
        external_sessions.check_external_sessions(self.config)
        self._is_imitated = external_sessions.imitates_demonstrations(self.config)
        tool_format = self.rollout_config.multi_turn.format
        self._codec = make_codec(
            self._settings.protocol,
            tokenizer=self.tokenizer,
            builder=self.continuous_token_builder,
            parser=tool_parser.ToolParser.get_tool_parser(tool_format, self.tokenizer),
            tool_format=tool_format,
            options=self._settings.protocol_options,
        )

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        """Plays the row of `kwargs` and returns its training rows, the final one last.

        Raises:
            ConfigError, DataError: what no retry can help; verl marks the whole group as failed.
        """
        row = env_row(kwargs)
        env_id = choose_env(row.extra.get("env"), self._settings.env)
        if (make_env := self._envs.get(env_id)) is None:  # finding one reads folders, and would block all episodes
            make_env = self._envs[env_id] = load_env(env_id, **self._settings.env_config)
        step, request_id = int(kwargs.get("global_steps") or 1), uuid4().hex
        setup = self._make_setup(sampling_params, step=step, seed=request_id)
        setup = dataclasses.replace(setup, instruction=str(kwargs.get(INSTRUCTION) or ""))
        is_external = external_sessions.is_external(
            self._settings, kwargs.get("session_id"), is_training=not _is_validation.get()
        )
        if is_external:
            setup = external_sessions.solution_setup(setup, row, env_id=env_id, is_imitated=self._is_imitated)
        options: dict[str, Any] = {"make_env": make_env, "setup": setup, "request_id": request_id}
        branching, shared_ids = self._settings.branching, None
        if branching is None or is_external or _is_validation.get() or not sampling_params.get("temperature"):
            episode = await run_episode(row, **options)
            if branching is not None:
                shared_ids = [[NOT_SHARED] * len(trajectory.response_ids) for trajectory in episode.trajectories]
        else:
            run_branching_episode = load_address(_BRANCHING, what="loop of branching episodes")
            episode, shared_ids = await run_branching_episode(
                row,
                **options,
                branching=branching,
                group=str(kwargs["uid"]),
                vocab_size=len(cast("Any", self.tokenizer)),
            )
        sample = None
        if not episode.is_void and self._is_scored_by_verl:
            sample = to_sample(episode, row, id=_sample_id(row, kwargs))
        breach = await self._audit_text(episode)
        log = None
        if self._settings.log.dir is not None:
            header = self._log_header(kwargs, setup, env=env_id, step=step, seed=request_id, is_external=is_external)
            log = EpisodeLog(header=header, episode=episode, row=row, breach=breach, sample=sample)
        # verl turns the versions of every row into integers; rows of step n are played with the weights of n - 1.
        played_with = max(0, step - 1)
        return _to_outputs(
            episode,
            with_log_probs=bool(sampling_params.get("logprobs")),
            default_version=played_with,
            sample=sample,
            breach=breach,
            log=log,
            shared_ids=shared_ids,
            is_external=is_external,
        )

    async def _audit_text(self, episode: Episode) -> str:
        """Returns what is wrong with the episode's text; empty when nothing is, or nobody asked."""
        if self._settings.audit == "off" or episode.is_void:
            return ""
        num_tokens = sum(len(trajectory.response_ids) for trajectory in episode.trajectories)
        return await offload_if_long(num_tokens, text_breach, episode, decode=exact_decoder(self.tokenizer))

    def _log_header(
        self,
        kwargs: Mapping[str, Any],
        setup: EpisodeSetup,
        *,
        env: str,
        step: int,
        seed: str,
        is_external: bool | None,
    ) -> EpisodeHeader:
        is_greedy = verl_rows.is_greedy(kwargs, is_validation=_is_validation.get())
        columns = {
            **verl_rows.place_columns(kwargs, is_validation=_is_validation.get()),
            "weights_min": max(0, step - 1),
            "weights_max": max(0, step - 1),
            "role": "external" if is_external else "greedy" if is_greedy else "policy",
            "loop": "env_agent",
            "env": env,
            "seed": seed,
            "temperature": setup.policy.temperature if isinstance(setup.policy, ServerPolicy) else 0.0,
        }
        return EpisodeHeader(
            columns=columns,
            append=log_writer("trajectories", self._settings.log).append,
            decode=exact_decoder(self.tokenizer),
        )

    def _make_setup(self, sampling_params: Mapping[str, Any], *, step: int, seed: str) -> EpisodeSetup:
        """Returns how an episode of training step `step` is played; validation is always played the same way."""
        settings, params = self._settings, dict(sampling_params)
        is_training = not _is_validation.get()
        if is_training and settings.temperature_schedule is not None and params["temperature"] > 0:
            params["temperature"] = settings.temperature_schedule.at(step)
        exploration = settings.exploration.at(step, seed=seed) if is_training else Exploration()
        if not params.get("temperature"):
            # A greedy session is a baseline: nothing of it is left to chance.
            exploration = dataclasses.replace(exploration, epsilon_tool=0.0)
        engine = str(self.rollout_config.get("name"))
        policy = ServerPolicy if engine == "sglang" else ChoosingServerPolicy
        return EpisodeSetup(
            policy=policy(
                self.server_manager,
                sampling_params=params,
                codec=self._codec,
                end_ids=[cast("Any", self.tokenizer).eos_token_id],
                engine=engine,
            ),
            codec=self._codec,
            tokenizer=cast("Any", self.tokenizer),
            limits=settings.limits_at(step) if is_training else settings.limits,
            compaction=settings.compaction,
            constraint=settings.constraint,
            constraint_masks=settings.constraint_masks,
            guidance=settings.guidance and is_training,
            exploration=exploration,
            has_rubric=self._is_scored_by_verl,
        )


_MAX_KEPT_LOOPS = 16
_kept_loops: list[tuple[Sequence[Any], Any]] = []
"""What an agent loop was made of, and the loop; the newest last."""


def instantiate_loop(config: Any, **kwargs: Any) -> Any:
    """Returns the agent loop of a row. hydra would copy all arguments, which blocks the event loop for 4 ms a row.

    verl makes a loop for each row. Ours keeps nothing of a row, so all rows of a worker get the same one.
    """
    cls = hydra.utils.get_class(config["_target_"])
    make = cls if set(config) == {"_target_"} else functools.partial(hydra.utils.instantiate, config=config)
    if cls is not EnvAgentLoop:
        return make(**kwargs)
    parts = [asyncio.get_running_loop(), config, *map(_unwrap_argument, kwargs.values())]
    for loop_parts, loop in _kept_loops:
        if len(loop_parts) == len(parts) and all(map(operator.is_, loop_parts, parts)):
            return loop
    loop = make(**kwargs)
    _kept_loops[:] = [*_kept_loops[1 - _MAX_KEPT_LOOPS :], (parts, loop)]
    return loop


def _unwrap_argument(part: Any) -> Any:
    """Returns what verl has wrapped for hydra, anew for every row."""
    if isinstance(part, DictConfigWrap):
        return part.config
    return part.tools if isinstance(part, ToolListWrap) else part


replace(agent_loop, "hydra", SimpleNamespace(utils=SimpleNamespace(instantiate=instantiate_loop)))


@wrap(AgentLoopWorker, "_run_agent_loop")
async def _run_as_asked(
    run: Any, /, self: Any, sampling_params: Any, trajectory: Mapping[str, Any], **kwargs: Any
) -> Any:
    """Lets an episode know whether it is one of validation, which verl does not tell; plays baselines greedily."""
    token = _is_validation.set(bool(trajectory["validate"]))
    training = is_training.set(not trajectory["validate"])
    if kwargs.get(GREEDY_SESSION) is not None and int(kwargs[GREEDY_SESSION]) == kwargs.get("session_id"):
        sampling_params = {**sampling_params, "temperature": 0, "top_p": 1.0, "top_k": -1}
    try:
        return await run(self, sampling_params, trajectory, **kwargs)
    finally:
        is_training.reset(training)
        _is_validation.reset(token)


@functools.cache
def _collect_rarely() -> None:
    """Takes all loaded objects out of garbage collection and makes collections rare, once per process.

    torch, transformers and verl load half a million objects. A full collection visits all of them, which takes 0.3 s,
    and stops every episode of the worker meanwhile.
    """
    gc.collect()
    gc.freeze()
    young, *older = gc.get_threshold()
    if young:  # 0 switches collections off
        gc.set_threshold(max(young, _MIN_NEW_OBJECTS), *older)


def _to_plain_dict(values: Any) -> dict[str, Any]:
    plain = OmegaConf.to_container(values, resolve=True) if isinstance(values, DictConfig) else values
    return dict(cast("Mapping[str, Any]", plain))


def _sample_id(row: EnvRow, kwargs: Mapping[str, Any]) -> str:
    name = row.extra.get("task_id") or kwargs.get("uid") or row.extra.get("index")
    return f"{name}/{kwargs.get('session_id', 0)}"


def _to_outputs(
    episode: Episode,
    *,
    with_log_probs: bool,
    default_version: int,
    sample: Sample | None,
    breach: str,
    log: EpisodeLog | None,
    shared_ids: Sequence[list[int]] | None,
    is_external: bool | None,
) -> list[AgentLoopOutput]:
    # verl copies the last row's score and reward_extra_info over the earlier ones: our scores are per token.
    numbers = episode.numbers() | ({} if is_external is None else {"external": float(is_external)})
    last = len(episode.trajectories) - 1
    metrics = AgentLoopMetrics(generate_sequences=episode.generate_s, tool_calls=episode.env_s)
    steps = step_keys(episode)
    return [
        EnvAgentOutput(
            prompt_ids=trajectory.prompt_ids,
            response_ids=trajectory.response_ids,
            response_mask=trajectory.response_mask,
            response_logprobs=trajectory.log_probs if with_log_probs else None,
            reward_score=episode.reward.total if sample is None else None,
            num_turns=len(episode.messages),
            metrics=metrics,
            extra_fields={
                **_extra_fields(episode, trajectory, default_version=default_version),
                "breach": breach,
                AGENT: trajectory.agent,
                # verl copies this over the earlier rows before they are stored.
                "reward_extra_info": numbers,
                "steps": steps[index],
            },
            numbers=numbers,
            sample=sample,
            token_rewards=rewards,
            turn_ids=trajectory.turn_ids,
            shared_ids=None if shared_ids is None else shared_ids[index],
            is_external=is_external,
            place="side" if index < episode.num_side_rows else "last" if index == last else "earlier",
            row=index,
            env_score=None if episode.is_void else score_of(episode.reward),
            log=log,
        )
        for index, (trajectory, rewards) in enumerate(
            zip(episode.trajectories, episode.token_rewards(has_rubric=sample is not None), strict=True)
        )
    ]


def _extra_fields(episode: Episode, trajectory: Trajectory, *, default_version: int) -> dict[str, Any]:
    oldest, newest = episode.min_weights_version, episode.max_weights_version
    return {
        "min_global_steps": default_version if oldest is None else oldest,
        "max_global_steps": default_version if newest is None else newest,
        "reward_parts": {**episode.reward.parts, **episode.reward.info},
        "tool_counts": {} if episode.is_void else episode.tools_called(),
        "stop_reason": episode.stop_reason.value,
        "error": (episode.error or "")[:_ERROR_CHARS],
        "segments": [[s.start, s.end, s.kind.value, s.turn] for s in trajectory.segments()],
    }
