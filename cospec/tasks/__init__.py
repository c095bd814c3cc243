"""Tasks: one module per benchmark, each turning its rows into prompts and its texts into verdicts."""
