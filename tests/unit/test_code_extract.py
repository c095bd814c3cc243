"""Finding the program in a model's text: a table of known forms, and properties over any text."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cospec.jsonl import read_jsonl
from cospec.scoring.code import extract_code

ROWS = list(read_jsonl(Path(__file__).parent.parent / "data" / "scoring" / "code_extract.jsonl"))
PROMPT = "import math\n\n\ndef add(a, b):\n    '''Adds.'''\n"
BODY = "    total = a + b\n\n    return total\n"
FUNCTION = "def add(a, b):\n    total = a + b\n\n    return total\n"


def sources(text: str, prompt: str = "", names: tuple[str, ...] = ("add",)) -> tuple[str, ...] | None:
    found = extract_code(text, code_prompt=prompt, names=names)
    return None if found is None else found.sources


def test_the_table_names_every_form_once() -> None:
    names = [row["name"] for row in ROWS]
    assert len(set(names)) == len(names) >= 60


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_known_forms(row: dict[str, Any]) -> None:
    found = sources(row["text"], row["code_prompt"], tuple(row["names"]))
    assert (None if found is None else list(found)) == row["sources"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_carriage_returns_never_matter(row: dict[str, Any]) -> None:
    text, prompt, names = row["text"].replace("\r\n", "\n"), row["code_prompt"], tuple(row["names"])
    assert sources(text.replace("\n", "\r\n"), prompt, names) == sources(text, prompt, names)


# Sentences, not words that could be code.
PROSE = st.sampled_from(
    ["", "Here is the answer:", "Sure! Let us think.", "It's simple (really).", "Step 1. Add them."]
)


@given(PROSE, PROSE, st.sampled_from(["```", "~~~", "````"]), st.sampled_from(["", "python", "py", " Python3"]))
def test_prose_around_a_fence_never_matters(before: str, after: str, fence: str, tag: str) -> None:
    assert sources(f"{before}\n\n{fence}{tag}\n{FUNCTION}{fence}\n{after}") == (FUNCTION,)


@given(PROSE, PROSE)
def test_prose_around_a_function_never_matters(before: str, after: str) -> None:
    assert sources(f"{before}\n\n{FUNCTION}\n{after}") == (FUNCTION,)


@given(st.text())
def test_what_follows_a_body_at_the_left_margin_never_matters(after: str) -> None:
    # Nothing here opens a fence, or is one of the marks around an answer.
    after = after.replace("`", "").replace("~", "").replace("[", "").replace("</think>", "")
    assert sources(f"{BODY}\ndef other():\n    pass\n{after}", PROMPT) == (PROMPT + BODY,)


@given(st.text(alphabet=st.sampled_from("`~\n\r\t {}[]()'\"#:=@.,<>/\\defclasimport return add\x00\ud800é")))
def test_extraction_is_total(text: str) -> None:
    for prompt in ("", PROMPT):
        found = extract_code(text, code_prompt=prompt, names=("add",))
        assert found is None or (found.code.strip() and found.sources[-1].endswith(found.code))


LONG = {
    "quotes": "'" * 200_000,
    "escaped quotes": "\\'" * 100_000,
    "brackets": "(" * 200_000,
    "fences": "```\n" * 50_000,
    "fences with a tag": "```python\nadd = 1\n```\n" * 10_000,
    "blocks that supply each other": "".join(f"```\nx{i} = x{i + 1}\n```\n" for i in range(9_000))
    + "```\nadd = x0\n```",
    "a tag without end": "```" + "a" * 200_000 + "!",
    "imports": "```\nfrom " + "import " * 30_000 + "\n```",
    "commas": "a," * 100_000 + "\n" + FUNCTION,
    "blanks": " " * 200_000 + "x",
    "blank lines": "\n" * 200_000,
    "dots": "@" + "a." * 100_000,
    "definitions": "def f():\n" * 20_000,
    "triple quotes": '"""' * 70_000,
    "nested": "    " * 50_000 + "return 1",
    "deep lines": "```python\n" + (" " * 500 + "x\n") * 2_000 + "```",
    "reverted fences": "```python\n'''\n" + "```\n" * 50_000 + "```python\n",
    "import lines": "import a\n" * 20_000,
    "annotations": "x:" * 100_000,
    "loops": "for " * 50_000,
    "f-strings": "f'{a" * 50_000,
    "special tokens": "```python\nx```" + "<a>" * 70_000 + "!",
    "marks": "[BEGIN][DONE]</think>" * 10_000,
}


@pytest.mark.parametrize("name", LONG)
def test_long_texts_take_time_in_proportion(name: str) -> None:
    before = time.process_time()
    for prompt in ("", PROMPT):
        extract_code(LONG[name], code_prompt=prompt, names=("add",))
    # Anything quadratic takes minutes at these lengths, so that this bound says more than it seems to.
    assert time.process_time() - before < 20


PIECES = sorted({piece for row in ROWS for piece in row["text"].split("\n")})


@pytest.mark.slow
@settings(max_examples=100_000, deadline=None)
@given(st.lists(st.sampled_from(PIECES)))
def test_shuffled_lines_of_the_table_never_fail(lines: list[str]) -> None:
    text = "\n".join(lines)
    for prompt in ("", PROMPT):
        found = extract_code(text, code_prompt=prompt, names=("add",))
        assert found is None or json.dumps(found.sources)
