"""Entry of the supervisor's process: `python -s -P -S .../jail/__main__.py SCRATCH`.

It has nothing but the standard library in sight.
"""

import os
import sys
import types


def _find_package() -> None:
    """Make the jail's modules importable without running the packages around them, which import far more."""
    folder = os.path.dirname(os.path.abspath(__file__))
    names = ("cospec", "scoring", "code", "jail")
    for depth in range(len(names), 0, -1):
        package = types.ModuleType(".".join(names[:depth]))
        package.__path__ = [folder]
        sys.modules[package.__name__] = package
        folder = os.path.dirname(folder)


if __name__ == "__main__":
    _find_package()

    from cospec.scoring.code.jail.supervisor import main

    main(sys.argv[1])
    # Nothing is left to tidy up, and the interpreter would take its time.
    os._exit(0)
