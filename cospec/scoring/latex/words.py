"""Text answers: names, "even", "no solution", an option letter, a time of day."""

import re

_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_CLOCK = re.compile(r"\d{1,2}:[0-5]\d(?:\s*([ap])\s*\.?\s*m\b\.?)?", re.IGNORECASE | re.ASCII)
_MATHEMATICAL = re.compile(r"[\\{}^_=<>+*/|%°,;\[\]\d]")
_WORD = re.compile(r"[^\W\d_]+")
_OPERATORS = frozenset(
    ("sin", "cos", "tan", "cot", "sec", "csc", "log", "exp", "max", "min", "gcd", "lcm", "det", "mod", "and", "sqrt")
)
_PUNCTUATION = re.compile(r"[.,;:!?'\"()\[\]{}`*]")


def without_text_commands(text: str) -> str:
    r"""``text`` with the contents of ``\text{...}`` in place of the command."""
    return " ".join(_TEXT.sub(r" \1 ", text).split())


def is_words(text: str) -> bool:
    r"""Whether a cleaned answer is words rather than mathematics.

    Words are a time of day, letters inside ``\text{...}``, and plain letters with a word of three or more: shorter ones
    may be products of variables.
    """
    bare = without_text_commands(text)
    if _CLOCK.fullmatch(bare):
        return True
    if _MATHEMATICAL.search(bare) or not _WORD.search(bare):
        return False
    if bare != " ".join(text.split()):
        return True
    return any(len(word) > 2 and word.lower() not in _OPERATORS for word in _WORD.findall(bare))


def plain_words(text: str) -> str:
    """Lower case, no punctuation, single blanks; a time of day as ``10:30`` or ``10:30am``."""
    bare = without_text_commands(text)
    clock = _CLOCK.fullmatch(bare)
    if clock:
        half = f"{clock[1].lower()}m" if clock[1] else ""
        return bare[: bare.index(":") + 3].lstrip("0") + half
    words = _PUNCTUATION.sub(" ", bare).casefold().split()
    return " ".join(words[1:] if len(words) == 2 and words[0] in ("option", "choice") else words)


def same_words(gold: str, answer: str) -> bool:
    """Whether two results of `plain_words` say the same; a part of the other is not enough."""
    return gold == answer or gold.replace(" ", "") == answer.replace(" ", "")
