"""Running what a model wrote needs the user's word for it."""

import os

FLAG = "--confirm-run-unsafe-code"
VARIABLE = "COSPEC_ALLOW_CODE_EXECUTION"


def give_consent() -> None:
    """Allow the execution of generated code in this process and those it starts; for the command-line flag."""
    os.environ[VARIABLE] = "1"


def has_consent() -> bool:
    """Whether `give_consent` was called, or the user set the variable to 1."""
    return os.environ.get(VARIABLE) == "1"


def require_consent(allow_code_execution: bool = False) -> None:
    """ValueError unless the caller, the flag or the variable allows it: call it before anything is decoded."""
    if not (allow_code_execution or has_consent()):
        raise ValueError(
            "this would run programs that a model wrote on this machine: read in docs/code_execution.md what the "
            f"sandbox guarantees, then add {FLAG} to `cospec eval` or `cospec score`, set {VARIABLE}=1, or pass "
            "allow_code_execution=True"
        )
