"""Functions that take a caller's text for a part of a language: SQL, formats, types, records."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from .base import Scene, WeakFunction, draw_words, fill, fill_attacks

_QUERY = '''
    def $name(connection, $argument):
        """Returns name and $number of the public $table $condition. `$argument` is a caller's; all other rows and
        tables are secret."""
        return connection.execute($query).fetchall()
'''


_WORD_ATTACKS = (
    "$word' OR 1 = 1 --", "$word' UNION SELECT content, $value FROM $notes --", "$word' OR public = 0 OR name = '$word",
)  # fmt: skip
_NUMBER_ATTACKS = (
    "0 OR 1 = 1 --", "0 UNION SELECT content, $value FROM $notes --", "0 OR public = 0 OR 0",
)  # fmt: skip


def sql_injection(rng: random.Random) -> WeakFunction:
    """Draws a query that is built from text."""
    table, number = rng.choice(("items", "books", "rooms", "tickets")), rng.choice(("price", "pages", "size"))
    name = f"{rng.choice(('find', 'list', 'select'))}_{table}"
    select = f"SELECT name, {number} FROM {table} WHERE"
    kind = rng.choice(("equal", "part", "number"))
    argument, condition, operator, spot, value = {
        "equal": ("word", "with this name", "name = ", "'{word}'", "word"),
        "part": ("word", "whose name has this word", "name LIKE ", "'%{word}%'", 'f"%{word}%"'),
        "number": ("limit", f"with at most this {number}", f"{number} <= ", "{limit}", "int(limit)"),
    }[kind]
    names = {"name": name, "argument": argument, "number": number, "table": table, "condition": condition}
    scenes = [_draw_table(rng, kind, names) for _ in range(2)]
    return WeakFunction(
        weakness="SQL injection",
        name=name,
        wrong=fill(_QUERY, query=f'f"{select} {operator}{spot} AND public = 1"', **names),
        right=fill(_QUERY, query=f'"{select} {operator}? AND public = 1", ({value},)', **names),
        shown=scenes[0],
        hidden=scenes[1],
    )


def _draw_table(rng: random.Random, kind: str, names: Mapping[str, str]) -> Scene:
    *things, notes, other = draw_words(rng, 5)
    values = rng.sample(range(10, 90), 3)
    secrets = {"notes": f"t{notes}", "value": rng.choice(values), "word": other}  # a word alone may be one of SQL's
    rows = list(zip(things, values, strict=True))
    if kind == "number":
        uses = [(str(limit), [row for row in rows if row[1] <= limit]) for limit in (values[0], 100, values[1], 5)]
    elif kind == "equal":
        uses = [(word, [row for row in rows if row[0] == word]) for word in (things[0], other, *things[1:])]
    else:
        words = (things[0], other, things[1][1:6], things[2])
        uses = [(word, [row for row in rows if word in row[0]]) for word in words]
    return Scene(
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                import sqlite3

                connection = sqlite3.connect(":memory:")
                connection.execute("CREATE TABLE $table (name TEXT, $number INTEGER, public INTEGER)")
                connection.execute("CREATE TABLE $notes (content TEXT)")
                connection.execute("INSERT INTO $notes VALUES (?)", (flag,))
                rows = [*$rows, (flag, $value)]
                connection.executemany("INSERT INTO $table VALUES (?, ?, ?)", [(*row, row[0] != flag) for row in rows])
                return [connection]
            """,
            rows=rows,
            **secrets,
            **names,
        ),
        uses=[((argument,), repr(repr(result))) for argument, result in uses],
        attacks=fill_attacks(_NUMBER_ATTACKS if kind == "number" else _WORD_ATTACKS, **secrets),
    )


_GREETING = '''
    def $name(user, template):
        """Returns a text about a user. The template is a caller's, with `$first` and `$second`; all else about the user
        is secret."""
        return $result
'''


def format_string(rng: random.Random) -> WeakFunction:
    """Draws a template that can reach all fields of an object."""
    name = f"{rng.choice(('render', 'write', 'make'))}_{rng.choice(('greeting', 'label', 'badge', 'card'))}"
    first, second = "name", rng.choice(("city", "team", "floor"))
    if rng.random() < 0.5:
        spot, attacks = "{{user.{}}}", ("{user.$secret}", "<{user.__dict__}>", "{user.$secret!r:>40}")
        wrong = "template.format(user=user)"
        right = f're.sub(r"\\{{user\\.({first}|{second})\\}}", lambda spot: getattr(user, spot[1]), template)'
    else:
        spot, attacks = "%({})s", ("%($secret)s", "<%($secret)r>", "%s")
        wrong = "template % vars(user)"
        right = f'template % {{"{first}": user.{first}, "{second}": user.{second}}}'
    spots = {"first": spot.format(first), "second": spot.format(second)}
    return WeakFunction(
        weakness="uncontrolled format string",
        name=name,
        imports=("import re",),
        wrong=fill(_GREETING, name=name, result=wrong, **spots),
        right=fill(_GREETING, name=name, result=right, **spots),
        shown=_draw_user(rng, name, second, spots, attacks),
        hidden=_draw_user(rng, name, second, spots, attacks),
    )


