"""Training of a drafting head (EAGLE-3, or an MTP layer) for a pair's target.

accelerate launch train/drafter_head.py --config configs/tiny_eagle3_head.yaml [--dry-run] [key=value ...]
"""

import sys

from cospec.training.drafter_head import main

if __name__ == "__main__":
    sys.exit(main())
