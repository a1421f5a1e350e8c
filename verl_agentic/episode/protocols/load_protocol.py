"""Reads a protocol from its file: the bundled ones by name, others by path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.registry import load_address

Kind = Literal["chat", "tags", "json", "functions", "call_list"]
Place = Literal["assistant", "user"]
Box = Literal["none", "kept", "stripped"]
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class CallForm:
    """Format of the calls of one tool."""

    tool: str
    argument: str
    """Name of the argument in the body of the tag or the value of the key."""
    tags: tuple[str, str] = ("", "")
    """Opening and closing tag of the call, in protocols of tags."""
    key: str = ""
    """The key of the action, in protocols of JSON."""
    has_fence: bool = False
    """Whether calls have a Markdown fence around the body, which is not part of the argument."""
    is_fallback: bool = False
    """Counts only in turns with no other call and no answer, because its tags also have other uses."""


@dataclass(frozen=True, kw_only=True)
class AnswerForm:
    """Format of the final answer."""

    tags: tuple[str, str] = ("", "")
    key: str = ""
    box: Box = "none"
    r"""Whether the answer is in a `\boxed{}`; with `kept`, scorers see the box, and a box alone is an answer."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A protocol of turns. Its texts have placeholders in braces."""

    name: str
    kind: Kind
    """`chat`: by the chat template. `tags` and `json`: calls of one argument. `functions`: calls of any tools as
    `<function=name><parameter=key>value</parameter></function>`. `call_list`: calls of any tools as JSON objects, one
    per line between `call_tags`, and an answer between tags."""
    source: str = ""
    system: str = ""
    """System message; comes before the row's."""
    question: str = "{prompt}"
    """The last message of the prompt: `{prompt}` is the row's, `{tools}` a list of the tools."""
    raw: str = "{prompt}\n"
    """The prompt of a model without a chat template; `{prompt}` are the messages, the system's first."""
    reasoning: tuple[str, str] | None = None
    """Opening and closing tag of reasoning."""
    calls: tuple[CallForm, ...] = ()
    answer: AnswerForm | None = None
    """None if only the environment ends an episode."""
    call_tags: tuple[str, str] | None = None
    """Opening and closing tag of the calls of a turn, in protocols of call lists."""
    max_calls: int = 1
    """Maximum number of executed calls per turn."""
    stop: tuple[str, ...] = ()
    """Texts that end a turn."""
    observed_in: Place = "assistant"
    """Whether an observation is written into the policy's turn, which continues after it, or is a user message."""
    observation: str = "{content}"
    """Template of tool output; `{content}` is the text."""
    notice: str = "\n\n{content}\n\n"
    """Template of errors and of user and system messages."""
    invalid_action: str = ""
    """Message for a turn with neither call nor answer."""
    self_written: tuple[str, str] | None = None
    """Tags of observations that the policy writes itself without tools."""

    def __post_init__(self) -> None:
        if self.kind == "functions" and (self.calls or self.answer or not self.invalid_action):
            raise ConfigError(
                f"protocol {self.name!r} of kind 'functions' has all tools and no answer, got calls, answer or no "
                "invalid_action; write invalid_action alone"
            )
        is_complete = bool(self.call_tags and self.answer and self.invalid_action) and not self.calls
        if (self.kind == "call_list" and not is_complete) or (self.kind != "call_list" and self.call_tags):
            raise ConfigError(
                f"protocol {self.name!r} of kind {self.kind!r} needs call_tags, an answer and invalid_action, and no "
                "calls, if its kind is 'call_list'; other kinds have no call_tags"
            )
        if self.kind in ("tags", "json") and not (self.invalid_action and (self.calls or self.answer)):
            raise ConfigError(f"protocol {self.name!r} needs invalid_action, and calls or an answer; add them")
        for form in (*self.calls, *([self.answer] if self.answer else ())):
            has_form = form.key if self.kind == "json" else all(form.tags)
            if self.kind != "chat" and not has_form:
                raise ConfigError(
                    f"protocol {self.name!r} of kind {self.kind!r} must say how its actions are written, got {form}; "
                    f"give {'a key' if self.kind == 'json' else 'tags'}"
                )
        if "{content}" not in self.observation or "{content}" not in self.notice:
            raise ConfigError(f"protocol {self.name!r} must place the content of an observation: {{content}}")
        if "{prompt}" not in self.question or "{prompt}" not in self.raw:
            raise ConfigError(f"protocol {self.name!r} must say where the row's prompt stands: {{prompt}}")


def known_protocols() -> list[str]:
    """Returns the names of the bundled protocols."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.yaml"))


def load_protocol(name_or_path: str) -> Protocol:
    """Returns a protocol.

    Args:
        name_or_path: name of a bundled protocol (`chat`, `search_r1`, ...), path of a YAML file, or the address of a
            `Protocol` or of a function that returns one (`package.module:name`, `path/file.py:name`).

    Raises:
        ConfigError: the protocol is unknown, its file is invalid, or no protocol is at the address.
    """
    import yaml

    if ":" in name_or_path:
        attribute = load_address(name_or_path, what="protocol")
        protocol = attribute if isinstance(attribute, Protocol) or not callable(attribute) else attribute()
        if not isinstance(protocol, Protocol):
            raise ConfigError(f"the address {name_or_path!r} must be of a Protocol, got {protocol!r}; return one")
        return protocol
    is_bundled = name_or_path in known_protocols()
    path = Path(__file__).with_name(f"{name_or_path}.yaml") if is_bundled else Path(name_or_path)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as cause:
        raise ConfigError(
            f"no protocol could be read, got {name_or_path!r} ({cause}); use one of {known_protocols()}, or the path "
            "of a YAML file"
        ) from cause
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path} must hold keys and values, got {type(values).__name__}; fix it")
    values = dict(values)
    values["calls"] = tuple(_make_record(CallForm, item, f"{path}, calls") for item in values.get("calls") or ())
    if values.get("answer") is not None:
        values["answer"] = _make_record(AnswerForm, values["answer"], f"{path}, answer")
    return _make_record(Protocol, {"name": path.stem, **values}, str(path))


def _make_record(kind: type[_T], values: Any, place: str) -> _T:
    """Returns a record of the values of a mapping."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{place} must be keys and values, got {values!r}; fix it")
    fields_by_name = {item.name: item for item in fields(kind)}  # pyright: ignore[reportArgumentType]
    unknown = sorted(set(values) - set(fields_by_name))
    missing = [name for name, item in fields_by_name.items() if item.default is MISSING and name not in values]
    if unknown or missing:
        raise ConfigError(
            f"{place}: unknown keys {unknown}, missing keys {missing}; known ones are {sorted(fields_by_name)}"
        )
    return kind(**{name: _check_value(name, value, place) for name, value in values.items()})


_CHOICES = {"kind": get_args(Kind), "observed_in": get_args(Place), "box": get_args(Box)}
_PAIRS = {"tags", "call_tags", "reasoning", "self_written"}


def _check_value(name: str, value: Any, place: str) -> Any:
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ConfigError(f"{place}: {name} must be one of {list(_CHOICES[name])}, got {value!r}")
    if name in _PAIRS and value is not None:
        if not isinstance(value, list) or len(value) != 2 or not all(isinstance(v, str) and v for v in value):
            raise ConfigError(f"{place}: {name} must be what opens and what closes it, got {value!r}")
        return tuple(value)
    if name == "stop":
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            raise ConfigError(f"{place}: stop must be a list of texts, got {value!r}")
        return tuple(value)
    return value
