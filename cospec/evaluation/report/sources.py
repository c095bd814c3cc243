"""What the records do not say themselves: the tokenizer their ids belong to, and verdicts for unscored texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cospec.engine.record import Rollout
from cospec.evaluation.report.find import CONFIG, PAIR_FILE, RolloutFile, nearest_file
from cospec.evaluation.report.tokens import TokenTexts
from cospec.jsonl import dumps
from cospec.pair import ModelSpec, PairSpec, load_tokenizer
from cospec.pair_file import read_pair_file
from cospec.prompt_rows import PromptRow
from cospec.scoring import UserScorer, Verdict, safe_score


class Scorer:
    """Scores rollouts by the prompt rows they were decoded from; ``num_scored`` tells whether any was."""

    def __init__(self, rows: Sequence[PromptRow], scorer: UserScorer) -> None:
        self._rows: Mapping[str | int, PromptRow] = {row.id: row for row in rows}
        self._scorer = scorer
        self.num_scored = 0

    def __call__(self, rollout: Rollout) -> Verdict | None:
        row = self._rows.get(rollout.id)
        if row is None:
            return None
        self.num_scored += 1
        return safe_score(self._scorer, rollout.text, row.scorer_row())


class Tokenizers:
    """The tokenizer of each rollout file, loaded once per pair; ``notes`` say where there is none."""

    def __init__(self, given: PairSpec | None) -> None:
        self._given = given
        self._loaded: dict[str, TokenTexts] = {}
        self.notes: list[str] = []

    def of(self, file: RolloutFile) -> TokenTexts:
        """Texts of the file's ids: by the pair given, the one its run names, or as numbers where neither can be had."""
        try:
            spec = self._given or _recorded_pair(file)
        except ValueError as error:
            return self._none(file, str(error))
        if spec is None:
            return self._none(file, "no pair is named beside it")
        key = dumps(dataclasses.asdict(spec))
        if key not in self._loaded:
            try:
                self._loaded[key] = TokenTexts(load_tokenizer(spec))
            except ValueError as error:
                self._loaded[key] = self._none(file, str(error))
        return self._loaded[key]

    def _none(self, file: RolloutFile, reason: str) -> TokenTexts:
        self.notes.append(f"{file.name} shows token ids in place of texts ({reason}); name its pair with --pair")
        return TokenTexts(None)


def _recorded_pair(file: RolloutFile) -> PairSpec | None:
    """The pair that the settings of the evaluation, a pair file near the records, or the run's config names."""
    if file.evaluation is not None and isinstance(recorded := file.evaluation.settings.get("pair"), Mapping):
        return _from_record(recorded)
    path = file.paths[0]
    if pair_file := nearest_file(path, PAIR_FILE):
        return read_pair_file(pair_file)
    config = nearest_file(path, CONFIG)
    return None if config is None else _from_config(config)


def _from_config(config: Path) -> PairSpec | None:
    """The pair of a training run; its path counts from where the run was started, so it may be out of reach here."""
    try:
        tree = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{config} is not YAML") from error
    pair = tree.get("pair") if isinstance(tree, Mapping) else None
    named = pair.get("path") if isinstance(pair, Mapping) else None
    return read_pair_file(named) if isinstance(named, str) else None


def _from_record(recorded: Mapping[str, Any]) -> PairSpec:
    try:
        models = {role: recorded[role] and ModelSpec(**recorded[role]) for role in ("draft", "target")}
        return PairSpec(**(dict(recorded) | models))
    except (KeyError, TypeError) as error:
        raise ValueError(f"the settings name a pair of another version ({error})") from error
