r"""Normalises a maths answer or ground truth: ASCII, few LaTeX commands, no wrappers.

Unicode digits, signs, fractions and powers become ASCII or LaTeX. Boxes, text, delimiters and final full stops around
the whole are removed. The value does not change.
"""

from __future__ import annotations

import re
import unicodedata

_CHARS = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d", "-"),
    **dict.fromkeys("\u00d7\u2a2f\u2715\u2716", r"\times "),
    **dict.fromkeys("\u00b7\u22c5\u2219\u2022\u2027", r"\cdot "),
    **dict.fromkeys("\u2044\u2215", "/"),
    **dict.fromkeys("\u00b0\u00ba\u02da", r"^{\circ}"),
    **dict.fromkeys("\u2019\u2018\u02bc\u2032\u00b4", "'"),
    **dict.fromkeys("\u2009\u202f", r"\,"),
    "\u00f7": r"\div ", "\u221a": r"\sqrt ", "\u221b": r"\sqrt[3]",
    "\u2026": "...", "\u221e": r"\infty ", "\u00b1": r"\pm ", "\u2213": r"\mp ",
    "\u2264": r"\leq ", "\u2265": r"\geq ", "\u2a7d": r"\leq ", "\u2a7e": r"\geq ", "\u2260": r"\neq ",
    "\u2248": r"\approx ", "\u222a": r"\cup ", "\u2229": r"\cap ", "\u2208": r"\in ", "\u2205": r"\emptyset ",
    "\u2211": r"\sum ", "\u222b": r"\int ", "\u3002": ".", "\u066a": r"\%", "\u066b": ".", "\u066c": ",",
    "\u00a5": "\u00a5", "\u00b5": r"\mu ", "\u3001": ",", "\u2236": ":", "\u2261": r"\equiv ",
    "\u2228": r"\lor ", "\u2227": r"\land ", "\u2216": r"\setminus ", "\u2220": r"\angle ",
    "\u6216": " or ", "\u548c": " and ", "\u4e0e": " and ", "\u53ca": " and ", "\u4e14": " and ",
    **dict.fromkeys("\u201c\u201d\u300c\u300d", '"'),
}  # fmt: skip
_SPECIAL = re.compile(r"[^\x00-\x7f]")
_RAISED = re.compile("([\u00b2\u00b3\u00b9\u2070-\u207f]+)")
_LOWERED = re.compile("([\u2080-\u2089]+)")
_TEX_CAPITALS = ("gamma", "delta", "theta", "lambda", "xi", "pi", "sigma", "upsilon", "phi", "psi", "omega")

