"""From token ids to the texts people read, one piece per token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from cospec.evaluation.report.text import shown

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: What decoding writes where bytes form no whole character.
_BROKEN = "\ufffd"
#: Enough tokens before a piece for a tokenizer that treats the first token of a text in its own way.
_CONTEXT = 6


class TokenTexts:
    """Texts of ids under a tokenizer; without one, every id is shown as its number in angle brackets."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self.tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids if tokenizer is not None else ())

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One text per id; together they are the decoded text, special tokens included.

        A character whose bytes lie in several tokens belongs to the last of them, the others are empty.
        """
        if self.tokenizer is None:
            return [f"⟨{token}⟩" for token in ids]
        found: list[str] = []
        context, pending = 0, 0
        for index in range(len(ids)):
            before, after = self._decode(ids[context:pending]), self._decode(ids[context : index + 1])
            last = index + 1 == len(ids)
            if (after.endswith(_BROKEN) and not last) or len(after) < len(before):
                found.append("")
                continue
            found.append(after[len(before) :])
            pending = index + 1
            context = max(0, pending - _CONTEXT)
        return found

    def one(self, context: Sequence[int], token: int) -> str:
        """The text that ``token`` would add behind ``context``; where that is no whole character, its name."""
        if self.tokenizer is None:
            return f"⟨{token}⟩"
        tail = list(context[-_CONTEXT:])
        # The context may end within a character, which the token then completes.
        before, after = self._decode(tail).rstrip(_BROKEN), self._decode([*tail, token])
        added = after[len(before) :] if after.startswith(before) else ""
        if added and not added.endswith(_BROKEN):
            return added
        name = self.tokenizer.convert_ids_to_tokens(token)
        return f"⟨{name if isinstance(name, str) else token}⟩"

    def marked(self, token: int, piece: str) -> Markup:
        """A piece as HTML; a special token, such as the one that ends a text, is told from the same letters."""
        if self.tokenizer is not None and token in self._special:
            return Markup('<i class="ctl">{}</i>').format(shown(piece))
        return shown(piece)

    def text(self, ids: Sequence[int]) -> str:
        """All ids as one text, special tokens included."""
        return self._decode(ids) if self.tokenizer is not None else " ".join(f"⟨{token}⟩" for token in ids)

    def _decode(self, ids: Sequence[int]) -> str:
        assert self.tokenizer is not None
        text = self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text
