"""CoSpec as a model of the lm-evaluation-harness: ``python -m cospec.evaluation.lm_eval --model cospec ...``."""
