"""The harness's own command line with the model `cospec` known to it.

``python -m cospec.evaluation.lm_eval --model cospec --model_args pair=tiny,rule=strict --tasks gsm8k`` takes every
option of ``lm_eval``. Releases up to 0.4.13 look models up in a table of their own before any other code runs, so that
``lm_eval --model cospec`` cannot find this one; later ones read the entry points of installed packages, where it is
declared, and need no detour.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec


def main() -> None:
    """Register the model and hand over to the harness; what a user can cause ends in one line and exit code 2."""
    if find_spec("lm_eval") is None:
        sys.exit("cospec: error: lm-eval is not installed: pip install 'cospec[lm-eval]'")
    from lm_eval.__main__ import cli_evaluate

    import cospec.evaluation.lm_eval.model  # noqa: F401  its import is the registration

    try:
        cli_evaluate()
    except (ValueError, OSError) as error:
        if os.environ.get("COSPEC_TRACEBACK"):
            raise
        print(f"cospec: error: {error} (COSPEC_TRACEBACK=1 shows where)", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
