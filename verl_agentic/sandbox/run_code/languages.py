"""The supported languages of SandboxFusion's contract: source file, compiler and program of each."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from verl_agentic.sandbox.interface import Command, Limits, Sandbox


@dataclass(frozen=True, kw_only=True)
class Language:
    """A language: how its source is compiled and run."""

    needs: Sequence[str]
    """Programs that must be in the sandbox."""
    source: str = ""
    """Name of the source file; empty for Python."""
    compile: Sequence[str] = ()
    """Compiler command; empty for interpreted languages."""
    run: Sequence[str] = ()
    proof: str
    """A program that prints 42; a language is offered only if it works."""
    memory_mb: int = 0
    """Minimum address space of its runtime, in MiB; smaller limits are raised to it."""


LANGUAGES = {
    "python": Language(needs=[], proof="print(42)"),
    "bash": Language(needs=["bash"], source="main.sh", run=["bash", "main.sh"], proof="echo 42"),
    "cpp": Language(
        needs=["g++"],
        source="main.cpp",
        compile=["g++", "-std=c++17", "-o", "main", "main.cpp"],
        run=["./main"],
        proof="#include <iostream>\nint main() { std::cout << 42; }",
    ),
    "go": Language(
        needs=["go"],
        source="main.go",
        compile=["go", "build", "-o", "main", "main.go"],
        run=["./main"],
        memory_mb=2048,
        proof='package main\nimport "fmt"\nfunc main() { fmt.Print(42) }',
    ),
    "java": Language(
        needs=["javac", "java"],
        source="Main.java",
        compile=["javac", "Main.java"],
        run=["java", "-ea", "Main"],
        memory_mb=8192,
        proof="class Main { public static void main(String[] a) { System.out.print(42); } }",
    ),
    "nodejs": Language(
        needs=["node"], source="main.js", run=["node", "main.js"], memory_mb=4096, proof="console.log(42)"
    ),
    "perl": Language(needs=["perl"], source="main.pl", run=["perl", "main.pl"], proof="print 42;"),
    "php": Language(needs=["php"], source="main.php", run=["php", "-f", "main.php"], proof="<?php echo 42;"),
    "ruby": Language(needs=["ruby"], source="main.rb", run=["ruby", "main.rb"], proof="puts 42"),
    "lua": Language(needs=["lua"], source="main.lua", run=["lua", "main.lua"], proof="print(42)"),
    "R": Language(needs=["Rscript"], source="main.R", run=["Rscript", "main.R"], proof="cat(42)"),
    "rust": Language(
        needs=["rustc", "cc"],
        source="main.rs",
        compile=["rustc", "-o", "main", "main.rs"],
        run=["./main"],
        proof='fn main() { print!("42"); }',
    ),
}
"""Name in a request -> language."""


async def languages_in(sandbox: Sandbox) -> dict[str, Language]:
    """Returns the languages whose programs are in the sandbox. Raises SandboxError if the sandbox failed."""
    programs = sorted({program for language in LANGUAGES.values() for program in language.needs})
    script = f"for program in {shlex.join(programs)}; do command -v $program >/dev/null && echo $program; done; true"
    result = await sandbox.run(Command(argv=["sh", "-c", script]), limits=Limits())
    installed = set(result.stdout.split())
    return {name: language for name, language in LANGUAGES.items() if installed.issuperset(language.needs)}
