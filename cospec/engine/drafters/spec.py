"""How drafters are named: `NAME`, `NAME:param=value,...`, `NAME:PATH` or `NAME:PATH,param=value,...`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cospec.engine.drafters.base import Drafter
from cospec.engine.rules.spec import Parameter, Value, spec_of


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    """A kind of drafter: ``make`` takes its parameters by name and, where it lives in files, their ``path``.

    ``files`` says in words what the path names, None where there is none; ``source`` is where the method comes from.
    """

    name: str
    about: str
    source: str
    make: Callable[..., Drafter]
    parameters: tuple[Parameter, ...] = ()
    files: str | None = None

    def read(self, text: str) -> Drafter:
        """The drafter of ``text``, the part of a spec behind the colon; ValueError for what it cannot take."""
        known = {parameter.name: parameter for parameter in self.parameters}
        values: dict[str, Any] = {name: parameter.default for name, parameter in known.items()}
        path, given = self._taken_apart(text)
        for name, value in given.items():
            if name not in known:
                takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
                raise ValueError(f"drafter {self.name!r} has no parameter {name!r}: {takes}")
            try:
                values[name] = known[name].read(value)
                known[name].check(values[name])
            except ValueError as error:
                raise ValueError(f"drafter {self.name!r}: {error}") from None
        if path is None and self.files is not None:
            raise ValueError(f"drafter {self.name!r} lacks {self.files}: write {self.name}:PATH")
        if path is not None and self.files is None:
            raise ValueError(
                f"drafter {self.name!r}: {path!r} is no parameter, and it has no files: write param=value, or drop it"
            )
        return self.make(**({} if path is None else {"path": path}), **values)

    def _taken_apart(self, text: str) -> tuple[str | None, dict[str, str]]:
        """The path, and the values by parameter."""
        path, given = None, dict[str, str]()
        for place, part in enumerate(text.split(",") if text.strip() else ()):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            # A path may hold an equals sign; what stands before it is then no name.
            if place == 0 and not (equals and name.isidentifier()):
                path = part.strip() or None
            elif not equals or not value:
                raise ValueError(f"drafter {self.name!r}: {part!r} is no parameter: write param=value")
            elif name in given:
                raise ValueError(f"drafter {self.name!r}: {name} is given twice: keep one")
            else:
                given[name] = value
        return path, given


def drafter_spec(name: str, path: str | None, values: Mapping[str, Value]) -> str:
    """The canonical spec: the path, then the parameters that have a value, by name."""
    spec = spec_of(name, {key: value for key, value in values.items() if value is not None})
    if path is None:
        return spec
    return f"{name}:{path}" + ("," + spec.partition(":")[2] if ":" in spec else "")
