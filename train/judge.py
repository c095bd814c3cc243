"""Training of a judge head for a pair's target, on the labels of an arbiter's warm-up.

python train/judge.py --config configs/tiny_judge.yaml [--dry-run] [key=value ...]
"""

import sys

from cospec.training.judge import main

if __name__ == "__main__":
    sys.exit(main())
