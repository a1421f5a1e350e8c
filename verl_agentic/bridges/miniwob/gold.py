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
    """Returns the solution of a row. Raises DataError if the row names no task with a solution."""
    script = SCRIPTS.get(row.extra.get("task", ""))
    if script is None:
        raise DataError(f"no solution is known for the task {row.extra.get('task')!r}; use the rows of make_rows")

    def next_message(messages: Sequence[Message]) -> Message:
        goal = next(m.content for m in messages if m.role == "user").split("\n\n")[0]
        turn = sum(m.role == "assistant" for m in messages)
        return Message("assistant", "", tool_calls=tuple(script(_read_view(goal, messages[-1].content, turn))))

    return next_message


def _read_view(goal: str, tree: str, turn: int) -> View:
    elements = []
    for line in tree.splitlines():
        if match := _ELEMENT.match(line):
            rest = match["rest"]
            ref = re.search(r"\[ref=(\w+)\]", rest)
            text = rest.rpartition(": ")[2].strip().strip("\"'") if ": " in rest else ""
            elements.append(Element(role=match["role"], name=match["name"] or "", ref=ref[1] if ref else "", text=text))
    return View(goal=goal, elements=tuple(elements), turn=turn)


def _click_element(element: Element) -> ToolCall:
    return ToolCall("click", {"ref": element.ref})


def _type_text(element: Element, text: str) -> ToolCall:
    return ToolCall("type", {"ref": element.ref, "text": text})


def _submit_form(view: View, *calls: ToolCall) -> list[ToolCall]:
    return [*calls, _click_element(view.one("button", name="Submit"))]


def _click_button(view: View) -> list[ToolCall]:
    return [_click_element(view.one("button", name=view.quoted[0]))]


def _click_sequence(view: View) -> list[ToolCall]:
    return [_click_element(view.one("button", name=name)) for name in re.findall(r"button (\w+)", view.goal)]


def _close_dialog(view: View) -> list[ToolCall]:
    label = view.quoted[0]
    return [_click_element(view.one("button", name="Close" if label == "x" else label))]


def _enter_text(view: View) -> list[ToolCall]:
    return _submit_form(view, _type_text(view.one("textbox"), view.quoted[0]))


def _enter_in_case(view: View) -> list[ToolCall]:
    text = view.quoted[0]
    return _submit_form(view, _type_text(view.one("textbox"), text.lower() if "lower" in view.goal else text.upper()))


def _enter_password(view: View) -> list[ToolCall]:
    return _submit_form(view, *(_type_text(field, view.quoted[0]) for field in view.all("textbox")))


def _enter_login(view: View) -> list[ToolCall]:
    fields = zip(view.all("textbox"), view.quoted, strict=False)
    return [*(_type_text(field, text) for field, text in fields), _click_element(view.one("button", name="Login"))]


def _focus_field(view: View) -> list[ToolCall]:
    match = re.search(r"(\d)(?:st|nd|rd)", view.goal)
    return [_click_element(view.all("textbox")[int(match[1]) - 1 if match else 0])]


def _check_choices(view: View) -> list[ToolCall]:
    """Checks the boxes, or the button, that the goal lists."""
    match = re.match(r"Select (.*) and click Submit", view.goal)
    names = match[1].split(", ") if match and match[1] != "nothing" else []
    return _submit_form(view, *(_click_element(view.one("checkbox", "radio", name=name)) for name in names))


def _choose_from_list(view: View) -> list[ToolCall]:
    match = re.match(r"Select (.*) from the list", view.goal)
    option = match[1] if match else ""
    return _submit_form(view, ToolCall("select", {"ref": view.one("combobox").ref, "option": option}))


def _open_tab(view: View) -> list[ToolCall]:
    match = re.search(r"Tab #\d", view.goal)
    return [_click_element(view.one("link", name=match[0] if match else ""))]


def _solve_arithmetic(view: View) -> list[ToolCall]:
    left, operator, right = next(
        m.groups() for e in view.elements if (m := re.match(r"(-?\d+) ([x+-]) (-?\d+)", e.text))
    )
    results = {"x": int(left) * int(right), "+": int(left) + int(right), "-": int(left) - int(right)}
    return _submit_form(view, _type_text(view.one("textbox"), str(results[operator])))