_SIZES = re.compile(
    r"\\(?:left|right|m?left|m?right|[bB]igg?[lrm]?|middle)(?![a-zA-Z])\s*\.?|\\(?:display|text|script)style\s*|\\!"
    r"|\\(?:tiny|small|normalsize|large|Large|LARGE|huge|Huge|mathstrut|limits|checkmark|therefore|because)(?![a-zA-Z])"
    r"|\\(?:color|hspace)\s*\{[^{}]*\}"
)
_FONTS = re.compile(
    r"\\(?:math(?:rm|bf|it|sf|tt|normal)|text(?:rm|bf|it|sf|tt|normal|up|color\s*\{[^{}]*\})|mbox|emph|bm|boldsymbol"
    r"|underline|operatorname\*?|rm|bf)\s*\{|\{\s*\\(?:rm|bf|it|sf|tt)(?![a-zA-Z])\s*"
)
_UPRIGHT = re.compile(r"\\text\s*\{(?P<inside>(?:[^{}]|\{[^{}]*\})*)\}")
_FUNCTION_NAMES = frozenset(
    """sin cos tan cot sec csc arcsin arccos arctan ln log exp gcd lcm max min lim det pi infty""".split()  # noqa: SIM905
)
_JOINING = re.compile(r"[,;]?\s*(and|or)\s*")
_INFIX = re.compile(r"\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\\(over|choose)(?![a-zA-Z])([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_OVER = re.compile(r"\\over(?![a-zA-Z])")
_CHOSEN = re.compile(
    r"(?<![A-Za-z\\])(?:[_^]\s*\{?(\w+)\}?\s*(?:C|\\text\{C\})\s*_\s*\{?(\w+)\}?|(?:C|\\text\{C\})\s*_\s*\{?(\w+)\}?\s*\^\s*\{?(\w+)\}?)"
)
_CIRCLED = re.compile("(?<=[\u2460-\u2473])\\s*(?:,|and)?\\s*(?=[\u2460-\u2473])")
_RAISED_FRACTION = re.compile(r"\^\{(\d+)\}\s*/\s*_\{(\d+)\}")
_GROUPED = re.compile(r"(?<=\d)\s*(?:\\[,:; ]|~|\{,\})\s*(?=\d{3}(?!\d))")
_SPACES = re.compile(r"(?<!\\)\\[,:;> ]|~|\\q?quad(?![a-zA-Z])|\s+")
_FRACTIONS = re.compile(r"\\(?:[dtc]|nice|s|x)frac(?![a-zA-Z])")
_DIGITS = re.compile(r"\\[dt]?frac\s*(\d)\s*(\d)")
_DOTTED = re.compile(r"\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?")
_BINOMIALS = re.compile(r"\\[dt]binom(?![a-zA-Z])")
_ROOT = re.compile(r"\\sqrt\s*(?:\(([^()]*)\)|(\d+))")
_POWER = re.compile(r"(?<=[\w)}])\s*(?:\*\*\s*(?:\((-?\d+)\)|(-?\d+)(?!\.?\d))|\^(-?\d{2,})(?!\.?\d))")
_LOG = re.compile(r"\\log\s*_\s*(?:\{\s*(\w+)\s*\}|(\w))\s*(?:\{\s*(\d+)\s*\}|(\d+))")
_DEGREES = re.compile(
    r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z])|(?<=\d\^)\{?o\}?(?![a-zA-Z]))|\\(?:text)?degree(?![a-zA-Z])"
    r"|(?<=\d)\s*\^\s*\{?\s*(?:\\text\s*\{)\s*o\s*\}\s*\}?"
)
_BOX = re.compile(r"\\(?:boxed|fbox|framebox|text)\s*\{")
_ENDINGS = re.compile(r"(?:(?<!\.)\.(?!\.)|[,;:])+$")
_DELIMITERS = (
    ("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ('"', '"'), ("``", "''"), ("`", "`"),
    ("'", "'"),
)  # fmt: skip
_OPENINGS = frozenset("$\\*\"`'")
_MAX_NOTHING = 40
_PLAIN = re.compile(r"-?[1-9]\d*(?:\.\d+)?|0(?:\.\d+)?")
_NOTHING = re.compile(
    r"(?i:(?:there (?:are|is) )?no (?:real |integer )?solutions?|(?:the )?empty ?set)|\\?\{\s*\\?\}|\u65e0\u89e3"
)
_ANSWER_WORDS = (
    r"(?:the )?(?:final |correct )?(?:answer|result|total|option|choice)(?: is)?|approximately|about|there are"
)
_ANSWER_WORDS += r"|\u7b54\u6848(?:\u662f|\u4e3a)?|\u9009|[\u7ea6\u7d04]"
_LABEL = re.compile(
    rf"####\s*|\\approx\s*(?=[\d\\-])|(?:{_ANSWER_WORDS})\s*[:=]?\s*(?=\S)(?<![a-z])"
    rf"|\\text\s*\{{\s*(?:{_ANSWER_WORDS})\s*[:=]?\s*\}}\s*[:=]?\s*(?=\S)",
    re.IGNORECASE,
)
_CLOSING = {"{": "}", "(": ")"}
_COMMANDS = {
    r"\varnothing": r"\emptyset", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\colon": ":", r"\textdollar": r"\$",
    r"\mathdollar": r"\$", r"\{\}": r"\emptyset",
}  # fmt: skip


def tidy(text: str) -> str:
    """Returns a text in normal notation."""
    if _PLAIN.fullmatch(text):
        return text
    if not text.isascii():
        text = _to_ascii(text)
    if "\\" in text:
        text = _FONTS.sub(r"\\text{", _SIZES.sub("", text))
    if "\\" in text or "{" in text or "~" in text:
        text = _GROUPED.sub("", text)
        text = re.sub(r"(?<=\d)\{,\}(?=\d)", ".", text).replace("{,}", ",")
        text = re.sub(r"(?<![A-Za-z])\{([-+=*/:<>])\}", r"\1", text)
    text = _SPACES.sub(" ", text).replace("{}_", "_").replace("{}^", "^")
    if "_" in text:
        text = _RAISED_FRACTION.sub(r"\\frac{\1}{\2}", _CHOSEN.sub(_plain_binomial, text))
    if "\\" in text:
        text = _with_normal_commands(text)
    text = text if text.isascii() else _CIRCLED.sub("", text)
    if "^" in text or "**" in text or "degree" in text:
        text = _POWER.sub(lambda power: f"^{{{power[1] or power[2] or power[3]}}}", text)
        text = _DEGREES.sub(r"^{\\circ}", text)
    if "((" in text or "{{" in text:
        text = _with_single_brackets(text)
    text = _without_wrappers(text)
    return r"\emptyset" if len(text) < _MAX_NOTHING and _NOTHING.fullmatch(text) else text


def _with_normal_commands(text: str) -> str:
    for command, plain in _COMMANDS.items():
        text = text.replace(command, plain)
    text = _UPRIGHT.sub(_plain_upright, re.sub(r"\$(\^\{?-?\d\}?)\$", r"\1", text))
    text = _DIGITS.sub(r"\\frac{\1}{\2}", text) if "frac" in text else text
    text = _BINOMIALS.sub(r"\\binom", _FRACTIONS.sub(r"\\frac", text))
    text = _INFIX.sub(
        lambda infix: rf"\{'frac' if infix[2] == 'over' else 'binom'}{{{infix[1].strip()}}}{{{infix[3].strip()}}}",
        f"{{{text}}}" if _OVER.search(text) else text,
    )
    if "dot" in text:
        text = _DOTTED.sub(r"\\overline{\1\2\3}", text).replace(r"\ldots", "...").replace(r"\dots", "...")
    text = _ROOT.sub(lambda root: rf"\sqrt{{{root[1] or root[2]}}}", text)
    return _LOG.sub(lambda log: rf"\log_{{{log[1] or log[2]}}}{{{log[3] or log[4]}}}", text)


def _plain_binomial(chosen: re.Match[str]) -> str:
    above, below = (part for part in chosen.groups() if part is not None)
    return rf"\binom{{{above}}}{{{below}}}"


def _plain_upright(text: re.Match[str]) -> str:
    """Returns upright text as maths if it is a function, a constant, an operator or a number."""
    inside = text["inside"].strip()
    if inside in _FUNCTION_NAMES:
        return f"\\{inside} "
    if joining := _JOINING.fullmatch(inside):
        return f" {joining[1]} "
    is_maths = inside in ("e", "i", r"\$", r"\%", r"\pi", r"^{\circ}", r"^\circ") or not re.search(
        r"[^\W\d_]|[\\$]", inside
    )
    is_quantity = text.start() == 0 and re.match(r"[\d\\$-]", inside)
    return inside if inside and (is_maths or is_quantity) else text[0]


def depth(text: str) -> int:
    """Returns the nesting depth of brackets of all kinds; an unmatched closing bracket counts as opening."""
    level = deepest = 0
    for char in text:
        if char in "([{":
            level += 1
        elif char in ")]}":
            level = level - 1 if level else 1
        deepest = max(deepest, level)
    return deepest


def closing_place(text: str, start: int) -> int:
    """Returns the position of the bracket that closes the one at `start`, or -1; ignores other kinds of brackets."""
    opening, closing = text[start], _CLOSING[text[start]]
    level = 0
    for place in range(start, len(text)):
        if text[place] in (opening, closing) and not (place and text[place - 1] == "\\"):
            level += 1 if text[place] == opening else -1
            if not level:
                return place
    return -1


def _to_ascii(text: str) -> str:
    text = _LOWERED.sub(lambda digits: f"_{{{unicodedata.normalize('NFKC', digits[1])}}}", text)
    text = _RAISED.sub(lambda match: f"^{{{unicodedata.normalize('NFKC', match[1]).replace(chr(0x2212), '-')}}}", text)
    return _SPECIAL.sub(lambda match: _ascii_of(match[0]), text)


def _ascii_of(char: str) -> str:
    if char in _CHARS:
        return _CHARS[char]
    if (digit := unicodedata.decimal(char, None)) is not None:
        return str(digit)
    if unicodedata.category(char) in ("Cf", "Mn"):  # invisible marks; accents
        return ""
    parts = unicodedata.decomposition(char).split()
    if parts[:1] == ["<circle>"]:
        return char
    if parts[:1] == ["<fraction>"] and len(parts) > 3:
        above, _, below = "".join(chr(int(part, 16)) for part in parts[1:]).partition("\u2044")
        return rf" \frac{{{above}}}{{{below}}}"
    plain = unicodedata.normalize("NFKC", char)
    return plain if plain.isascii() else _spell_greek(plain)


def _spell_greek(char: str) -> str:
    kind, _, letter = unicodedata.name(char[0], "").partition(" LETTER ")
    letter = letter.lower()
    if kind == "GREEK SMALL" and letter.isalpha():
        return rf"\{letter} "
    if kind == "GREEK CAPITAL" and letter in _TEX_CAPITALS:
        return rf"\{letter.capitalize()} "
    return char


def _with_single_brackets(text: str) -> str:
    """Removes redundant nested brackets: `((1+2))` becomes `(1+2)`."""
    closes: dict[int, int] = {}
    stack: list[int] = []
    for place, char in enumerate(text):
        if char in _CLOSING and text[place - 1 : place] != "\\":
            stack.append(place)
        elif stack and char == _CLOSING[text[stack[-1]]] and text[place - 1] != "\\":
            closes[stack.pop()] = place
    spare = {
        bracket
        for place, end in closes.items()
        if text[place] == text[place + 1 : place + 2] and closes.get(place + 1) == end - 1
        for bracket in (place, end)
    }
    return "".join(char for place, char in enumerate(text) if place not in spare)


def _without_wrappers(text: str) -> str:
    before = None
    while text != before:
        before = text
        text = _ENDINGS.sub("", text.strip())
        if text.count("$") - text.count(r"\$") == 1 and text.endswith("$") and not text.endswith(r"\$"):
            text = text[:-1]
        if text[:1].isalpha() or text[:1] in ("#", "\\"):
            label = _LABEL.match(text)
            text = text[label.end() :] if label else text
        for opening, closing in _DELIMITERS if text[:1] in _OPENINGS else ():
            size = len(opening)
            inside = text[size : len(text) - size]
            if (
                text.startswith(opening)
                and text.endswith(closing)
                and len(text) > 2 * size
                and opening not in inside.replace(r"\$", "")
            ):
                text = inside
        text = _without_brackets(text)
    return text


def _without_brackets(text: str) -> str:
    """Removes a box, a text command or brackets around the whole text."""
    command = _BOX.match(text)
    start = command.end() - 1 if command else 0
    if text[start : start + 1] not in _CLOSING or closing_place(text, start) != len(text) - 1:
        return text
    inside = text[start + 1 : -1].strip()
    return inside if inside and (command or not re.search(r"[,;|]|\\mid", inside)) else text
