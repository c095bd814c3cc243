"""How far programs that models wrote are kept from the machine, and how far they have to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from cospec.scoring.code import Isolation

Level = Literal["limits", "contained", "full"]
IsolationOption = Annotated[
    Level | None,
    typer.Option("--minimum-isolation", help="Refuse to run programs where the machine keeps them in less than that."),
]


def say_isolation(minimum: Level | None) -> Isolation:
    """This machine's, told on stderr; ValueError where it is below ``minimum``."""
    from cospec.scoring.code import isolation_here

    found = isolation_here()
    typer.echo(f"cospec: generated programs run under {found}", err=True)
    if minimum is not None:
        found.require(minimum)
    return found
