"""Weather."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Api, Chain, Intent, and_list, dice, integer, listed, one_of, text
from .values import CITIES

_UNITS = ("celsius", "fahrenheit")
_SKIES = ("sunny", "cloudy", "rain", "snow", "fog")


def _draw_temperature(city: str, day: int, unit: str) -> int:
    celsius = dice("temperature", {"city": city, "day": day}).randint(-8, 34)
    return celsius if unit == "celsius" else round(celsius * 9 / 5 + 32)


def _forecast_weather(arguments: Mapping[str, Any]) -> Any:
    city, unit = arguments["city"], arguments["unit"]
    days = [
        {"day": day, "sky": dice(city, {"day": day}).choice(_SKIES), "high": _draw_temperature(city, day, unit)}
        for day in range(1, arguments["days"] + 1)
    ]
    return {"city": city, "unit": unit, "forecast": days}


def _compare_cities(arguments: Mapping[str, Any]) -> Any:
    now = {city: _draw_temperature(city, 0, arguments["unit"]) for city in arguments["cities"]}
    return {"unit": arguments["unit"], "now": now, "warmest": max(now, key=lambda city: now[city])}


def _measure_air(arguments: Mapping[str, Any]) -> Any:
    rng = dice("air", arguments)
    return {"city": arguments["city"], "index": rng.randint(5, 180), "main_pollutant": rng.choice(("pm10", "ozone"))}


APIS = (
    Api(
        name="get_forecast",
        description="Returns the weather forecast of one city, day by day.",
        properties={
            "city": text("Name of the city.", minLength=1),
            "days": integer("How many days, today included.", minimum=1, maximum=7, default=1),
            "unit": one_of(_UNITS, "Unit of the temperatures.", default="celsius"),
        },
        respond=_forecast_weather,
    ),
    Api(
        name="compare_temperatures",
        description="Compares the temperatures of several cities at this moment.",
        properties={
            "cities": listed({"type": "string"}, "Names of the cities, in the order asked for.", minItems=2),
            "unit": one_of(_UNITS, "Unit of the temperatures.", default="celsius"),
        },
        respond=_compare_cities,
    ),
    Api(
        name="get_air_quality",
        description="Returns the air quality index of a city at this moment.",
        properties={"city": text("Name of the city.", minLength=1)},
        respond=_measure_air,
    ),
)

INTENTS = (
    Intent(
        tool="get_forecast",
        draw=lambda d: {"city": d.pick(CITIES), "days": d.number(2, 7), "unit": d.choice(_UNITS)},
        train=(
            "What will the weather in {city} be like over the next {days} days, in {unit}?",
            "I am going to {city}. Show me a forecast for {days} days with temperatures in {unit}.",
            "Forecast for {city}, {days} days, {unit} please.",
        ),
        test=(
            "Give me a {days}-day weather forecast for {city} in {unit}.",
            "How does the weather in {city} look for the coming {days} days? Use {unit}.",
        ),
        without={
            "place": (
                "Show me the weather forecast for the next {days} days in {unit}.",
                "Give me a {days}-day weather forecast in {unit}.",
            )
        },
    ),
    Intent(
        tool="get_forecast",
        draw=lambda d: {"city": d.pick(CITIES)},
        train=("What is today's weather forecast for {city}?", "Will it rain in {city} today?"),
        test=("How is the weather going to be in {city} today?",),
    ),
    Intent(
        tool="compare_temperatures",
        draw=lambda d: (lambda cities: {"cities": cities, "named": and_list(cities)})(d.several(CITIES, 2, 4)),
        arguments=lambda s: {"cities": s["cities"]},
        train=("Which is warmest right now: {named}?", "Compare the temperatures in {named}."),
        test=("Put the current temperatures of {named} side by side.",),
    ),
    Intent(
        tool="get_air_quality",
        draw=lambda d: {"city": d.pick(CITIES)},
        train=("How clean is the air in {city}?", "Tell me the air quality index of {city}."),
        test=("Is the air in {city} good at the moment?",),
        without={"place": ("How clean is the air there?", "Tell me the current air quality.")},
    ),
)

CHAINS: tuple[Chain, ...] = ()
