"""The environment `support_desk`: tools on a database, a policy, and a customer who answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from verl_agentic import Action, ConfigError, EnvRow, Message, Observation, Reward, StopReason, ToolEnv, Transcript
from verl_agentic.rewards.components.tau_bench import tau_bench_reward
from verl_agentic.rewards.models.chat_model import ChatModel
from verl_agentic.rewards.text.reasoning import without_thoughts
from verl_agentic.settings import read_settings

from .database import Database, Tables
from .desk_tool import TRANSFER
from .scenario import Script, Target
from .user import ModelUser, ScriptedUser, User
from .world import DOMAINS, domain_tables, replay

_YES = re.compile(r"\b(yes|yeah|yep|sure|go ahead|confirm(ed)?|correct|please do|proceed)\b", re.IGNORECASE)


class SupportDeskEnv(ToolEnv):
    """A conversation with a customer. A turn with calls goes to the tools, a turn without to the customer."""

    def __init__(self, row: EnvRow, name: str, *, tables: Tables, user: User) -> None:
        # One call after the other: changes build on each other.
        self._name = name
        self._domain = DOMAINS[name](Database(tables))
        super().__init__(row, self._domain.tools(), max_parallel_calls=1)
        self._tables = tables
        self._user = user
        self._target = Target.read(row.ground_truth)
        self._is_confirmed = False
        self._unconfirmed = 0

    async def start(self) -> tuple[Message, ...]:
        """Returns the prompt of the row; a language model writes its own first message."""
        opening = await self._user.open()
        return (*self.row.prompt[:-1], Message("user", opening))

    async def step(self, action: Action) -> Observation:
        """Answers the calls, or passes the turn to the customer, who may end the conversation."""
        if not action.tool_calls:
            said = await self._user.reply(without_thoughts(action.content))
            if said is None:
                return Observation(stop=StopReason.ENV_DONE)
            self._is_confirmed = bool(_YES.search(said))
            return Observation(messages=(Message("user", said),), info={"user_turns": 1.0})
        observation = await super().step(action)
        executed = [m.name for m in observation.messages if m.name in self._tools and not m.is_error]
        changes = sum(name in self._domain.changes for name in executed)
        self._unconfirmed += changes * (not self._is_confirmed)
        stop = StopReason.ENV_DONE if TRANSFER in executed else None
        return replace(observation, stop=stop, info={**observation.info, "changes": float(changes)})

    def state_key(self) -> str:
        """Returns the changes of the database."""
        return repr(sorted(self._domain.database.changes().items()))

    async def score(self, transcript: Transcript) -> Reward:
        """Returns 1 if the database is in the gold state and a reply has each required output, else 0.

        Also 0 if the policy never wrote to the customer, if a budget ended the conversation, or, where the row demands
        confirmation, after a change without a yes of the customer.
        """
        replies = [without_thoughts(action.content).strip() for action in transcript.actions if not action.tool_calls]
        gold = replay(self._name, self._tables, self._target.actions)
        is_equal = self._domain.database.changes() == gold
        reward = tau_bench_reward(db_equal=is_equal, outputs=self._target.outputs, replies=replies)
        is_valid = transcript.stop_reason is StopReason.ENV_DONE and any(replies)
        if self._unconfirmed and self.row.extra.get("confirm"):
            is_valid = False
        outputs = tau_bench_reward(db_equal=True, outputs=self._target.outputs, replies=replies)
        info = {"db_equal": float(is_equal), "outputs_said": outputs, "unconfirmed_changes": float(self._unconfirmed)}
        return Reward(reward * is_valid, info=info)


def make_env(row: EnvRow, *, data: str = "", user: Mapping[str, Any] | None = None) -> SupportDeskEnv:
    """Returns the environment of one episode.

    Args:
        row: a task, as `make_rows` writes it.
        data: folder with tau2's domains; needed for its rows.
        user: options of a language model that plays the customer (`ChatModel`: `url`, `model`, ...); None:
            the scripted customer.

    Raises:
        ConfigError: an option is invalid, or the row is of another data folder.
        DataError: the row is malformed.
    """
    name = str(row.extra.get("domain"))
    if name not in DOMAINS:
        raise ConfigError(f"a row names its domain, one of {sorted(DOMAINS)}, got {name!r}; make the rows anew")
    if bool(data) != bool(row.extra.get("is_tau2")):
        raise ConfigError(
            f"rows of tau2 need its folder, and others none, got data={data!r} for {row.extra.get('task_id')!r}; set "
            "env_config.data"
        )
    tables = domain_tables(name, data)
    customer: User = ScriptedUser(Script.read(row.extra.get("script")))
    if user is not None:
        customer = ModelUser(str(row.extra.get("scenario", "")), read_settings(ChatModel, user, section="user"))
    return SupportDeskEnv(row, name, tables=tables, user=customer)
