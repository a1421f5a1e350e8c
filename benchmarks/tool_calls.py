"""Compares the readers of tool calls with the parsers of SGLang and vLLM, on calls and on calls with mistakes.

The wheels of SGLang, vLLM and TRL (400 MB) are downloaded into a temporary folder, and none is installed.

`silent_losses`: arguments of a text that are in no call and in no content, although no call is malformed.
`sglang_losses`, `vllm_losses`: the same for their parsers.

`disagreements`: texts of which a package reads other calls. Each has one of these reasons, `unexplained` has none:

| reason | |
|---|---|
| `refused` | the text is no call of the format: malformed here, read in part or repaired there |
| `lost` | there, an argument or a part of its text is missing |
| `missed` | there, a well-formed call is not read at all |
| `spaces` | there, white space of an argument is missing |
| `types` | the texts are the same, their types differ: null of a text that may be null, numbers that are texts |
| `names` | the arguments are the same, the name of the tool is not |

`template_calls`: calls as the chat templates of TRL write them. `template_differences` of them are read as other calls.
`template_refused` hold a tag that ends an argument, and are malformed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from _reference_parsers import Calls, load_parsers, read_or_none, unpack_wheels
from _report import Target, progress, report
from transformers import AutoTokenizer
from verl.experimental.agent_loop.tool_parser import ToolParser

from verl_agentic.cpu.tiny_model import make_tiny_tokenizer
from verl_agentic.episode.codec.calls.parsed_turn import ParsedTurn
from verl_agentic.episode.codec.calls.tool_calls import CallReader
from verl_agentic.episode.codec.calls.tool_formats import FORMATS

_TEXT = {"type": "string"}
_OPTIONAL = {"anyOf": [_TEXT, {"type": "null"}]}
_PROPERTIES = {
    "first": _TEXT,
    "second": _TEXT,
    "maybe": _OPTIONAL,
    "count": {"type": "integer"},
    "ratio": {"type": "number"},
    "flag": {"type": "boolean"},
    "items": {"type": "array"},
    "nested": {"type": "object"},
}
_NAMES = ("edit", "get-news", "math.factorial")
_TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": "", "parameters": {"type": "object", "properties": _PROPERTIES}},
    }
    for name in _NAMES
]
_VALUES: Sequence[Mapping[str, Any]] = (
    {},
    {"first": "WORD0", "second": "WORD1"},
    {"first": "  WORD0\n", "second": "\n\nWORD1 "},
    {"first": "", "second": " "},
    {"first": 'say "WORD0"', "second": "'WORD1' \\n \\"},
    {"first": '"WORD0"', "second": "'WORD1'"},
    {"first": "42", "second": "true"},
    {"first": "null", "second": "None"},
    {"first": "1.10", "second": "[1, 2]"},
    {"first": '{"WORD0": 1}', "second": "WORD1: {x}"},
    {"first": "WORD0 é🙂漢", "second": "<b>WORD1</b> &amp;"},
    {"first": "WORD0 </tool_call> x", "second": "<tool_call> WORD1"},
    {"first": "WORD0 </function> x", "second": "WORD1 <think> y"},
    {"first": "a, WORD0:b", "second": "WORD1}"},
    {"maybe": None, "first": "WORD0"},
    {"maybe": "WORD0", "count": 2**53 + 1},
    {"count": -7, "ratio": 0.5, "flag": True},
    {"ratio": 1e-07, "flag": False, "count": 0},
    {"items": [], "nested": {}},
    {"items": [1, "WORD0", None, [True]], "nested": {"a": {"b": "WORD1"}}},
    {"items": ["WORD0\n", ' "WORD1" '], "flag": True},
)
_TEMPLATES = {
    "hermes": ("qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl"),
    "qwen3_coder": ("qwen3_5_think", "qwen3_5_nothink", "qwen3_6", "qwen3_8", "nemotron_3_nano", "nemotron_3_super"),
    "glm": ("glm4moe",),
    "gpt-oss": ("gptoss",),
    "gemma4": ("gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4", "gemma4_v5"),
}
_ENDS = ("<|im_end|>\n", "<|im_end|>", "<turn|>\n", "<|endoftext|>")


def main() -> int:
    """Runs the comparison and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, help="folder with the wheels, instead of a download")
    parser.add_argument("--show", action="store_true", help="print every disagreement")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        progress("unpacking the parsers of SGLang, vLLM and TRL; without --wheels, 400 MB are downloaded")
        unpack_wheels(Path(folder), wheels=options.wheels)
        packages = load_parsers(Path(folder))
        figures = asyncio.run(_compare(packages, must_show=options.show))
        figures |= asyncio.run(_compare_templates(Path(folder) / "trl" / "chat_templates"))
        figures["turn_us"] = asyncio.run(_time_turns())
    return report(
        "tool_calls",
        ratios={},
        figures=figures,
        targets={
            "texts": Target(bound=400),
            "silent_losses": Target(bound=0, at_least=False),
            "unexplained": Target(bound=0, at_least=False),
            "template_differences": Target(bound=0, at_least=False),
        },
    )


