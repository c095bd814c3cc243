"""Typed configs: dataclasses filled from a YAML file and `a.b=c` overrides; nothing unknown or doubtful is accepted."""

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException

from cospec.jsonl import require_file

ConfigT = TypeVar("ConfigT")
_COMMAND_LINE = "on the command line"


def load_config(cls: type[ConfigT], path: str | Path | None, overrides: Sequence[str]) -> ConfigT:
    """Build the dataclass ``cls`` from its defaults, a YAML file and `a.b=c` overrides, the later ones winning.

    Values are YAML, except that a string field takes its override's text as it stands (`revision=1e5` stays "1e5").
    Raises ValueError, naming key, source and remedy, for a missing file, an unknown key (with the nearest known one), a
    key set twice in one source, a value of the wrong type and a required key without a value; checks that ``cls`` makes
    in ``__post_init__`` raise as they are written there.
    """
    config = OmegaConf.structured(cls)
    if path is not None:
        config = _merge(cls, config, _read_yaml(path), f"in {path}")
    for override in _parse_overrides(cls, overrides):
        config = _merge(cls, config, override.tree(), _COMMAND_LINE)
    return _to_dataclass(config, path)


def to_yaml(config: Any) -> str:
    """The resolved config as YAML, which `load_config` reads back to an equal object; `???` is a missing value."""
    return yaml.safe_dump(_plain(dataclasses.asdict(config)), sort_keys=False, allow_unicode=True, width=120)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, str | Path):
        return _as_it_stands(str(value))
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _as_it_stands(text: str) -> str:
    """A string that is read back as itself and not as an interpolation."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def keys_of(path: str | Path) -> list[str]:
    """The top-level keys of a YAML file; ValueError as `load_config` raises it."""
    return [str(key) for key in _read_yaml(path)]


# --- the sources -----------------------------------------------------------------------------------------------------


def _read_yaml(path: str | Path) -> dict[str, Any]:
    file = require_file(path, "config file")
    try:
        # OmegaConf's loader, unlike plain PyYAML, refuses a key that stands twice and reads 1e-5 as a number.
        content = OmegaConf.to_container(OmegaConf.load(file))
    except yaml.YAMLError as error:
        raise ValueError(f"config file {file} is not valid YAML: {error}") from error
    except OmegaConfBaseException as error:
        raise ValueError(f"config file {file}: {_first_line(error)}; write \\${{ for a plain ${{") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"config file {file} cannot be read ({error}): it must be a YAML mapping in UTF-8") from error
    if not isinstance(content, dict):
        raise ValueError(f"config file {file} holds a list: write `key: value` lines")
    return typing.cast(dict[str, Any], content)


@dataclass(frozen=True, slots=True)
class _Override:
    key: str
    value: Any

    def tree(self) -> dict[str, Any]:
        """The nested mapping that sets this key alone."""
        nested = self.value
        for name in reversed(self.key.split(".")):
            nested = {name: nested}
        return nested


def _parse_overrides(cls: type, overrides: Sequence[str]) -> list[_Override]:
    parsed: list[_Override] = []
    for text in overrides:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key or "" in key.split("."):
            raise ValueError(f"override {text!r} is not of the form key=value: write for example `seed=1` or `a.b=2`")
        _refuse_repeat(key, parsed)
        parsed.append(_Override(key, _override_value(cls, key, value)))
    return parsed


def _refuse_repeat(key: str, earlier: Sequence[_Override]) -> None:
    for other in (override.key for override in earlier):
        if other == key:
            raise ValueError(f"config key '{key}' is set twice {_COMMAND_LINE}: keep one of the two")
        if key.startswith(other + ".") or other.startswith(key + "."):
            raise ValueError(
                f"config keys '{other}' and '{key}' {_COMMAND_LINE} set the same thing: keep one of the two"
            )


def _override_value(cls: type, key: str, text: str) -> Any:
    expected = _type_at(cls, key)
    accepted = _union_members(expected)
    if str in accepted:
        # YAML would read 012 as ten and `on` as true, where a name or a revision is meant.
        return None if type(None) in accepted and text.strip() in ("null", "~", "") else text
    try:
        return OmegaConf.to_container(OmegaConf.create(f"value: {text}"))["value"]  # type: ignore[index, call-overload]
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise ValueError(f"config key '{key}' {_COMMAND_LINE}: {text!r} is not valid YAML ({error})") from error


# --- merging and its errors ------------------------------------------------------------------------------------------


def _merge(cls: type, config: DictConfig, tree: dict[str, Any], source: str) -> DictConfig:
    _refuse_unknown(cls, tree, source)
    try:
        merged = OmegaConf.merge(config, tree)
    except ConfigKeyError as error:
        raise ValueError(f"config key {error.full_key!r} {source}: {_first_line(error)}") from error
    except OmegaConfBaseException as error:
        raise ValueError(_type_error(cls, tree, source, error)) from error
    return typing.cast(DictConfig, merged)


def _refuse_unknown(cls: type, tree: Mapping[str, Any], source: str) -> None:
    known = {key for key, _ in _walk_schema(cls)}
    for key in _tree_keys(cls, tree):
        if key not in known:
            raise _unknown_key(cls, key, source)


def _unknown_key(cls: type, key: str, source: str) -> ValueError:
    known = [known_key for known_key, _ in _walk_schema(cls)]
    return ValueError(f"unknown config key '{key}' {source}: {_suggest(key, known)}")


def _tree_keys(cls: type, tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted keys of a mapping, going down only where the schema has a section (not into free dicts)."""
    fields = _field_types(cls)
    for name, value in tree.items():
        yield f"{prefix}{name}"
        section = _section(fields.get(str(name)))
        if section is not None and isinstance(value, Mapping):
            yield from _tree_keys(section, value, f"{prefix}{name}.")


