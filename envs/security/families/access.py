"""Functions that let a caller reach more than they should: paths, indices, sizes, tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence

from .base import FOLDER, Arguments, Scene, WeakFunction, draw_words, fill, fill_attacks

_JOIN = "path = os.path.join(root, name)"
_CLIMB = (
    "../$secret", "$sub/../../$secret", "./../$secret", "$sub/.././../$secret", "../${folder}_old/$secret",
)  # fmt: skip
_ABSOLUTE = f"{FOLDER}/$secret"
_PATH_FLAWS = {
    "no check": (_JOIN, (*_CLIMB, _ABSOLUTE)),
    "only the begin is checked": (
        'if name.startswith(("/", "..")):\n    raise ValueError("the name must be relative")\n' + _JOIN,
        ("$sub/../../$secret", "./../$secret", "$sub/.././../$secret", "$sub/../../${folder}_old/$secret"),
    ),
    "the path is checked as it is written": (
        _JOIN + '\nif not path.startswith(root):\n    raise ValueError("the name must lie in the folder")',
        _CLIMB,
    ),
    "steps up are removed once": (
        'path = os.path.join(root, name.replace("../", ""))',
        ("....//$secret", "..././$secret", "....//${folder}_old/$secret", "$sub/....//....//$secret", _ABSOLUTE),
    ),
    "a folder with a longer name passes": (
        "path = os.path.realpath(os.path.join(root, name))\nif not path.startswith(os.path.realpath(root)):\n"
        '    raise ValueError("the name must lie in the folder")',
        (
            "../${folder}_old/$secret",
            "$sub/../../${folder}_old/$secret",
            "./../${folder}_old/./$secret",
            f"{FOLDER}/${{folder}}_old/$secret",
        ),
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
    name = f"{rng.choice(('read', 'open', 'load'))}_{rng.choice(('page', 'report', 'template', 'manual'))}"
    flaw = rng.choice(sorted(_PATH_FLAWS))
    check, attacks = _PATH_FLAWS[flaw]
    has_steps_up = flaw != "steps up are removed once"

    def write(check: str) -> str:
        return fill(_READ, name=name, check=check.replace("\n", "\n    "))

    return WeakFunction(
        weakness="path traversal",
        name=name,
        imports=("import os",),
        wrong=write(check),
        right=write(_WITHIN),
        shown=_draw_files(rng, name, [attack for attack in attacks if FOLDER not in attack], has_steps_up=has_steps_up),
        hidden=_draw_files(rng, name, attacks, has_steps_up=has_steps_up),
    )


def _draw_files(rng: random.Random, name: str, attacks: Sequence[str], *, has_steps_up: bool) -> Scene:
    first, second, third, folder, sub, secret, *files = draw_words(rng, 9)
    names = {"name": name, "folder": folder, "sub": sub, "secret": f"{secret}.txt"}
    paths = {"a": f"{files[0]}.txt", "b": f"{files[1]}.txt", "c": f"{files[2]}..2.txt"}
    uses = [(paths["a"], first), (f"{sub}/{paths['b']}", second), (paths["c"], third)]
    if has_steps_up:
        uses.append((f"{sub}/../{paths['a']}", first))
    return Scene(
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                root = folder / "$folder"
                for place in (root / "$sub", folder / "${folder}_old"):
                    place.mkdir(parents=True)
                (root / "$a").write_text("$first")
                (root / "$sub" / "$b").write_text("$second")
                (root / "$c").write_text("$third")
                for place in (folder, folder / "${folder}_old"):
                    (place / "$secret").write_text(flag)
                return [str(root)]
            """,
            first=first,
            second=second,
            third=third,
            **names,
            **paths,
        ),
        uses=[((path,), repr(repr(text))) for path, text in uses],
        attacks=fill_attacks(attacks, **names),
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
    limit = f"len(cells) - {hidden}"
    if is_range:
        template, tests = _CELLS, (f"last > {limit} or first >= last", f"not 0 <= first < last <= {limit}")
    else:
        template, tests = _CELL, (f"index >= {limit}", f"not 0 <= index < {limit}")
    return WeakFunction(
        weakness="missing lower bound",
        name=name,
        wrong=fill(template, name=name, hidden=hidden, test=tests[0]),
        right=fill(template, name=name, hidden=hidden, test=tests[1]),
        shown=_draw_cells(rng, name, hidden, is_range=is_range),
        hidden=_draw_cells(rng, name, hidden, is_range=is_range),
    )


