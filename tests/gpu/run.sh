#!/usr/bin/env bash
# Checks and times the engine on a CUDA device: tests/gpu/run.sh [--small] [RESULTS.json]   (see README.md here)
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec "${PYTHON:-python3}" "$root/tests/gpu/gpu_check.py" "$@"
