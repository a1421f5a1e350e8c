"""Narrows a gradient that is not finite: which attention kernel, type, shape or loss decides it, and the first tensor.

`python benchmarks/_gpu_nan.py [--device auto] [--seconds 60] [--out FILE]`, or `narrow_nan` in a check of `gpu.py`.

Three stages, from the smallest to the whole: attention alone, a model of transformers with the loss `masked_ppo`, and
an update of verl's engine if the caller has one. Every variant changes one thing of the first, which is the run that
failed: 440 M, bfloat16, 8 rows of 1,024 tokens without padding, 16 heads of size 128 that share 8 keys and values.
Variants are in the order of their likelihood, so that a run that is cut has the most telling ones. A CPU rehearses with
a tiny model.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from verl_agentic.credit.losses.token_log_probs import token_log_probs
from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss

_OTHERS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_FIRST = "cudnn first"
"""As torch 2.11 chooses on an H100, if TORCH_CUDNN_SDPA_DEPRIORITIZED is not set."""
BACKENDS: dict[str, list[SDPBackend]] = {
    _FIRST: [SDPBackend.CUDNN_ATTENTION, *_OTHERS],
    "without cudnn": _OTHERS,
    "flash": [SDPBackend.FLASH_ATTENTION],
    "efficient": [SDPBackend.EFFICIENT_ATTENTION],
    "math": [SDPBackend.MATH],
    "cudnn": [SDPBackend.CUDNN_ATTENTION],
}
"""Name -> kernels that torch may choose from, the preferred ones first."""
_OLD_LOG_PROB = -5.0


class Check(Protocol):
    """The part of a check of `gpu.py` that `narrow_nan` uses."""

    device: str

    def note(self, figures: Mapping[str, Any]) -> None:
        """Records figures."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Sizes of model and batch."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    rows: int
    tokens: int
    prompt: int
    vocabulary: int = 512


