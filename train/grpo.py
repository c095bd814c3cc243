"""GRPO of an arbiter on the answers of its own rollouts.

accelerate launch train/grpo.py --config configs/tiny_grpo.yaml [--dry-run] [key=value ...]
"""

import sys

from cospec.training.grpo import main

if __name__ == "__main__":
    sys.exit(main())
