"""MGSM (Shi et al. 2022): 250 problems of GSM8K's test set in eleven languages, as .tsv files without a header.

`mgsm` is all languages, `mgsm:de` one of them. The question is followed by an instruction in its own language. Worked
examples are English ones of ours, the paper's setting of English exemplars, since the rows have no worked answers.
"""

from __future__ import annotations

from cospec.tasks.base import Problem, RawRow, Task
from cospec.tasks.numbers import EXAMPLES, plain_number
from cospec.tasks.registry import choose_variant
from cospec.tasks.source import Part, Published

INSTRUCTIONS = {
    "en": "Solve this problem step by step. Put the final number alone on the last line, after the marker ####.",
    "bn": "এই সমস্যাটি ধাপে ধাপে সমাধান করুন। শেষ লাইনে #### চিহ্নের পরে শুধু চূড়ান্ত সংখ্যাটি লিখুন।",
    "de": "Löse diese Aufgabe Schritt für Schritt. Schreibe die Ergebniszahl allein in die letzte Zeile, hinter ####.",
    "es": "Resuelve este problema paso a paso. Escribe solo el número final en la última línea, después de ####.",
    "fr": "Résous ce problème étape par étape. Écris seulement le nombre final sur la dernière ligne, après ####.",
    "ja": "この問題を順を追って解いてください。最後の行には、#### のあとに答えの数だけを書いてください。",
    "ru": "Реши эту задачу шаг за шагом. В последней строке напиши после #### только итоговое число.",
    "sw": "Tatua swali hili hatua kwa hatua. Andika nambari ya mwisho pekee kwenye mstari wa mwisho, baada ya ####.",
    "te": "ఈ సమస్యను దశలవారీగా పరిష్కరించండి. చివరి పంక్తిలో #### తర్వాత తుది సంఖ్యను మాత్రమే రాయండి.",
    "th": "จงแก้โจทย์นี้ทีละขั้นตอน แล้วเขียนเฉพาะตัวเลขคำตอบสุดท้ายในบรรทัดสุดท้าย หลังเครื่องหมาย ####",
    "zh": "请一步一步地解答这道题。最后一行在 #### 之后只写最终的数字答案。",
}
"""What follows the question, in its language."""


def read(row: RawRow) -> Problem:
    """The gold answer in plain digits, since all files write English thousands commas; `lang` is the file's."""
    question = row.text("question").strip()
    gold = plain_number(row.text("answer"))
    return Problem(f"mgsm/{row.part}/{row.index}", question, gold, extra={"lang": row.part})


def ask(problem: Problem) -> str:
    """The question and its language's instruction; an English example has no language of its own."""
    return f"{problem.question}\n\n{INSTRUCTIONS[problem.extra.get('lang', 'en')]}"


def _task(name: str, languages: tuple[str, ...]) -> Task:
    return Task(
        name=name,
        licence="CC-BY-4.0",
        source=Published(
            repo="juletxara/mgsm",
            revision="f52417ca77bd71e9888ddc29f92587660725d2b4",
            plain_files=True,
            columns=("question", "answer"),
            variants=tuple(f"mgsm_{lang}" for lang in INSTRUCTIONS),
            parts={"test": tuple(Part((f"mgsm_{lang}",), f"mgsm_{lang}.tsv", lang) for lang in languages)},
        ),
        scorer="number",
        instruction=ask,
        read=read,
        shots=EXAMPLES,
        row_fields=("lang",),
    )


TASK = _task("mgsm", tuple(INSTRUCTIONS))
_VARIANTS = {lang: _task(f"mgsm:{lang}", (lang,)) for lang in INSTRUCTIONS}


def variant(name: str) -> Task:
    """One language."""
    return choose_variant("mgsm", name, _VARIANTS)
