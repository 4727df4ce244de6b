"""``torch.autograd.profiler``'s names: profiles, and names for blocks in them."""

# Made by `python -m tests.stubs`, of the tables in `__init__.py` and of tests/stubs/by_hand.

from fad.autograd import emit_trace as emit_trace
from fad.autograd import profile as profile
from fad.autograd import record_function as record_function
