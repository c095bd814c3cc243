"""The marks that models and prompts put around an answer."""

import re

from cospec.scoring.final_answer import end_before

# A mark inside a string or comment of the program is none.
_QUOTED = r"(?:(?P<quote>['\"])[^'\"\n]{0,200}</think>[^'\"\n]{0,200}(?P=quote))"
_REASONING_END = re.compile(rf"{_QUOTED}|</think>")
_END_TOKEN = re.compile(r"(?:<\|[^<>|\s]{1,40}\|>|</s>)\Z")
_BEFORE = r"^[^\n'\"#]*?"
# Few-shot prompts of MBPP, and what some models were trained to write.
_PAIRS = (("[BEGIN]", "[DONE]"), ("[PYTHON]", "[/PYTHON]"))


def without_marks(text: str) -> str:
    """What stands behind the reasoning and between a pair of marks; of a pair, either one may lie in the prompt."""
    text = _behind_reasoning(text[: end_before(text, _END_TOKEN)])
    for begin, end in _PAIRS:
        if found := re.search(_BEFORE + re.escape(end), text, re.MULTILINE):
            text = text[: found.end() - len(end)]
        *_, found = (None, *re.finditer(_BEFORE + re.escape(begin), text, re.MULTILINE))
        if found:
            text = text[found.end() :].lstrip("\n")
    return _without_token_blank(text)


def _behind_reasoning(text: str) -> str:
    ends = [found.end() for found in _REASONING_END.finditer(text) if not found["quote"]]
    if ends:
        return text[ends[-1] :]
    return "" if text.lstrip().startswith("<think>") else text


def _without_token_blank(text: str) -> str:
    """Many tokenizers put one blank before a text's first word; the lines below it have none, or hang on it."""
    return re.sub(r"\A(\s*\n)? (?=\S)(?=[^\n]*(?::[ \t]*\n|\n+(?!\n| \S)))", r"\1", text)
