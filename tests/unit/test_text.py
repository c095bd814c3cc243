"""Token ids to text: pieces that join, stop strings that are found where they are complete."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

import pytest
from conftest import word_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from cospec.engine.text import TextStream, check_stops, cut_at_stop, decode_text
from cospec.pair_file import TINY_DIRECTORY

#: One, two, three and four bytes, combining marks, a family of joined emoji, a real U+FFFD, blanks and line ends.
TEXTS = (
    "The answer is 42.\n\n",
    " indented\n\tcode  = f(x) . y",
    "naïve café, e\u0301 o\u0308",
    "你好，世界。",
    "한국어 العربية हिन्दी",
    "🙂👩‍👩‍👧‍👦🇩🇪",
    "real \ufffd and \ufffd\ufffd",
    "",
    " ",
)


def byte_level() -> PreTrainedTokenizerFast:
    """As of GPT-2, Llama 3 and Qwen: every token is a run of bytes; a few merges, some of them inside characters."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, "Ġt", "he", "ä½", "ðŁ", "ðŁĻ", "Ġ."]
    merges = [("Ġ", "t"), ("h", "e"), ("ä", "½"), ("ð", "Ł"), ("ðŁ", "Ļ"), ("Ġ", ".")]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<end>", special=True)])
    backend.add_tokens([AddedToken("<tool>", special=False)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", clean_up_tokenization_spaces=True)


def byte_fallback() -> PreTrainedTokenizerFast:
    """As of Llama 2 and Gemma: words with a blank in front, and single bytes where there is no word."""
    words = ["<unk>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "▁the", "answer", "▁is", "你", ".", "e"]
    backend = Tokenizer(
        models.BPE({word: i for i, word in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True)
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken("</s>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="</s>")


@functools.cache
def tokenizer_named(name: str) -> PreTrainedTokenizerBase:
    if name == "tiny":
        return AutoTokenizer.from_pretrained(TINY_DIRECTORY / "target")
    return {"bytes": byte_level, "fallback": byte_fallback, "words": word_tokenizer}[name]()


NAMES = ("bytes", "fallback", "words", "tiny")


def first_stop(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], stops: Sequence[str]) -> tuple[int, str] | None:
    """By decoding everything anew with each token: how many tokens it takes, and the text before the stop string."""
    for count in range(1, len(ids) + 1):
        text = decode_text(tokenizer, ids[:count])
        if any(stop in text for stop in stops):
            return count, cut_at_stop(text, stops)
    return None


def streamed(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], stops: Sequence[str] = ()
) -> tuple[list[str], str]:
    """The pieces that a reader gets, and the final text."""
    stream, pieces = TextStream(tokenizer, stops), []
    for count, token_id in enumerate(ids, 1):
        match = stream.push(token_id)
        assert stream.text == decode_text(tokenizer, ids[:count])
        if match:
            text = decode_text(tokenizer, ids[:count])[: match.start]
            return [*pieces, stream.piece(text)], text
        pieces.append(stream.piece())
    text = decode_text(tokenizer, ids)
    return [*pieces, stream.piece(text)], text


@given(st.sampled_from(NAMES), st.data())
@settings(max_examples=300, deadline=None)
def test_pieces_join_to_the_text_whatever_the_ids(name: str, data: st.DataObject) -> None:
    tokenizer = tokenizer_named(name)
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=40))
    pieces, text = streamed(tokenizer, ids)
    assert "".join(pieces) == text == decode_text(tokenizer, ids)


@pytest.mark.parametrize("text", TEXTS)
def test_no_character_is_handed_on_in_parts(text: str) -> None:
    tokenizer = tokenizer_named("bytes")
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces, whole = streamed(tokenizer, ids)
    assert "".join(pieces) == whole == text
    assert sum(piece.count("\ufffd") for piece in pieces) == text.count("\ufffd")


@given(st.sampled_from(["bytes", "fallback"]), st.data())
@settings(max_examples=400, deadline=None)
def test_a_stop_string_ends_the_text_at_the_token_that_completes_it(name: str, data: st.DataObject) -> None:
    tokenizer = tokenizer_named(name)
    pieces = ["a", "b", "ab", "aab", ".", " ", "你", "é"]
    text = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=16)))
    stops = data.draw(st.lists(st.sampled_from(["ab", "ba", "b", "aa", ".", "你", "a 你", "é.", "aba"]), max_size=3))
    ids = tokenizer.encode(text, add_special_tokens=False)
    expected = first_stop(tokenizer, ids, stops)
    stream, found = TextStream(tokenizer, stops), None
    for count, token_id in enumerate(ids, 1):
        match = stream.push(token_id)
        if match:
            found = count, stream.text[: match.start]
            break
    assert found == expected
    handed_on, whole = streamed(tokenizer, ids, stops)
    assert "".join(handed_on) == whole
    assert not any(stop in whole for stop in stops)


