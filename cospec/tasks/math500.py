r"""MATH-500 (Lightman et al. 2023): competition problems with LaTeX answers. Rows {"problem", "solution", "answer"}.

The worked examples are ours: the 500 rows have no training split of their own, and MATH's is not freely licensed.
"""

from __future__ import annotations

from cospec.tasks.base import Problem, RawRow, Task, UnusableRow
from cospec.tasks.source import Part, Published

ASK = "{question}\n\nReason step by step, and put your final answer within \\boxed{}."

EXAMPLES = (
    Problem(
        "example/parabola",
        "Find the sum of the two values of $x$ for which $x^2 - 7x + 10 = 0$.",
        "7",
        "The equation factors as $(x - 2)(x - 5) = 0$, so $x = 2$ or $x = 5$.\nTheir sum is $2 + 5 = \\boxed{7}$.",
    ),
    Problem(
        "example/dice",
        "Two fair six-sided dice are rolled. What is the probability that their sum is 5?",
        "\\frac{1}{9}",
        "The pairs with sum 5 are $(1,4), (2,3), (3,2), (4,1)$: 4 of 36.\n"
        "The probability is $\\frac{4}{36} = \\boxed{\\frac{1}{9}}$.",
    ),
    Problem(
        "example/triangle",
        "A right triangle has legs of lengths 4 and 6. Express the length of its hypotenuse in simplest radical form.",
        "2\\sqrt{13}",
        "By the Pythagorean theorem the hypotenuse is $\\sqrt{4^2 + 6^2} = \\sqrt{52}$.\n"
        "Since $52 = 4 \\cdot 13$, this is $\\boxed{2\\sqrt{13}}$.",
    ),
    Problem(
        "example/interval",
        "For which real numbers $x$ is $\\sqrt{x - 3}$ defined and less than 2? Answer in interval notation.",
        "[3,7)",
        "It is defined for $x \\ge 3$.\nIt is less than 2 exactly if $x - 3 < 4$, that is $x < 7$.\n"
        "So the answer is $\\boxed{[3,7)}$.",
    ),
)
"""Worked problems of our own."""


def read(row: RawRow) -> Problem:
    """The gold answer is the row's, as LaTeX without dollars."""
    answer = row.value("answer")
    if not isinstance(answer, str) or not answer.strip():
        raise UnusableRow(f"gold {str(answer)[:40]!r} is no text")
    if answer.count("{") != answer.count("}"):
        raise UnusableRow(f"gold {answer!r} has unbalanced braces")
    name = row.own_id("unique_id") or f"{row.split}/{row.index}"
    worked = row.optional_text("solution") or None
    extra = {key: row.get(key) for key in ("subject", "level") if row.get(key) is not None}
    return Problem(f"math500/{name}", row.text("problem").strip(), answer.strip(), worked, extra)


TASK = Task(
    name="math500",
    licence="MIT (contested: MATH's copy on the Hub was taken down after a notice by AoPS)",
    source=Published(
        repo="HuggingFaceH4/MATH-500",
        revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
        parts={"test": (Part(("test",), "test"),)},
    ),
    scorer="maths",
    instruction=ASK,
    plain="Problem: {question}\nSolution:",
    read=read,
    shots=EXAMPLES,
)
