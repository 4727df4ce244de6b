"""``torch.autograd.profiler``'s names: profiles, and names for blocks in them."""

# Made by `python -m tests.stubs`, of the tables in `__init__.py` and of tests/stubs/by_hand.

from fad.profiling.profiler import profile as profile
from fad.profiling.profiler import record_function as record_function
from fad.tape.anomaly import emit_trace as emit_trace
