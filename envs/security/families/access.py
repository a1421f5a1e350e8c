"""Functions that let a caller reach more than they should: paths, indices, sizes, tokens."""

from __future__ import annotations

import random

from .base import WeakFunction, fill

_JOIN = "path = os.path.join(root, name)"
_CLIMB = ("../$secret", "sub/../../$secret", "../${folder}_old/$secret")
_PATH_FLAWS = {
    "no check": (_JOIN, _CLIMB),
    "only the begin is checked": (
        'if name.startswith(("/", "..")):\n    raise ValueError("the name must be relative")\n' + _JOIN,
        ("sub/../../$secret", "./../$secret", "sub/../../${folder}_old/$secret"),
    ),
    "the path is checked as it is written": (
        _JOIN + '\nif not path.startswith(root):\n    raise ValueError("the name must lie in the folder")',
        _CLIMB,
    ),
    "steps up are removed once": (
        'path = os.path.join(root, name.replace("../", ""))',
        ("....//$secret", "..././$secret", "....//${folder}_old/$secret"),
    ),
    "a folder with a longer name passes": (
        "path = os.path.realpath(os.path.join(root, name))\nif not path.startswith(os.path.realpath(root)):\n"
        '    raise ValueError("the name must lie in the folder")',
        ("../${folder}_old/$secret", "sub/../../${folder}_old/$secret"),
    ),
}
_READ = '''
    def $name(root, name):
        """Returns the text of a file. The name is a caller's; files outside of the folder `root` are secret."""
        $check
        with open(path, encoding="utf-8") as file:
            return file.read()
'''
_WITHIN = """root = os.path.realpath(root)
path = os.path.realpath(os.path.join(root, name))
if os.path.commonpath([root, path]) != root:
    raise ValueError("the name must lie in the folder")"""


