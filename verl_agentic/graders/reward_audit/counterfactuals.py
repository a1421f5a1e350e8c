"""Counterfactual episodes: a policy that is silent, echoes its prompt, or gives an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from verl_agentic.base.types import StopReason
from verl_agentic.rewards.sample import Call, Sample, Turn

FORMS: Mapping[str, str] = {
    "plain": "{}",
    "boxed": r"\boxed{{{}}}",
    "answer tags": "<answer>{}</answer>",
    "thought and answer tags": "<think>Let me think.</think>\n<answer>{}</answer>",
    "boxed in answer tags": "<think>Let me think.</think>\n<answer>\\boxed{{{}}}</answer>",
}
"""Forms of answers, so that a component finds them."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """One form of an answer."""

    name: str
    keeps_turns: bool
    """Whether the policy's earlier turns come before it."""

    @property
    def title(self) -> str:
        """A title for people."""
        return f"{self.name}, after the earlier turns" if self.keeps_turns else self.name

    def write(self, answer: str) -> str:
        """Returns a turn with an answer."""
        return FORMS[self.name].format(answer)


PLAIN = Form(name="plain", keeps_turns=False)
ALL_FORMS = tuple(Form(name=name, keeps_turns=keeps) for keeps in (False, True) for name in FORMS)


def silent(sample: Sample, gold: Sequence[str] = ()) -> Sample:
    """Returns the episode with all observations, but no text of the policy.

    Args:
        gold: right answers, which are inserted into tool output in every form, to find components that read it.
    """
    planted = tuple(form.format(answer) for answer in gold for form in FORMS.values())
    turns = sample.turns or (Turn(index=0, text="", content=""),)
    return replace(
        sample,
        turns=tuple(_without_words(turn, planted if turn is turns[-1] else ()) for turn in turns),
        final_answer="",
        env=None,
    )


def echo(sample: Sample, form: Form) -> Sample:
    """Returns the episode of a policy that answers with its prompt, in a form."""
    return answered(sample, "\n".join(message.content for message in sample.prompt), form)


def answered(sample: Sample, answer: str, form: Form) -> Sample:
    """Returns the episode of a policy that gives an answer in a form."""
    text = form.write(answer)
    # Protocols with answer tags use the text between them; components handle thoughts and boxes.
    final = answer if form.name.endswith("answer tags") and not form.name.startswith("boxed") else text
    return _at_once(sample, text, final_answer=final, earlier=sample.turns[:-1] if form.keeps_turns else ())


def _at_once(sample: Sample, text: str, *, final_answer: str, earlier: tuple[Turn, ...]) -> Sample:
    turn = Turn(index=len(earlier), text=text, content=text, num_tokens=max(1, len(text) // 4))
    return replace(sample, turns=(*earlier, turn), final_answer=final_answer, stop_reason=StopReason.ANSWERED, env=None)


def _without_words(turn: Turn, planted: tuple[str, ...]) -> Turn:
    results = [call.result for call in turn.calls] + (["\n".join(planted)] if planted else [])
    return replace(
        turn,
        text="",
        content="",
        calls=tuple(Call(name="", arguments={}, result=result) for result in results),
        observations=(*turn.observations, *planted),
        num_tokens=0,
        mean_log_prob=None,
        reward=0.0,
    )
