"""Simulated customers: scripted ones, and language models behind an endpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from verl_agentic import Message
from verl_agentic.base.errors import DataError, EnvError
from verl_agentic.base.text.reasoning import outside_reasoning
from verl_agentic.base.types import Tool
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.graders.models.client import Reply

from .scenario import Call, Script

_MARKER_WORDS = r"STOP|TRANSFER|OUT[-_ ]OF[-_ ]SCOPE"
_PICTURES = "\u2190-\u2bff\U0001f000-\U0010ffff"
_MARKER = re.compile(
    rf"#+(?:\s*(?i:{_MARKER_WORDS})\s*#+)+|#{{2,}}\s*(?i:{_MARKER_WORDS})[ \t.]*$|"
    rf"^[^\w\n{_PICTURES}]*(?:{_MARKER_WORDS})[^\w\n!?{_PICTURES}]*$",
    re.MULTILINE,
)
"""Texts by which tau2's users end the conversation (`###STOP###`), as models write them: in any case between or behind
number signs, or in capitals as a line of their own."""
_CONFIRM = re.compile(
    r"\b(confirm|proceed|go ahead|shall i|should i|may i do|do you agree|is (that|this) (right|correct|ok))"
)
_MORE = re.compile(r"\b(anything else|something else|further help)\b")
_MAX_SILENCES = 2
_MAX_CALLS = 20
"""Maximum number of calls of a language model before a message."""
_GUIDELINES = """You play a customer who writes to a support desk. Stay in the role that the scenario describes.
- Write one short message at a time, in your own words.
- Say only what the scenario tells you. If you do not know something, say so.
- Give details when you are asked for them, not before.
- When everything you want is done, or refused for good, answer ###STOP### and nothing else.
- When you are handed over to another person, answer ###TRANSFER### and nothing else.
- When the scenario does not say how to go on, answer ###OUT-OF-SCOPE### and nothing else."""
_TOOL_GUIDELINES = """
- You have tools, for example to look at your phone. In a turn, either call tools or write a message.
- Call a tool only if the desk asks for it, or to answer a question of the desk. Do one thing at a time.
- Never invent what a tool would show. The desk does not see your calls, so say what they showed."""
GREETING = "Hello! How can I help you today?"
"""The message of the desk before the customer opens the conversation."""


class User(Protocol):
    """A customer of one conversation."""

    is_leaving: bool
    """Whether the last message came with the end of the conversation, so that the next reply is None."""

    async def open(self) -> str:
        """Returns the first message."""
        ...

    async def reply(self, text: str) -> str | None:
        """Returns the answer to a message of the desk, or None if the conversation is over."""
        ...


def asking_for(call: Call) -> str:
    """Returns a message of the desk that asks the customer for a call, as `ScriptedUser` understands it."""
    values = ", ".join(map(str, call["arguments"].values()))
    return f"Please {_to_words(call['name'])}{f': {values}' if values else ''}."


class ScriptedUser:
    """A customer who answers questions from a list of facts, says yes when asked to confirm, and then makes the next
    request. If a message names one of his tools in words (`toggle airplane mode`), he calls it and says what it showed.
    Deterministic: the same messages get the same answers."""

    is_leaving = False

    def __init__(self, script: Script, tools: Sequence[Tool] = ()) -> None:
        self._script = script
        self._tools = sorted(tools, key=lambda tool: -len(tool.name))
        self._next = 1
        self._silences = 0

    async def open(self) -> str:
        """Returns the first request."""
        return self._script.messages[0]

    async def reply(self, text: str) -> str | None:
        """Returns the answer to a message; see the class."""
        message = text.lower()
        if not message.strip():
            self._silences += 1
            return None if self._silences > _MAX_SILENCES else "Are you still there?"
        if outputs := [await self._use_tool(tool, rest) for tool, rest in self._find_named_tools(message)]:
            return "\n".join(outputs)
        answers = []
        if "?" in message or "please" in message:
            answers = [fact for pattern, fact in self._script.facts.items() if re.search(pattern, message)]
        if _CONFIRM.search(message):
            answers.append("Yes, please go ahead.")
        if answers and not _MORE.search(message):
            return " ".join(answers)
        if self._next < len(self._script.messages):
            self._next += 1
            return self._script.messages[self._next - 1]
        return None

    def _find_named_tools(self, message: str) -> list[tuple[Tool, str]]:
        """Returns the tools that a message names, in its order, each with the text after its name."""
        message, matches = _to_words(message), []
        for tool in self._tools:
            for match in re.finditer(rf"\b{re.escape(_to_words(tool.name))}\b", message):
                matches.append((match.start(), tool, message[match.end() :]))
                message = message[: match.start()] + "#" * len(match[0]) + message[match.end() :]
        return [(tool, rest) for _, tool, rest in sorted(matches, key=lambda entry: entry[0])]

    async def _use_tool(self, tool: Tool, rest: str) -> str:
        parameters, arguments = tool.schema["function"]["parameters"], {}
        for name in parameters.get("required", ()):
            choices = parameters["properties"][name].get("enum", ())
            places = {rest.find(_to_words(str(choice))): choice for choice in choices}
            if not (positions := [place for place in places if place >= 0]):
                return f"Which {_to_words(name)} do you mean: {', '.join(choices)}?"
            arguments[name] = places[min(positions)]
        return (await tool.call(arguments)).content


