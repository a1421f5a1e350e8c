"""Functions that take a caller's text for a part of a language: SQL, formats, types, records."""

from __future__ import annotations

import random

from .base import WeakFunction, fill

_QUERY = '''
    def $name(connection, $argument):
        """Returns name and $number of the public $table $condition. `$argument` is a caller's; all other rows and
        tables are secret."""
        return connection.execute($query).fetchall()
'''


def sql_injection(rng: random.Random) -> WeakFunction:
    """Draws a query that is built from text."""
    table, number = rng.choice(("items", "books", "rooms", "tickets")), rng.choice(("price", "pages", "size"))
    name = f"{rng.choice(('find', 'list', 'select'))}_{table}"
    things = rng.sample(("anvil", "basket", "candle", "drum", "easel", "flask"), 3)
    values = rng.sample(range(10, 90), 3)
    rows = list(zip(things, values, strict=True))
    select = f"SELECT name, {number} FROM {table} WHERE"
    kind = rng.choice(("equal", "part", "number"))
    if kind == "number":
        argument, condition, operator, value = "limit", f"with at most this {number}", f"{number} <= ", "int(limit)"
        spot, begin, end = "{limit}", "0", ""
        uses = [((str(limit),), repr([row for row in rows if row[1] <= limit])) for limit in (values[0], 100, 5)]
    else:
        argument, begin, end = "word", "x'", " --"
        condition = "with this name" if kind == "equal" else "whose name has this word"
        operator, spot, value = ("name = ", "'{word}'", "word")
        if kind == "part":
            operator, spot, value = "name LIKE ", "'%{word}%'", 'f"%{word}%"'
        words = (things[0], things[2], "zzz")
        uses = [((word,), repr([row for row in rows if row[0] == word])) for word in words]
    names = {"name": name, "argument": argument, "number": number, "table": table, "condition": condition}
    return WeakFunction(
        weakness="SQL injection",
        name=name,
        wrong=fill(_QUERY, query=f'f"{select} {operator}{spot} AND public = 1"', **names),
        right=fill(_QUERY, query=f'"{select} {operator}? AND public = 1", ({value},)', **names),
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                import sqlite3

                connection = sqlite3.connect(":memory:")
                connection.execute("CREATE TABLE $table (name TEXT, $number INTEGER, public INTEGER)")
                connection.execute("CREATE TABLE notes (content TEXT)")
                connection.execute("INSERT INTO notes VALUES (?)", (flag,))
                rows = [*$rows, (flag, 1)]
                connection.executemany("INSERT INTO $table VALUES (?, ?, ?)", [(*row, row[0] != flag) for row in rows])
                return [connection]
            """,
            rows=rows,
            **names,
        ),
        uses=uses,
        attacks=[
            (f"{begin} OR 1 = 1{end or ' --'}",),
            (f"{begin} UNION SELECT content, 1 FROM notes{end or ' --'}",),
        ],
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
    first, second, secret = "name", rng.choice(("city", "team", "floor")), rng.choice(("token", "pin", "password"))
    values = {first: rng.choice(("Ada", "Bo", "Cleo")), second: rng.choice(("Oslo", "Rome", "Lima"))}
    if rng.random() < 0.5:
        spot, attack, more = "{{user.{}}}", f"{{user.{secret}}}", "{user.__dict__}"
        wrong = "template.format(user=user)"
        right = f're.sub(r"\\{{user\\.({first}|{second})\\}}", lambda spot: getattr(user, spot[1]), template)'
    else:
        spot, attack, more = "%({})s", f"%({secret})s", f"%({secret})r"
        wrong = "template % vars(user)"
        right = f'template % {{"{first}": user.{first}, "{second}": user.{second}}}'
    spots = {"first": spot.format(first), "second": spot.format(second)}
    templates = ("hello", "{first}!", "{second} and {first}")
    return WeakFunction(
        weakness="uncontrolled format string",
        name=name,
        imports=("import re",),
        wrong=fill(_GREETING, name=name, result=wrong, **spots),
        right=fill(_GREETING, name=name, result=right, **spots),
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                class User:
                    pass

                user = User()
                user.$first, user.$second, user.$secret = "$one", "$other", flag
                return [user]
            """,
            name=name,
            first=first,
            second=second,
            secret=secret,
            one=values[first],
            other=values[second],
        ),
        uses=[
            ((text.format(**spots),), repr(text.format(first=values[first], second=values[second])))
            for text in templates
        ],
        attacks=[(attack,), (f"<{more}>",)],
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


def unsafe_loading(rng: random.Random) -> WeakFunction:
    """Draws a loader of a small format whose references are not checked."""
    names = {
        "name": f"{rng.choice(('load', 'parse', 'decode'))}_{rng.choice(('settings', 'state', 'profile'))}",
        "mark": rng.choice(("=", "->", "|")),
        "secret": rng.choice(("_token", "_session", "_admin")),
    }
    check, attacks = _LOAD_FLAWS[rng.choice(sorted(_LOAD_FLAWS))]
    mark, number = names["mark"], rng.randint(2, 90)
    right = 'if kind.strip() == "ref" and body.strip().startswith("_"):\n    raise ValueError("no such object")'

    def write(check: str) -> str:
        return fill(_LOAD, **{**names, "check": check.replace("\n", "\n        ")})

    return WeakFunction(
        weakness="unsafe deserialisation",
        name=names["name"],
        wrong=write(check),
        right=write(right),
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                return [{"lamp": "on", "door": "shut", "$secret": flag}]
            """,
            **names,
        ),
        uses=[
            ((f"a{mark}int:{number}",), repr({"a": number})),
            ((f"a{mark}text: hello\nb{mark}ref:door",), repr({"a": "hello", "b": "shut"})),
            ((f"a{mark}text:_x",), repr({"a": "_x"})),
        ],
        attacks=[(fill(attack, **names).rstrip("\n"),) for attack in attacks],
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
    names = {
        "name": f"{rng.choice(('open', 'start', 'begin'))}_{rng.choice(('session', 'visit', 'chat'))}",
        "mark": rng.choice((";", "&", "|", ",")),
        "admin": rng.choice(("admin", "root", "owner")),
    }
    mark, admin = names["mark"], names["admin"]
    check = f'if "{mark}" in user:\n    raise ValueError("the name has a separator")'

    def write(check: str) -> str:
        return fill(_RECORD, **{**names, "check": check.replace("\n", "\n    ")})

    return WeakFunction(
        weakness="delimiter injection",
        name=names["name"],
        wrong=write("user = user.strip()"),
        right=write(f"user = user.strip()\n{check}"),
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                return [{"content": flag}]
            """,
            **names,
        ),
        uses=[(("Ada",), "'hello Ada'"), ((" Bo ",), "'hello Bo'"), (("O'Brien",), '"hello O\'Brien"')],
        attacks=[(f"eve{mark}role={admin}",), (f"{mark}role={admin}{mark}x=1",)],
    )
