"""Units after a number: aliases, conversions and kinds."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

_LENGTH, _MASS, _TIME, _VOLUME, _ANGLE, _MONEY = "length", "mass", "time", "volume", "angle", "dollar"
_UNITS: dict[str, tuple[str, Fraction]] = {}
_TABLE = f"""
{_LENGTH} 1/1000 mm millimeter millimetre \u6beb\u7c73
{_LENGTH} 1/100 cm centimeter centimetre \u5398\u7c73
{_LENGTH} 1/10 dm decimeter decimetre \u5206\u7c73
{_LENGTH} 1 m meter metre \u7c73
{_LENGTH} 1000 km kilometer kilometre \u5343\u7c73 \u516c\u91cc
{_LENGTH} 127/5000 in inch inches
{_LENGTH} 381/1250 ft foot feet
{_LENGTH} 1143/1250 yd yard
{_LENGTH} 201168/125 mi mile
{_MASS} 1/1000000 mg milligram
{_MASS} 1/1000 g gm gram \u514b
{_MASS} 1 kg kilogram \u5343\u514b \u516c\u65a4
{_MASS} 45359237/100000000 lb pound
{_MASS} 45359237/1600000000 oz ounce
{_TIME} 1/1000 ms millisecond
{_TIME} 1 s sec second \u79d2
{_TIME} 60 min minute \u5206\u949f
{_TIME} 3600 h hr hour \u5c0f\u65f6
{_TIME} 86400 day \u5929
{_TIME} 604800 week
month 1 month
month 12 yr year
{_VOLUME} 1/1000 ml mL milliliter millilitre
{_VOLUME} 1 l L liter litre
{_VOLUME} 1000/264172 gal gallon
{_ANGLE} 1 deg degree circ \u5ea6
radian 1 rad radian
celsius 1 celsius
fahrenheit 1 fahrenheit
kelvin 1 K kelvin
{_MONEY} 1 $ dollar USD
{_MONEY} 1/100 cent
euro 1 \u20ac euro EUR
sterling 1 \u00a3 GBP
yen 1 \u00a5 yen JPY
rupee 1 \u20b9 rupee INR Rs
yuan 1 \u5143 yuan RMB CNY
newton 1 N newton
joule 1 J joule
watt 1 W watt
volt 1 V volt
ampere 1 A ampere
hertz 1 Hz hertz
"""
for _line in _TABLE.strip().splitlines():
    _kind, _factor, *_names = _line.split()
    _UNITS |= dict.fromkeys(_names, (_kind, Fraction(_factor)))

_ALIASES = (
    (re.compile(r"\bmph\b"), "mi/h"),
    (re.compile(r"\bkm?ph\b|\bkmh\b"), "km/h"),
    (re.compile(r"\^\{\\circ\}\s*(?:C|[Cc]elsius)\b|\b[Dd]egrees? [Cc]elsius\b"), "celsius"),
    (re.compile(r"\^\{\\circ\}\s*(?:F|[Ff]ahrenheit)\b|\b[Dd]egrees? [Ff]ahrenheit\b"), "fahrenheit"),
    (re.compile(r"\^\{\\circ\}"), "deg"),
    (re.compile(r"\s*\bper\b\s*"), "/"),
    (re.compile(r"\b(?:sq|square)\.? (\w+)"), r"\1^2"),
    (re.compile(r"\b(?:cu|cubic)\.? (\w+)"), r"\1^3"),
    (re.compile(r"(\w+) squared\b"), r"\1^2"),
    (re.compile(r"(\w+) cubed\b"), r"\1^3"),
    (re.compile(r"\u5e73\u65b9(\w+)"), r"\1^2"),
    (re.compile(r"\u7acb\u65b9(\w+)"), r"\1^3"),
)
SCALES = {
    "dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12,
    "\u4e07": 10**4, "\u4ebf": 10**8,
}  # fmt: skip
_NO_UNITS = frozenset(
    """
    a about aka all also alternatively and any approximately are around at be below between but by correct cos cubed
    double doubled either else equals euler exp factorial false for guess half halves hopefully hundredths if in
    incorrect infinity infty inf inverse is it least less lim likely ln log max maybe min minus mod more most nan
    negative neither no none nor not of off or other otherwise over perhaps pi plus possibly probably reciprocal root
    score sin some sqrt squared tan tenths than the theta then thirds thousandths times to unless unknown unsure was
    when where with wrong
    """.split()  # noqa: SIM905
)
"""Words after a number that change its meaning. Units of the table are not among them."""
WORD = re.compile(r"[^\W\d_']+")
_UNIT_CHARS = re.compile(r"[^\W\d_]+|['$.\-\u20ac\u00a3\u00a5\u20b9\u00b0]|\^-?\d|/|\s+|\^\{\\circ\}")
_PART = re.compile(r"([^\W\d_]+|[$\u20ac\u00a3\u00a5\u20b9])(?:\^\{?(-?\d)\}?)?")


@dataclass(frozen=True)
class Unit:
    """A product of powers of base units."""

    kinds: frozenset[tuple[str, int]]
    factor: Fraction


def unit_of(text: str) -> Unit | None:
    """Returns the unit that a text names, or None if the table lacks it."""
    for pattern, plain in _ALIASES:
        text = pattern.sub(plain, text)
    powers: Counter[str] = Counter()
    factor = Fraction(1)
    for index, side in enumerate(text.split("/")):
        sign = -1 if index else 1
        parts = side.split()
        matches = [_PART.fullmatch(part) for part in parts]
        if not parts or not all(matches):
            return None
        for name, power in ((match[1], int(match[2] or 1)) for match in matches if match):
            entry = _UNITS.get(name) or _UNITS.get(name.lower()) or _UNITS.get(name.lower().removesuffix("s"))
            if entry is None:
                return None
            powers[entry[0]] += sign * power
            factor *= entry[1] ** (sign * power)
    return Unit(kinds=frozenset((kind, power) for kind, power in powers.items() if power), factor=factor)


def is_known(name: str) -> bool:
    """Returns whether a name is a unit of the table in this spelling: `m` but not `M`."""
    return name in _UNITS


def may_be_unit(text: str) -> bool:
    """Returns whether a text after a number may name what is counted: no digits, no word that changes the number."""
    return not _UNIT_CHARS.sub("", text) and not any(
        word in _NO_UNITS or word.removesuffix("s") in SCALES
        for word in (token.lower() for token in WORD.findall(text) if not is_known(token))
    )


_POWER = r"(?:\s*\^\s*\{?-?\d\}?)?"
_UPRIGHT = r"\\text\s*\{(?:[^{}]|\{[^{}]*\})*\}"
_TEXT_UNIT = re.compile(
    rf"(?<=[\w)}}\]!%])\s*(?P<unit>(?:(?:{_UPRIGHT}|\\frac\s*\{{{_UPRIGHT}\}}\s*\{{{_UPRIGHT}{_POWER}\}}){_POWER}\s*"
    r"(?:\\cdot\s*|/\s*)?)+)$"
)
_TRIGONOMETRY = re.compile(r"sin|cos|tan|cot|sec|csc")
_BARE_UNIT = re.compile(rf"(?<=[\w)}}\]])\s+(?P<unit>(?:square |cubic )?[A-Za-z/]{{2,}}{_POWER})$")


def plain_unit(text: str) -> str:
    r"""Returns a unit without text commands: `m/s` for `\frac{\text{m}}{\text{s}}`, `cm ^2` is `cm^2`."""
    text = re.sub(r"\^\s*\{(-?\d)\}", r"^\1", text)
    text = re.sub(r"\\frac\s*\{(.*)\}\s*\{(.*)\}", r" \1 / \2 ", text)
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text).replace("\\cdot", " ").replace("*", " ")
    text = re.sub(r"\$(?=\^)|(?<=\d)\$", "", text)
    return re.sub(r"\s+(?=\^-?\d)", "", " ".join(text.split()))


def split_unit(text: str) -> tuple[str, Unit | None]:
    r"""Splits an expression into the part before its unit and the unit, if known: `2\sqrt{3}\text{ cm}`."""
    match = _TEXT_UNIT.search(text) or _BARE_UNIT.search(text)
    if match is None:
        return text if _TRIGONOMETRY.search(text) else text.removesuffix("^{\\circ}"), None
    name = plain_unit(match["unit"])
    unit = unit_of(name)
    is_unit = (
        unit is not None
        or re.fullmatch(r"(?:square |cubic )?units?(?:\^\d)?", name)
        or (match.re is _TEXT_UNIT and may_be_unit(name.strip("()")))
    )
    return (text[: match.start()].strip(), unit) if is_unit else (text, None)