def _draw_cells(rng: random.Random, name: str, hidden: int, *, is_range: bool) -> Scene:
    public = draw_words(rng, rng.randint(3, 6))
    uses: list[tuple[Arguments, object]]
    attacks: list[Arguments]
    if is_range:
        uses = [(place, public[slice(*place)]) for place in ((0, 2), (1, 3), (0, len(public)))]
        attacks = [(-1, 1), (-hidden, 2), (-1, 0), (-hidden, 0)]
    else:
        uses = [((place,), public[place]) for place in (0, 1, len(public) - 1)]
        attacks = [(-place,) for place in range(1, hidden + 1)]
    return Scene(
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                return [$public + $hidden * [flag]]
            """,
            name=name,
            public=public,
            hidden=hidden,
        ),
        uses=[(arguments, repr(repr(result))) for arguments, result in uses],
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
    return WeakFunction(
        weakness="integer overflow",
        name=name,
        wrong=fill(_BLOCK, name=name, limit=limit, end=f"(start + size) & {mask:#x}"),
        right=fill(_BLOCK, name=name, limit=limit, end="start + size"),
        shown=_draw_memory(rng, name, limit, ends=[mask + 1]),
        hidden=_draw_memory(rng, name, limit, ends=[mask + 1, 1 << 32, 1 << 64]),  # more bits are no fix
    )


def _draw_memory(rng: random.Random, name: str, limit: int, *, ends: Sequence[int]) -> Scene:
    text = "".join(draw_words(rng, limit))[:limit]
    start = rng.randint(1, limit - 1)
    uses = [((0, 3), text[:3]), ((start, limit - start), text[start:]), ((limit, 0), ""), ((start, 1), text[start])]
    return Scene(
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                return ["$text" + flag]
            """,
            name=name,
            text=text,
        ),
        uses=[(arguments, repr(repr(result))) for arguments, result in uses],
        attacks=[(first, end - first) for end in ends for first in (limit, 0, start)],
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
            ('not vault["token"].startswith(token)', ("", "$prefix", "$prefix$begin")),
            ('token not in vault["token"]', ("", "$prefix", "$prefix$begin", "$end")),
            (
                'any(a != b for a, b in zip(token, vault["token"]))',
                ("", "$prefix", "$prefix$begin", "$prefix$begin${end}0"),
            ),
        )
    )
    right = 'not hmac.compare_digest(token.encode(), vault["token"].encode())'
    return WeakFunction(
        weakness="partial comparison",
        name=name,
        imports=("import hmac",),
        wrong=fill(_TOKEN, name=name, prefix=prefix, test=test),
        right=fill(_TOKEN, name=name, prefix=prefix, test=right),
        shown=_draw_vault(rng, name, prefix, attacks),
        hidden=_draw_vault(rng, name, prefix, attacks),
    )


def _draw_vault(rng: random.Random, name: str, prefix: str, attacks: Sequence[str]) -> Scene:
    begin, end = ("".join(rng.choices("0123456789abcdef", k=6)) for _ in range(2))
    token = f"{prefix}{begin}{end}"
    return Scene(
        prepare=fill(
            """
            def prepare_$name(folder, flag):
                return [{"token": "$token", "content": flag}]
            """,
            name=name,
            token=token,
        ),
        uses=[
            ((token,), "repr(FLAG)"),
            ((f"{prefix}x",), repr("'refused'")),
            ((f"x{token}",), repr("'refused'")),
            ((f"{prefix}{end}{begin}x",), repr("'refused'")),
        ],
        attacks=fill_attacks(attacks, prefix=prefix, begin=begin, end=end),
    )
