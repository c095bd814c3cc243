"""The bundled tiny pair loads as two ordinary model directories that fit each other."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from cospec.tasks.word_problems import generate

ASSETS = Path(__file__).parents[2] / "cospec" / "assets" / "tiny"
MEGABYTES = 12
TOKENIZER = AutoTokenizer.from_pretrained(ASSETS / "draft")


def chat(messages: list[dict[str, str]], **options: bool) -> list[int]:
    """Token ids of rendered messages."""
    return TOKENIZER.apply_chat_template(messages, tokenize=True, return_dict=False, **options)


def test_the_assets_are_small() -> None:
    assert sum(file.stat().st_size for file in ASSETS.rglob("*") if file.is_file()) <= MEGABYTES * 2**20


def test_both_models_carry_the_same_tokenizer() -> None:
    files = [(ASSETS / part / "tokenizer.json").read_bytes() for part in ("tokenizer", "draft", "target")]
    assert files[0] == files[1] == files[2]


@pytest.mark.parametrize("role", ["draft", "target"])
def test_a_model_loads_and_agrees_with_the_tokenizer(role: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(ASSETS / role)
    assert model.config.vocab_size == len(TOKENIZER)
    assert model.config.max_position_embeddings == TOKENIZER.model_max_length == 512
    assert model.generation_config.eos_token_id == TOKENIZER.eos_token_id
    assert json.loads((ASSETS / role / "config.json").read_text())["dtype"] == "float32"


def test_the_target_is_the_larger_model() -> None:
    draft, target = ((ASSETS / role / "model.safetensors").stat().st_size for role in ("draft", "target"))
    assert 1.5 * draft < target


def test_special_tokens_are_three_different_ones() -> None:
    special = {TOKENIZER.bos_token_id, TOKENIZER.eos_token_id, TOKENIZER.pad_token_id}
    assert len(special) == 3
    assert None not in special


def test_every_digit_is_a_token_of_its_own() -> None:
    ids = TOKENIZER(" 90125+3467=8", add_special_tokens=False)["input_ids"]
    assert [TOKENIZER.decode([token]) for token in ids] == list(" 90125+3467=8")
    tokens = [TOKENIZER.decode([token]) for token in range(len(TOKENIZER))]
    assert sorted(token for token in tokens if any(c.isdigit() for c in token)) == list("0123456789")


@given(st.text())
def test_any_text_survives_the_tokenizer(text: str) -> None:
    ids = TOKENIZER(text)["input_ids"]
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == text


@given(st.text())
def test_the_chat_template_gives_exactly_one_bos(text: str) -> None:
    messages = [{"role": "system", "content": text}, {"role": "user", "content": text}]
    for chosen in (messages, messages[1:]):
        ids = chat(chosen, add_generation_prompt=True)
        assert ids[0] == TOKENIZER.bos_token_id
        assert ids.count(TOKENIZER.bos_token_id) == 1


def test_the_assistant_turn_continues_the_generation_prompt() -> None:
    user = {"role": "user", "content": "How many?"}
    prompt = chat([user], add_generation_prompt=True)
    whole = chat([user, {"role": "assistant", "content": "First"}])
    assert whole[: len(prompt)] == prompt
    assert TOKENIZER.decode(whole[len(prompt) :]) == f"First{TOKENIZER.eos_token}\n"


def test_template_words_are_single_tokens() -> None:
    problems = generate(200, 1)
    words = [word for p in problems for word in p.solution.replace("\n", " ").split(" ") if word.isalpha()]
    pieces = [len(TOKENIZER(" " + word, add_special_tokens=False)["input_ids"]) for word in words]
    assert sum(count == 1 for count in pieces) >= 0.95 * len(pieces)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Rendered prompts of a few held-out problems."""
    return [chat([{"role": "user", "content": p.prompt}], add_generation_prompt=True) for p in generate(20, 4242)]


@pytest.mark.parametrize("role", ["draft", "target"])
def test_a_model_writes_solutions_that_end(role: str, prompts: list[list[int]]) -> None:
    model = AutoModelForCausalLM.from_pretrained(ASSETS / role)
    ended = 0
    for prompt in prompts:
        output = model.generate(torch.tensor([prompt]), max_new_tokens=128)[0].tolist()
        ended += output[-1] == TOKENIZER.eos_token_id and "\nAnswer: " in TOKENIZER.decode(output)
    assert ended >= 0.9 * len(prompts)
