"""Empty work: an episode without an answer and without a call, which no component pays."""

from __future__ import annotations

import re
import unicodedata

from verl_agentic.base.text.normal_form import normalise
from verl_agentic.base.text.reasoning import without_thoughts
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import without_end_tokens

# The form of an answer with nothing in it: tags of a protocol, special tokens, an empty box, fences.
_BLANK_LATEX = r"(?:\s|[~$]|\\[,;:! ]|\\q?quad|\\(?:text|mathrm|mbox)\{\s*\}|\{\s*\})"
_TAGS = "think|thinking|reasoning|answer|final_answer|final|response|solution|result"
_FORM = re.compile(
    rf"</?(?:{_TAGS})>|<\|[\w-]{{1,40}}\|>|\\boxed\{{{_BLANK_LATEX}*\}}|^[ \t]*(?:```|~~~)[\w+-]*[ \t]*$", re.MULTILINE
)
_ONLY_BLANK_LATEX = re.compile(rf"{_BLANK_LATEX}*")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"})
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0\u034f")
_SEARCHED_CHARS = 20_000
_MAX_REFUSAL_CHARS = 200
_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|textit|mathrm|mbox)\s*\{([^{}]*)\}")
# In the normal form of short answers: no apostrophes, no articles.
_REFUSAL = re.compile(
    r"(?:(?:well|sorry|im sorry|i am sorry|unfortunately|honestly|but|answer is|answer|final answer is|it is) )*"
    r"(?:(?:i )?(?:really |honestly |still )?(?:do not|dont|did not|didnt) know|idk|unknown|undecided"
    r"|(?:i am |im )?(?:not (?:quite |really |entirely )?sure|unsure|uncertain)"
    r"|(?:(?:i (?:have|had)|ive) )?no (?:idea|clue|answer)"
    r"|(?:i (?:am |was )?|im )?(?:cannot|can not|cant|could not|couldnt|unable to|not able to)"
    r" (?:answer|determine|find|solve|tell|say|know|compute|calculate|help|provide))"
    r"(?: [^\W\d]+){0,6}"
)


def is_silent(sample: Sample) -> bool:
    """Returns whether the policy gave no answer and made no call."""
    return not sample.calls and is_empty(sample.final_answer)


def is_empty(answer: str) -> bool:
    """Returns whether an answer says nothing: no visible character outside reasoning, special tokens and empty tags.

    Longer answers than 20,000 characters are looked at from their end.
    """
    text = without_end_tokens(without_thoughts(answer))[-_SEARCHED_CHARS:]
    return not any(_is_visible(char) for char in _FORM.sub("", text))


def is_empty_box(boxed: str) -> bool:
    """Returns whether what stands in a box says nothing: blanks of LaTeX, or see `is_empty`."""
    return is_empty(boxed) or _ONLY_BLANK_LATEX.fullmatch(boxed) is not None


def is_refusal(answer: str) -> bool:
    """Returns whether an answer refuses to answer: `I do not know`, `I'm not sure.`, `No idea`, `?`.

    A text with a number, or with more than a few words after the refusal, may hold an answer. It does not count.
    """
    text = _TEXT_COMMAND.sub(r"\1", answer)[:_MAX_REFUSAL_CHARS]
    is_punctuation = all(char.isspace() or unicodedata.category(char)[0] == "P" for char in text)
    return is_punctuation or _REFUSAL.fullmatch(normalise(text)) is not None


def _is_visible(char: str) -> bool:
    return unicodedata.category(char) not in _UNSEEN and char not in _BLANK
