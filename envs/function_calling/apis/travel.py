"""Travel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Api, Chain, Intent, Respond, Slots, call, dice, identifier, integer, obj, one_of, text
from .values import CITIES

_CABINS = ("economy", "premium", "business")
_ROOMS = ("single", "double", "suite")
_DATE = text("Day, as YYYY-MM-DD.", pattern=r"^\d{4}-\d{2}-\d{2}$")


def _search_flights(arguments: Mapping[str, Any]) -> Any:
    rng = dice("search_flights", arguments)
    flights = [
        {"flight_id": f"fl-{rng.randint(1000, 9999)}", "price": 10 * (price + rng.randint(0, 9))}
        for price in (10, 30, 60)
    ]
    return {"date": arguments["date"], "flights": flights}


def _book_flight(arguments: Mapping[str, Any]) -> Any:
    return {"booking_id": identifier("bkg", "book_flight", arguments), "flight_id": arguments["flight_id"]}


def _book_hotel(arguments: Mapping[str, Any]) -> Any:
    return {"booking_id": identifier("htl", "book_hotel", arguments), "city": arguments["city"]}


def _book_cheapest(slots: Slots, respond: Respond) -> list[dict[str, Any]]:
    arguments = {"origin": slots["a"], "destination": slots["b"], "date": slots["date"]}
    cheapest = min(respond("search_flights", arguments)["flights"], key=lambda flight: flight["price"])
    return [call("search_flights", **arguments), call("book_flight", flight_id=cheapest["flight_id"])]


APIS = (
    Api(
        name="search_flights",
        description="Searches flights on one day.",
        properties={
            "origin": text("City of departure."),
            "destination": text("City of arrival."),
            "date": _DATE,
            "passengers": {
                "description": "Who flies.",
                **obj({"adults": integer("From 12 years.", minimum=1), "children": integer("Up to 11.", default=0)}),
                "default": {"adults": 1, "children": 0},
            },
            "cabin": one_of(_CABINS, "Class.", default="economy"),
        },
        respond=_search_flights,
    ),
    Api(
        name="book_flight",
        description="Books a flight that was found before.",
        properties={"flight_id": text("The flight, as fl-NNNN.", pattern=r"^fl-\d{4}$")},
        respond=_book_flight,
    ),
    Api(
        name="book_hotel",
        description="Books a hotel room.",
        properties={
            "city": text("City of the hotel."),
            "check_in": _DATE,
            "nights": integer("How many nights.", minimum=1, maximum=30),
            "room": one_of(_ROOMS, "Kind of room.", default="double"),
        },
        respond=_book_hotel,
    ),
)

INTENTS = (
    Intent(
        tool="search_flights",
        draw=lambda d: {
            "origin": (pair := d.several(CITIES, 2, 2))[0],
            "destination": pair[1],
            "date": d.date(),
            "cabin": d.choice(_CABINS[1:]),
        },
        train=(
            "Find {cabin} flights from {origin} to {destination} on {date}.",
            "I want to fly from {origin} to {destination} in {cabin} on {date}. What is there?",
        ),
        test=("Which {cabin} flights go from {origin} to {destination} on {date}?",),
        without={
            "date": (
                "Find {cabin} flights from {origin} to {destination}.",
                "Which {cabin} flights go from {origin} to {destination}?",
            ),
            "place": (
                "Find {cabin} flights from {origin} on {date}.",
                "I leave {origin} on {date}. Which {cabin} flights can I take?",
            ),
        },
    ),
    Intent(
        tool="search_flights",
        draw=lambda d: {
            "origin": (pair := d.several(CITIES, 2, 2))[0],
            "destination": pair[1],
            "date": d.date(),
            "adults": d.number(1, 4),
            "children": d.number(1, 3),
        },
        arguments=lambda s: {
            "origin": s["origin"],
            "destination": s["destination"],
            "date": s["date"],
            "passengers": {"adults": s["adults"], "children": s["children"]},
        },
        train=("Flights from {origin} to {destination} on {date} for adults: {adults}, children: {children}.",),
        test=(
            "On {date} we fly from {origin} to {destination} (adults: {adults}, children: {children}); find flights.",
        ),
    ),
    Intent(
        tool="book_flight",
        draw=lambda d: {"flight_id": f"fl-{d.pick(range(1000, 10_000))}"},
        train=("Book flight {flight_id} for me.", "I take {flight_id}, please book it."),
        test=("Make a booking for the flight {flight_id}.",),
    ),
    Intent(
        tool="book_hotel",
        draw=lambda d: {
            "city": d.pick(CITIES),
            "check_in": d.date(),
            "nights": d.number(1, 14),
            "room": d.choice(_ROOMS),
        },
        train=("Book a {room} room in {city} from {check_in}, nights: {nights}.",),
        test=("Hotel in {city}: {room} room, check-in {check_in}, number of nights {nights}. Book it.",),
        without={
            "place": (
                "Book a {room} room from {check_in}, nights: {nights}.",
                "Hotel booking: {room} room, check-in {check_in}, number of nights {nights}.",
            ),
            "amount": (
                "Book a {room} room in {city} from {check_in}.",
                "Hotel in {city}: {room} room, check-in {check_in}. Book it.",
            ),
        },
    ),
)

CHAINS = (
    Chain(
        draw=lambda d: {"a": (pair := d.several(CITIES, 2, 2))[0], "b": pair[1], "date": d.date()},
        calls=_book_cheapest,
        train=("Search flights from {a} to {b} on {date} and book the cheapest one.",),
        test=("Book me the cheapest flight from {a} to {b} on {date}.",),
    ),
)
