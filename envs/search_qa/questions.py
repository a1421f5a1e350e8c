"""Questions with one or two hops, from facts about Python and installed packages."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from verl_agentic.base.text.normal_form import normalise
from verl_agentic.tools.search.bm25 import Bm25Index

from .packages import Package
from .python_docs import ClassDoc, FunctionDoc, PythonDoc
from .question import Hop, Question, is_answerable

_MAX_PER_KIND = 400
_MAX_SHARE = 0.02
"""Maximum share of questions of a kind with the same answer, so that it cannot be guessed."""
_MIN_ANSWER_CHARS = 2


def make_questions(docs: Iterable[PythonDoc], packages: Iterable[Package], index: Bm25Index) -> list[Question]:
    """Returns the questions that the index can answer, in the order of their ids."""
    docs = list(docs)
    candidates = [*about_python(docs), *about_packages(list(packages))]
    kinds: dict[str, list[Question]] = defaultdict(list)
    for question in candidates:
        if is_answerable(question, index):
            kinds[question.kind].append(question)
    return sorted((q for questions in kinds.values() for q in _spread(questions)), key=lambda q: q.id)


def about_python(docs: Sequence[PythonDoc]) -> Iterator[Question]:
    """Yields questions about classes and functions with unique names."""
    classes = _unique([doc for doc in docs if isinstance(doc, ClassDoc)])
    functions = [doc for doc in docs if isinstance(doc, FunctionDoc)]
    methods: dict[tuple[str, str], list[FunctionDoc]] = defaultdict(list)
    for function in functions:
        yield from _defaults(function, f"the Python function {function.module}.{function.name}", subject=function.name)
        methods[function.module, function.name.partition(".")[0]].append(function)
    for found in classes.values():
        hop = Hop(query=f"Python class {found.name}", passage_id=found.passage_id)
        yield Question(
            id=f"class_module-{found.name}",
            kind="class_module",
            subject=found.name,
            text=f"In which Python module is the class {found.name} defined?",
            answers=(found.module,),
            hops=(hop,),
        )
        base = classes.get(found.bases[0]) if len(found.bases) == 1 else None
        if base is not None:
            yield from _about_base(found, base, hop, methods[base.module, base.name])


def about_packages(packages: Sequence[Package]) -> Iterator[Question]:
    """Yields questions about packages of either system."""
    known = {(package.system, package.name): package for package in packages}
    for package in packages:
        name, system = package.name, package.system
        hop = _package_hop(package)
        if package.homepage:
            text = f"What is the homepage of the {system} {name}?"
            yield _about_package("homepage", package, text, package.homepage, hop)
        needed = _last_need(package, known)
        if needed is not None:
            text = f"What is the homepage of the last package in the list of what the {system} {name} depends on?"
            yield _about_package("need_homepage", package, text, needed.homepage, hop, _package_hop(needed))
    yield from _about_virtual(packages, known)


def _about_base(found: ClassDoc, base: ClassDoc, hop: Hop, methods: Sequence[FunctionDoc]) -> Iterator[Question]:
    yield Question(  # if both are in the same module, the first hop shows the answer and the question is dropped
        id=f"base_module-{found.name}",
        kind="base_module",
        subject=found.name,
        text=f"In which Python module is the base class of the class {found.name} defined?",
        answers=(base.module,),
        hops=(hop, Hop(query=f"Python class {base.name}", passage_id=base.passage_id)),
    )
    for method in methods:
        if method.name.startswith(f"{base.name}."):
            short = method.name.partition(".")[2]
            what = f"the method {short} of the base class of the Python class {found.name}"
            yield from _defaults(method, what, subject=found.name, before=hop)


def _defaults(function: FunctionDoc, what: str, *, subject: str, before: Hop | None = None) -> Iterator[Question]:
    kind = "default" if before is None else "base_default"
    own = Hop(query=f"{function.module} {function.name}", passage_id=function.passage_id)
    for parameter, default in function.defaults.items():
        answer = _told(default)
        if answer:
            yield Question(
                id=f"{kind}-{subject}-{function.module}.{function.name}-{parameter}",
                kind=kind,
                subject=subject,
                text=f"What is the default value of the parameter {parameter} of {what}?",
                answers=(answer,),
                hops=(own,) if before is None else (before, own),
            )


def _about_virtual(packages: Sequence[Package], known: Mapping[tuple[str, str], Package]) -> Iterator[Question]:
    """Yields questions about names that only one package provides, and its dependencies."""
    providers: dict[str, list[Package]] = defaultdict(list)
    for package in packages:
        for name in package.provides:
            providers[name].append(package)
    for name, found in providers.items():
        system, needed = found[0].system, _last_need(found[0], known)
        if len(found) > 1 or (system, name) in known:
            continue
        hop = Hop(query=f"{system} provides {name}", passage_id=found[0].passage_id)
        yield _about_package("provider", found[0], f"Which {system} provides {name}?", found[0].name, hop, name=name)
        if needed is not None:
            text = f"What is the homepage of the last package in the list of what the provider of {name} depends on?"
            hops = hop, _package_hop(needed)
            yield _about_package("provider_need_homepage", found[0], text, needed.homepage, *hops, name=name)


def _last_need(package: Package, known: Mapping[tuple[str, str], Package]) -> Package | None:
    """Returns the last dependency of a package, if it is installed and has a homepage."""
    needed = known.get((package.system, package.needs[-1])) if package.needs else None
    return needed if needed is not None and needed.homepage else None


def _about_package(
    kind: str, package: Package, text: str, answer: str, *hops: Hop, name: str | None = None
) -> Question:
    system = package.system.partition(" ")[0].lower()
    subject = name or package.name
    return Question(
        id=f"{system}_{kind}-{subject}",
        kind=f"{system}_{kind}",
        subject=f"{package.system} {subject}",
        text=text,
        answers=(answer,),
        hops=hops,
    )


def _package_hop(package: Package) -> Hop:
    return Hop(query=f"{package.system} {package.name}", passage_id=package.passage_id)


def _told(default: str) -> str:
    """Returns a default value as an answer; nothing for values that are not literals or easy to guess."""
    try:
        value = ast.literal_eval(default)
    except ValueError:
        return ""
    if value is None or isinstance(value, bool) or value in (0, 1, -1) or not isinstance(value, (int, float, str)):
        return ""
    return str(value) if len(normalise(str(value))) >= _MIN_ANSWER_CHARS else ""


def _unique(classes: Sequence[ClassDoc]) -> dict[str, ClassDoc]:
    counts = Counter(found.name.lower() for found in classes)
    return {found.name: found for found in classes if counts[found.name.lower()] == 1}


def _spread(questions: Sequence[Question]) -> Iterator[Question]:
    """Yields at most `_MAX_PER_KIND` questions of a kind, chosen by hash, with a limit per answer."""
    chosen: Counter[str] = Counter()
    allowed = max(1, int(_MAX_SHARE * min(len(questions), _MAX_PER_KIND)))
    for question in sorted(questions, key=lambda q: hashlib.blake2b(q.id.encode()).digest()):
        answer = normalise(question.answers[0])
        if sum(chosen.values()) < _MAX_PER_KIND and chosen[answer] < allowed:
            chosen[answer] += 1
            yield question