def _solve_algebra(view: View) -> list[ToolCall]:
    left, operator, right, result = next(
        m.groups() for e in view.elements if (m := re.match(r"(x|-?\d+) ([+-]) (x|-?\d+) = (-?\d+)", e.text))
    )
    sign = 1 if operator == "+" else -1
    x = int(result) - sign * int(right) if left == "x" else sign * (int(result) - int(left))
    return _submit_form(view, _type_text(view.one("textbox"), str(x)))


def _find_word(view: View) -> list[ToolCall]:
    match = re.search(r"(\d+)(?:st|nd|rd|th)", view.goal)
    words = view.one("paragraph").text.split()
    word = words[int(match[1]) - 1 if match else 0].strip(".,")
    return _submit_form(view, _type_text(view.one("textbox"), word))


def _read_table(view: View) -> list[ToolCall]:
    cells = [cell.name for cell in view.all("cell")]
    values = dict(zip(cells[::2], cells[1::2], strict=True))
    match = re.match(r"Enter the value of (.*) into", view.goal)
    labels = [match[1]] if match else [e.text.rstrip(":") for e in view.all("generic") if e.text.rstrip(":") in values]
    fields = zip(view.all("textbox"), labels, strict=True)
    return _submit_form(view, *(_type_text(field, values[label]) for field, label in fields))


def _enter_date(view: View) -> list[ToolCall]:
    month, day, year = re.findall(r"\d+", view.goal)
    return _submit_form(view, _type_text(view.one("textbox"), f"{year}-{month}-{day}"))


def _enter_time(view: View) -> list[ToolCall]:
    hour, minute, half = re.findall(r"(\d+):(\d+) ([AP])M", view.goal)[0]
    return _submit_form(
        view, _type_text(view.one("textbox"), f"{int(hour) % _HALF_DAY_H + _HALF_DAY_H * (half == 'P'):02d}:{minute}")
    )


def _copy_letters(view: View) -> list[ToolCall]:
    field = view.elements.index(view.one("textbox"))
    letters = "".join(e.text for e in view.elements[:field] if e.role == "generic" and len(e.text) == 1)
    return _submit_form(view, _type_text(view.one("textbox"), letters))


def _judge_parity(view: View) -> list[ToolCall]:
    numbers = [int(e.text) for e in view.all("generic") if re.fullmatch(r"-?\d+", e.text)]
    odd, even = ([e for e in view.all("button") if e.name == name] for name in ("Odd", "Even"))
    chosen = [odd[i] if number % 2 else even[i] for i, number in enumerate(numbers)]
    return _submit_form(view, *map(_click_element, chosen))


def _search_movie(view: View) -> list[ToolCall]:
    match = re.match(r"Search for (.*) movies directed by (.*) from year (\d+)", view.goal)
    genre, director, year = match.groups() if match else ("", "", "")
    values = {"genre": genre, "director": director, "year": year, "date": year}
    names = [f"{e.name} {e.text}".strip().lower() for e in view.elements if view.goal not in (e.name, e.text)]
    labels = [key for name in names for key in values if key in name]
    calls = [_type_text(field, values[label]) for field, label in zip(view.all("textbox"), labels, strict=True)]
    return [*calls, _click_element(view.elements[-1])]


SCRIPTS: dict[str, Script] = {
    "click-button": _click_button,
    "click-button-sequence": _click_sequence,
    "click-checkboxes": _check_choices,
    "click-checkboxes-large": _check_choices,
    "click-checkboxes-transfer": _check_choices,
    "click-dialog": _close_dialog,
    "click-dialog-2": _close_dialog,
    "click-option": _check_choices,
    "click-tab": _open_tab,
    "click-test": lambda view: [_click_element(view.one("button"))],
    "click-test-2": _click_sequence,
    "choose-list": _choose_from_list,
    "enter-date": _enter_date,
    "enter-password": _enter_password,
    "enter-text": _enter_text,
    "enter-text-2": _enter_in_case,
    "enter-text-dynamic": _enter_text,
    "enter-time": _enter_time,
    "find-word": _find_word,
    "focus-text": _focus_field,
    "focus-text-2": _focus_field,
    "login-user": _enter_login,
    "multi-layouts": _search_movie,
    "multi-orderings": _search_movie,
    "odd-or-even": _judge_parity,
    "read-table": _read_table,
    "read-table-2": _read_table,
    "simple-algebra": _solve_algebra,
    "simple-arithmetic": _solve_arithmetic,
    "text-transform": _copy_letters,
    "unicode-test": _click_button,
}
"""Task -> the calls of the next turn."""