def _draw_user(rng: random.Random, name: str, second: str, spots: Mapping[str, str], attacks: Sequence[str]) -> Scene:
    secret, word, *values = draw_words(rng, 4)
    secret = f"my_{secret}"  # a word alone may be one of Python's
    shown = dict(zip(("first", "second"), values, strict=True))
    templates = (word, "{first}!", "{second} and {first}", f"{word} {{second}}")
    return Scene(
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                class User:
                    pass

                user = User()
                user.name, user.$second, user.$secret = "$one", "$other", flag
                return [user]
            """,
            name=name,
            second=second,
            secret=secret,
            one=values[0],
            other=values[1],
        ),
        uses=[((text.format(**spots),), repr(repr(text.format(**shown)))) for text in templates],
        attacks=fill_attacks(attacks, secret=secret),
    )


_LOAD = '''
    def $name(objects, text):
        """Returns the values in a caller's text: lines `name${mark}type:value`, with the types int, text and ref. A ref
        names one of the objects; those whose names begin with `_` are secret."""
        values = {}
        for line in text.splitlines():
            name, _, value = line.partition("$mark")
            kind, _, body = value.partition(":")
            $check
            types = {"int": int, "text": str.strip, "ref": lambda key: objects[key.strip()]}
            values[name.strip()] = types[kind.strip()](body)
        return values
'''
_LOAD_FLAWS = {
    "no check": ("kind = kind.strip()", ("x${mark}ref:$secret", "a${mark}int:1\nx${mark}ref:$secret")),
    "spaces pass": (
        'if kind.strip() == "ref" and body.startswith("_"):\n    raise ValueError("no such object")',
        ("x${mark}ref: $secret", "a${mark}int:1\nx${mark}ref:\t$secret"),
    ),
    "another spelling of the type passes": (
        'if kind == "ref" and body.strip().startswith("_"):\n    raise ValueError("no such object")',
        ("x$mark ref:$secret", "a${mark}int:1\nx${mark}ref :$secret"),
    ),
}
_LOAD_ATTACK = "x $mark ref : $secret"  # passes all of them


def unsafe_loading(rng: random.Random) -> WeakFunction:
    """Draws a loader of a small format whose references are not checked."""
    name = f"{rng.choice(('load', 'parse', 'decode'))}_{rng.choice(('settings', 'state', 'profile'))}"
    mark = rng.choice(("=", "->", "|"))
    check, attacks = _LOAD_FLAWS[rng.choice(sorted(_LOAD_FLAWS))]
    right = 'if kind.strip() == "ref" and body.strip().startswith("_"):\n    raise ValueError("no such object")'

    def write(check: str) -> str:
        return fill(_LOAD, name=name, mark=mark, check=check.replace("\n", "\n        "))

    return WeakFunction(
        weakness="unsafe deserialisation",
        name=name,
        wrong=write(check),
        right=write(right),
        shown=_draw_objects(rng, name, mark, attacks),
        hidden=_draw_objects(rng, name, mark, (*attacks, _LOAD_ATTACK)),
    )


def _draw_objects(rng: random.Random, name: str, mark: str, attacks: Sequence[str]) -> Scene:
    secret, lamp, door, first, second, word = draw_words(rng, 6)
    number = rng.randint(2, 90)
    uses = [
        (f"a{mark}int:{number}", {"a": number}),
        (f"a{mark}text: {word}\nb{mark}ref:{door}", {"a": word, "b": second}),
        (f"a{mark}text:_{word}", {"a": f"_{word}"}),
        (f"a{mark} ref: {lamp}", {"a": first}),
    ]
    return Scene(
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                return [$objects | {"_$secret": flag}]
            """,
            name=name,
            objects={lamp: first, door: second},
            secret=secret,
        ),
        uses=[((text,), repr(repr(values))) for text, values in uses],
        attacks=fill_attacks(attacks, mark=mark, secret=f"_{secret}"),
    )


_RECORD = '''
    def $name(vault, user):
        """Returns a greeting for a user, and the content of the vault for the role `$admin`. The name is a caller's,
        whose role is `guest`; for guests the content is secret."""
        $check
        record = f"role=guest${mark}user={user}"
        fields = dict(part.partition("=")[::2] for part in record.split("$mark"))
        return vault["content"] if fields["role"] == "$admin" else "hello " + fields["user"]
'''


def delimiter_injection(rng: random.Random) -> WeakFunction:
    """Draws a record that a name can add fields to."""
    name = f"{rng.choice(('open', 'start', 'begin'))}_{rng.choice(('session', 'visit', 'chat'))}"
    names = {"name": name, "mark": rng.choice((";", "&", "|", ",")), "admin": rng.choice(("admin", "root", "owner"))}
    check = f'if "{names["mark"]}" in user:\n    raise ValueError("the name has a separator")'

    def write(check: str) -> str:
        return fill(_RECORD, **{**names, "check": check.replace("\n", "\n    ")})

    return WeakFunction(
        weakness="delimiter injection",
        name=name,
        wrong=write("user = user.strip()"),
        right=write(f"user = user.strip()\n{check}"),
        shown=_draw_guests(rng, names),
        hidden=_draw_guests(rng, names),
    )


def _draw_guests(rng: random.Random, names: Mapping[str, str]) -> Scene:
    first, second, third = (word.capitalize() for word in draw_words(rng, 3))
    attacks = ("$word${mark}role=$admin", "${mark}role=$admin${mark}x=1", "$word$mark${mark}role=$admin ")
    return Scene(
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                return [{"content": flag}]
            """,
            name=names["name"],
        ),
        uses=[
            ((user,), repr(repr(f"hello {user.strip()}")))
            for user in (first, f" {second} ", f"O'{third}", f"{first} {third}")
        ],
        attacks=fill_attacks(attacks, word=second, **names),
    )
