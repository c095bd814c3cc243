"""Open question answering: exact match with any alias after the official normalisations.

Never a substring: "not Mark Twain" is not "Mark Twain", and "A or B" is neither. One answer is taken from the text, the
first of these that is there:

1. the whole text, if it is an alias as it stands;
2. the last `\\boxed{...}`;
3. what follows the last "answer is", "answer:" or the like, up to the end of its line (the next line if that is empty);
4. the only line of the text;
5. the first line, lead-ins that end in a colon skipped, if it has at most 10 words;
6. the last line, if it has at most 10 words.

Of that line the whole is compared, then what is left without an opening such as "It is", a trailing clause (", who
...", " because ...") or further sentences that speak of the answer ("He wrote ...", "The novel ..."): not "False." and
not another name. A later sentence about the answer ("the answer is based on ...") is no statement of one. Known misses:
an answer in the middle of a sentence, and one with an explanation in parentheses.
"""

from __future__ import annotations

import functools
import re
import string
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from cospec.scoring.final_answer import is_remark
from cospec.scoring.final_text import final_text, last_boxes, lines_of
from cospec.scoring.verdict import Verdict

MAX_WORDS = 10
_MAX_CHARS = 500

_MARKER = re.compile(
    r"\banswers?\b(?: to (?:the|this|your) question)?(?:[*_ \t]{0,4}(?:is|was|would be|are|were))?[*_ \t]{0,4}[:=]?",
    re.IGNORECASE,
)
_SAYS = re.compile(r"(?:is|was|would be|are|were|[:=])[*_ \t]*$", re.IGNORECASE)
_OPENING = re.compile(
    r"(?:well, |so,? |therefore,? |hence,? )?(?:it|that|this|he|she|they|these)"
    r"(?:['’]s| is| was| were| are| would be) ",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r",? (?:because|since)\b|, (?:who|whose|which|where|when)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?][\"'”’)*]{0,3}\s+(?=\S)")
#: A further sentence that speaks of an answer, and takes nothing back, begins with one of these.
_EXPLAINS = re.compile(
    r"\W{0,3}(?:he|she|it|they|this|that|these|the|his|her|its|their|in|at|from|born|i|we|source|note|explanation)\b",
    re.IGNORECASE,
)
#: "It is Jane Austen" is another answer, "It is a novel" and "It is in Africa" are not.
_NAMES_ANOTHER = re.compile(r"\W{0,3}(?i:it|that|this)(?:['’]s|(?i:\s+(?:is|was|could be|might be)))\s+[A-Z\d]")
_DENIES = re.compile(
    r"\b(?:not|no|never|wrong|incorrect|false|mistaken|another|instead|rather|or|maybe|perhaps|possibly|could|might)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)
#: A sign, a point or a stroke makes another number: 3.5 is not 35, -5 is not 5.
_MINUS = re.compile(r"^\s*[-−–](?=\d[\d.,]*\s*$)")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)(?!,\d{3}(?!\d))[^\w\s](?=\d)")
_MARKS = "*_`\"'“”‘’«»$ \t"


def score_open_qa(text: str, row: Mapping[str, Any]) -> Verdict:
    """Right where the text's one answer is an alias of ``row["golds"]`` (of ``row["gold"]`` where there are none)."""
    golds = _golds(row)
    if not golds:
        return Verdict("error", reason=f"row {row.get('id')!r} has no 'golds' (a list of texts) and no 'gold'")
    keys = _gold_keys(tuple(golds))
    stated = final_text(text)
    if not stated:
        return Verdict("no_answer", reason="no text, or no end of the thinking")
    if len(stated) <= _MAX_CHARS and _match_keys(stated) & keys:
        return Verdict("right", stated)
    line = _answer_line(stated)
    if line is None:
        return Verdict("no_answer", reason="no marked answer and no line of at most 10 words at the beginning or end")
    for reading in _readings(line):
        if _match_keys(reading) & keys:
            return Verdict("right", reading)
    return Verdict("wrong", line.strip(_MARKS + ".") or line, f"expected {golds[0]!r}" + _others(len(golds)))


def _others(num: int) -> str:
    return f" or one of {num - 1} aliases" if num > 1 else ""


