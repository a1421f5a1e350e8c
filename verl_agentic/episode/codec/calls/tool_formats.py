"""Syntax of a call for each of verl's tool parsers: the text that opens and closes it, and the place of its parts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from verl_agentic.episode.codec.calls.argument_notations import (
    Arguments,
    GemmaArguments,
    JsonArguments,
    TaggedArguments,
)
from verl_agentic.episode.codec.calls.gemma_arguments import write_gemma

THINK = ("<think>", "</think>")
MALFORMED_CALL = "malformed tool call; write one JSON object with the keys name and arguments, and close the call"
MALFORMED = "malformed tool call; write it exactly as the instructions show, and close it"

_JSON = JsonArguments()


@dataclass(frozen=True, kw_only=True)
class ToolFormat:
    """A way to write calls. In the texts to write, `{name}` stands for the tool and `{index}` for the call's number."""

    name: str
    """The parser's name in verl's registry."""
    block: tuple[str, str]
    """Opens and closes an attempt at a call, or at several."""
    call: tuple[str, str]
    """Beginning of a call up to its arguments, and its end; both inside its block."""
    arguments: Callable[[Mapping[str, Any]], str]
    """Writes the arguments."""
    block_pattern: str | None = None
    """A regular expression for what opens a block, where it is no fixed text."""
    unit: tuple[str, str] | None = None
    """Opens and closes one call, where a block may hold several."""
    shares_block: bool = False
    """Whether the calls of a turn are written into one block."""
    between: tuple[str, str] = ("", "")
    """White space after what opens a block, and between two blocks."""
    reasoning: tuple[str, str] = THINK
    """Opens and closes a block of reasoning."""
    thoughts: str = "<think>\n{content}\n</think>\n\n"
    """Template of the reasoning before a turn."""
    separators: str | None = None
    """Markup around the parts of a turn, which is no content: a regular expression."""
    stray_pattern: str | None = None
    """A regular expression for other markup that only an attempt at a call has."""
    header: re.Pattern[str] | None = None
    """Finds the tool (group `name`), and an id (group `id`), at the beginning of a call, up to its arguments; None
    where a call is one JSON object."""
    notation: Arguments = _JSON
    """Reads the arguments."""
    value: tuple[str, str] | None = None
    """Opens and closes a value, where it has tags."""
    said: str = "{content}"
    """Template of a turn without a call."""
    said_before: str = "{content}\n"
    """Template of the text before a call."""
    malformed: str = MALFORMED
    """Error that the policy gets for a call that cannot be read."""

    @property
    def tags(self) -> tuple[str, ...]:
        """The fixed texts that have a meaning in this format."""
        return (*self.block, *(self.unit or ()), *self.reasoning)

    @property
    def end(self) -> str:
        """The text that ends a call."""
        return (self.unit or self.block)[1]

    @property
    def is_json(self) -> bool:
        """Returns whether arguments are written as JSON."""
        return isinstance(self.notation, JsonArguments)

    @property
    def reasoning_is_text(self) -> bool:
        """Returns whether tags mark reasoning, which templates know as a part of a message; else tokens do."""
        return "|" not in self.reasoning[0]

    def prefix(self, tool: str) -> str:
        """Returns how a call of `tool` begins, up to its arguments."""
        return self.block[0] + self.between[0] + self._write_beginning(tool, 0)

    def write(self, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
        """Returns calls, given as tool and arguments, as the policy would write them."""
        texts = [
            self._write_beginning(tool, index) + self.arguments(arguments) + self.call[1]
            for index, (tool, arguments) in enumerate(calls)
        ]
        blocks = ["".join(texts)] if self.shares_block else texts
        return self.between[1].join(f"{self.block[0]}{self.between[0]}{text}{self.block[1]}" for text in blocks)

    def _write_beginning(self, tool: str, index: int) -> str:
        name = json.dumps(tool, ensure_ascii=False)[1:-1]
        return self.call[0].replace("{index}", str(index)).replace("{name}", name)


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _write_value(value: Any) -> str:
    return value if isinstance(value, str) else _dump_json(value)


def _make_writer(form: str) -> Callable[[Mapping[str, Any]], str]:
    """Returns a writer of one argument after the other; `{k}` is its name, `{v}` its value, `{s}` if that is text."""

    def write(arguments: Mapping[str, Any]) -> str:
        return "".join(
            form.replace("{k}", k).replace("{s}", _dump_json(isinstance(v, str))).replace("{v}", _write_value(v))
            for k, v in arguments.items()
        )

    return write


_NAME = r'(?P<name>[^<>"\n]+)'
_PARAMETER = ("<parameter", "</parameter>")
_BEGINS_PARAMETER = r"(?i)<parameter\b(?![^<>\n]{0,256}/>)"  # XML in a file may have such a tag that closes itself
_HARMONY_WORDS = r"(?:\s|json\b|code\b|commentary\b|analysis\b|final\b|<\|constrain\|>)*"
_HARMONY_RECIPIENT = (
    r"(?:<\|start\|>assistant\s*|\A\s*(?=to=[^\s<]+[^<]*<\|)"
    r"|(?:<\|start\|>assistant)?<\|channel\|>" + _HARMONY_WORDS + r")to=\s*(?:functions\.)?"
)
"""What stands before the recipient of a message, in its role or its channel; see github.com/openai/harmony."""
_FUNCTION_HEADER = re.compile(rf"<function={_NAME}>")
_FORMATS = (
    ToolFormat(
        name="hermes",
        block=("<tool_call>", "</tool_call>"),
        between=("\n", "\n"),
        call=('{"name": "{name}", "arguments": ', "}\n"),
        arguments=_dump_json,
        malformed=MALFORMED_CALL,
    ),
    ToolFormat(
        name="qwen3_coder",
        block=("<tool_call>", "</tool_call>"),
        unit=("<function=", "</function>"),
        between=("\n", "\n"),
        call=("<function={name}>\n", "</function>\n"),
        arguments=_make_writer("<parameter={k}>\n{v}\n</parameter>\n"),
        header=_FUNCTION_HEADER,
        notation=TaggedArguments(rf"<parameter={_NAME}>", "</parameter>", begins=_BEGINS_PARAMETER, frame="\n"),
        value=_PARAMETER,
    ),
    ToolFormat(
        name="glm",
        block=("<tool_call>", "</tool_call>"),
        between=("", "\n"),
        call=("{name}\n", ""),
        arguments=_make_writer("<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>\n"),
        header=re.compile(r'\s*(?P<name>[^<>{}"\s][^<>{}"\n]*)'),
        notation=TaggedArguments(
            rf"<arg_key>{_NAME}</arg_key>\s*<arg_value>", "</arg_value>", begins="(?i)<arg_key>|<arg_value>"
        ),
        value=("<arg_value>", "</arg_value>"),
    ),
    ToolFormat(
        name="seed",
        block=("<seed:tool_call>", "</seed:tool_call>"),
        unit=("<function=", "</function>"),
        between=("\n", "\n"),
        call=("<function={name}>\n", "</function>\n"),
        arguments=_make_writer("<parameter={k}>{v}</parameter>\n"),
        reasoning=("<seed:think>", "</seed:think>"),
        thoughts="<seed:think>{content}</seed:think>",
        header=_FUNCTION_HEADER,
        notation=TaggedArguments(rf"<parameter={_NAME}>", "</parameter>", begins=_BEGINS_PARAMETER),
        value=_PARAMETER,
    ),
    ToolFormat(
        name="minimax",
        block=("<minimax:tool_call>", "</minimax:tool_call>"),
        unit=("<invoke ", "</invoke>"),
        shares_block=True,
        between=("\n", "\n"),
        call=('<invoke name="{name}">\n', "</invoke>\n"),
        arguments=_make_writer('<parameter name="{k}">{v}</parameter>\n'),
        header=re.compile(rf'<invoke name="{_NAME}">'),
        notation=TaggedArguments(rf'<parameter name="{_NAME}">', "</parameter>", begins=_BEGINS_PARAMETER),
        value=_PARAMETER,
    ),
    ToolFormat(
        name="kimi",
        block=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        unit=("<|tool_call_begin|>", "<|tool_call_end|>"),
        shares_block=True,
        call=("<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>", "<|tool_call_end|>"),
        arguments=_dump_json,
        header=re.compile(
            r"<\|tool_call_begin\|>\s*(?P<id>(?:functions\.)?(?P<name>[^<\s]+?)(?::\d+)?)\s*<\|tool_call_argument_begin\|>"
        ),
    ),
    ToolFormat(
        name="deepseek_v4",
        block=("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
        unit=("<｜DSML｜invoke ", "</｜DSML｜invoke>"),
        shares_block=True,
        between=("\n", "\n"),
        call=('<｜DSML｜invoke name="{name}">\n', "</｜DSML｜invoke>\n"),
        arguments=_make_writer('<｜DSML｜parameter name="{k}" string="{s}">{v}</｜DSML｜parameter>\n'),
        header=re.compile(rf'<｜DSML｜invoke name="{_NAME}">'),
        notation=TaggedArguments(
            rf'<｜DSML｜parameter name="{_NAME}" string="(?P<string>true|false)">',
            "</｜DSML｜parameter>",
            begins="<｜DSML｜parameter",
        ),
        value=("<｜DSML｜parameter ", "</｜DSML｜parameter>"),
    ),
    ToolFormat(
        name="gemma4",
        block=("<|tool_call>", "<tool_call|>"),
        call=("call:{name}", ""),
        arguments=write_gemma,
        header=re.compile(r"\s*call:\s*(?P<name>[^\s{}<]+)"),
        notation=GemmaArguments(),
        reasoning=("<|channel>thought", "<channel|>"),
        thoughts="<|channel>thought\n{content}\n<channel|>",
    ),
    ToolFormat(
        name="gpt-oss",
        block=("<|channel|>commentary to=functions.", "<|call|>"),
        block_pattern=_HARMONY_RECIPIENT,
        stray_pattern=r"<\|channel\|>(?!\s*\w*\s*<\|message\|>|\s*final\b)",
        call=("{name} <|constrain|>json<|message|>", ""),
        arguments=_dump_json,
        header=re.compile(
            r"(?P<name>[^\s<]+)(?:\s|json\b|code\b|commentary\b|analysis\b|<\|channel\|>|<\|constrain\|>)*<\|message\|>"
        ),
        reasoning=("<|channel|>analysis<|message|>", "<|end|>"),
        thoughts="<|channel|>analysis<|message|>{content}<|end|><|start|>assistant",
        separators=r"<\|start\|>assistant|<\|channel\|>(?:\s*\w*\s*|\s*final[^<]*(?:<\|constrain\|>[^<]*)?)<\|message\|>"
        r"|<\|end\|>|<\|return\|>",
        said="<|channel|>final<|message|>{content}",
        said_before="<|channel|>analysis<|message|>{content}<|end|><|start|>assistant",
    ),
)
FORMATS: Mapping[str, ToolFormat] = {item.name: item for item in _FORMATS}
"""By the name of the parser in verl."""


def opening_pattern(tool_format: ToolFormat) -> str:
    """Returns a regular expression for what opens a block."""
    return tool_format.block_pattern or re.escape(tool_format.block[0])
