"""Solutions of the pages, from the goal and the accessibility tree alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Message, ToolCall

_ELEMENT = re.compile(r"""^\s*-\ '?(?P<role>\w+)(?:\ "(?P<name>(?:[^"\\]|\\.)*)")?(?P<rest>.*)$""", re.VERBOSE)
_HALF_DAY_H = 12


@dataclass(frozen=True, kw_only=True)
class Element:
    """A line of the tree."""

    role: str
    name: str
    ref: str
    """Empty where the tree gives none."""
    text: str
    """The text after the colon."""


@dataclass(frozen=True, kw_only=True)
class View:
    """The goal and the last tree, as the policy sees them."""

    goal: str
    elements: tuple[Element, ...]
    turn: int
    """Number of turns before this one."""

    def all(self, *roles: str) -> list[Element]:
        """Returns the elements with one of the roles."""
        return [element for element in self.elements if element.role in roles]

    def one(self, *roles: str, name: str | None = None) -> Element:
        """Returns the first element with one of the roles, and with a name if one is given: an equal one, else one in
        another case."""
        named = [e for e in self.all(*roles) if name is None or name.lower() in (e.name.lower(), e.text.lower())]
        return next((e for e in named if name in (e.name, e.text)), named[0])

    @property
    def quoted(self) -> list[str]:
        """The texts in quotes in the goal."""
        return re.findall(r'"([^"]*)"', self.goal)