def _texts() -> Iterator[tuple[str, str, bool]]:
    """Yields formats and texts, and whether these are well-formed."""
    draw = random.Random(0)
    for name, form in FORMATS.items():
        for arguments in _VALUES:
            yield name, form.write([(draw.choice(_NAMES), arguments)]), True
        whole = form.write([("edit", {"first": "WORD0", "second": "  WORD1", "count": 5})])
        tags = sorted({*form.block, *(form.unit or ()), *(form.value or ()), '"', ">", "{", "}", ":", "\n", "="})
        places = [(tag, at) for tag in tags for at in range(len(whole)) if whole.startswith(tag, at)]
        for tag, at in draw.sample(places, min(30, len(places))):
            put = draw.choice(["", tag * 2, tag[:-1], tag.upper(), f"{tag} ", f"{tag}WORD2 "])
            yield name, whole[:at] + put + whole[at + len(tag) :], False


def _reader(name: str) -> CallReader:
    return CallReader(ToolParser.get_tool_parser(name, _Characters()), tool_format=FORMATS[name], check_arguments=False)


async def _read(name: str, text: str, tools: Sequence[Any]) -> ParsedTurn:
    return await _reader(name).read(text, turn=0, tools=tools, starts_in_reasoning=False)


async def _compare(packages: Mapping[str, Any], *, must_show: bool) -> dict[str, Any]:
    figures: Counter[str] = Counter(dict.fromkeys(("silent_losses", "disagreements", "unexplained"), 0))
    for name, text, is_whole in _texts():
        figures["texts"] += 1
        parsed = await _read(name, text, _TOOLS)
        calls = [(call.name, dict(call.arguments)) for call in parsed.calls if call.error is None]
        if len(calls) == len(parsed.calls) and calls and _loses(text, calls, parsed.content):
            figures["silent_losses"] += 1
            progress(f"lost: {name} {text!r}")
        for package, parsers in packages.items():
            if name not in parsers:
                continue
            figures[f"{package}_texts"] += 1
            others = read_or_none(parsers[name], text, _TOOLS)
            figures[f"{package}_losses"] += bool(others) and _loses(
                text, others, text.partition(FORMATS[name].block[0])[0]
            )
            if json.dumps(calls) == json.dumps(others):
                continue
            reason = _reason(text, calls, others, is_whole=is_whole)
            figures["disagreements"] += 1
            figures[f"{package}_{reason}" if reason != "unexplained" else reason] += 1
            if must_show or reason == "unexplained":
                progress(f"{reason}: {package} {name} {text!r}\n  here {calls}\n  there {others}")
    return dict(sorted(figures.items()))


