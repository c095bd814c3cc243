"""Before `cospec tune` decodes: what is on trial, on which problems, and what is to be said of either."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cospec.cli.sweep_options import methods_of
from cospec.cli.sweep_run import Chosen, choose
from cospec.cli.tune_options import TuneOptions

if TYPE_CHECKING:
    from cospec.evaluation import EvalSettings, Method
    from cospec.prompt_rows import PromptRow

#: Rules that depart from the target by a bounded amount, whatever the drafter is certain of.
DEFAULT_RULES = ("cactus", "lenience", "tok_lt")
#: The same for greedy texts, at which cactus and lenience decide as strict does.
GREEDY_RULES = ("tok_lt", "fly", "aasd")
#: Drafters that are part of a target, or trained on one: certain of themselves also where they are wrong.
DEDICATED = ("mtp", "eagle3")
#: Below this share of accepted draft tokens a drafter's own certainty is no guide.
WEAK = 0.6


@dataclass(frozen=True, slots=True)
class Rows:
    """The problems in random order: those that K is chosen from, those rules are tried on, those kept back."""

    probe: Sequence[PromptRow]
    trial: Sequence[PromptRow]
    confirm: Sequence[PromptRow]


def trial_warning(budget: float, confidence: float, num_candidates: int, num_problems: int) -> str | None:
    """What to say of a trial that is too short for any rule but one that gains accuracy."""
    from cospec.evaluation.tune.sequential import least_problems

    least = least_problems(budget / 100, (1 - confidence) / num_candidates)
    if num_problems >= least:
        return None
    fewer = ", name fewer of them" if num_candidates > 1 else ""
    return (
        f"there are {num_problems} problems for the trial, and with {num_candidates} candidates a budget of {budget:g} "
        f"points takes {least} even for a rule that never changes an answer: raise --num or --budget{fewer}, or expect "
        "none to be chosen"
    )


def candidates_of(options: TuneOptions) -> dict[str, Chosen]:
    """What is on trial; without --rule and --arbiter the default rules with the values worth comparing."""
    from cospec.engine.rules import RULES
    from cospec.evaluation.sweep.grid import Grid, MethodGrid

    if options.rule or options.arbiter:
        methods = methods_of(options.rule or [], options.values or [], options.arbiter or [])
    elif options.values:
        raise ValueError("--values is given without --rule or --arbiter: name the methods they are of")
    else:
        names = DEFAULT_RULES if options.temperature else GREEDY_RULES
        knobs = {name: RULES[name].parameters[0] for name in names}
        methods = [MethodGrid(rule=name, values={knob.name: list(knob.grid)}) for name, knob in knobs.items()]
    found = choose(Grid(methods=methods))
    if "strict" in found:
        raise ValueError("strict is what every candidate is compared with: leave it out of --rule")
    return found


def worth_a_trial(candidates: Sequence[Method], settings: EvalSettings, warn: Callable[[str], None]) -> list[Method]:
    """Those that may decide otherwise than strict with these settings; what is left out is said."""
    found = []
    for method in candidates:
        assert not isinstance(method.rule, str), method.name
        longest = settings.num_draft_tokens + (method.bonus_in_use == "arbitrated")
        same = method.rule.same_as_strict(settings.sampling, longest)
        # A law of its own for the bonus token is not strict's.
        if same is None or method.bonus_in_use == "rule":
            found.append(method)
        else:
            warn(f"not tried: {same}")
    return found


def split(rows: Sequence[PromptRow], options: TuneOptions) -> Rows:
    """The problems in parts; ValueError where there are too few."""
    shuffled = list(rows)
    # Tests that may stop at any time want an order that says nothing of the problems.
    random.Random(options.seed).shuffle(shuffled)
    needed = options.probe + options.confirm + (1 if options.budget is not None else 0)
    if len(shuffled) < needed:
        raise ValueError(
            f"there are {len(shuffled)} problems, and --probe {options.probe} with --confirm {options.confirm} need "
            f"{needed} or more: lower them, or raise --num"
        )
    stop = len(shuffled) - options.confirm
    return Rows(shuffled[: options.probe], shuffled[options.probe : stop], shuffled[stop:])


def drafter_warning(share: float | None, drafter: str, rules: Mapping[str, str]) -> str | None:
    """What to say of a drafter beside ``rules``, candidates' rules by name; ``share`` of its tokens were accepted, None
    where there were none."""
    from cospec.engine.rules import RULES

    trusting = [name for name, rule in rules.items() if RULES[rule].trusts_draft]
    found = [f"is weak ({share:.0%} of its tokens are the target's)"] if share is not None and share < WEAK else []
    if drafter.partition(":")[0] in DEDICATED:
        found.append(f"({drafter}) was made for this target alone")
    if not trusting or not found:
        return None
    return (
        f"the drafter {' and '.join(found)}, and {', '.join(trusting)} follow its beliefs: such rules tend to lose "
        "accuracy and to write longer texts with such a drafter"
    )
