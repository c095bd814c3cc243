"""`python -m cospec` is the console script `cospec`."""

from cospec.cli.main import run

if __name__ == "__main__":
    run()
