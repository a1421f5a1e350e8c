r"""Reads plain numbers of every notation exactly: `1,234`, `1e-05`, `4.08\times10^{2}`, `-\frac{3}{4}`, `3 1/2`, `5\%`.

Numbers are compared as fractions, without symbolic algebra.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from verl_agentic.graders.maths.forms.math_expressions import may_be_product
from verl_agentic.graders.maths.forms.math_units import SCALES, WORD, Unit, is_known, may_be_unit, plain_unit, unit_of

_MAX_CHARS = 2_000
_INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d{1,3}(?:'\d{3})+|\d+(?:_\d+)+|\d+)"
_DECIMAL = re.compile(
    rf"(?P<whole>{_INTEGER}(?![\d,'_]\d))?"
    r"(?:\.(?P<digits>\d{3}(?: \d{3})*(?: \d{1,3})|\d*)"
    r"(?:(?:\\overline|\\dot|\\bar)\s*\{(?P<bar>\d+)\}|\((?P<bracket>\d+)\))?)?"
)
_REPEATED = re.compile(r"(?P<before>\d*?)(?=\d{3})(?P<period>\d+?)(?P=period)+")
_EXPONENT = re.compile(
    r"[eE](?P<plain>[+-]?\d{1,4})(?!\d)"
    r"|\s*(?:\\times|\\cdot|\*|x)\s*10\s*(?:\^|\*\*)\s*"
    r"(?:\{\s*(?P<braced>[+-]?\d{1,4})\s*\}|(?P<bare>[+-]?\d{1,4})(?!\d))"
)
_POWER = re.compile(r"10\s*(?:\^|\*\*)\s*(?:\{\s*(?P<braced>[+-]?\d{1,4})\s*\}|(?P<bare>[+-]?\d{1,4})(?!\d))")
_FRAC = re.compile(
    rf"\\frac\s*(?:\{{\s*(?P<sign>[+-]?)\s*(?P<top>{_INTEGER})\s*\}}|(?P<top1>\d))"
    rf"\s*(?:\{{\s*(?P<low>{_INTEGER})\s*\}}|(?P<low1>\d))"
)
_SLASH = re.compile(
    rf"(?P<top>{_INTEGER})\s*/\s*(?P<low>{_INTEGER})(?![\d.,^])|\{{(?P<top1>\d+)\}}/\{{(?P<low1>\d+)\}}"
)
_MIXED = re.compile(r"(?P<whole>\d+)\s*(?P<part>\\frac.*|(?<=\s)\d+\s*/.*)")
_MONEY = r"(?:US|HK|NT|AU|NZ|CA|S|A|C)?\\?\$|USD|EUR|GBP|CNY|RMB|INR|Rs\.?|RM|[\u20ac\u00a3\u00a5\u20b9]"
_LEAD = re.compile(
    rf"\s*(?P<sign>[+-]?)\s*(?:(?P<money>{_MONEY})|\\text\s*\{{\s*(?P<upright>{_MONEY})\s*\}})?\s*(?P<after>[+-]?)\s*"
)
_SCALE = re.compile(rf"({'|'.join(SCALES)})s?(?![A-Za-z])\s*", re.IGNORECASE)
MIN_DECIMALS = 6
"""A decimal number with fewer decimals is not taken as rounded."""
_MIN_DIGITS = 4
_DOUBLES_DIGITS = 16


@dataclass(frozen=True, kw_only=True)
class PlainNumber:
    """A number and its notation."""

    value: Fraction
    is_evaluated: bool = True
    """False for a reducible fraction or a power of ten."""
    decimals: int | None = None
    """Digits after the decimal point; None if it is not a decimal number."""
    digits: int = 0
    """Significant digits of a decimal number."""
    factor: Fraction | None = None
    """1/100 for a per cent sign, 10^6 for `million`; not included in the value."""
    unit: Unit | None = None
    """None if there is no unit or an unknown one."""


def read_number(text: str) -> PlainNumber | None:
    """Reads a number with an optional unit from a text that `math_notation.tidy` returned; None for other texts."""
    if len(text) > _MAX_CHARS:
        return None
    lead = _LEAD.match(text)
    assert lead is not None
    if lead["sign"] and lead["after"]:
        return None
    is_bare = not text[lead.end() :].startswith("(")
    number, rest = _read_unsigned(text[lead.end() :])
    if number is None:
        return None
    sign = -1 if "-" in (lead["sign"], lead["after"]) else 1
    suffix = _read_suffix(
        rest, money=(lead["money"] or lead["upright"] or "").replace("\\", "").removeprefix("US").rstrip(".")
    )
    if suffix is None:
        return None
    factor, unit = suffix
    return PlainNumber(
        value=sign * number.value,
        is_evaluated=number.is_evaluated and (is_bare or not lead["sign"]),
        decimals=number.decimals,
        digits=number.digits,
        factor=factor,
        unit=unit,
    )


def are_equal(answer: PlainNumber, truth: PlainNumber) -> bool:
    """Returns whether two numbers are equal.

    If only one side has a per cent sign, or only the truth a word like `million`, both readings count. Known units are
    converted; numbers of different kinds of units differ. If one side has no unit, only numbers are compared. A
    decimal number with at least 6 decimals also equals any number that rounds to it. One of 16 digits or more may have
    the error of a double.
    """
    if answer.unit and truth.unit and answer.unit.kinds != truth.unit.kinds:
        return False
    scale = answer.unit.factor / truth.unit.factor if answer.unit and truth.unit else Fraction(1)
    if answer.factor == truth.factor:
        pairs = [(answer.value, truth.value)]
    elif answer.factor and truth.factor:
        pairs = [(answer.value * answer.factor, truth.value * truth.factor)]
    else:
        is_scale = answer.factor is not None and answer.factor > 1
        values = [answer.value * answer.factor] if is_scale and answer.factor else _list_readings(answer)
        pairs = list(product(values, _list_readings(truth)))
    return any(_is_near(answer_value * scale, truth_value, answer, truth) for answer_value, truth_value in pairs)


def max_error(number: PlainNumber) -> Fraction:
    """Returns the error of a decimal number from rounding, or from the arithmetic of doubles if it has their digits."""
    if number.digits >= _DOUBLES_DIGITS:
        return min(abs(number.value) / 10**14, Fraction(1, 4))
    return Fraction(1, 2 * 10 ** (number.decimals or 0))


def _list_readings(number: PlainNumber) -> list[Fraction]:
    return [number.value, number.value * number.factor] if number.factor else [number.value]


def _is_near(answer_value: Fraction, truth_value: Fraction, answer: PlainNumber, truth: PlainNumber) -> bool:
    if answer_value == truth_value:
        return True
    apart = abs(answer_value - truth_value)
    rounded = [
        n for n in (answer, truth) if n.decimals is not None and (n.factor is None or answer.factor == truth.factor)
    ]
    if doubles := [n for n in rounded if n.digits >= _DOUBLES_DIGITS and (n.decimals or 0) > 0]:
        return apart <= max(map(max_error, doubles))
    finest = min(rounded, key=lambda n: n.decimals or 0, default=None)
    if finest is None or (len(rounded) == 2 and answer.decimals == truth.decimals):
        return False
    decimals = finest.decimals or 0
    return decimals >= MIN_DECIMALS and finest.digits >= _MIN_DIGITS and apart * 2 * 10**decimals <= 1


def _read_unsigned(text: str) -> tuple[PlainNumber | None, str]:
    for read in (_read_mixed, _read_fraction, _read_power, _read_decimal):
        if (reading := read(text)) is not None:
            return reading
    if text.startswith("(") and ")" in text:  # (-5) cm
        inside, _, rest = text[1:].partition(")")
        number = read_number(inside)
        if number is not None and number.unit is None and number.factor is None:
            return number, rest
    return None, text


def _read_decimal(text: str) -> tuple[PlainNumber, str] | None:
    match = _DECIMAL.match(text)
    if match is None or not (match["whole"] or match["digits"] or match["bar"] or match["bracket"]):
        return None
    whole, digits = re.sub(r"\D", "", match["whole"] or ""), (match["digits"] or "").replace(" ", "")
    period, end = match["bar"] or match["bracket"], match.end()
    if text.startswith("...", end):
        end += 3
        if repeated := _REPEATED.fullmatch(digits):
            digits, period = repeated["before"], repeated["period"]
        elif len(digits) < MIN_DECIMALS:
            return None
    value = Fraction(int(whole + digits or "0"), 10 ** len(digits))
    if period:
        value += Fraction(int(period), 10 ** len(digits) * (10 ** len(period) - 1))
    exponent = _EXPONENT.match(text, end)
    power, is_normal = 0, True
    if exponent is not None:
        power, end = int(exponent["plain"] or exponent["braced"] or exponent["bare"]), exponent.end()
        is_normal = exponent["plain"] is not None or 1 <= value < 10
    is_rounded = not period and (exponent is not None or digits.strip("0"))
    number = PlainNumber(
        value=value * Fraction(10) ** power,
        is_evaluated=is_normal,
        decimals=len(digits) - power if is_rounded else None,
        digits=len((whole + digits).lstrip("0")),
    )
    return number, text[end:]


def _read_power(text: str) -> tuple[PlainNumber, str] | None:
    match = _POWER.match(text)
    if match is None:
        return None
    power = int(match["braced"] or match["bare"])
    return PlainNumber(value=Fraction(10) ** power, is_evaluated=False), text[match.end() :]


def _read_fraction(text: str) -> tuple[PlainNumber, str] | None:
    match = _FRAC.match(text) or _SLASH.match(text)
    if match is None:
        return None
    top, low = (int(re.sub(r"\D", "", match[name] or match[f"{name}1"])) for name in ("top", "low"))
    if low == 0:
        return None
    value = Fraction(top, low)
    sign = -1 if "sign" in match.re.groupindex and match["sign"] == "-" else 1
    is_reduced = value.denominator == low and low > 1
    return PlainNumber(value=sign * value, is_evaluated=is_reduced), text[match.end() :]


def _read_mixed(text: str) -> tuple[PlainNumber, str] | None:
    match = _MIXED.match(text)
    part = _read_fraction(match["part"]) if match else None
    if match is None or part is None or not 0 < part[0].value < 1:
        return None
    value = int(match["whole"]) + part[0].value
    return PlainNumber(value=value, is_evaluated=part[0].is_evaluated), part[1]


_ORDINAL = re.compile(r"\^?\{?\s*(?:\\text\s*\{)?\s*(?:st|nd|rd|th)\s*\}?\}?")


def _read_suffix(rest: str, *, money: str) -> tuple[Fraction | None, Unit | None] | None:
    """Returns factor and unit of the text after a number, or None if it is not a unit."""
    is_apart, is_text = rest[:1].isspace() or rest.startswith("\\text"), "\\text" in rest
    if not rest.strip() or _ORDINAL.fullmatch(rest.strip()):
        return None, unit_of(money) if money else None
    rest = plain_unit(rest)
    if rest in (r"\%", "%") or rest.lower() in ("percent", "per cent", "pct", "percentage"):
        return Fraction(1, 100), None
    factor = None
    if scale := _SCALE.match(rest):
        factor, rest = Fraction(SCALES[scale[1].lower()]), rest[scale.end() :]
        if not rest:
            return factor, unit_of(money) if money else None
    words = WORD.findall(rest)
    if not may_be_unit(rest) or not (words or rest == "^{\\circ}" or rest in "\u20ac\u00a3\u00a5\u20b9$"):
        return None
    unit = unit_of(rest)
    # A letter or a run such as `xyz` that is no unit is a variable; so are up to three letters without a space before.
    is_product = any(w.isascii() and (may_be_product(w) or len(w) < 4 - is_apart) for w in words)
    is_letter = not is_apart and re.fullmatch(r"[A-Za-z]", rest) and not is_known(rest)
    if not is_text and ((unit is None and is_product) or is_letter):
        return None
    return factor, unit if not money else unit_of(money)
