"""Rollout records made by hand, and a pair directory with nothing but a byte-level tokenizer, for tests of reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from cospec.engine.record import Block, Decision, Rollout, Sampling, Settings, Timings

#: Texts a model may write: markup, scripts, quotes, template syntax, controls, directions, emoji, broken bytes.
HOSTILE = (
    "<script>window.pwned = 1</script>",
    "</script></style></svg></title><img src=x onerror='window.pwned=1'>",
    '"><b onmouseover="window.pwned=1">x</b> &amp; &lt; \' `',
    "{{ 7 * 7 }} {% raw %} {# gone #}",
    "<!-- --> ]]> <![CDATA[ javascript:window.pwned=1",
    "a\x00b\x07c\x1b[31md\x7fe\r\nf\tg\u0085h\u2028i\u2029j",
    "\u202egnp.exe\u202c \u2066iso\u2069 \u200f\u200e\u061c\ufeff\u200b\u00ad",
    "שלום עולם مرحبا بالعالم 123 abc",
    "👩‍👩‍👧‍👦 🇩🇪 é ñ Å 漢字かな교 𝔘𝔫𝔦 ☃️",
    "really a \ufffd here, and \ufdd0 \uffff",
    "  leading,   inner  and trailing   \n\n\n",
    "",
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Every byte is a token, so that most characters are split; the last id ends a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>")


def write_tokenizer_pair(directory: Path) -> Path:
    """A PAIR.yaml whose models are tokenizers without weights: all that a report may load."""
    for role in ("draft", "target"):
        byte_tokenizer().save_pretrained(directory / role)
    file = directory / "pair.yaml"
    file.write_text("draft: {path: draft}\ntarget: {path: target}\n", encoding="utf-8")
    return file


def settings(rule: str = "arbiter", threshold: float | None = 0.5) -> Settings:
    return Settings(0, rule, 5, "arbitrated", 64, Sampling(), (), threshold)


def rollout(
    row_id: str | int, ids: Sequence[int], decisions: Sequence[Decision] = (), *, rule: str = "arbiter"
) -> Rollout:
    """Blocks of six of ``ids``; a decision's position counts from the text's beginning. The text is not filled in."""
    blocks = []
    for first in range(0, len(ids), 6):
        part = tuple(ids[first : first + 6])
        mine = [
            dataclasses.replace(one, position=one.position - first)
            for one in decisions
            if first <= one.position < first + 6
        ]
        fell = next((one.position for one in mine if not one.kept), None)
        blocks.append(Block(1 + first, part, part, tuple(mine), len(part) if fell is None else fell, part))
    threshold = 0.5 if rule == "arbiter" else None
    return Rollout(row_id, (1,), tuple(ids), "", tuple(blocks), "length", settings(rule, threshold), Timings())


def decision(position: int, keep_prob: float, risk: float = 1e-5, *, kept: bool | None = None) -> Decision:
    """A decision that follows its probability unless told otherwise; draft 65 (A), target 66 (B)."""
    return Decision(position, 65, 66, risk, keep_prob, keep_prob > 0.5 if kept is None else kept)


class Parsed(HTMLParser):
    """What a parser makes of a page: tags, attributes, and the text of the elements of one class."""

    def __init__(self, html: str, text_class: str = "") -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self._class, self._stack = text_class, list[tuple[str, bool]]()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag in ("meta", "link", "img", "input", "br", "path", "use"):
            return
        is_text = bool(self._class) and self._class in (dict(attrs).get("class") or "").split()
        if is_text:
            self.texts.append("")
        inside = bool(self._stack and self._stack[-1][1])
        # The candidate that was not taken is no part of the text.
        self._stack.append((tag, is_text or (inside and tag != "s")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        while self._stack and self._stack.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._stack and self._stack[-1][1]:
            self.texts[-1] += data

    def values(self, name: str) -> list[str]:
        """All values of an attribute."""
        return [value for _, attribute, value in self.attributes if attribute == name]
