"""What is run: a program, and what decides whether it is right."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """Python sources that are executed one after another in one module.

    More than one where a benchmark's own code (imports, helpers) comes before the text of the model: apart, so that
    neither can break the other's syntax. ``libraries`` may be imported beside the standard library, if installed.
    """

    sources: tuple[str, ...]
    libraries: tuple[str, ...] = ("numpy",)


@dataclass(frozen=True, slots=True)
class FunctionTests:
    """Python source that calls the program and raises unless it is right.

    ``given`` is the benchmark's own code before the program, from which the tests take their helpers. ``entry_point``
    is what a function `check(candidate)` in the tests is called with; it may be left out for tests that need none.
    """

    source: str
    given: str = ""
    entry_point: str | None = None


@dataclass(frozen=True, slots=True)
class StdinTest:
    """The program, run as a script, reads ``stdin`` and has to print ``stdout``."""

    stdin: str
    stdout: str