GPU = Size(layers=28, hidden=1024, heads=16, kv_heads=8, head_dim=128, rows=8, tokens=1024, prompt=64)
CPU = Size(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, rows=2, tokens=64, prompt=8)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One thing that differs from the run that failed."""

    name: str = "as it failed"
    backend: str = _FIRST
    dtype: torch.dtype = torch.bfloat16
    is_narrow: bool = False
    """Heads of half the size."""
    is_shared: bool = True
    """True if several heads share keys and values."""
    mask: str = ""
    """`ones`: a mask that hides nothing; `padding`: rows of different lengths, padded at the right."""
    tokens_left: int = 0
    """Tokens by which rows are shorter."""
    has_low_scores: bool = False
    """Scores about -120: cuDNN 9.20 gave NaN for q with a mask and 64 tokens beyond a multiple of 128
    (https://github.com/pytorch/pytorch/issues/196678)."""
    attention: str = "sdpa"
    loss: str = "masked_ppo"
    """`sum`: of the log-probs; `verl`: masked_ppo on log-probs by verl's function."""
    is_sampled: bool = False
    """True if logits are those of sampled tokens, in pieces."""
    updates: int = 1


def kernel_variants(size: Size) -> Iterator[Variant]:
    """Yields the variants of attention alone; all backends run each of them."""
    half = size.tokens // 16
    yield Variant()
    yield Variant(name="a mask that hides nothing", mask="ones")
    yield Variant(name="padded", mask="padding")
    yield Variant(name="no shared keys", is_shared=False)
    yield Variant(name="half the head size", is_narrow=True)
    yield Variant(name="rows of an odd length", tokens_left=5)
    yield Variant(name="mask, half a tile more, low scores", mask="ones", tokens_left=half, has_low_scores=True)
    yield Variant(name="low scores", has_low_scores=True)
    yield Variant(name="float32", dtype=torch.float32)


def model_variants() -> Iterator[Variant]:
    """Yields the variants of a whole model, the most telling ones first."""
    yield Variant()
    yield from (Variant(name=name, backend=name) for name in BACKENDS if name != _FIRST)
    yield Variant(name="eager attention", attention="eager")
    yield Variant(name="padded", mask="padding")
    yield Variant(name="sum of log-probs", loss="sum")
    yield Variant(name="logits of sampled tokens", is_sampled=True)
    yield Variant(name="half the head size", is_narrow=True)
    yield Variant(name="no shared keys", is_shared=False)
    yield Variant(name="float32", dtype=torch.float32)
    yield Variant(name="third update", updates=3)
    yield Variant(name="log-probs by verl", loss="verl")


def narrow_nan(
    check: Check, *, update: Callable[[], float] | None = None, seconds: float = 60.0, size: Size | None = None
) -> dict[str, Any]:
    """Returns, and notes in the check after every variant, what is finite and what is not.

    Args:
        check: gets the figures under `nan: ...`; its device is `cuda` or `cpu`.
        update: makes an update of verl's engine; returns the norm of its gradient.
        seconds: no variant starts later.
        size: of model and batch; None: as the device.
    """
    deadline = time.monotonic() + seconds
    size = size or (GPU if check.device == "cuda" else CPU)
    figures: dict[str, Any] = {"nan: torch": _describe_torch(check.device)}
    stages: list[tuple[str, Variant, Callable[[], Any]]] = [
        *(("attention", one, lambda one=one: _test_kernels(check.device, size, one)) for one in kernel_variants(size)),
        *(("model", one, lambda one=one: _test_model(check.device, size, one)) for one in model_variants()),
    ]
    if update is not None:
        engines = [Variant(name=name, backend=name) for name in (_FIRST, "without cudnn", "math")]
        stages += [("engine", one, lambda one=one: _test_engine(one.backend, update)) for one in engines]
    for stage, variant, test in stages:
        results = figures.setdefault(f"nan: {stage}", {})
        results[variant.name] = _attempt(test) if time.monotonic() < deadline else "no time was left"
        figures["nan: cause"] = explain(figures)
        check.note(figures)
    return figures


def explain(figures: Mapping[str, Any]) -> str:
    """Returns the smallest thing that is not finite, and the settings with which all is finite."""
    kernels, models = figures.get("nan: attention", {}), figures.get("nan: model", {})
    guilty = [
        f"{backend} ({name}): {', '.join(found['bad'])}"
        for name, backends in kernels.items()
        if isinstance(backends, dict)
        for backend, found in backends.items()
        if isinstance(found, dict) and found["bad"]
    ]
    first, parts = models.get("as it failed"), []
    if isinstance(first, dict) and first["first"]:
        safe = [name for name, found in models.items() if isinstance(found, dict) and not found["first"]]
        parts.append(f"the model is not finite, first in {first['first']}; finite are: {', '.join(safe) or 'none'}")
    if guilty:
        parts.append(f"torch's attention alone is not finite: {', '.join(guilty)}")
    norm = figures.get("nan: engine", {}).get(_FIRST)
    if not parts and isinstance(norm, float) and not math.isfinite(norm):
        parts.append("only verl's engine is not finite: its sharding, its log-probs, or its clipping")
    return "; ".join(parts) or ("all is finite here" if isinstance(first, dict) else "not decided")


# -- attention alone ---------------------------------------------------------------------------------------------------


def _test_kernels(device: str, size: Size, variant: Variant) -> dict[str, Any]:
    """Returns, by backend, what is not finite, and the largest difference to float32 in the gradient of q."""
    inputs = _make_attention_inputs(device, size, variant)
    exact = _run_kernel(inputs, "math", torch.float32)
    results: dict[str, Any] = {}
    for backend in BACKENDS:
        found = _attempt(lambda backend=backend: _run_kernel(inputs, backend, variant.dtype))
        if isinstance(found, dict):
            bad = [name for name, tensor in found.items() if not bool(tensor.isfinite().all())]
            found = {"bad": bad, "error of dq": float((found["dq"] - exact["dq"]).abs().max())}
        results[backend] = found
    return results


@dataclass(frozen=True, kw_only=True)
class _AttentionInputs:
    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor
    options: dict[str, Any]


def _make_attention_inputs(device: str, size: Size, variant: Variant) -> _AttentionInputs:
    tokens, head_dim = size.tokens - variant.tokens_left, size.head_dim // (2 if variant.is_narrow else 1)
    kv_heads = size.kv_heads if variant.is_shared else size.heads
    generator = torch.Generator(device).manual_seed(0)

    def draw(heads: int) -> Tensor:
        # As a model lays them out: heads are an axis of a projection's output.
        drawn = torch.randn(size.rows, tokens, heads, head_dim, device=device, generator=generator)
        return F.rms_norm(drawn, (head_dim,)).transpose(1, 2)

    q, k, v, grad = draw(size.heads), draw(kv_heads), draw(kv_heads), draw(size.heads)
    if variant.has_low_scores:
        q, k = 0.1 * q, 0.1 * k
        q[..., 0], k[..., 0] = 1.0, -120.0 * math.sqrt(head_dim)
    mask = _make_mask(variant, size.rows, tokens, device)
    if mask is None:
        options: dict[str, Any] = {"is_causal": True, "enable_gqa": variant.is_shared}
    else:  # transformers repeats keys where there is a mask
        k, v = (one.repeat_interleave(size.heads // kv_heads, dim=1) for one in (k, v))
        is_seen_TT = torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril()
        options = {"attn_mask": is_seen_TT & mask[:, None, None, :]}
    return _AttentionInputs(q=q, k=k, v=v, grad=grad, options=options)


def _make_mask(variant: Variant, rows: int, tokens: int, device: str) -> Tensor | None:
    """Returns `[rows, tokens]` bool: real tokens; None without a mask."""
    if not variant.mask:
        return None
    step = 0 if variant.mask == "ones" else max(tokens // (2 * rows), 1)
    lengths = tokens - step * torch.arange(rows, device=device)
    return torch.arange(tokens, device=device) < lengths.unsqueeze(-1)


def _run_kernel(inputs: _AttentionInputs, backend: str, dtype: torch.dtype) -> dict[str, Tensor]:
    leaves = [one.to(dtype).detach().requires_grad_() for one in (inputs.q, inputs.k, inputs.v)]
    with _kernels(backend):
        out = F.scaled_dot_product_attention(*leaves, **inputs.options)
        gradients = torch.autograd.grad(out, leaves, inputs.grad.to(dtype))
    return dict(zip(("out", "dq", "dk", "dv"), (one.float() for one in (out.detach(), *gradients)), strict=True))


def _kernels(backend: str) -> contextlib.AbstractContextManager[None]:
    return sdpa_kernel(BACKENDS[backend], set_priority=True)


# -- a whole model -----------------------------------------------------------------------------------------------------


@dataclass
class Trace:
    """Name of each tensor at the borders of modules, and true if it is finite, in the order of computation."""

    places: list[str] = field(default_factory=list)
    flags: list[Tensor] = field(default_factory=list)

    def add(self, place: str, values: Any) -> None:
        """Adds tensors that belong to one place; nothing waits for the device."""
        for number, value in enumerate(values if isinstance(values, tuple) else (values,)):
            if isinstance(value, Tensor) and value.is_floating_point():
                self.places.append(f"{place} {number}")
                self.flags.append(value.detach().isfinite().all())

    def find_first(self) -> str:
        """Returns the first place that is not finite; empty if all are."""
        flags = torch.stack(self.flags).tolist() if self.flags else []
        return next((place for place, is_finite in zip(self.places, flags, strict=True) if not is_finite), "")

    def watch(self, name: str, module: torch.nn.Module) -> list[Any]:
        """Watches the output of a module, and the gradients of its output and its inputs; returns the handles."""

        def add_gradients(_: Any, inputs: Any, outputs: Any) -> None:
            self.add(f"backward, output of {name}", outputs)
            self.add(f"backward, input of {name}", inputs)

        handles = [module.register_forward_hook(lambda _m, _i, out: self.add(f"forward {name}", out))]
        if not isinstance(module, torch.nn.Embedding):  # its input, ids, has no gradient
            handles.append(module.register_full_backward_hook(add_gradients))
        return handles


def _test_model(device: str, size: Size, variant: Variant) -> dict[str, Any]:
    """Returns the first place that is not finite, and the norm of the gradient of the last update."""
    if variant.is_narrow:
        size = replace(size, head_dim=size.head_dim // 2)
    if not variant.is_shared:
        size = replace(size, kv_heads=size.heads)
    model = _make_model(device, size, variant)
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(size.vocabulary // 2, (size.rows, size.tokens), generator=generator).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    trace = Trace()
    for number in range(variant.updates):
        is_last, handles = number + 1 == variant.updates, []
        for name, module in model.named_modules():
            if is_last and next(module.children(), None) is None:
                handles += trace.watch(name, module)
        optimizer.zero_grad()
        with _kernels(variant.backend):
            loss = _compute_loss(model, ids, size, variant)
            trace.add("loss", loss)
            loss.backward()
        optimizer.step()
        for handle in handles:
            handle.remove()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    norm = torch.stack([torch.linalg.vector_norm(gradient.float()) for gradient in gradients.values()]).norm()
    for name, gradient in gradients.items():
        trace.add(f"gradient of {name}", gradient)
    return {"first": trace.find_first(), "norm": float(norm)}


def _make_model(device: str, size: Size, variant: Variant) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=3 * size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.head_dim,
        tie_word_embeddings=True,
        attn_implementation=variant.attention,
    )
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config).train()
    for parameter in model.parameters():  # buffers stay float32, as in verl's engine
        parameter.data = parameter.data.to(variant.dtype)
    return model


def _compute_loss(model: Any, ids_BT: Tensor, size: Size, variant: Variant) -> Tensor:
    is_real_BT = _make_mask(variant, *ids_BT.shape, device=ids_BT.device.type)
    if is_real_BT is None:
        is_real_BT = torch.ones_like(ids_BT, dtype=torch.bool)  # verl gives a mask of ones
    mask_BT = is_real_BT[:, 1:].clone()
    mask_BT[:, : size.prompt - 1] = False
    hidden = model.model(input_ids=ids_BT, attention_mask=is_real_BT.int(), use_cache=False).last_hidden_state[:, :-1]
    labels_BT = ids_BT[:, 1:]
    if variant.is_sampled:
        scale_N = torch.ones(int(mask_BT.sum()), device=ids_BT.device)
        picked_N, _ = token_log_probs(
            hidden[mask_BT], model.lm_head.weight, labels_BT[mask_BT], scale_N, with_entropy=False
        )
        log_prob_BT = torch.zeros(mask_BT.shape, device=ids_BT.device).masked_scatter(mask_BT, picked_N)
    else:
        logits_BTV = model.lm_head(hidden)
        log_prob_BT = _pick_log_probs(logits_BTV, labels_BT, by_verl=variant.loss == "verl")
    if variant.loss == "sum":
        return log_prob_BT.where(mask_BT, 0.0).sum() / mask_BT.sum()
    signs_B1 = 1.0 - 2.0 * (torch.arange(size.rows, device=ids_BT.device) % 2).unsqueeze(-1)
    batch = LossBatch(
        log_prob_BT=log_prob_BT,
        old_log_prob_BT=torch.full_like(log_prob_BT, _OLD_LOG_PROB),
        advantages_BT=signs_B1.expand_as(log_prob_BT),
        mask_BT=mask_BT,
    )
    per_token_BT = load_policy_loss("masked_ppo")(batch).per_token_BT
    assert per_token_BT is not None
    return per_token_BT.sum() / mask_BT.sum()


def _pick_log_probs(logits_BTV: Tensor, labels_BT: Tensor, *, by_verl: bool) -> Tensor:
    if by_verl:
        from verl.utils.torch_functional import logprobs_from_logits

        flat_N = logprobs_from_logits(logits_BTV.flatten(0, 1), labels_BT.flatten())
        return flat_N.view(labels_BT.shape)
    return logits_BTV.float().log_softmax(dim=-1).gather(-1, labels_BT.unsqueeze(-1)).squeeze(-1)


# -- the rest ----------------------------------------------------------------------------------------------------------


def _test_engine(backend: str, update: Callable[[], float]) -> float:
    with _kernels(backend):
        return update()


def _attempt(test: Callable[[], Any]) -> Any:
    """Returns what a test gives, or why it could not run here."""
    try:
        return test()
    except (RuntimeError, ImportError) as error:
        return f"not run: {type(error).__name__}: {error}"[:300]


def _describe_torch(device: str) -> dict[str, Any]:
    version = torch.backends.cudnn.version() if device == "cuda" else None
    card = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return {"torch": torch.__version__, "cuDNN": version, "device": card}


@dataclass
class _Record:
    """A check of the command line, whose figures are in one file."""

    device: str
    out: Path | None

    def note(self, figures: Mapping[str, Any]) -> None:
        if self.out is not None:
            self.out.write_text(json.dumps(figures, indent=1, default=str))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    device = args.device if args.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    figures = narrow_nan(_Record(device, args.out), seconds=args.seconds)
    print(json.dumps(figures, indent=1, default=str))


if __name__ == "__main__":
    main()
