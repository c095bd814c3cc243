"""The reference of all rules as Markdown, made from the registry: part of docs/rules.md.

`python -m cospec.engine.rules.table` prints it.
"""

from __future__ import annotations

from collections.abc import Mapping

from cospec.engine.parameters import Parameter, show
from cospec.engine.rules import RULES
from cospec.engine.rules.spec import RuleInfo


def rules_table(rules: Mapping[str, RuleInfo] = RULES) -> str:
    """An overview, then a section for each rule."""
    rows = [f"| [`{info.name}`](#{info.name}) | {info.summary} | {info.greedy_kind} |" for info in rules.values()]
    overview = ["| rule | what it does | temperature 0 |", "|---|---|---|", *rows]
    return "\n".join([*overview, "", *("\n".join(_section(info)) for info in rules.values())])


def _section(info: RuleInfo) -> list[str]:
    lines = [f"### {info.name}", "", f"{info.summary} `{info.formula}`.", ""]
    if info.parameters:
        lines += ["| parameter | default | values | what it is |", "|---|---|---|---|"]
        lines += [_row(parameter) for parameter in info.parameters] + [""]
    lines += [f"- Strict at: {f'`{info.strict_point}`' if info.strict_point else 'no value'}."]
    if info.relaxed_point:
        lines.append(f"- Accepts everything: {info.relaxed_point}.")
    lines += [f"- At temperature 0: {info.greedy}.", f"- Drafters: {info.drafters}."]
    if info.make:
        usual, has_own = info.default.default_bonus, info.default.has_own_bonus
        lines.append(
            f"- Bonus: `{usual}` unless told otherwise{'; it has a law of its own (`rule`)' if has_own else ''}."
        )
    if info.source:
        lines.append(f"- Source: {info.source}.")
    return [*lines, ""]


def _row(parameter: Parameter) -> str:
    grid = f" Worth comparing: {', '.join(show(value) for value in parameter.grid)}." if parameter.grid else ""
    default = f"{show(parameter.default)} ({parameter.source})"
    meaning = parameter.meaning.replace("|", r"\|")
    return f"| `{parameter.name}` | {default} | {parameter.range} | {meaning}.{grid} |"


if __name__ == "__main__":
    print(rules_table())
