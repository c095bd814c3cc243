"""The only builder of prompt ids: training, evaluation and serving all call it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

from cospec.pair import PairSpec
from cospec.prompt_rows import PromptRow


class Templated(Protocol):
    """What prompts need of a pair."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase: ...

    @property
    def spec(self) -> PairSpec: ...


def row_prompt_ids(pair: Templated, row: PromptRow, *, raw: bool = False) -> list[int]:
    """Token ids of a prompt row: its own `prompt_ids`, or those of its text or messages. ValueError names the row."""
    if row.prompt_ids is not None:
        return list(row.prompt_ids)
    try:
        return prompt_ids(pair, row.prompt if row.prompt is not None else row.messages or "", raw=raw)
    except ValueError as error:
        raise ValueError(f"row {row.id!r}: {error}") from error


def prompt_ids(pair: Templated, prompt: str | Sequence[Mapping[str, Any]], *, raw: bool = False) -> list[int]:
    """Token ids of a prompt text or of chat messages, through the pair's chat template unless ``raw``.

    A plain text becomes one user message behind the pair's system prompt. A tokenizer without a template takes the
    text as it is. There is exactly one BOS where the tokenizer has one. ValueError for an empty prompt.
    """
    contents = [prompt] if isinstance(prompt, str) else [message.get("content") for message in prompt]
    if not any(text.strip() if isinstance(text, str) else text for text in contents):
        raise ValueError("the prompt is empty: give at least one word")
    tokenizer = pair.tokenizer
    if raw or not tokenizer.chat_template:
        if not isinstance(prompt, str):
            raise ValueError(
                "chat messages need a chat template, and there is none here (or --raw is set): give a text"
            )
        # Not verbose: a prompt that is too long is refused by name.
        return one_bos(tokenizer.encode(prompt, verbose=False), tokenizer.bos_token_id)
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    return templated_ids(pair, chat_text(pair, messages))


def chat_text(pair: Templated, messages: Sequence[Mapping[str, Any]], *, open_answer: bool = True) -> str:
    """The messages through the pair's chat template, behind its system prompt unless they bring their own.

    ``open_answer`` False leaves the last message open, to be gone on with.
    """
    if pair.spec.system_prompt and messages[0]["role"] != "system":
        messages = [{"role": "system", "content": pair.spec.system_prompt}, *messages]
    text = pair.tokenizer.apply_chat_template(
        list(messages),
        tokenize=False,
        add_generation_prompt=open_answer,
        continue_final_message=not open_answer,
        **pair.spec.chat_template_kwargs,
    )
    assert isinstance(text, str)
    return text


def templated_ids(pair: Templated, text: str) -> list[int]:
    """Token ids of a text that a chat template has written, special tokens and all: nothing is added to it."""
    return one_bos(pair.tokenizer.encode(text, add_special_tokens=False, verbose=False), pair.tokenizer.bos_token_id)


def one_bos(ids: list[int], bos: int | None) -> list[int]:
    """``ids`` with every leading BOS but one removed; a template and a tokenizer may each have added one."""
    while bos is not None and len(ids) > 1 and ids[0] == bos and ids[1] == bos:
        ids = ids[1:]
    return ids
