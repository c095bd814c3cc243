"""Training: the supervised warm-up and GRPO, their configs and their run directory."""