def _loses(text: str, calls: Calls, content: str) -> bool:
    """Returns whether a word of a text is in no call, and not in the content either."""
    shown = json.dumps(calls) + content
    return any(word in text and word not in shown for word in ("WORD0", "WORD1", "WORD2"))


def _reason(text: str, calls: Calls, others: Calls, *, is_whole: bool) -> str:
    """Returns why a package reads other calls; see the table above."""
    if not calls:
        return "refused"
    if not others:
        return "missed"
    if _loses(text, others, "") or len(others) < len(calls):
        return "lost"
    if [arguments for _, arguments in calls] == [arguments for _, arguments in others]:
        return "names"
    ours, theirs = (json.dumps([arguments for _, arguments in some]) for some in (calls, others))
    if _bare(ours) == _bare(theirs):
        return "spaces" if len(ours) != len(theirs) and ours.count('"') == theirs.count('"') else "types"
    return "lost" if is_whole and len(theirs) < len(ours) else "unexplained"


def _bare(text: str) -> str:
    """Returns a text without what spaces and types differ in."""
    for part in ("\\n", "\\\\", " ", '"', "\\", "'"):
        text = text.replace(part, "")
    return text.lower().replace("none", "null")


async def _compare_templates(folder: Path) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as model:
        make_tiny_tokenizer(Path(model))
        tokenizer = AutoTokenizer.from_pretrained(model)
    counts: Counter[str] = Counter(dict.fromkeys(("template_calls", "template_differences", "template_refused"), 0))
    for name, templates in _TEMPLATES.items():
        for template in templates:
            for number, arguments in enumerate(_VALUES):
                tool = _TOOLS[number % len(_TOOLS)]
                text = _render(tokenizer, (folder / f"{template}.jinja").read_text(), tool, arguments)
                (call, *more) = (await _read(name, text, [tool])).calls or (None,)
                counts["template_calls"] += 1
                expected = (tool["function"]["name"], json.dumps(arguments, sort_keys=True))
                if call is not None and call.error is not None:
                    counts["template_refused"] += 1
                elif call is None or more or (call.name, json.dumps(dict(call.arguments), sort_keys=True)) != expected:
                    counts["template_differences"] += 1
                    progress(f"{template}: {text!r} is read as {call}")
    return dict(counts)


def _render(tokenizer: Any, template: str, tool: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Returns a turn with a call as a chat template writes it, after the header of the policy's turn."""
    question = {"role": "user", "content": "?"}
    function = {"name": tool["function"]["name"], "arguments": dict(arguments)}
    turn = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
    options: dict[str, Any] = {"tools": [{**tool}], "chat_template": template, "tokenize": False}
    whole = tokenizer.apply_chat_template([question, turn], **options)
    before = tokenizer.apply_chat_template([question], add_generation_prompt=True, **options)
    if not whole.startswith(before):
        before = tokenizer.apply_chat_template([question], **options)
    assert whole.startswith(before), template
    text = whole[len(before) :].removeprefix("<|start|>assistant")
    for end in _ENDS:
        text = text.removesuffix(end)
    return text


async def _time_turns() -> float:
    """Returns the mean time of a turn, in microseconds."""
    arguments = {"first": "def f(x):\n    return x\n" * 20, "count": 5, "flag": True}
    turns = [(_reader(name), f"I edit it.\n{form.write([('edit', arguments)])}") for name, form in FORMATS.items()]
    started = time.perf_counter()
    for number in range(1000):
        reader, text = turns[number % len(turns)]
        await reader.read(text, turn=number, tools=_TOOLS, starts_in_reasoning=False)
    return round((time.perf_counter() - started) * 1e3, 1)


class _Characters:
    """A tokenizer that verl's parsers can be made with."""

    pad_token = "<pad>"

    def convert_tokens_to_ids(self, token: str) -> int:
        return 7


if __name__ == "__main__":
    sys.exit(main())