Script = Callable[[View], list[ToolCall]]


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the solution of a row.

    Raises:
        DataError: the row names no task with a solution.
    """
    script = SCRIPTS.get(row.extra.get("task", ""))
    if script is None:
        raise DataError(f"no solution is known for the task {row.extra.get('task')!r}; use the rows of make_rows")

    def next_message(messages: Sequence[Message]) -> Message:
        goal = next(m.content for m in messages if m.role == "user").split("\n\n")[0]
        turn = sum(m.role == "assistant" for m in messages)
        return Message("assistant", "", tool_calls=tuple(script(_view(goal, messages[-1].content, turn))))

    return next_message


def _view(goal: str, tree: str, turn: int) -> View:
    elements = []
    for line in tree.splitlines():
        if found := _ELEMENT.match(line):
            rest = found["rest"]
            ref = re.search(r"\[ref=(\w+)\]", rest)
            text = rest.rpartition(": ")[2].strip().strip("\"'") if ": " in rest else ""
            elements.append(Element(role=found["role"], name=found["name"] or "", ref=ref[1] if ref else "", text=text))
    return View(goal=goal, elements=tuple(elements), turn=turn)


def _click(element: Element) -> ToolCall:
    return ToolCall("click", {"ref": element.ref})


def _type(element: Element, text: str) -> ToolCall:
    return ToolCall("type", {"ref": element.ref, "text": text})


def _submit(view: View, *calls: ToolCall) -> list[ToolCall]:
    return [*calls, _click(view.one("button", name="Submit"))]


def _button(view: View) -> list[ToolCall]:
    return [_click(view.one("button", name=view.quoted[0]))]


def _sequence(view: View) -> list[ToolCall]:
    return [_click(view.one("button", name=name)) for name in re.findall(r"button (\w+)", view.goal)]


def _dialog(view: View) -> list[ToolCall]:
    label = view.quoted[0]
    return [_click(view.one("button", name="Close" if label == "x" else label))]


def _enter(view: View) -> list[ToolCall]:
    return _submit(view, _type(view.one("textbox"), view.quoted[0]))


def _enter_in_case(view: View) -> list[ToolCall]:
    text = view.quoted[0]
    return _submit(view, _type(view.one("textbox"), text.lower() if "lower" in view.goal else text.upper()))


def _password(view: View) -> list[ToolCall]:
    return _submit(view, *(_type(field, view.quoted[0]) for field in view.all("textbox")))


def _login(view: View) -> list[ToolCall]:
    fields = zip(view.all("textbox"), view.quoted, strict=False)
    return [*(_type(field, text) for field, text in fields), _click(view.one("button", name="Login"))]


def _focus(view: View) -> list[ToolCall]:
    found = re.search(r"(\d)(?:st|nd|rd)", view.goal)
    return [_click(view.all("textbox")[int(found[1]) - 1 if found else 0])]


def _choices(view: View) -> list[ToolCall]:
    """Checks the boxes, or the button, that the goal lists."""
    found = re.match(r"Select (.*) and click Submit", view.goal)
    names = found[1].split(", ") if found and found[1] != "nothing" else []
    return _submit(view, *(_click(view.one("checkbox", "radio", name=name)) for name in names))


def _list(view: View) -> list[ToolCall]:
    found = re.match(r"Select (.*) from the list", view.goal)
    option = found[1] if found else ""
    return _submit(view, ToolCall("select", {"ref": view.one("combobox").ref, "option": option}))


def _tab(view: View) -> list[ToolCall]:
    found = re.search(r"Tab #\d", view.goal)
    return [_click(view.one("link", name=found[0] if found else ""))]


def _arithmetic(view: View) -> list[ToolCall]:
    left, operator, right = next(
        m.groups() for e in view.elements if (m := re.match(r"(-?\d+) ([x+-]) (-?\d+)", e.text))
    )
    results = {"x": int(left) * int(right), "+": int(left) + int(right), "-": int(left) - int(right)}
    return _submit(view, _type(view.one("textbox"), str(results[operator])))


def _algebra(view: View) -> list[ToolCall]:
    left, operator, right, result = next(
        m.groups() for e in view.elements if (m := re.match(r"(x|-?\d+) ([+-]) (x|-?\d+) = (-?\d+)", e.text))
    )
    sign = 1 if operator == "+" else -1
    x = int(result) - sign * int(right) if left == "x" else sign * (int(result) - int(left))
    return _submit(view, _type(view.one("textbox"), str(x)))


def _word(view: View) -> list[ToolCall]:
    found = re.search(r"(\d+)(?:st|nd|rd|th)", view.goal)
    words = view.one("paragraph").text.split()
    word = words[int(found[1]) - 1 if found else 0].strip(".,")
    return _submit(view, _type(view.one("textbox"), word))


def _table(view: View) -> list[ToolCall]:
    cells = [cell.name for cell in view.all("cell")]
    values = dict(zip(cells[::2], cells[1::2], strict=True))
    found = re.match(r"Enter the value of (.*) into", view.goal)
    labels = [found[1]] if found else [e.text.rstrip(":") for e in view.all("generic") if e.text.rstrip(":") in values]
    fields = zip(view.all("textbox"), labels, strict=True)
    return _submit(view, *(_type(field, values[label]) for field, label in fields))


def _date(view: View) -> list[ToolCall]:
    month, day, year = re.findall(r"\d+", view.goal)
    return _submit(view, _type(view.one("textbox"), f"{year}-{month}-{day}"))


def _time(view: View) -> list[ToolCall]:
    hour, minute, half = re.findall(r"(\d+):(\d+) ([AP])M", view.goal)[0]
    return _submit(
        view, _type(view.one("textbox"), f"{int(hour) % _HALF_DAY_H + _HALF_DAY_H * (half == 'P'):02d}:{minute}")
    )


def _letters(view: View) -> list[ToolCall]:
    field = view.elements.index(view.one("textbox"))
    letters = "".join(e.text for e in view.elements[:field] if e.role == "generic" and len(e.text) == 1)
    return _submit(view, _type(view.one("textbox"), letters))


def _parity(view: View) -> list[ToolCall]:
    numbers = [int(e.text) for e in view.all("generic") if re.fullmatch(r"-?\d+", e.text)]
    odd, even = ([e for e in view.all("button") if e.name == name] for name in ("Odd", "Even"))
    chosen = [odd[i] if number % 2 else even[i] for i, number in enumerate(numbers)]
    return _submit(view, *map(_click, chosen))


def _movie(view: View) -> list[ToolCall]:
    found = re.match(r"Search for (.*) movies directed by (.*) from year (\d+)", view.goal)
    genre, director, year = found.groups() if found else ("", "", "")
    values = {"genre": genre, "director": director, "year": year, "date": year}
    names = [f"{e.name} {e.text}".strip().lower() for e in view.elements if view.goal not in (e.name, e.text)]
    labels = [key for name in names for key in values if key in name]
    calls = [_type(field, values[label]) for field, label in zip(view.all("textbox"), labels, strict=True)]
    return [*calls, _click(view.elements[-1])]


SCRIPTS: dict[str, Script] = {
    "click-button": _button,
    "click-button-sequence": _sequence,
    "click-checkboxes": _choices,
    "click-checkboxes-large": _choices,
    "click-checkboxes-transfer": _choices,
    "click-dialog": _dialog,
    "click-dialog-2": _dialog,
    "click-option": _choices,
    "click-tab": _tab,
    "click-test": lambda view: [_click(view.one("button"))],
    "click-test-2": _sequence,
    "choose-list": _list,
    "enter-date": _date,
    "enter-password": _password,
    "enter-text": _enter,
    "enter-text-2": _enter_in_case,
    "enter-text-dynamic": _enter,
    "enter-time": _time,
    "find-word": _word,
    "focus-text": _focus,
    "focus-text-2": _focus,
    "login-user": _login,
    "multi-layouts": _movie,
    "multi-orderings": _movie,
    "odd-or-even": _parity,
    "read-table": _table,
    "read-table-2": _table,
    "simple-algebra": _algebra,
    "simple-arithmetic": _arithmetic,
    "text-transform": _letters,
    "unicode-test": _button,
}
"""Task -> the calls of the next turn."""
