"""From a model's text to the program in it.

In this order:
1. Reasoning up to the last `</think>` is dropped; of a few-shot format's `[BEGIN]` ... `[DONE]` the inside is taken.
2. Fenced blocks said to be Python, or not said to be anything. Of several, the last one that defines a name the tests
   use, with earlier ones that define what it lacks; if none does, all of them together. Without names to look for (a
   script), the last block.
3. No fence: a text that goes on where a prompt's function broke off is cut where that function ends; any other is
   searched for its first definition or import, or taken whole where it begins with code, up to the first line of prose.
A text or block that only goes on with the prompt's function is put behind the prompt; one that defines the function
anew stands on its own, with the prompt's imports and helpers before it.
"""

import re
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cospec.scoring.code.fences import Block, fenced_blocks
from cospec.scoring.code.lines import indent_of, is_code, starts_program, statement_starts

_BODY_INDENT = 4
_IS_MAIN = re.compile(r"if\s+__name__\b")


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
    answer = _without_marks(_with_newlines(text))
    lines = answer.split("\n")
    prompt = _with_newlines(code_prompt)
    blocks = [block for block in fenced_blocks(lines) if any(line.strip() for line in block.lines)]
    if blocks:
        chosen = _chosen([block for block in blocks if block.is_python] or blocks, names)
        return _assembled(textwrap.dedent(chosen) if _defines(chosen, names) else chosen, prompt, names)
    if prompt and _goes_on(lines, names):
        return _continued(lines, prompt)
    found = _unfenced(lines)
    return None if found is None else _assembled(found, prompt, names)


def _with_newlines(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _without_marks(text: str) -> str:
    _, closed, after = text.rpartition("</think>")
    if closed:
        text = after
    elif text.lstrip().startswith("<think>"):
        return ""
    before, ended, _ = text.partition("[DONE]")
    if ended:
        text = before
    return text.rpartition("[BEGIN]")[2].lstrip("\n") if "[BEGIN]" in text else text


def _chosen(blocks: Sequence[Block], names: Collection[str]) -> str:
    sources = ["\n".join(block.lines) for block in blocks]
    if not names:
        tagged = [source for source, block in zip(sources, blocks, strict=True) if block.is_tagged_python]
        return (tagged or sources)[-1]
    defining = [index for index, source in enumerate(sources) if _defines(source, names)]
    if not defining:
        return "\n\n".join(sources)
    return _with_suppliers(sources[: defining[-1] + 1], names)


def _defines(source: str, names: Collection[str]) -> bool:
    return any(_definition(name).search(source) for name in names)


def _definition(name: str) -> re.Pattern[str]:
    own = re.escape(name)
    return re.compile(
        rf"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+{own}\b|^{own}[ \t]*(?::[^=\n]*)?=(?!=)"
        rf"|^(?:from[ \t]+[\w.]+[ \t]+)?import[ \t][^\n]{{0,200}}\b{own}\b",
        re.MULTILINE,
    )


def _with_suppliers(sources: Sequence[str], names: Collection[str]) -> str:
    """The last source, behind those earlier ones that define something it uses and lacks."""
    *earlier, chosen = sources
    taken, used, defined = [chosen], _words(chosen), _defined_names(chosen)
    for source in reversed(earlier):
        supplied = _defined_names(source)
        # An earlier version of the answer itself supplies nothing.
        if not _defines(source, names) and supplied & used - defined:
            taken.append(source)
            used |= _words(source)
            defined |= supplied
    return "\n\n".join(reversed(taken))


def _words(source: str) -> set[str]:
    return set(re.findall(r"\w+", source))


def _defined_names(source: str) -> set[str]:
    """What the source defines at its left margin."""
    defined = re.findall(r"^(?:(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)|(\w+)[ \t]*=(?!=))", source, re.MULTILINE)
    imported = re.findall(r"^(?:from[ \t]+\S+[ \t]+)?import[ \t]+(.+)$", source, re.MULTILINE)
    return {name for pair in defined for name in pair if name} | _words(" ".join(imported))


def _goes_on(lines: list[str], names: Collection[str]) -> bool:
    """The text is the rest of the prompt's function: indented, or code that does not define the function anew."""
    first = next((line for line in lines if line.strip()), "")
    if first[:1].isspace():
        return True
    return is_code(first) and not starts_program(first) and not _defines("\n".join(lines), names)


def _continued(lines: list[str], prompt: str) -> Extraction:
    lines = _as_body(lines)
    # The function ends where something begins at the left margin: what base models write next is not the answer.
    end = next(iter(statement_starts(lines)), len(lines))
    code = "\n".join(lines[:end]).rstrip() + "\n"
    return Extraction((prompt + code,), code)


def _as_body(lines: list[str]) -> list[str]:
    """The lines with the indentation of a function's body, where it was lost on the way."""
    first, *others = [index for index, line in enumerate(lines) if line.strip()]
    if lines[first][0].isspace():
        return lines
    opens_block = lines[first].rstrip().endswith(":")
    if others and indent_of(lines[others[0]]) >= _BODY_INDENT + opens_block:
        # The text was stripped: only its first line lost its own.
        return [*lines[:first], " " * _BODY_INDENT + lines[first], *lines[first + 1 :]]
    starts = list(statement_starts(lines))[1:]
    end = next((index for index in starts if starts_program(lines[index]) or _IS_MAIN.match(lines[index])), len(lines))
    return [" " * _BODY_INDENT + line if line.strip() else line for line in lines[:end]]


def _assembled(code: str, prompt: str, names: Collection[str]) -> Extraction | None:
    if not code.strip():
        return None
    code = code.strip("\n") + "\n"
    if not prompt:
        return Extraction((code,), code)
    if _defines(code, names) or not _looks_like_body(code):
        helpers = _before_last_definition(prompt)
        return Extraction((helpers, code) if helpers.strip() else (code,), code)
    return _continued(code.split("\n"), prompt)


def _looks_like_body(code: str) -> bool:
    first = next(line for line in code.split("\n") if line.strip())
    return first[0].isspace() or not starts_program(first)


def _before_last_definition(prompt: str) -> str:
    """The prompt's imports and helpers: all before the function that it leaves open."""
    lines = prompt.split("\n")
    starts = [index for index in statement_starts(lines) if re.match(r"(?:async\s+)?(?:def|class)\s", lines[index])]
    return "\n".join(lines[: starts[-1]]) + "\n" if starts else prompt


def _unfenced(lines: list[str]) -> str | None:
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return None
    # Looked for line by line: a bracket or quote in the prose before may never close.
    starts = [first] if lines[first][0].strip() and is_code(lines[first]) else []
    starts += [index for index, line in enumerate(lines) if starts_program(line)]
    if not starts:
        return _from_indented(lines)
    region = lines[starts[0] :]
    end = next((index for index in statement_starts(region) if not is_code(region[index])), len(region))
    return "\n".join(region[:end]).rstrip() + "\n"


def _from_indented(lines: list[str]) -> str | None:
    """A block that prose sets off by indentation alone."""
    begin = next((i for i, line in enumerate(lines) if line[:1].isspace() and starts_program(line.strip())), None)
    if begin is None:
        return None
    width = indent_of(lines[begin])
    end = begin
    while end < len(lines) and (not lines[end].strip() or indent_of(lines[end]) >= width):
        end += 1
    return textwrap.dedent("\n".join(lines[begin:end])).rstrip() + "\n"
