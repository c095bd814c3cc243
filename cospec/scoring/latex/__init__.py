"""Answers in LaTeX or plain text: cleaned (`clean`), taken apart (`shape`) and compared (`compare`, `symbolic`)."""
