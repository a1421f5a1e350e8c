"""A generated airline (customers, flights, reservations), and requests of its customers."""

from __future__ import annotations

import functools
import itertools
import random
import string
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..database import Record, Tables
from ..scenario import Call, Request, Step, call, change_request, read_request
from ..world import Generator
from .airline import NOW

_SEED = 20_262
_RESERVATIONS_EACH = 3
_FIRST = ("Aino", "Bela", "Chidi", "Dora", "Emre", "Freya", "Goran", "Hilda", "Imani", "Jorge")
_LAST = ("Amsel", "Brandt", "Costa", "Diaz", "Ekman", "Farkas")
_AIRPORTS = ("SFO", "JFK", "ORD", "DEN", "SEA", "BOS")
_DATES = tuple(f"2024-05-{day}" for day in range(18, 30))
_CABINS = ("basic_economy", "economy", "business")
_FREE_BAGS = {"basic_economy": 0, "economy": 1, "business": 2}
_RECENT = "2024-05-15T"
_BAG = 50


@functools.cache
def airline_tables() -> Tables:
    """Returns the generated database, which is the same everywhere."""
    rng = random.Random(_SEED)
    flights = {flight["flight_number"]: flight for flight in _draw_flights(rng)}
    users, reservations = {}, {}
    for first, last in itertools.product(_FIRST, _LAST):
        user = _draw_user(rng, first, last)
        users[user["user_id"]] = user
        for _ in range(_RESERVATIONS_EACH):
            key = "".join(rng.choices(string.ascii_uppercase + string.digits, k=6))
            reservations[key] = _draw_reservation(rng, key, user, rng.choice(list(flights.values())))
            user["reservations"].append(key)
    return {"users": users, "flights": flights, "reservations": reservations}


def airline_requests(user: Record, rng: random.Random) -> list[Request]:
    """Returns a possible request about each reservation of a customer, in random order."""
    tables = airline_tables()
    keys = rng.sample(user["reservations"], len(user["reservations"]))
    requests = [_make_request(user, tables["reservations"][key], rng) for key in keys]
    return [request for request in requests if request is not None]


def airline_identity(user: Record, rng: random.Random) -> tuple[dict[str, str], str, dict[str, Any]]:
    """Returns what the customer says about himself, the question for it, and the call that finds him."""
    facts = {"user id|who you are|identif|name": f"My user id is {user['user_id']}."}
    return facts, "May I have your user id?", call("get_user_details", user_id=user["user_id"])


def _make_request(user: Record, reservation: Record, rng: random.Random) -> Request | None:
    makers: list[Callable[..., Request | None]] = [_request_cancellation, _request_bags, _request_cabin]
    return rng.choice(makers)(user, reservation, rng)


def _may_cancel(reservation: Record) -> bool:
    is_recent = reservation["created_at"].startswith(_RECENT)
    return reservation["cabin"] == "business" or reservation["insurance"] == "yes" or is_recent


def _request_cancellation(user: Record, reservation: Record, rng: random.Random) -> Request:
    key = reservation["reservation_id"]
    message = f"I want to cancel reservation {key}."
    if _may_cancel(reservation):
        action = call("cancel_reservation", reservation_id=key)
        return _build_change(reservation, kind="cancel", message=message, plan="cancel reservation", action=action)
    return _build_refusal(reservation, "refuse_cancel", message)


def _request_bags(user: Record, reservation: Record, rng: random.Random) -> Request:
    more, passengers = rng.randint(1, 3), len(reservation["passengers"])
    free = passengers * (_FREE_BAGS[reservation["cabin"]] + (user["membership"] == "gold"))
    total = reservation["total_baggages"] + more
    action = call(
        "update_reservation_baggages",
        reservation_id=reservation["reservation_id"],
        total_baggages=total,
        nonfree_baggages=max(0, total - free),
        payment_id=reservation["payment_history"][0]["payment_id"],
    )
    message = f"I want to add {more} checked bag{'s' * (more > 1)} to reservation {reservation['reservation_id']}."
    return _build_change(reservation, kind="bags", message=message, plan="add bags to reservation", action=action)


