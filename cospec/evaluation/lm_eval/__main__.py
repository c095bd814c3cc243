"""The harness's own command line with the model `cospec` known to it.

``python -m cospec.evaluation.lm_eval --model cospec --model_args pair=tiny,rule=strict --tasks gsm8k`` takes every
option of ``lm_eval``. Releases up to 0.4.13 look models up in a table of their own before any other code runs, so that
``lm_eval --model cospec`` cannot find this one; later ones read the entry points of installed packages, where it is
declared, and need no detour.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """Register the model and hand over to the harness."""
    if find_spec("lm_eval") is None:
        sys.exit("cospec: error: lm-eval is not installed: pip install 'cospec[lm-eval]'")
    from lm_eval.__main__ import cli_evaluate

    import cospec.evaluation.lm_eval.model  # noqa: F401  its import is the registration

    cli_evaluate()


if __name__ == "__main__":
    main()
