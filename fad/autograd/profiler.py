"""``torch.autograd.profiler``'s names: profiles, and names for blocks in them."""

from fad.autograd import emit_trace as emit_trace
from fad.profiling.profiler import profile as profile
from fad.profiling.profiler import record_function as record_function

__all__ = ["emit_trace", "profile", "record_function"]
