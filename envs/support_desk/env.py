"""The environment `support_desk`: tools on a database, a policy, and a customer who answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from verl_agentic import Action, ConfigError, EnvRow, Message, Observation, Reward, StopReason, ToolEnv, Transcript
from verl_agentic.base.settings import read_settings
from verl_agentic.base.text.reasoning import without_thoughts
from verl_agentic.graders.components.tau_bench import tau_bench_reward
from verl_agentic.graders.models.chat_model import ChatModel

from .database import Record
from .desk_tool import TRANSFER, Domain
from .domains import WORLDS
from .said import gives_outputs, states_refusal, values_of
from .scenario import Script, Target, read_calls
from .user import ModelUser, ScriptedUser, User
from .world import final_state, is_reached

_YES = re.compile(r"\b(yes|yeah|yep|sure|go ahead|confirm(ed)?|correct|please do|proceed)\b", re.IGNORECASE)


class SupportDeskEnv(ToolEnv):
    """A conversation with a customer. A turn with calls goes to the tools, a turn without to the customer."""

    def __init__(
        self, row: EnvRow, domain: Domain, *, user: User, target: Target, gold: Callable[[], Mapping[Any, Record]]
    ) -> None:
        """Makes the environment of a row; `gold` returns the changes of the database that the row demands."""
        # One call after the other: changes build on each other.
        super().__init__(row, domain.tools(), max_parallel_calls=1)
        self._domain = domain
        self._user = user
        self._target = target
        self._gold = gold
        self._is_confirmed = False
        self._unconfirmed = 0

    async def start(self) -> tuple[Message, ...]:
        """Returns the prompt of the row; a language model writes its own first message."""
        opening = await self._user.open()
        return (*self.row.prompt[:-1], Message("user", opening))

    async def step(self, action: Action) -> Observation:
        """Answers the calls, or passes the turn to the customer, who may end the conversation."""
        if not action.tool_calls:
            message = await self._user.reply(without_thoughts(action.content))
            if message is None:
                return Observation(stop=StopReason.ENV_DONE)
            self._is_confirmed = bool(_YES.search(message))
            info = {"user_turns": 1.0, "user_stops_with_text": float(self._user.is_leaving)}
            return Observation(messages=(Message("user", message),), info=info)
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
        """Returns 1 if the final state is the demanded one and a reply gives each required output, else 0.

        Of generated rows, a reply that gives outputs has no values of other records, and a wish to refuse needs a reply
        that says so (`said.py`). Also 0 if the policy never wrote to the customer, if a budget ended the conversation,
        or, where the row demands confirmation, after a change without a yes of the customer.
        """
        replies = [without_thoughts(action.content).strip() for action in transcript.actions if not action.tool_calls]
        is_equal = is_reached(self._domain, self._target, self._gold())
        outputs = self._outputs_said(replies, transcript)
        is_valid = transcript.stop_reason is StopReason.ENV_DONE and any(replies)
        if self._unconfirmed and self.row.extra.get("confirm"):
            is_valid = False
        info = {"db_equal": float(is_equal), "outputs_said": outputs, "unconfirmed_changes": float(self._unconfirmed)}
        return Reward(is_equal * outputs * is_valid, info=info)

    def _outputs_said(self, replies: Sequence[str], transcript: Transcript) -> float:
        """Returns 1 if the replies have all required texts, and a refusal where a generated row needs one."""
        if self.row.extra.get("is_tau2"):
            results = [message.content for message in transcript.messages if message.role == "tool"]
            return tau_bench_reward(db_equal=True, outputs=self._target.outputs, replies=replies, tool_outputs=results)
        has_refused = "refuse_" not in str(self.row.extra.get("kind")) or states_refusal(replies)
        allowed_text, others = self._records_of_customer()
        return float(
            has_refused and gives_outputs(self._target.outputs, replies, allowed_text=allowed_text, others=others)
        )

    def _records_of_customer(self) -> tuple[str, str]:
        """Returns what the customer knows or has asked about, and his other records."""
        tables, script = self._domain.database.tables, str(self.row.extra.get("script"))
        records = [(key, record) for table in self._domain.tables for key, record in tables[table].items()]
        users = {record["user_id"] for key, record in records if key in script and "user_id" in record}
        prompt = [message.content for message in self.row.prompt]
        customer_texts, others = [*prompt, script], []
        for key, record in records:
            if key in script or key in users:
                customer_texts.append(values_of(record))
            elif record.get("user_id") in users:
                others.append(values_of(record))
        return "\n".join(customer_texts), "\n".join(others)


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
    world = WORLDS.get(str(row.extra.get("domain")))
    if world is None:
        raise ConfigError(
            f"a row names its domain, one of {sorted(WORLDS)}, got {row.extra.get('domain')!r}; make the rows anew"
        )
    if bool(data) != bool(row.extra.get("is_tau2")):
        raise ConfigError(
            f"rows of tau2 need its folder, and others none, got data={data!r} for {row.extra.get('task_id')!r}; set "
            "env_config.data"
        )
    tables, target, setup = world.tables(data), Target.read(row.ground_truth), read_calls(row.extra.get("setup", "[]"))
    domain = world.begin(tables, setup)
    customer: User = ScriptedUser(Script.read(row.extra.get("script")), domain.hand_tools())
    if user is not None:
        model = read_settings(ChatModel, user, section="user")
        customer = ModelUser(str(row.extra.get("scenario", "")), model, domain.hand_tools())

    def gold() -> Mapping[Any, Record]:
        return final_state(world, tables, setup=setup, actions=target.actions).database.changes()

    return SupportDeskEnv(row, domain, user=customer, target=target, gold=gold)