def path_traversal(rng: random.Random) -> WeakFunction:
    """Draws a reader of files of a folder."""
    names = {
        "name": f"{rng.choice(('read', 'open', 'load'))}_{rng.choice(('page', 'report', 'template', 'manual'))}",
        "folder": rng.choice(("pages", "public", "docs", "shared")),
        "secret": rng.choice(("secret.txt", "keys.txt", "private.txt")),
    }
    flaw = rng.choice(sorted(_PATH_FLAWS))
    check, attacks = _PATH_FLAWS[flaw]
    words = rng.sample(("apple", "birch", "cedar", "dahlia", "elder", "fern"), 3)
    uses = [("a.txt", words[0]), ("sub/b.txt", words[1]), ("v1..2.txt", words[2])]
    if flaw != "steps up are removed once":
        uses.append(("sub/../a.txt", words[0]))

    def write(check: str) -> str:
        return fill(_READ, check=check.replace("\n", "\n    "), **names)

    return WeakFunction(
        weakness="path traversal",
        name=names["name"],
        imports=("import os",),
        wrong=write(check),
        right=write(_WITHIN),
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                root = folder / "$folder"
                for place in (root / "sub", folder / "${folder}_old"):
                    place.mkdir(parents=True)
                (root / "a.txt").write_text("$first")
                (root / "sub" / "b.txt").write_text("$second")
                (root / "v1..2.txt").write_text("$third")
                for place in (folder, folder / "${folder}_old"):
                    (place / "$secret").write_text(flag)
                return [str(root)]
            """,
            first=words[0],
            second=words[1],
            third=words[2],
            **names,
        ),
        uses=[((path,), repr(word)) for path, word in uses],
        attacks=[(fill(attack, **names).strip(),) for attack in attacks],
    )


_CELL = '''
    def $name(cells, index):
        """Returns a public cell. The index is a caller's, from 0; the last $hidden cells are secret."""
        if $test:
            raise IndexError("no such cell")
        return cells[index]
'''
_CELLS = '''
    def $name(cells, first, last):
        """Returns the public cells from `first` to `last`, without the last one. Both are a caller's, from 0; the last
        $hidden cells are secret."""
        if $test:
            raise IndexError("no such cells")
        return [cells[place] for place in range(first, last)]
'''


def bounds_check(rng: random.Random) -> WeakFunction:
    """Draws a reader of cells whose check lacks the lower bound."""
    name = f"{rng.choice(('get', 'read', 'fetch'))}_{rng.choice(('cell', 'slot', 'entry', 'sample'))}"
    hidden, is_range = rng.randint(2, 4), rng.random() < 0.5
    public = [rng.randint(10, 99) for _ in range(rng.randint(3, 6))]
    limit = f"len(cells) - {hidden}"
    if is_range:
        template, tests = _CELLS, (f"last > {limit} or first >= last", f"not 0 <= first < last <= {limit}")
        uses = [((0, 2), repr(public[:2])), ((1, 3), repr(public[1:3])), ((0, len(public)), repr(public))]
        attacks = [(-1, 1), (-hidden, 2), (-1, 0)]
    else:
        template, tests = _CELL, (f"index >= {limit}", f"not 0 <= index < {limit}")
        uses = [((place,), repr(public[place])) for place in (0, 1, len(public) - 1)]
        attacks = [(-1,), (-hidden,)]
    return WeakFunction(
        weakness="missing lower bound",
        name=name,
        wrong=fill(template, name=name, hidden=hidden, test=tests[0]),
        right=fill(template, name=name, hidden=hidden, test=tests[1]),
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                return [$public + $hidden * [flag]]
            """,
            name=name,
            public=public,
            hidden=hidden,
        ),
        uses=uses,
        attacks=attacks,
    )


_BLOCK = '''
    def $name(memory, start, size):
        """Returns a part of the memory. Start and size are a caller's; from place $limit on, the memory is secret."""
        if start < 0 or size < 0 or $end > $limit:
            raise ValueError("the part must lie below $limit")
        return memory[start : start + size]
'''


def size_overflow(rng: random.Random) -> WeakFunction:
    """Draws a reader of memory whose check computes with few bits."""
    name = f"{rng.choice(('copy', 'read', 'dump'))}_{rng.choice(('block', 'buffer', 'segment'))}"
    mask = rng.choice((0xFF, 0xFFF, 0xFFFF))
    limit = rng.randint(20, 60)
    text = "".join(rng.choice("abcdefgh") for _ in range(limit))
    start = rng.randint(1, limit - 1)
    return WeakFunction(
        weakness="integer overflow",
        name=name,
        wrong=fill(_BLOCK, name=name, limit=limit, end=f"(start + size) & {mask:#x}"),
        right=fill(_BLOCK, name=name, limit=limit, end="start + size"),
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                return ["$text" + flag]
            """,
            name=name,
            text=text,
        ),
        uses=[
            ((0, 3), repr(text[:3])),
            ((start, limit - start), repr(text[start:])),
            ((limit, 0), "''"),
        ],
        attacks=[(limit, mask + 1 - limit), (0, mask + 1), (start, mask + 1 - start)],
    )


_TOKEN = '''
    def $name(vault, token):
        """Returns the content of the vault for its token, which begins with `$prefix`; for a caller without the token
        the content is secret."""
        if $test:
            return "refused"
        return vault["content"]
'''


def partial_comparison(rng: random.Random) -> WeakFunction:
    """Draws a check of a token that compares a part of it."""
    name = f"{rng.choice(('unlock', 'open', 'read'))}_{rng.choice(('vault', 'safe', 'locker'))}"
    prefix = rng.choice(("key-", "tok-", "v1-"))
    test, attacks = rng.choice(
        (
            ('not vault["token"].startswith(token)', [("",), (prefix,)]),
            ('token not in vault["token"]', [("",), (prefix,)]),
            ('any(a != b for a, b in zip(token, vault["token"]))', [("",), (prefix,)]),
        )
    )
    token = prefix + "".join(rng.choice("0123456789abcdef") for _ in range(12))
    right = fill(
        _TOKEN, name=name, prefix=prefix, test='not hmac.compare_digest(token.encode(), vault["token"].encode())'
    )
    return WeakFunction(
        weakness="partial comparison",
        name=name,
        imports=("import hmac",),
        wrong=fill(_TOKEN, name=name, prefix=prefix, test=test),
        right=right,
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                return [{"token": "$token", "content": flag}]
            """,
            name=name,
            token=token,
        ),
        uses=[((token,), "FLAG"), ((f"{prefix}x",), "'refused'"), ((f"x{token}",), "'refused'")],
        attacks=attacks,
    )
