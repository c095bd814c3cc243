"""Tasks: one module per benchmark, each turning its rows into prompts and naming the scorer of its texts."""