def _request_cabin(user: Record, reservation: Record, rng: random.Random) -> Request | None:
    key, cabin = reservation["reservation_id"], "business"
    message = f"I want to fly business class with reservation {key}. How many dollars more is that?"
    if reservation["cabin"] == "basic_economy":
        return _build_refusal(reservation, "refuse_cabin", message)
    if reservation["cabin"] == cabin:
        return None
    (flight,) = reservation["flights"]
    day = airline_tables()["flights"][flight["flight_number"]]["dates"][flight["date"]]
    if day["available_seats"][cabin] < len(reservation["passengers"]):
        return None
    price = (day["prices"][cabin] - flight["price"]) * len(reservation["passengers"])
    action = call(
        "update_reservation_flights",
        reservation_id=key,
        cabin=cabin,
        flights=[{"flight_number": flight["flight_number"], "date": flight["date"]}],
        payment_id=reservation["payment_history"][0]["payment_id"],
    )
    look = call("search_direct_flight", origin=flight["origin"], destination=flight["destination"], date=flight["date"])
    return _build_change(
        reservation,
        kind="cabin",
        message=message,
        before=[look],
        plan="change the cabin of reservation",
        statement=f" The price is {price} dollars.",
        action=action,
        outputs=[str(price)],
    )


def _build_refusal(reservation: Record, kind: str, message: str) -> Request:
    booked = reservation["created_at"][:10]
    reply = f"I cannot do that. The reservation was booked on {booked}."
    return read_request(
        kind=kind, message=message, before=[_look_up_reservation(reservation)], reply=reply, outputs=[booked]
    )


def _build_change(
    reservation: Record, *, plan: str, statement: str = "", before: Sequence[Step] = (), **request: Any
) -> Request:
    plan = f"{plan} {reservation['reservation_id']}.{statement}"
    return change_request(
        before=[_look_up_reservation(reservation), *before], plan=plan, statement=statement, **request
    )


def _look_up_reservation(reservation: Record) -> Call:
    return call("get_reservation_details", reservation_id=reservation["reservation_id"])


def _draw_flights(rng: random.Random) -> Iterator[Record]:
    for number, (origin, destination) in enumerate(itertools.permutations(_AIRPORTS, 2), start=1):
        hour = rng.randrange(6, 19)
        dates = {}
        for date in _DATES:
            economy = rng.randrange(120, 300)
            prices = {"basic_economy": economy - 50, "economy": economy, "business": economy + rng.randrange(150, 400)}
            dates[date] = {
                "status": "available",
                "available_seats": {cabin: rng.randrange(0, 20) for cabin in _CABINS},
                "prices": prices,
            }
        yield {
            "flight_number": f"VA{number:03}",
            "origin": origin,
            "destination": destination,
            "scheduled_departure_time_est": f"{hour:02}:00:00",
            "scheduled_arrival_time_est": f"{hour + 4:02}:30:00",
            "dates": dates,
        }


def _draw_user(rng: random.Random, first: str, last: str) -> Record:
    card = f"credit_card_{rng.randrange(10**6, 10**7)}"
    return {
        "user_id": f"{first}_{last}_{rng.randrange(1_000, 10_000)}".lower(),
        "name": {"first_name": first, "last_name": last},
        "email": f"{first}.{last}@example.com".lower(),
        "dob": _draw_birthday(rng),
        "payment_methods": {card: {"source": "credit_card", "id": card, "last_four": card[-4:]}},
        "membership": rng.choice(["regular", "silver", "gold"]),
        "reservations": [],
    }


def _draw_birthday(rng: random.Random) -> str:
    return f"{rng.randrange(1950, 2005)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"


def _draw_reservation(rng: random.Random, key: str, user: Record, flight: Record) -> Record:
    cabin, date = rng.choice(_CABINS), rng.choice(_DATES)
    price, count = flight["dates"][date]["prices"][cabin], rng.randint(1, 3)
    last_name = user["name"]["last_name"]
    others = [
        {"first_name": rng.choice(_FIRST), "last_name": last_name, "dob": _draw_birthday(rng)} for _ in range(count - 1)
    ]
    insurance = rng.choice(["yes", "no", "no"])
    bags = rng.randrange(0, 3)
    created = NOW[:11] + "09:30:00" if rng.random() < 0.2 else f"2024-05-{rng.randrange(1, 13):02}T10:15:00"
    return {
        "reservation_id": key,
        "user_id": user["user_id"],
        "origin": flight["origin"],
        "destination": flight["destination"],
        "flight_type": "one_way",
        "cabin": cabin,
        "flights": [
            {
                "origin": flight["origin"],
                "destination": flight["destination"],
                "flight_number": flight["flight_number"],
                "date": date,
                "price": price,
            }
        ],
        "passengers": [{**user["name"], "dob": user["dob"]}, *others],
        "payment_history": [
            {
                "payment_id": next(iter(user["payment_methods"])),
                "amount": price * count + 30 * count * (insurance == "yes"),
            }
        ],
        "created_at": created,
        "total_baggages": min(bags, count * (_FREE_BAGS[cabin] + (user["membership"] == "gold"))),
        "nonfree_baggages": 0,
        "insurance": insurance,
    }


GENERATOR = Generator(tables=airline_tables, identity=airline_identity, requests=airline_requests)