class ModelUser:
    """A customer who is played by a language model, from the scenario of the row.

    His thoughts are no part of the conversation, nor of what he is shown of it.
    """

    def __init__(self, scenario: str, model: ChatModel, tools: Sequence[Tool] = ()) -> None:
        self._model = model
        self._tools = {tool.name: tool for tool in tools}
        guidelines = _GUIDELINES + _TOOL_GUIDELINES * bool(tools)
        system = Message("system", f"{guidelines}\n\nScenario:\n{scenario}")
        self._messages: list[Mapping[str, Any]] = [system.to_dict()]
        self.is_leaving = False

    async def open(self) -> str:
        """Returns the first message. Raises EnvError if the endpoint gives none."""
        try:
            opening = await self.reply(GREETING)
        except DataError as cause:
            raise EnvError(f"the scenario cannot be played, {cause}") from cause
        if opening is None:
            raise EnvError("the simulated user must open the conversation, got its end; make the scenario clearer")
        return opening

    async def reply(self, text: str) -> str | None:
        """Returns the answer to a message, or None at a stop marker; text beside a marker is the last answer.

        Raises:
            DataError: the customer has no message: the endpoint refuses the desk's, for example by a filter, or its
                answer is cut, thoughts or calls only.
            EnvError: the endpoint gives no answer.
        """
        if self.is_leaving:
            return None
        self._messages.append({"role": "user", "content": text or "(no message)"})
        for _ in range(_MAX_CALLS):
            reply = await self._model.ask(self._messages, tools=[tool.schema for tool in self._tools.values()])
            answer = self._read_reply(reply)
            if not reply.calls:
                break
            self._messages.append({"role": "assistant", "content": answer, "tool_calls": reply.calls})
            self._messages += [await self._answer_call(call) for call in reply.calls]
        else:
            raise DataError(f"the simulated user must write a message, got {_MAX_CALLS} turns with calls only")
        if not answer:  # the desk may have asked for a text of tags alone
            raise DataError(f"the simulated user must write a message, got an empty one; see {self._model.url}")
        self._messages.append({"role": "assistant", "content": answer})
        message = _MARKER.sub("", answer).strip()
        self.is_leaving = message != answer
        return message if not self.is_leaving or _has_words(message) else None

    def _read_reply(self, reply: Reply) -> str:
        """Returns the text of a reply without thoughts. Raises DataError or EnvError if there is no whole reply."""
        if reply.is_refused or reply.is_cut:  # what the desk writes may cause both
            raise DataError(f"the simulated user must be able to answer the message, got {reply.failure}")
        if reply.text is None:
            raise EnvError(f"the simulated user gave no message, got {reply.failure}; see {self._model.url}")
        return outside_reasoning(reply.text).strip()

    async def _answer_call(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            result = await self._tools[name].call(json.loads(arguments or "{}"))
            content = result.content
        except (KeyError, TypeError, ValueError) as cause:
            content = f"Error: there is no such call, got {type(cause).__name__}: {cause}"
        return {"role": "tool", "tool_call_id": str(call.get("id", "")), "content": content}


def _has_words(text: str) -> bool:
    """Returns whether a text has more than marks: letters, digits or pictures."""
    return re.search(rf"[\w{_PICTURES}]", text) is not None


def _to_words(text: str) -> str:
    return text.lower().replace("_", " ")
