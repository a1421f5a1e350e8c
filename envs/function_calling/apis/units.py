"""Units of measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Api, Chain, Intent, listed, one_of

_METRES = {"metre": 1.0, "kilometre": 1000.0, "mile": 1609.344, "foot": 0.3048, "inch": 0.0254}
_GRAMS = {"gram": 1.0, "kilogram": 1000.0, "pound": 453.59237, "ounce": 28.349523125}


def _convert_unit(table: Mapping[str, float], arguments: Mapping[str, Any]) -> Any:
    factor = table[arguments["from_unit"]] / table[arguments["to_unit"]]
    return {"value": round(arguments["value"] * factor, 6), "unit": arguments["to_unit"]}


def _compute_statistics(arguments: Mapping[str, Any]) -> Any:
    numbers = arguments["numbers"]
    results = {"sum": sum(numbers), "mean": sum(numbers) / len(numbers), "min": min(numbers), "max": max(numbers)}
    return {name: round(results[name], 6) for name in arguments["measures"]}


def _build_converter(name: str, quantity: str, table: Mapping[str, float]) -> Api:
    return Api(
        name=name,
        description=f"Converts a {quantity} from one unit into another.",
        properties={
            "value": {"type": "number", "description": f"The {quantity}."},
            "from_unit": one_of(tuple(table), "Unit of the value."),
            "to_unit": one_of(tuple(table), "Unit of the result."),
        },
        respond=lambda arguments: _convert_unit(table, arguments),
    )


def _build_conversion(tool: str, quantity: str, table: Mapping[str, float]) -> Intent:
    def draw(d: Any) -> dict[str, Any]:
        units = d.rng.sample(list(table), 2)
        return {"value": d.pick(range(2, 5000)) / d.choice((1, 1, 10)), "from_unit": units[0], "to_unit": units[1]}

    return Intent(
        tool=tool,
        draw=draw,
        train=(
            f"Convert a {quantity} of {{value:g}} from {{from_unit}} to {{to_unit}}.",
            f"A {quantity} of {{value:g}} {{from_unit}}: how much is that in {{to_unit}}?",
        ),
        test=(f"Express the {quantity} {{value:g}} {{from_unit}} in the unit {{to_unit}}.",),
        without={
            "unit": (
                f"Convert a {quantity} of {{value:g}} {{from_unit}}.",
                f"Express the {quantity} {{value:g}} {{from_unit}} in another unit.",
            )
        },
    )


APIS = (
    _build_converter("convert_length", "length", _METRES),
    _build_converter("convert_mass", "mass", _GRAMS),
    Api(
        name="summarise_numbers",
        description="Computes statistics of a list of numbers.",
        properties={
            "numbers": listed({"type": "number"}, "The numbers, in the order given.", minItems=1),
            "measures": listed(
                one_of(("sum", "mean", "min", "max"), "One of them."), "What to compute.", minItems=1, uniqueItems=True
            ),
        },
        respond=_compute_statistics,
    ),
)

INTENTS = (
    _build_conversion("convert_length", "length", _METRES),
    _build_conversion("convert_mass", "mass", _GRAMS),
    Intent(
        tool="summarise_numbers",
        draw=lambda d: {
            "numbers": (numbers := d.several(range(1, 200), 3, 6)),
            "written": ", ".join(map(str, numbers)),
            "measure": d.choice(("sum", "mean", "min", "max")),
        },
        arguments=lambda s: {"numbers": s["numbers"], "measures": [s["measure"]]},
        train=("What is the {measure} of {written}?", "Compute the {measure} of these numbers: {written}."),
        test=("Given {written}, tell me their {measure}.",),
    ),
)

CHAINS: tuple[Chain, ...] = ()
