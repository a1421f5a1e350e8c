"""Calendar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Api, Chain, Intent, Respond, Slots, and_list, call, dice, identifier, integer, listed, obj, text
from .values import MEETINGS, PEOPLE

_DATE = text("Day, as YYYY-MM-DD.", pattern=r"^\d{4}-\d{2}-\d{2}$")
_TIME = text("Time of day, as HH:MM in 24 hours.", pattern=r"^\d{2}:\d{2}$")
_LENGTHS = (15, 30, 45, 90, 120)


def _create_event(arguments: Mapping[str, Any]) -> Any:
    return {"event_id": identifier("evt", "create_event", arguments), "status": "created"}


def _find_slot(arguments: Mapping[str, Any]) -> Any:
    rng = dice("find_free_slot", arguments)
    return {"date": arguments["date"], "time": f"{rng.randint(8, 17):02}:{rng.choice(('15', '45'))}"}


def _cancel_event(arguments: Mapping[str, Any]) -> Any:
    return {"event_id": arguments["event_id"], "status": "cancelled", "notified": arguments["notify"]}


def _book_free_slot(slots: Slots, respond: Respond) -> list[dict[str, Any]]:
    arguments = {"date": slots["date"], "duration_minutes": slots["minutes"]}
    start = respond("find_free_slot", arguments)
    created = {"title": slots["title"], "start": start, "duration_minutes": slots["minutes"]}
    return [call("find_free_slot", **arguments), call("create_event", **created)]


APIS = (
    Api(
        name="create_event",
        description="Puts an event into the user's calendar.",
        properties={
            "title": text("What the event is called."),
            "start": {"description": "When it begins.", **obj({"date": _DATE, "time": _TIME})},
            "duration_minutes": integer("How long it takes.", minimum=5, default=60),
            "attendees": listed({"type": "string"}, "Full names of the people to invite.", default=[]),
            "reminder": {
                "description": "Minutes before the start at which to remind; null for no reminder.",
                "anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}],
                "default": None,
            },
        },
        respond=_create_event,
    ),
    Api(
        name="find_free_slot",
        description="Finds the first time of a day at which the user's calendar is free for long enough.",
        properties={"date": _DATE, "duration_minutes": integer("How long it must be free.", minimum=5)},
        respond=_find_slot,
    ),
    Api(
        name="cancel_event",
        description="Removes an event from the user's calendar.",
        properties={
            "event_id": text("The event, as evt-NNNN.", pattern=r"^evt-\d{4}$"),
            "notify": {"type": "boolean", "description": "Whether to tell the attendees.", "default": True},
        },
        respond=_cancel_event,
    ),
)

INTENTS = (
    Intent(
        tool="create_event",
        draw=lambda d: {"title": d.pick(MEETINGS), "date": d.date(), "time": d.time(), "minutes": d.choice(_LENGTHS)},
        arguments=lambda s: {
            "title": s["title"],
            "start": {"date": s["date"], "time": s["time"]},
            "duration_minutes": s["minutes"],
        },
        train=(
            'Put "{title}" into my calendar on {date} at {time} for {minutes} minutes.',
            'I have "{title}" on {date}, starting at {time} and taking {minutes} minutes. Add it to my calendar.',
        ),
        test=('Add "{title}" to my calendar: {date}, {time}, {minutes} minutes long.',),
        without={
            "date": (
                'Put "{title}" into my calendar at {time} for {minutes} minutes.',
                'Add "{title}" to my calendar: {time}, {minutes} minutes long.',
            ),
            "time": (
                'Put "{title}" into my calendar on {date} for {minutes} minutes.',
                'Add "{title}" to my calendar: {date}, {minutes} minutes long.',
            ),
        },
    ),
    Intent(
        tool="create_event",
        draw=lambda d: {
            "title": d.pick(MEETINGS),
            "date": d.date(),
            "time": d.time(),
            "people": (people := d.several(PEOPLE, 1, 3)),
            "named": and_list(people),
            "reminder": d.choice((5, 10, 30)),
        },
        arguments=lambda s: {
            "title": s["title"],
            "start": {"date": s["date"], "time": s["time"]},
            "attendees": s["people"],
            "reminder": s["reminder"],
        },
        train=('Schedule "{title}" on {date} at {time} with {named} and remind me {reminder} minutes before.',),
        test=('Invite {named} to "{title}" on {date} at {time}. I want a reminder {reminder} minutes ahead.',),
    ),
    Intent(
        tool="find_free_slot",
        draw=lambda d: {"date": d.date(), "duration_minutes": d.choice(_LENGTHS)},
        train=(
            "When am I free on {date} for {duration_minutes} minutes?",
            "Find {duration_minutes} free minutes in my calendar on {date}.",
        ),
        test=("I need a gap of {duration_minutes} minutes on {date}. When is the first?",),
        without={
            "date": (
                "Find {duration_minutes} free minutes in my calendar.",
                "I need a gap of {duration_minutes} minutes in my calendar. When is the first?",
            )
        },
    ),
    Intent(
        tool="cancel_event",
        draw=lambda d: {"event_id": f"evt-{d.pick(range(1000, 10_000))}"},
        train=("Cancel event {event_id}.", "Remove {event_id} from my calendar and let the attendees know."),
        test=("Event {event_id} is off, please take it out of my calendar.",),
    ),
    Intent(
        tool="cancel_event",
        draw=lambda d: {"event_id": f"evt-{d.pick(range(1000, 10_000))}", "notify": False},
        train=("Cancel event {event_id} without telling the attendees.",),
        test=("Quietly drop {event_id} from my calendar; do not notify anybody.",),
    ),
)

CHAINS = (
    Chain(
        draw=lambda d: {"title": d.pick(MEETINGS), "date": d.date(), "minutes": d.choice(_LENGTHS)},
        calls=_book_free_slot,
        train=('Find the first free {minutes} minutes on {date} and put "{title}" there, for {minutes} minutes.',),
        test=('I want {minutes} minutes of "{title}" on {date}: look when I am first free and add it at that time.',),
    ),
)