def _suggest(key: str, known: list[str]) -> str:
    """The nearest key of the same section, else the nearest name in any section, else what the section has."""
    section, _, name = key.rpartition(".")
    siblings = [other for other in known if other.rpartition(".")[0] == section]
    for candidates in (siblings, known):
        by_name = {other.rpartition(".")[2]: other for other in reversed(candidates)}
        near = difflib.get_close_matches(name, by_name, n=1)
        if near:
            return f"did you mean '{by_name[near[0]]}'?"
    return "known keys here: " + ", ".join(siblings or known)


def _type_error(cls: type, tree: Mapping[str, Any], source: str, error: OmegaConfBaseException) -> str:
    key = error.full_key or _only_key(tree)
    reason = _first_line(error)
    try:
        expected = _type_at(cls, key)
    except ValueError:
        return f"config key '{key}' {source} does not fit: {reason}"
    return f"config key '{key}' {source} must be {_type_name(expected)}: {reason}"


def _only_key(tree: Mapping[str, Any]) -> str:
    """The dotted key down to the first mapping that does not have exactly one entry."""
    names: list[str] = []
    node: Any = tree
    while isinstance(node, Mapping) and len(node) == 1:
        name, node = next(iter(node.items()))
        names.append(str(name))
    return ".".join(names) or "(top level)"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _to_dataclass(config: DictConfig, path: str | Path | None) -> Any:
    try:
        return OmegaConf.to_object(config)
    except MissingMandatoryValue as error:
        where = f"in {path} or {_COMMAND_LINE}" if path is not None else f"{_COMMAND_LINE}"
        raise ValueError(f"config key '{error.full_key}' has no default: set it {where}") from error
    except OmegaConfBaseException as error:
        raise ValueError(f"config key '{error.full_key}': {_first_line(error)}") from error


# --- the schema ------------------------------------------------------------------------------------------------------


def _field_types(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _walk_schema(cls: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, kind in _field_types(cls).items():
        yield f"{prefix}{name}", kind
        section = _section(kind)
        if section is not None:
            yield from _walk_schema(section, f"{prefix}{name}.")


def _union_members(kind: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if is_union else (kind,)


def _section(kind: Any) -> type | None:
    """The dataclass a field holds (optional or not), or None for a plain value."""
    members = _union_members(kind)
    return next((member for member in members if isinstance(member, type) and dataclasses.is_dataclass(member)), None)


def _type_at(cls: type, key: str) -> Any:
    """The annotation of a dotted key, Any below a free dict; ValueError with the nearest key if there is none."""
    kind: Any = cls
    for name in key.split("."):
        section = _section(kind)
        if section is None:
            if any(typing.get_origin(member) is dict or member in (dict, Any) for member in _union_members(kind)):
                return Any
            raise _unknown_key(cls, key, _COMMAND_LINE)
        kind = _field_types(section).get(name)
        if kind is None:
            raise _unknown_key(cls, key, _COMMAND_LINE)
    return kind


def _type_name(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(repr(choice) for choice in typing.get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(kind.__members__)
    if dataclasses.is_dataclass(kind):
        return "a section with the keys " + ", ".join(_field_types(typing.cast(type, kind)))
    members = _union_members(kind)
    if len(members) > 1:
        return " or ".join("null" if member is type(None) else _type_name(member) for member in members)
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
    return names.get(kind, str(kind))


def differing_lines(old: str, new: str, ignore: Sequence[str] = ()) -> str:
    """What differs between two configs as `to_yaml` writes them: the first few keys with both values, "" if nothing."""
    before, after = (OmegaConf.create(text) for text in (old, new))
    found = sorted(set(_leaves(before)) ^ set(_leaves(after)))
    names = list(dict.fromkeys(name for name, _ in found if name not in ignore))
    values = [dict(_leaves(tree)) for tree in (before, after)]
    shown = [f"{name} was {values[0].get(name, 'unset')}, now {values[1].get(name, 'unset')}" for name in names[:4]]
    return "; ".join([*shown, *(["..."] if len(names) > 4 else [])])


def _leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(tree, DictConfig):
        for key in tree:
            yield from _leaves(tree[key], f"{prefix}.{key!s}" if prefix else str(key))
    else:
        yield prefix, str(tree)
