"""Programs that models wrote: found in a text, run in a sandbox, judged by tests they cannot reach.

The program runs in one process, its tests in another. What passes between them are plain values (numbers, text,
lists, ...) that are rebuilt on the tests' side, so no class, patched function or early exit of the program takes part
in the judgement: it is right if, after the last test, the tests' process leaves a report with a nonce that the
program's process never held. How far both are kept from the machine depends on the machine: `isolation_here` tries it
out, and `Isolation` says it.
"""

from cospec.scoring.code.consent import FLAG, VARIABLE, give_consent, require_consent
from cospec.scoring.code.extract import Extraction, extract_code
from cospec.scoring.code.isolation import Isolation, isolation_here
from cospec.scoring.code.limits import Limits
from cospec.scoring.code.pool import CodeJob, run_job, run_many
from cospec.scoring.code.program import FunctionTests, Program, StdinTest
from cospec.scoring.code.run import Run
from cospec.scoring.code.scorer import code_job, score_code, verdict_of

__all__ = [
    "FLAG",
    "VARIABLE",
    "CodeJob",
    "Extraction",
    "FunctionTests",
    "Isolation",
    "Limits",
    "Program",
    "Run",
    "StdinTest",
    "code_job",
    "extract_code",
    "give_consent",
    "isolation_here",
    "require_consent",
    "run_job",
    "run_many",
    "score_code",
    "verdict_of",
]
