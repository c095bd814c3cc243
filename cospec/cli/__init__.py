"""The command line: one file per verb, each with one function named `command`."""
