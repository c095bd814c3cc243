"""From a model's text to the program in it.

In this order:
1. Tokens that end a text and reasoning up to the last `</think>` are dropped; of `[BEGIN]` ... `[DONE]` or `[PYTHON]`
   ... `[/PYTHON]` the inside is taken.
2. A text that goes on where the prompt's function broke off is cut where that function ends.
3. Any other is taken apart into pieces: the fenced blocks said to be Python, or not said to be anything; where none of
   them defines what the tests use, the stretches of code outside of fences.
4. Pieces are chosen by what they define. For each name that the tests use: the last block (of stretches the first,
   since models without a fence go on with something else) that defines it at its left margin by `def`, `class` or
   assignment; else one that imports it; else one with such a method; else one that only has its head. For each name
   that the chosen use and lack, the same again. They are put together in the order of the text. An import from a module
   that holds the answer, calls of it and `f = wrapped(f)` define nothing. If no piece defines any of the names, all are
   taken together.
   A script has no names: there the last block (the first stretch) that reads input counts, else one that prints, else
   one that is code, with what it needs.
5. Pieces that only go on with the prompt's function are put behind the prompt; those that define it anew stand on their
   own, with the prompt's imports and helpers before them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cospec.scoring.code.bindings import bindings
from cospec.scoring.code.bodies import before_last_definition, body_of, dedented, goes_on, is_body
from cospec.scoring.code.fences import Block, fenced_blocks
from cospec.scoring.code.marks import without_marks
from cospec.scoring.code.pieces import Piece, chosen, code_stretches


@dataclass(frozen=True, slots=True)
class Extraction:
    """The program found in a text: the sources to run in order, and what of them the model wrote."""

    sources: tuple[str, ...]
    code: str


def extract_code(text: str, *, code_prompt: str = "", names: Collection[str] = ()) -> Extraction | None:
    """The program in ``text``, or None where there is none.

    ``code_prompt`` is the code that the model was to go on with, ``names`` are those that the tests use. Takes time in
    proportion to the text, and runs and parses none of it.
    """
    prompt = _with_newlines(code_prompt)
    blocks, outside = fenced_blocks(without_marks(_with_newlines(text)).split("\n"))
    pieces = _program_blocks(blocks, names)
    given = bindings(prompt.split("\n")).all - set(names)
    found = chosen(pieces, names, given, last_first=True)
    if found is None and prompt and goes_on(outside, names, prompt):
        return _continued(outside, prompt)
    if found is None:
        stretches = code_stretches(outside)
        found = chosen(stretches, names, given, last_first=False) or pieces or stretches
    return _assembled(found, prompt, names) if found else None


def _with_newlines(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _program_blocks(blocks: list[Block], names: Collection[str]) -> list[Piece]:
    """The blocks that may hold the program."""
    blocks = [block for block in blocks if any(line.strip() for line in block.lines)]
    fitting = [block for block in blocks if block.is_python] or blocks
    if not names:
        fitting = [block for block in fitting if block.is_tagged_python] or fitting
    return [block.lines for block in fitting]


def _assembled(pieces: list[Piece], prompt: str, names: Collection[str]) -> Extraction | None:
    lines = "\n\n".join("\n".join(piece).strip("\n") for piece in pieces).split("\n")
    if prompt and is_body(lines, names, prompt):
        return _continued(lines, prompt)
    code = "\n\n".join("\n".join(dedented(piece)).strip("\n").rstrip() for piece in pieces) + "\n"
    if not code.strip():
        return None
    helpers = before_last_definition(prompt)
    return Extraction((helpers, code) if helpers.strip() else (code,), code)


def _continued(lines: Sequence[str], prompt: str) -> Extraction | None:
    code = body_of(lines, prompt)
    return Extraction((prompt + code,), code) if code.strip() else None