def _golds(row: Mapping[str, Any]) -> list[str]:
    golds = row.get("golds")
    # "golds" takes the place of "gold": an empty list is an error of the data, not a reason to look elsewhere.
    listed = list(golds) if isinstance(golds, list | tuple) else [] if golds is not None else [row.get("gold")]
    return [gold for gold in listed if isinstance(gold, str) and gold.strip()]


# --- normalisation ---------------------------------------------------------------------------------------------------


def normalise(text: str, *, punctuation: str = " ") -> str:
    """Lower case, articles, punctuation and white space as in the official scripts, over all of Unicode's punctuation.

    TriviaQA's script puts a blank in the place of punctuation ("u s"), SQuAD's nothing ("us"): ``punctuation`` is that.
    """
    plain = unicodedata.normalize("NFKC", text).replace("_", " ").lower()
    plain = "".join(char for char in plain if char.isascii() or unicodedata.category(char) != "Cf")
    plain = _BETWEEN_DIGITS.sub(" ", _MINUS.sub("minus ", plain))
    kept = "".join(punctuation if _is_punctuation(char) else char for char in plain)
    return " ".join(word for word in kept.split() if word not in ("a", "an", "the"))


@functools.lru_cache(maxsize=4096)
def _is_punctuation(char: str) -> bool:
    return char in string.punctuation or char in "´`" or unicodedata.category(char).startswith("P")


def _match_keys(text: str) -> frozenset[str]:
    """What two texts must share to be the same answer: either normalisation, or the bare text where both are empty."""
    keys = {normalise(text), normalise(text, punctuation="")} - {""}
    # "The The" or "!!!" are names too; a mark keeps them apart from what other texts are normalised to.
    return frozenset(keys or {f"\0{' '.join(text.casefold().split())}"} - {"\0"})


@functools.lru_cache(maxsize=1024)
def _gold_keys(golds: tuple[str, ...]) -> frozenset[str]:
    return frozenset().union(*map(_match_keys, golds))


# --- the answer in the text ------------------------------------------------------------------------------------------


def _answer_line(text: str) -> str | None:
    boxes = last_boxes(text)
    if boxes:
        return " / ".join(boxes)
    lines = lines_of(text)
    marked = _marked(lines)
    if marked is not None:
        return marked
    if len(lines) == 1:
        return lines[0]
    stated = [line for line in lines if not line.endswith(":")]
    ends = [*stated[:1], *stated[-1:]]
    return next((line for line in ends if len(line.split()) <= MAX_WORDS), None)


def _marked(lines: list[str]) -> str | None:
    """What follows the last marker that says something: "answer" alone is a word like others."""
    for index in range(len(lines) - 1, -1, -1):
        markers = [match for match in _MARKER.finditer(lines[index]) if _SAYS.search(match.group())]
        said = [match for match in markers if not index or not is_remark(lines[index], match)]
        if not said:
            continue
        rest = lines[index][said[-1].end() :]
        if rest.strip(_MARKS + ".:"):
            return rest.strip()
        return lines[index + 1] if index + 1 < len(lines) else None
    return None


def _readings(line: str) -> Iterator[str]:
    """The line, and the line without what may be said around an answer; each without marks and a final stop."""
    # No answer is as long as the limit; behind it the cuts would take time that grows with the square of the length.
    whole = _bare(line) if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]}…"
    yield whole
    for cut in (whole, _first_sentence(whole)):
        opening = _OPENING.match(cut)
        core = cut[opening.end() :] if opening else cut
        clause = _CLAUSE.search(core)
        yield _bare(core)
        if clause and not _DENIES.search(core, clause.end()):
            yield _bare(core[: clause.start()])


def _bare(text: str) -> str:
    return text.strip(_MARKS).rstrip(".").strip(_MARKS)


def _first_sentence(line: str) -> str:
    for end in _SENTENCE_END.finditer(line):
        # Not behind an initial or a title: "J. K. Rowling", "St. Louis".
        last_word = line[: end.start()].rsplit(" ", 1)[-1].strip(_MARKS + "(")
        if len(last_word) <= 1 or last_word.lower() in ("mr", "mrs", "ms", "dr", "st", "jr", "sr", "no", "vs", "mt"):
            continue
        first, rest = line[: end.start()], line[end.end() :]
        explains = _EXPLAINS.match(rest) or _bare(rest).casefold().startswith(f"{_bare(first).casefold()} ")
        return first if explains and not _NAMES_ANOTHER.match(rest) and not _DENIES.search(rest) else line
    return line
