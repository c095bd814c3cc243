"""The decoding engine: draft, verify, decide, commit. Knows nothing of training nor of the arbiter's inside."""
