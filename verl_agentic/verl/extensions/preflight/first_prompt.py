"""The first prompt of a run, made by the agent loop that will make it, and a call read back by its parser."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, cast, get_args

import hydra
import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from transformers import AutoModelForCausalLM
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap, _agent_loop_registry
from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.tools.tool_registry import load_all_tools
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.dataset.rl_dataset import get_dataset_class

from verl_agentic.base.errors import DataError
from verl_agentic.base.tools.plain_schema import list_schemas
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.checks.preflight.planned_run import CallTrial, FirstPrompt, Model
from verl_agentic.episode.codec.codec import ChatTemplateCodec, Codec
from verl_agentic.episode.codec.served_tools import ToolForm, find_difference, served_tool
from verl_agentic.episode.env_package import choose_env, load_env
from verl_agentic.log.files.parquet import env_row
from verl_agentic.verl.rollout.token_builder import give_token_builder

_DEADLINE_S = 60.0
_SECTION = "actor_rollout_ref.rollout.custom.agentic"
_WRITTEN = ("log",)
"""Keys of that section that would have this look at a run recorded as a part of it."""
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Where configs of transformers have the number of experts."""
_QUESTION = {"role": "user", "content": "0"}


class _Asked(BaseException):
    """Leaves an agent loop where it asks the server for the first turn; no loop may take it for a failure."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        super().__init__("the first turn")
        self.request = request


class _Server:
    """Stands where the client of the rollout servers stands."""

    async def generate(self, **request: Any) -> Any:
        raise _Asked(request)


@dataclass(kw_only=True)
class Worker:
    """State of verl's agent loop worker before it runs episodes: model, tools, loops."""

    config: DictConfig
    model: Any
    """verl's HFModelConfig."""
    tools: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, config: DictConfig) -> Worker:
        """Returns a worker without its servers; loading its model reads no weights.

        Whatever verl raises for a model that it cannot load passes.
        """
        config = deepcopy(config)
        section: Any = OmegaConf.select(config, _SECTION)
        with open_dict(config):
            if section is not None:
                for key in _WRITTEN:
                    section.pop(key, None)
        return cls(config=config, model=omega_conf_to_dataclass(config.actor_rollout_ref.model))

    def load_tools(self) -> list[str]:
        """Returns the names of the tools that verl's own section configures; what verl raises passes."""
        turns = self.config.actor_rollout_ref.rollout.multi_turn
        self.tools = load_all_tools(
            tool_config_path=_resolve_path(turns.tool_config_path),
            function_tool_path=_resolve_path(turns.function_tool_path),
        )
        return [tool.name for tool in self.tools]

    def load_loops(self) -> frozenset[str]:
        """Returns the names of all agent loops, those of the user's file included."""
        path = self.config.actor_rollout_ref.rollout.agent.agent_loop_config_path
        for entry in cast("Any", OmegaConf.load(str(_resolve_path(path)))) if path else ():
            _agent_loop_registry[entry.name] = entry
        return frozenset(_agent_loop_registry)

    def make_loop(self, name: str) -> Any:
        """Returns an agent loop, made as verl makes it for every session; needs a running event loop."""
        loop = hydra.utils.instantiate(
            config=_agent_loop_registry[name],
            trainer_config=DictConfigWrap(config=self.config),
            server_manager=_Server(),
            tokenizer=self.model.tokenizer,
            processor=self.model.processor,
            hf_model_type=getattr(self.model.hf_config, "model_type", None),
            dataset_cls=get_dataset_class(self.config.data),
            data_config=DictConfigWrap(self.config.data),
            tools=ToolListWrap(self.tools),
        )
        give_token_builder(loop)
        return loop

    def sampling(self) -> dict[str, Any]:
        """Returns the sampling parameters that verl's worker gives a training episode."""
        rollout = self.config.actor_rollout_ref.rollout
        names = ("temperature", "top_p", "top_k")
        return {**{name: rollout[name] for name in names}, "repetition_penalty": 1.0,
                "logprobs": rollout.calculate_log_probs}  # fmt: skip

    def facts(self) -> Model:
        """Returns what the model's files say of it."""
        text = self.model.hf_config.get_text_config()
        rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
        length = getattr(text, "max_position_embeddings", None)
        factor = float(rope.get("factor") or 1) if isinstance(rope, Mapping) else 1.0
        layers, heads = getattr(text, "num_hidden_layers", None), getattr(text, "num_attention_heads", None)
        kv_heads, hidden = getattr(text, "num_key_value_heads", None) or heads, getattr(text, "hidden_size", None)
        head_dim = getattr(text, "head_dim", None) or (hidden // heads if hidden and heads else None)
        sizes = (layers, kv_heads, head_dim)
        return Model(
            max_tokens=None if length is None else int(length * factor),
            kv_bytes_per_token=4 * math.prod(map(int, filter(None, sizes))) if all(sizes) else None,
            tied_parameters=_tied_parameters(self.model.hf_config),
            has_experts=any(getattr(text, name, None) for name in _EXPERTS),
            quantisation=_read_quantisation(self.model.hf_config),
        )


def _tied_parameters(config: Any) -> int | None:
    """Returns the number of parameters of a model with a tied head, those of the head included."""
    if not getattr(config.get_text_config(), "tie_word_embeddings", False):
        return None
    try:
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(config)
    except Exception:  # code of the model's own, or one that is not of this kind: then nothing is known
        return None
    head = model.get_output_embeddings()
    shared = 0 if head is None else head.weight.numel()
    return sum(parameter.numel() for parameter in model.parameters()) + shared


def _read_quantisation(config: Any) -> str:
    section = getattr(config, "quantization_config", None) or {}
    return str(section.get("quant_method", "") if isinstance(section, Mapping) else section.quant_method)


def agent_name(worker: Worker, row: Mapping[str, Any]) -> str:
    """Returns who plays a row."""
    return row.get("agent_name") or worker.config.actor_rollout_ref.rollout.agent.default_agent_loop


async def render(worker: Worker, row: Mapping[str, Any]) -> tuple[FirstPrompt, CallTrial | None]:
    """Returns the prompt of a row, and a call that was written by the template and read back.

    Raises:
        DataError: the loop ended before it asked for a turn.
    """
    name = agent_name(worker, row)
    loop = worker.make_loop(name)
    request = await asyncio.wait_for(_first_request(worker, loop, row), _DEADLINE_S)
    messages, schemas = await _start_env(worker, loop, row) if name == "env_agent" else _read_verl_prompt(loop, row)
    ids = list(request["prompt_ids"])
    if len(ids) >= worker.config.actor_rollout_ref.rollout.prompt_length:
        ids = _restore_prompt(loop, messages, schemas, ids)
    prompt = FirstPrompt(
        agent_loop=name,
        text=worker.model.tokenizer.decode(ids),
        num_tokens=len(ids),
        tools=[schema["function"]["name"] for schema in schemas],
        hidden_tools=[],
        messages=messages,
        sampling=dict(request["sampling_params"]),
        refused_messages=await _try_later_messages(worker, loop, messages, schemas, ids),
    )
    if not schemas or not _uses_template(worker, name):
        return prompt, None
    plain = _without_tools(loop, messages)
    is_hidden = plain == ids
    prompt = FirstPrompt(
        **{
            **prompt.__dict__,
            "hidden_tools": [n for n in prompt.tools if is_hidden or n not in prompt.text],
            "served_tools": _served_tools(worker, loop, messages, schemas),
        }
    )
    return prompt, None if prompt.hidden_tools else await _try_call(worker, loop, schemas)


async def _first_request(worker: Worker, loop: Any, row: Mapping[str, Any]) -> Mapping[str, Any]:
    kwargs = {key: value for key, value in row.items() if key != "agent_name"}
    # The last session of a group: the solution may generate the first ones (`agentic.external_sessions`).
    last = max(0, int(worker.config.actor_rollout_ref.rollout.n) - 1)
    kwargs |= {"uid": "preflight", "session_id": last, "global_steps": 1}
    playing = asyncio.ensure_future(loop.run(worker.sampling(), **kwargs))
    await asyncio.wait({playing})
    failure = playing.exception()
    if isinstance(failure, _Asked):
        return failure.request
    if failure is not None:
        raise failure
    outputs = playing.result() if isinstance(playing.result(), list) else [playing.result()]
    errors = [output.extra_fields.get("error") for output in outputs]
    raise DataError(f"the episode ended before its first turn, got {next(filter(None, errors), 'no reason')}")


async def _start_env(worker: Worker, loop: Any, row: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Returns the messages and the tools' schemas of an environment that has started."""
    settings, played = loop._settings, env_row(row)
    env = load_env(choose_env(played.extra.get("env"), settings.env), **settings.env_config)(played)
    try:
        messages = await env.start()
        return [message.to_dict() for message in messages], list_schemas(env.tools)
    finally:
        await env.close()


def _read_verl_prompt(loop: Any, row: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Returns the messages and schemas of a loop of verl's."""
    schemas = list(getattr(loop, "tool_schemas", ()))
    selected = (row.get("extra_info") or {}).get("tool_selection")
    if selected:
        schemas = [schema for schema in schemas if schema["function"]["name"] in selected]
    return list(row["raw_prompt"]), schemas


async def _try_later_messages(
    worker: Worker, loop: Any, messages: Sequence[Mapping[str, Any]], schemas: Sequence[Any], ids: Sequence[int]
) -> list[str] | None:
    codec = getattr(loop, "_codec", None)
    if codec is None or loop._settings.limits.max_turns < 2:
        return None
    prompt = list(map(Message.from_dict, messages))
    return await find_refused_messages(codec, worker.model.tokenizer, prompt=prompt, schemas=schemas, ids=ids)


async def find_refused_messages(
    codec: Codec, tokenizer: Any, *, prompt: Sequence[Message], schemas: Sequence[Any], ids: Sequence[int]
) -> list[str]:
    """Renders messages after a prompt and a turn that the policy has ended; returns those that fail, with the reason.

    Args:
        codec: of the protocol.
        tokenizer: the model's.
        schemas: the tools in it.
        ids: its tokens.
    """
    name = schemas[0]["function"]["name"] if schemas else "tool"
    calls = tuple(ToolCall(name, {}, f"call_0_{index}") for index in range(2))
    user = Message("user", "one")
    results = tuple(Message("tool", call.call_id, name=name, call_id=call.call_id) for call in calls)
    later = {
        "a message of the user": ((), (user,)),
        "the results of two calls": (calls, results),
        "the results of two calls and a message of the user": (calls, (*results, user)),
    }
    refused = []
    stream = [*ids, *tokenizer.encode("one", add_special_tokens=False), tokenizer.eos_token_id]
    for case, (turn_calls, new) in later.items():
        turn = Message("assistant", "one", tool_calls=turn_calls)
        try:
            await codec.encode_context([*prompt, turn], new, stream=stream, tools=schemas)
        except Exception as cause:  # whatever the template raises
            refused.append(f"{case}: {cause}")
    return refused


def _uses_template(worker: Worker, name: str) -> bool:
    section = OmegaConf.select(worker.config, _SECTION) or {}
    return name != "env_agent" or (section.get("protocol") or "chat") == "chat"


def _restore_prompt(
    loop: Any, messages: Sequence[Mapping[str, Any]], schemas: Sequence[Any], ids: list[int]
) -> list[int]:
    """Returns a prompt whole whose beginning verl has cut off."""
    try:
        whole = loop.continuous_token_builder.build_initial_tokens([dict(m) for m in messages], tools=schemas or None)
    except Exception:  # then what the loop made of it is all there is
        return ids
    return list(whole) if list(whole)[-len(ids) :] == ids else ids


def _served_tools(
    worker: Worker, loop: Any, messages: Sequence[Mapping[str, Any]], schemas: Sequence[Any]
) -> dict[str, str]:
    """Returns for each server where its prompt begins to differ from that of training, by the form of its tools."""

    def encode(form: ToolForm) -> list[int]:
        tools = [dict(served_tool(schema, form)) for schema in schemas]
        return list(loop.continuous_token_builder.build_initial_tokens([dict(m) for m in messages], tools=tools))

    options = getattr(getattr(loop, "_settings", None), "protocol_options", None)
    training_ids, differing = encode(getattr(options, "tools_as", "given")), {}
    for form in get_args(ToolForm)[1:]:
        difference = find_difference(training_ids, encode(form), decode=worker.model.tokenizer.decode)
        differing |= {form: difference[2]} if difference else {}
    return differing


def _without_tools(loop: Any, messages: Sequence[Mapping[str, Any]]) -> list[int] | None:
    try:
        return list(loop.continuous_token_builder.build_initial_tokens([dict(m) for m in messages], tools=None))
    except Exception:  # a template that cannot do without tools does not ignore them
        return None


async def _try_call(worker: Worker, loop: Any, schemas: Sequence[Any]) -> CallTrial | None:
    """Returns the trial; None where the template writes no calls, or the loop reads none."""
    function = schemas[0]["function"]
    arguments = _make_example(function.get("parameters") or {})
    text = _write_call(worker, {"name": function["name"], "arguments": arguments}, schemas)
    if text is None or function["name"] not in text:
        return None
    codec = getattr(loop, "_codec", None)  # in history, templates may leave out the reasoning that a header opens
    turn = codec.close_reasoning(text) if isinstance(codec, ChatTemplateCodec) else text
    ids = worker.model.tokenizer.encode(turn, add_special_tokens=False)
    eos = worker.model.tokenizer.eos_token_id
    ids = ids[: ids.index(eos) + 1] if eos in ids else ids
    read = await _read_calls(worker, loop, ids, schemas)
    if read is None:
        return None
    return CallTrial(
        parser=worker.config.actor_rollout_ref.rollout.multi_turn.format,
        written=text,
        expected=_format_call(function["name"], arguments),
        read="" if not read else _format_call(*read[0]),
    )


async def _read_calls(
    worker: Worker, loop: Any, ids: list[int], schemas: Sequence[Any]
) -> list[tuple[str, Any]] | None:
    codec = getattr(loop, "_codec", None)
    if codec is not None:
        action = await codec.decode_action(ids, turn=0, tools=list(schemas))
        return [(call.name, call.arguments) for call in action.tool_calls if call.error_kind != "malformed"]
    parser: ToolParser | None = getattr(loop, "tool_parser", None)
    if parser is None:
        return None
    _, calls = await parser.extract_tool_calls(ids, [tool.tool_schema for tool in worker.tools])
    return [(call.name, _from_json(call.arguments)) for call in calls]


def _write_call(worker: Worker, call: Mapping[str, Any], schemas: Sequence[Any]) -> str | None:
    """Returns a turn with a call as the chat template writes it; None where it cannot."""
    options = {**dict(worker.config.data.get("apply_chat_template_kwargs") or {}), "tools": list(schemas)}
    render = worker.model.tokenizer.apply_chat_template
    for arguments in (call["arguments"], json.dumps(call["arguments"])):  # templates want one or the other
        function = {"name": call["name"], "arguments": arguments}
        turn = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
        try:
            before = render([_QUESTION], tokenize=False, add_generation_prompt=True, **options)
            both = render([_QUESTION, turn], tokenize=False, add_generation_prompt=False, **options)
            if not both.startswith(before):
                before = render([_QUESTION], tokenize=False, add_generation_prompt=False, **options)
        except Exception:  # whatever a template raises, it does not write the call
            continue
        if both.startswith(before):
            return both[len(before) :]
    return None


def _make_example(schema: Mapping[str, Any]) -> Any:
    """Returns a value that a JSON schema allows."""
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        properties = schema.get("properties") or {}
        required_names = schema.get("required") or list(properties)
        return {name: _make_example(inner) for name, inner in properties.items() if name in required_names}
    if kind == "array":
        return [_make_example(schema.get("items") or {})]
    return {"integer": 3, "number": 1.5, "boolean": True}.get(kind, "one")


def _format_call(name: str, arguments: Any) -> str:
    return f"{name}({json.dumps(arguments, sort_keys=True, ensure_ascii=False)})"


def _from_json(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text


def _resolve_path(path: str | None) -> str | None:
    # Not from where it is defined, which differs between versions of verl.
    from verl.experimental.agent_loop.agent_loop import resolve_config_path  # pyright: ignore[reportPrivateImportUsage]

    return resolve_config_path(path) if path else None
