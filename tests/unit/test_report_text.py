"""Model text in a report: inert, whole, and one piece per token."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_records import HOSTILE, Parsed, byte_tokenizer

from cospec.evaluation.report.text import plain, shortened, shown
from cospec.evaluation.report.tokens import TokenTexts

TOKENIZER = byte_tokenizer()
TEXTS = TokenTexts(TOKENIZER)
any_text = st.text(st.characters(exclude_categories=()), max_size=40)
MARK = re.compile(r'<i class="ctl"(?: title="U\+([0-9A-F]+)")?>[^<]*</i>(\n|\t)?')


def unmarked(markup: str) -> str:
    """The text that `shown` was given, from its markup: every mark says which character it stands for."""
    return html.unescape(MARK.sub(lambda m: chr(int(m[1], 16)) if m[1] else "\n", markup))


@given(any_text)
@settings(max_examples=300, deadline=None)
def test_shown_text_has_no_markup_but_marks_and_loses_nothing(text: str) -> None:
    markup = str(shown(text))
    assert set(Parsed(markup).tags) <= {"i"}
    assert unmarked(markup) == text
    # Nothing is left that a browser drops, obeys or cannot encode.
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]", markup)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_it_is(text: str) -> None:
    assert unmarked(str(shown(text))) == text
    assert "\n" not in plain(text)
    assert "\n" not in shown(text, line_breaks=False)


def test_hidden_characters_are_visible() -> None:
    assert plain("a\x00b\x1b\x7f\u202e\ud800") == "a␀b␛␡[U+202E][U+D800]"
    assert plain("\ufdd0\U0001fffe\ufffd") == "[U+FDD0][U+1FFFE]\ufffd"
    assert 'title="U+202E">[U+202E]</i>' in shown("\u202e")
    assert plain("👩‍👧 é") == "👩‍👧 é"


def test_shortened_keeps_the_wanted_end() -> None:
    assert shortened("abcdef", 4) == "abc…"
    assert shortened("abcdef", 4, keep_end=True) == "…def"
    assert shortened("abcd", 4) == "abcd"


# --- tokens ----------------------------------------------------------------------------------------------------------


def letter(byte: int) -> str:
    """The letter that stands for a byte in a byte-level vocabulary."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [other for other in range(256) if other not in visible]
    return chr(byte) if byte in visible else chr(256 + hidden.index(byte))


IDS = {byte: TOKENIZER.convert_tokens_to_ids(letter(byte)) for byte in range(256)}


def ids_of(content: bytes) -> list[int]:
    """One id per byte, whole characters or not."""
    return [IDS[byte] for byte in content]


@given(st.one_of(any_text.map(lambda text: text.encode("utf-8", "replace")), st.binary(max_size=30)))
@settings(max_examples=200, deadline=None)
def test_pieces_are_one_per_token_and_join_to_the_text(content: bytes) -> None:
    ids = ids_of(content)
    pieces = TEXTS.pieces(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == TEXTS.text(ids) == content.decode("utf-8", "replace")


def test_a_split_character_belongs_to_its_last_token() -> None:
    assert TEXTS.pieces(ids_of("aé漢b".encode())) == ["a", "", "é", "", "", "漢", "b"]
    # A real replacement character is not taken for a broken one.
    assert TEXTS.pieces(ids_of("\ufffdx".encode())) == ["", "", "", "\ufffdx"]


def test_a_candidate_is_read_behind_its_context() -> None:
    first, second = ids_of("é".encode())
    assert TEXTS.one([first], second) == "é"
    assert TEXTS.one([], first) == "⟨Ã⟩"
    assert TEXTS.one(ids_of(b"ab"), ids_of(b"<")[0]) == "<"


def test_without_a_tokenizer_ids_are_numbers() -> None:
    numbers = TokenTexts(None)
    assert numbers.pieces([3, 70000]) == ["⟨3⟩", "⟨70000⟩"]
    assert numbers.one([1], 5) == "⟨5⟩"
    assert numbers.text([1, 2]) == "⟨1⟩ ⟨2⟩"
