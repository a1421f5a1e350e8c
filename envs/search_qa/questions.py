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
    return sorted((q for questions in kinds.values() for q in _iter_spread(questions)), key=lambda q: q.id)


def about_python(docs: Sequence[PythonDoc]) -> Iterator[Question]:
    """Yields questions about classes and functions with unique names."""
    classes = _select_unique([doc for doc in docs if isinstance(doc, ClassDoc)])
    functions = [doc for doc in docs if isinstance(doc, FunctionDoc)]
    methods: dict[tuple[str, str], list[FunctionDoc]] = defaultdict(list)
    for function in functions:
        yield from _ask_defaults(
            function, f"the Python function {function.module}.{function.name}", subject=function.name
        )
        methods[function.module, function.name.partition(".")[0]].append(function)
    for class_doc in classes.values():
        hop = Hop(query=f"Python class {class_doc.name}", passage_id=class_doc.passage_id)
        yield Question(
            id=f"class_module-{class_doc.name}",
            kind="class_module",
            subject=class_doc.name,
            text=f"In which Python module is the class {class_doc.name} defined?",
            answers=(class_doc.module,),
            hops=(hop,),
        )
        base = classes.get(class_doc.bases[0]) if len(class_doc.bases) == 1 else None
        if base is not None:
            yield from _about_base(class_doc, base, hop, methods[base.module, base.name])


def about_packages(packages: Sequence[Package]) -> Iterator[Question]:
    """Yields questions about packages of either system."""
    by_name = {(package.system, package.name): package for package in packages}
    for package in packages:
        name, system = package.name, package.system
        hop = _package_hop(package)
        if package.homepage:
            text = f"What is the homepage of the {system} {name}?"
            yield _about_package("homepage", package, text, package.homepage, hop)
        needed = _last_need(package, by_name)
        if needed is not None:
            text = f"What is the homepage of the last package in the list of what the {system} {name} depends on?"
            yield _about_package("need_homepage", package, text, needed.homepage, hop, _package_hop(needed))
    yield from _about_virtual(packages, by_name)


def _about_base(doc: ClassDoc, base: ClassDoc, hop: Hop, methods: Sequence[FunctionDoc]) -> Iterator[Question]:
    yield Question(  # if both are in the same module, the first hop shows the answer and the question is dropped
        id=f"base_module-{doc.name}",
        kind="base_module",
        subject=doc.name,
        text=f"In which Python module is the base class of the class {doc.name} defined?",
        answers=(base.module,),
        hops=(hop, Hop(query=f"Python class {base.name}", passage_id=base.passage_id)),
    )
    for method in methods:
        if method.name.startswith(f"{base.name}."):
            short = method.name.partition(".")[2]
            method_text = f"the method {short} of the base class of the Python class {doc.name}"
            yield from _ask_defaults(method, method_text, subject=doc.name, before=hop)


def _ask_defaults(
    function: FunctionDoc, subject_text: str, *, subject: str, before: Hop | None = None
) -> Iterator[Question]:
    kind = "default" if before is None else "base_default"
    own_hop = Hop(query=f"{function.module} {function.name}", passage_id=function.passage_id)
    for parameter, default in function.defaults.items():
        answer = _format_default(default)
        if answer:
            yield Question(
                id=f"{kind}-{subject}-{function.module}.{function.name}-{parameter}",
                kind=kind,
                subject=subject,
                text=f"What is the default value of the parameter {parameter} of {subject_text}?",
                answers=(answer,),
                hops=(own_hop,) if before is None else (before, own_hop),
            )


def _about_virtual(packages: Sequence[Package], by_name: Mapping[tuple[str, str], Package]) -> Iterator[Question]:
    """Yields questions about names that only one package provides, and its dependencies."""
    providers: dict[str, list[Package]] = defaultdict(list)
    for package in packages:
        for name in package.provides:
            providers[name].append(package)
    for name, sources in providers.items():
        system, needed = sources[0].system, _last_need(sources[0], by_name)
        if len(sources) > 1 or (system, name) in by_name:
            continue
        hop = Hop(query=f"{system} provides {name}", passage_id=sources[0].passage_id)
        yield _about_package(
            "provider", sources[0], f"Which {system} provides {name}?", sources[0].name, hop, name=name
        )
        if needed is not None:
            text = f"What is the homepage of the last package in the list of what the provider of {name} depends on?"
            hops = hop, _package_hop(needed)
            yield _about_package("provider_need_homepage", sources[0], text, needed.homepage, *hops, name=name)


def _last_need(package: Package, by_name: Mapping[tuple[str, str], Package]) -> Package | None:
    """Returns the last dependency of a package, if it is installed and has a homepage."""
    needed = by_name.get((package.system, package.needs[-1])) if package.needs else None
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


def _format_default(default: str) -> str:
    """Returns a default value as an answer; nothing for values that are not literals or easy to guess."""
    try:
        value = ast.literal_eval(default)
    except ValueError:
        return ""
    if value is None or isinstance(value, bool) or value in (0, 1, -1) or not isinstance(value, (int, float, str)):
        return ""
    return str(value) if len(normalise(str(value))) >= _MIN_ANSWER_CHARS else ""


def _select_unique(classes: Sequence[ClassDoc]) -> dict[str, ClassDoc]:
    counts = Counter(doc.name.lower() for doc in classes)
    return {doc.name: doc for doc in classes if counts[doc.name.lower()] == 1}


def _iter_spread(questions: Sequence[Question]) -> Iterator[Question]:
    """Yields at most `_MAX_PER_KIND` questions of a kind, chosen by hash, with a limit per answer."""
    chosen: Counter[str] = Counter()
    allowed = max(1, int(_MAX_SHARE * min(len(questions), _MAX_PER_KIND)))
    for question in sorted(questions, key=lambda q: hashlib.blake2b(q.id.encode()).digest()):
        answer = normalise(question.answers[0])
        if sum(chosen.values()) < _MAX_PER_KIND and chosen[answer] < allowed:
            chosen[answer] += 1
            yield question
