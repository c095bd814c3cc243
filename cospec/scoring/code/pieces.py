"""Which of several pieces of code make up the program: told by the names that they define and need."""

import re
from collections.abc import Collection, Sequence

from cospec.scoring.code.bindings import Bindings, bindings
from cospec.scoring.code.lines import indent_of, is_code, margin_statements, statements

Piece = Sequence[str]
_READS_INPUT = re.compile(r"\binput\s*\(|\bstdin\b|\bopen\s*\(\s*0|\bfileinput\b")
_PRINTS = re.compile(r"\bprint\s*\(|\bstdout\b")
_NO_BEGINNING = re.compile(r"[#\"')\]}]")


def chosen(
    pieces: Sequence[Piece], names: Collection[str], given: Collection[str], *, last_first: bool
) -> list[Piece] | None:
    """The pieces of the program in their order, None where none of them defines one of ``names``.

    ``given`` are names that the program has without them; ``last_first`` if of two definitions the later one counts.
    """
    found = [bindings(piece) for piece in pieces]
    order = range(len(pieces))[:: 1 if last_first else -1]
    roots = _definers(found, names, order) if names else _script(pieces, order)
    if not roots:
        return None
    # What stands behind a definition and binds its name otherwise, such as an import of the answer, would undo it.
    harmless = [
        index for index in order if all(index <= roots.get(name, index) for name in found[index].all & set(names))
    ]
    suppliers = {name: index for index in harmless for name in found[index].stubs}
    suppliers |= {name: index for index in harmless for name in found[index].imported}
    suppliers |= {name: index for index in harmless for name in found[index].defined}
    taken = _with_suppliers(found, set(roots.values()), suppliers, set(given))
    return [pieces[index] for index in sorted(taken)]


def _definers(found: Sequence[Bindings], names: Collection[str], order: Sequence[int]) -> dict[str, int]:
    """The piece from which each name comes; the last in ``order`` of those that define it best."""
    definers: dict[str, int] = {}
    for name in names:
        for kind in ("defined", "imported", "nested", "stubs"):
            having = [index for index in order if name in getattr(found[index], kind)]
            if having:
                definers[name] = having[-1]
                break
    return definers


def _script(pieces: Sequence[Piece], order: Sequence[int]) -> dict[str, int]:
    """The piece that is a script: the last in ``order`` that reads its input, else that prints, else that is code."""
    texts = [[one.text for one in statements(piece)] for piece in pieces]
    for sign in (_READS_INPUT, _PRINTS):
        having = [index for index in order if any(sign.search(text) for text in texts[index])]
        if having:
            return {"": having[-1]}
    having = [index for index in order if any(one.is_code for one in margin_statements(pieces[index]))]
    return {"": having[-1]} if having else {}


def _with_suppliers(found: Sequence[Bindings], roots: set[int], suppliers: dict[str, int], given: set[str]) -> set[int]:
    taken, waiting = set(roots), sorted(roots)
    has = given.union(*(found[index].all for index in roots))
    while waiting:
        for name in found[waiting.pop()].needed - has:
            if name in suppliers and suppliers[name] not in taken:
                taken.add(suppliers[name])
                waiting.append(suppliers[name])
                has |= found[suppliers[name]].all
    return taken


def code_stretches(lines: Sequence[str]) -> list[Piece]:
    """The stretches of code at the left margin of a text without fences, else those set off by indentation alone."""
    stretches: list[Piece] = []
    position = 0
    while position < len(lines):
        line = lines[position]
        if not line[:1].strip() or line[0] in ")]}" or not is_code(line):
            position += 1
            continue
        # Begun line by line: a bracket or quote in the prose before may never close.
        prose = (one.start for one in margin_statements(lines, position) if not one.is_code)
        end = max(next(prose, len(lines)), position + 1)
        stretches.append(lines[position:end])
        position = end
    return [one for one in stretches if any(True for _ in statements(one))] or _indented_stretches(lines)


def _indented_stretches(lines: Sequence[str]) -> list[Piece]:
    stretches: list[Piece] = []
    position = 0
    while position < len(lines):
        line, width = lines[position], indent_of(lines[position])
        begin = position
        position += 1
        if width and not _NO_BEGINNING.match(line.strip()) and is_code(line):
            while position < len(lines) and (not lines[position].strip() or indent_of(lines[position]) >= width):
                position += 1
            stretches.append(lines[begin:position])
    return stretches
