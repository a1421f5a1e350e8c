"""System messages of programming tasks whose answer is a whole program."""

WITH_TESTS = (
    "Solve the programming task in Python. Try your program with the tool run_tests: it runs the public tests and "
    "shows which of them fail. More tests, which nobody shows you, decide at the end. Finish with an answer that holds "
    "the whole program in one fenced block:\n```python\n...\n```"
)
WITHOUT_TESTS = (
    "Solve the programming task in Python. Hidden tests decide. Finish with an answer that holds the whole program in "
    "one fenced block:\n```python\n...\n```"
)
