#!/usr/bin/env bash
# What needs an NVIDIA GPU, in five minutes at most: the tests marked gpu, then the trainer beside a
# plain loop. Leaves junit.xml, figures.json and trainer_gpu.json in ${OUT:-build/gpu}.
# Uses the environment that is active and no network; --install adds the trainer's packages first.
# Without a GPU the tests skip and the benchmark is left out, both with the reason; it ends with 0.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

TEST_SECONDS=60        # of one test
TESTS_SECONDS=200      # of all
BENCHMARK_SECONDS=90
readonly TEST_SECONDS TESTS_SECONDS BENCHMARK_SECONDS

case "${1-}" in
  "") ;;
  --install)
    python -m pip install --quiet 'torchao==0.18.0' nvidia-ml-py safetensors tokenizers numpy \
      'pytest>=9' 'pytest-timeout>=2.4' || exit 1
    ;;
  *)
    echo "usage: tests/gpu/run.sh [--install]" >&2
    exit 2
    ;;
esac

export OUT="${OUT:-build/gpu}"
# Deterministic algorithms ask cuBLAS for it, which reads it once.
export CUBLAS_WORKSPACE_CONFIG="${CUBLAS_WORKSPACE_CONFIG:-:4096:8}"
export PYTHONPATH="constructs:training_scripts:.${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$OUT"

failed=0
# -m replaces the one of pyproject.toml, which leaves these tests out.
timeout --signal=INT --kill-after=10 "$TESTS_SECONDS" \
  python -m pytest tests/gpu -m gpu --timeout="$TEST_SECONDS" --durations=10 -p no:cacheprovider \
  --junit-xml="$OUT/junit.xml" || { failed=$?; echo "tests/gpu: pytest ended with $failed" >&2; }

timeout --kill-after=10 "$BENCHMARK_SECONDS" \
  python -m benchmarks.trainer_gpu --runs 1 --json "$OUT/trainer_gpu.json" ||
  { failed=$?; echo "benchmarks.trainer_gpu ended with $failed" >&2; }
exit "$failed"
