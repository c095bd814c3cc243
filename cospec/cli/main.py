"""The console script: collects the verbs and turns what a user can cause into one line and an exit code.

A verb is a module of this package with a function `command`, whose docstring's first line is the help text, or, where
there are several things to do, with `COMMANDS` by name and a `HELP`. Verb modules
import nothing heavy at the top, since `cospec --help` imports them all: torch and the rest belong inside `command`.
Exit codes: 0 done, 1 a negative answer (such as `cospec doctor`), 2 wrong use or input, 130 interrupted.
"""

import functools
import os
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from cospec import __version__

# In the order of the help page. A new verb is one new file and one name here.
VERBS = (
    "demo",
    "prompts",
    "generate",
    "rollout",
    "label",
    "eval",
    "sweep",
    "tune",
    "bench",
    "score",
    "overlap",
    "report",
    "doctor",
    # Groups come last on the page.
    "datastore",
)

_FORMAT = warnings.formatwarning
# What the system refuses (a full disk, a missing file) is for the user to mend.
_USER_ERRORS = (ValueError, OSError)


def build_app() -> typer.Typer:
    """The typer application with every verb registered."""
    app = typer.Typer(
        name="cospec",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        # Plain help: rich's would double the start-up time.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for verb in VERBS:
        module = import_module(f"cospec.cli.{verb}")
        if not hasattr(module, "COMMANDS"):
            app.command(verb)(_with_exit_codes(module.command))
            continue
        group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
        # With a callback it stays a group, though it has a single command.
        group.callback()(lambda: None)
        for name, command in module.COMMANDS.items():
            group.command(name)(_with_exit_codes(command))
        app.add_typer(group, name=verb, help=module.HELP)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cospec {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Collaborative speculative decoding: an arbiter decides at every mismatch of a draft and a target model."""


def _with_exit_codes(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except BrokenPipeError:
            # Nobody reads on: typer ends without a word.
            raise
        except _USER_ERRORS as error:
            # A traceback of a user's mistake hides the message; of a fault of ours it is the message.
            if os.environ.get("COSPEC_TRACEBACK"):
                raise
            _say("; kept: ".join([f"error: {error}", *getattr(error, "__notes__", [])]))
            raise typer.Exit(2) from error
        except KeyboardInterrupt as stop:
            _say(_interrupt_line(stop))
            raise typer.Exit(130) from stop

    return wrapped


def _interrupt_line(stop: KeyboardInterrupt) -> str:
    """What `cospec.cli.options.on_interrupt` noted about the work already done."""
    notes = "; ".join(getattr(stop, "__notes__", []))
    return f"interrupted; kept: {notes}" if notes else "interrupted; files written so far stay as they are"


def _say(message: str) -> None:
    print(f"cospec: {message}", file=sys.stderr)


def _warning_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning of this package as a line for users; those of libraries keep the place they come from."""
    if issubclass(category, UserWarning) and Path(filename).is_relative_to(Path(__file__).parents[1]):
        return f"cospec: warning: {message}\n"
    return _FORMAT(message, category, filename, lineno, line)


def run() -> None:
    """Entry point of `cospec` and `python -m cospec`."""
    warnings.formatwarning = _warning_line
    try:
        build_app()(prog_name="cospec")
    except KeyboardInterrupt as stop:
        _say(_interrupt_line(stop))
        sys.exit(130)
