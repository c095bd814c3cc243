"""Supervised warm-up of an arbiter.

accelerate launch train/sft.py --config configs/tiny_sft.yaml [--dry-run] [key=value ...]
"""

import sys

from cospec.training.sft import main

if __name__ == "__main__":
    sys.exit(main())
