"""Hostile answers: whatever is thrown at the scorers gives a verdict, in bounded time and memory."""

from __future__ import annotations

import random
import time
from collections import Counter

import psutil
import pytest
import torch

from cospec.evaluation.bench.memory import peak_mb, reset_peak
from cospec.scoring.maths import MathsScorer
from cospec.scoring.number import score_number
from cospec.scoring.verdict import Verdict

CPU = torch.device("cpu")
GOLDS = (
    *("5", r"\frac{1}{2}", r"3\sqrt{13}", "x=5", "1,-2", r"(2,\infty)", "p - q", r"\text{(C)}", "6 - 5i", r"90^\circ"),
    *("52_8", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"x \in [-2,7]", "5x - 7y + 11z + 4 = 0", "2k+2", r"\pi"),
    *(r"\{1\pm\sqrt{5},-2\}", r"(0,9) \cup (9,36)", r"\text{Evelyn}"),
)
PIECES = r"""
\boxed{ \boxed } { ( ) [ ] \{ \} \frac \frac{1}{2} \frac12 \sqrt \sqrt{2} \sqrt(2) \sqrt[3]{ ^ _ ^{ _{ | \left( \right)
9^{9^{9}} 9^{9^{9^{9}}} 10^{10^{10}} (10^9)! ! \binom{100}{50} \binom{10^9}{10^8} 1e999 1e-999 \exp(1000) 1/0 0/0
3 5 -7 0.5 1,234 12 99999999999999999999 0.000000000000000001 \frac{0}{0} x y n \pi e i \infty ½ √ π
\cup \in \setminus \mathbb{R} \emptyset \pm \text{ \text{or} or and , ; : = < \le \approx \equiv \to
$ $$ \( \) \[ \] \\ & \begin{pmatrix} \end{pmatrix} \begin{cases} \end{cases} \begin{array}{c} \begin{ \end{
\sin \cos^{-1} \log_2 \ln \sec \tan\frac{\pi}{2} \sum_{i=1}^{10^9} \prod_{k=1}^{n} \int_0^1 dx \lim_{x\to0}
\left| \right| \lfloor \rfloor \% % ^\circ ° \mathrm{e} \mathbf{ \vec{ \overline{3} \det \max \gcd( \partial
#### Answer: answer is . ? ** A B (C) \text{cm} cm hello apples <think> </think> ٣ ১ ৪ 万 million \foo \ ~ \,
\! \quad \cdot \times / + - − \alpha_ \hat{x} \frac{\frac{\frac{ ((((( {{{{ }}}} \{\{ é " ' `
"""
FRAGMENTS = (*PIECES.split(), "\n", "\n\n", "\ud800", "\x00", "\u2028", "The answer is ", "\nQuestion: ")


def hostile(rng: random.Random) -> str:
    """A string of fragments, often in a box or a statement, now and then deep or huge."""
    kind = rng.random()
    if kind < 0.002:
        return rng.choice(FRAGMENTS) * rng.choice([1_000, 100_000])
    if kind < 0.01:
        return r"\boxed{" + "".join(rng.choice(FRAGMENTS) for _ in range(rng.choice([100, 500]))) + "}"
    text = rng.choice(["", "", " "]).join(rng.choice(FRAGMENTS) for _ in range(rng.choice([1, 2, 3, 4, 6, 8, 12, 20])))
    if kind < 0.5:
        return rf"\boxed{{{text}}}"
    return f"The answer is ${text}$." if kind < 0.6 else text


def attack(scorer: MathsScorer, num_strings: int, seed: int) -> tuple[Counter[str], float]:
    """Score that many strings; the verdicts counted, and the longest time of one."""
    rng, counts, longest = random.Random(seed), Counter[str](), 0.0
    for _ in range(num_strings):
        text, gold = hostile(rng), rng.choice(GOLDS)
        begin = time.monotonic()
        verdict = scorer(text, {"gold": gold})
        longest = max(longest, time.monotonic() - begin)
        assert isinstance(verdict, Verdict), repr(text)
        number = score_number(text, {"gold": "5", "lang": rng.choice(["en", "de", "bn"])})
        assert number.kind in ("right", "wrong", "no_answer"), repr(text)
        counts[verdict.kind] += 1
    return counts, longest


def check_fuzz(num_strings: int, seed: int) -> None:
    # What earlier tests took at most must not hide what this one takes; some systems have no peak to set back.
    measured = reset_peak(CPU)
    mb_before = peak_mb(CPU) if measured else None
    scorer = MathsScorer(time_limit_s=1, memory_limit_mb=1024)
    begin = time.monotonic()
    counts, longest = attack(scorer, num_strings, seed)
    duration = time.monotonic() - begin
    grown_mb = (peak_mb(CPU) or 0.0) - mb_before if mb_before else None
    memory = "memory not measured" if grown_mb is None else f"{grown_mb:.0f} MB more"
    print(f"\n{num_strings} strings, {dict(counts)}, {duration:.0f} s, longest {longest:.1f} s, {memory}")
    assert counts.total() == num_strings
    assert counts["wrong"] > num_strings / 2, "the strings do not reach the comparison"
    assert counts["timeout"] + counts["error"] < 0.05 * num_strings, counts
    assert grown_mb is None or grown_mb < 300
    worker = scorer._process.pid
    scorer.close()
    assert worker is None or not psutil.pid_exists(worker)


def test_some_hostile_answers() -> None:
    check_fuzz(400, seed=1)


@pytest.mark.slow
def test_a_hundred_thousand_hostile_answers() -> None:
    check_fuzz(100_000, seed=2)
