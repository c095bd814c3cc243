"""How drafters are named: `NAME`, `NAME:param=value,...`, `NAME:PATH` or `NAME:PATH,param=value,...`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cospec.engine.drafters.base import Drafter
from cospec.engine.parameters import Parameter, Value, filled, read_values, spec_of


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    """A kind of drafter: ``make`` takes its parameters by name and, where it lives in files, their ``path``.

    ``files`` says in words what the path names, None where there is none; with ``files_optional`` it may be left out.
    ``source`` is where the method comes from.
    """

    name: str
    about: str
    source: str
    make: Callable[..., Drafter]
    parameters: tuple[Parameter, ...] = ()
    files: str | None = None
    files_optional: bool = False

    def read(self, text: str) -> Drafter:
        """The drafter of ``text``, the part of a spec behind the colon; ValueError for what it cannot take."""
        owner, known = f"drafter {self.name!r}", {own.name: own for own in sorted(self.parameters, key=_by_name)}
        path, parts = taken_apart(text)
        values = filled(owner, known, read_values(owner, known, parts, "param=value"))
        if path is None and self.files is not None and not self.files_optional:
            raise ValueError(f"drafter {self.name!r} lacks {self.files}: write {self.name}:PATH")
        if path is not None and self.files is None:
            raise ValueError(
                f"drafter {self.name!r}: {path!r} is no parameter, and it has no files: write param=value, or drop it"
            )
        return self.make(**({} if path is None else {"path": path}), **values)


def _by_name(parameter: Parameter) -> str:
    return parameter.name


def taken_apart(text: str) -> tuple[str | None, list[str]]:
    """The path in ``text``, the part of a spec behind the colon, and the parts behind it that name parameters."""
    first, *others = text.split(",") if text.strip() else [""]
    name, equals, _ = (piece.strip() for piece in first.partition("="))
    # A path may hold an equals sign; what stands before it is then no name.
    if equals and name.isidentifier():
        return None, [first, *others]
    return first.strip() or None, others


def drafter_spec(name: str, path: str | None, values: Mapping[str, Value]) -> str:
    """The canonical spec: the path, then the parameters that have a value, by name."""
    spec = spec_of(name, {key: value for key, value in values.items() if value is not None})
    if path is None:
        return spec
    return f"{name}:{path}" + ("," + spec.partition(":")[2] if ":" in spec else "")
