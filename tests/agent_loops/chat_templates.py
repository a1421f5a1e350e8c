"""Chat templates of several families, each on the tiny model's tokenizer, with verl's token builder for it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from verl_agentic.episode.codec.codec import ChatTemplateCodec

CHATML_WITH_TOOLS = """\
{%- if tools %}{{ '<|im_start|>system\\n<tools>' }}{%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor -%}
{{ '\\n</tools><|im_end|>\\n' }}{% endif -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif -%}
{{ '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif -%}
{%- else -%}
{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') }}
{%- for call in m.tool_calls or [] -%}
{{ '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""
CHATML_WITHOUT_TOOLS = """\
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""
LLAMA_3 = """\
{{- '<|begin_of_text|>' }}
{%- if tools %}{{ '<|start_header_id|>tools<|end_header_id|>\\n\\n' + (tools | tojson) + '<|eot_id|>' }}{% endif -%}
{%- for m in messages -%}
{{ '<|start_header_id|>' + ('ipython ' + (m.name or '') if m.role == 'tool' else m.role) + '<|end_header_id|>\\n\\n' }}
{{- (m.content or '') | trim }}
{%- for call in m.tool_calls or [] %}{{ call.function | tojson }}{% endfor -%}
{{ '<|eom_id|>' if m.is_code else '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif -%}
"""
STRIPS_THINKING = """\
{%- for m in messages -%}
{%- set said = m.content or '' -%}
{%- if m.role == 'assistant' and '</think>' in said %}{% set said = said.split('</think>')[-1] %}{% endif -%}
{{ '<|im_start|>' + m.role + '\\n' + said }}
{%- for call in m.tool_calls or [] %}{{ '<tool_call>' + (call.function | tojson) + '</tool_call>' }}{% endfor -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif -%}
"""
_LLAMA_TOKENS = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"]


@dataclass(frozen=True)
class Family:
    """A model family, as far as its chat goes."""

    name: str
    template: str
    model_type: str
    end: str = "<|im_end|>"
    other_ends: tuple[str, ...] = ()
    """Tokens that end a turn as well, and that the template knows."""
    separator: str = "\n"
    """Text that the template writes between the end of a turn and the next turn."""
    tokens: tuple[str, ...] = ()

    def chat(self, tokenizer: Any) -> Chat:
        """Returns the family's chat on a copy of a tokenizer."""
        tokenizer = copy.deepcopy(tokenizer)
        if self.tokens:
            tokenizer.add_special_tokens({"additional_special_tokens": list(self.tokens), "eos_token": self.end})
        tokenizer.chat_template = self.template
        return Chat(self, tokenizer)


FAMILIES = (
    Family("chatml", CHATML_WITH_TOOLS, "qwen3"),
    Family("chatml that verl does not know", CHATML_WITH_TOOLS, "smollm"),
    Family("chatml without tools", CHATML_WITHOUT_TOOLS, "qwen2"),
    Family("strips thinking", STRIPS_THINKING, "qwen3"),
    Family("llama 3", LLAMA_3, "llama", "<|eot_id|>", ("<|eom_id|>",), "", tuple(_LLAMA_TOKENS)),
)


@dataclass(frozen=True, repr=False)
class Chat:
    """A tokenizer with a template, and the codec of both."""

    family: Family
    tokenizer: Any

    def __repr__(self) -> str:
        return self.family.name

    @cached_property
    def builder(self) -> Any:
        return create_continuous_token_builder(self.tokenizer, hf_model_type=self.family.model_type)

    @cached_property
    def codec(self) -> ChatTemplateCodec:
        return self.codec_for()

    def codec_for(self, tool_format: str = "hermes", **options: bool) -> ChatTemplateCodec:
        parser = ToolParser.get_tool_parser(tool_format, self.tokenizer)
        return ChatTemplateCodec(
            builder=self.builder, parser=parser, tokenizer=self.tokenizer, tool_format=tool_format, **options
        )

    def token(self, text: str) -> int:
        return self.tokenizer.convert_tokens_to_ids(text)

    def text(self, ids: Any) -> str:
        return self.tokenizer.decode(list(ids))

    def render(self, messages: Any, *, prompt: bool, tools: Any = None) -> str:
        return self.tokenizer.apply_chat_template(
            [m.to_dict() for m in messages], tools=tools, add_generation_prompt=prompt, tokenize=False
        )


# Templates that refuse conversations, as those of many families do.

_TURN = "{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') }}"
_CALLS = (
    "{%- for call in m.tool_calls or [] %}{{ '<tool_call>' + (call.function | tojson) + '</tool_call>' }}{% endfor -%}"
)
_END = "{{ '<|im_end|>\\n' }}"
_HEADER = "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}"


def _plain(*, before: str = "", check: str = "", calls: str = _CALLS, end: str = _END, header: str = _HEADER) -> str:
    """Returns a template of plain turns, with checks before the conversation and before each message."""
    refuse = f"{{%- if {check} %}}{{{{ raise_exception('this template refuses it') }}}}{{% endif -%}}" if check else ""
    return f"{before}{{%- for m in messages -%}}{refuse}{_TURN}{calls}{end}{{%- endfor -%}}{header}"


_NO_ALTERNATION = "(m.role == 'user') != (loop.index0 % 2 == 0) or m.role not in ('user', 'assistant')"
_BAD_ID = "(m.tool_call_id or 9 * 'x') | length != 9 or (m.tool_calls or [{'id': 9 * 'x'}])[0].id | length != 9"
REFUSING = (
    Family("alternating roles", _plain(check=_NO_ALTERNATION), "gemma"),
    Family(
        "alternating roles after a system message",
        _plain(
            before="{%- if messages[0].role == 'system' %}{{ messages[0].content }}{% set messages = messages[1:] %}"
            "{% endif -%}",
            check="(m.role == 'user') != (loop.index0 % 2 == 0)",
        ),
        "gemma",
    ),
    Family("one call a turn", _plain(check="(m.tool_calls or []) | length > 1"), "llama"),
    Family("ids of nine characters", _plain(check=_BAD_ID), "mistral"),
    Family("arguments as text", _plain(check="m.tool_calls and m.tool_calls[0].function.arguments is not string"), "x"),
    Family("system at the beginning", _plain(check="m.role == 'system' and not loop.first"), "qwen3"),
    Family(
        "an end without a header",
        _plain(header=_HEADER + "{%- if not add_generation_prompt %}{{ '<|endoftext|>' }}{% endif -%}"),
        "phi3",
    ),
    Family(
        "drops results",
        _plain(before="{%- set messages = messages | rejectattr('role', 'equalto', 'tool') | list -%}"),
        "x",
    ),
    Family(
        "two closing tokens",
        _plain(end="{{ ('<|close|>' if m.role == 'assistant' else '') + '<|im_end|>\\n' }}"),
        "x",
        tokens=("<|close|>",),
    ),
    Family("a header without asking", _plain(header=_HEADER.replace("add_generation_prompt", "true")), "x"),
    Family(
        "an end of its own for a last turn with calls",
        _plain(end="{{ ('' if loop.last and m.tool_calls else '\\n') + '<|im_end|>\\n' }}"),
        "x",
    ),
)
SINGLE_TURN = Family("one turn", _plain(check="not loop.first"), "qwen3")
FORBIDS_A_WORD = Family("forbids a word", _plain(check="'forbidden' in m.content"), "qwen3")
