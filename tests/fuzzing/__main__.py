"""Runs the fuzzer: `python -m tests.fuzzing --minutes 10`; see `tests.fuzzing.fuzz`."""

import sys

from tests.fuzzing.fuzz import main

if __name__ == "__main__":  # every module is imported by the test of the doctests
    sys.exit(min(main(), 100))