@given(st.lists(st.sampled_from([0x80, 0xA0, 0xBD, 0xC3, 0xE4, 0xED, 0xF0, 0x9F, 0xFF, 0x41]), max_size=60))
@settings(max_examples=100, deadline=None)
def test_bytes_that_are_mostly_no_characters_join_to_the_text_after_each_of_them(values: list[int]) -> None:
    tokenizer = tokenizer_named("bytes")
    ids = [byte_ids()[value] for value in values]
    stream, handed_on = TextStream(tokenizer), ""
    for count, token_id in enumerate(ids, 1):
        stream.push(token_id)
        handed_on += stream.piece()
        assert stream.text == decode_text(tokenizer, ids[:count])
        assert stream.text.startswith(handed_on)
    assert handed_on + stream.piece(decode_text(tokenizer, ids)) == decode_text(tokenizer, ids)


@functools.cache
def byte_ids() -> tuple[int, ...]:
    """The ids of the 256 bytes in a byte-level vocabulary (GPT-2's table)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in plain]
    names = {value: chr(value) for value in plain} | {value: chr(256 + i) for i, value in enumerate(others)}
    return tuple(tokenizer_named("bytes").convert_tokens_to_ids([names[value] for value in range(256)]))


@pytest.mark.parametrize("text", ["the answer 你好 🙂 " * 30, "\ufffd" * 160], ids=["text", "replacements"])
def test_the_window_stays_short(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    tokenizer = tokenizer_named("bytes")
    lengths = window_lengths(monkeypatch, tokenizer.encode(text, add_special_tokens=False))
    assert max(lengths) <= 12


def test_endless_bytes_that_are_no_character_do_not_lengthen_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tokenizer_named("bytes")
    bad = next(i for i in range(len(tokenizer)) if decode_text(tokenizer, [i]) == "\ufffd")
    assert max(window_lengths(monkeypatch, [bad] * 200)) <= 12


def window_lengths(monkeypatch: pytest.MonkeyPatch, ids: Sequence[int]) -> list[int]:
    """How many ids are decoded at a time while these are pushed."""
    tokenizer = tokenizer_named("bytes")
    lengths: list[int] = []
    decode = type(tokenizer).decode

    def watched(self: PreTrainedTokenizerBase, ids: list[int], **options: object) -> str:
        lengths.append(len(ids))
        return decode(self, ids, **options)

    monkeypatch.setattr(type(tokenizer), "decode", watched)
    stream = TextStream(tokenizer)
    for token_id in ids:
        stream.push(token_id)
    assert len(stream.settled) >= len(stream.text) - 8
    return lengths


def test_a_clean_up_of_blanks_does_not_alter_the_text() -> None:
    tokenizer = tokenizer_named("bytes")
    text = "x .y n't , z"
    assert decode_text(tokenizer, tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("stops", "part"),
    [([""], "empty"), (["a\ufffd"], "U+FFFD"), (["x<end>"], "special token '<end>'"), (["ok", ""], "empty")],
)
def test_stop_strings_that_no_text_holds_are_refused(stops: list[str], part: str) -> None:
    with pytest.raises(ValueError, match=part.replace("+", r"\+")):
        check_stops(stops, tokenizer_named("bytes"))


def test_added_tokens_that_texts_show_may_be_stop_strings() -> None:
    check_stops(["<tool>", "e</s>"], tokenizer_named("bytes"))
    tokenizer = tokenizer_named("bytes")
    ids = tokenizer.encode("the<tool>x", add_special_tokens=False)
    assert streamed(tokenizer, ids, ["<tool>"])[1] == "the"


REAL = os.environ.get("COSPEC_REAL_TOKENIZER")


@pytest.mark.skipif(not REAL, reason="COSPEC_REAL_TOKENIZER names no directory with the tokenizer of a real model")
@pytest.mark.parametrize("text", TEXTS)
def test_a_real_tokenizer(text: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(REAL)
    ids = tokenizer.encode(text * 3, add_special_tokens=False)
    pieces, whole = streamed(tokenizer, ids)
    assert "".join(pieces) == whole == text * 3


def reader(text: str, stops: Sequence[str]) -> str:
    """What a decoder that looks after every character would return."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))]
    return text


@given(st.text("ab\n", max_size=20), st.lists(st.text("ab\n", max_size=4), max_size=4))
@settings(max_examples=500, deadline=None)
def test_a_text_is_cut_where_a_watching_decoder_stops(text: str, stops: list[str]) -> None:
    assert cut_at_stop(text, stops) == reader(text, stops)


def test_the_stop_that_is_complete_first_wins_whatever_the_order() -> None:
    assert cut_at_stop("one\ntwo\n\nthree", ["\n\n", "\n"]) == "one"
    assert cut_at_stop("a Question: b", ["Question:", "Q"]) == "a "
    assert cut_at_stop("abc", ["bc", "c"]) == "a"
    assert cut_at_stop("abc", ["", "x"]) == "abc"
    assert cut_at_stop("stop", ["stop"]) == ""
