"""``torch.autograd.profiler``'s names: profiles, and names for blocks in them."""

from typing import TYPE_CHECKING

from fad.autograd import emit_trace as emit_trace
from fad.errors import hints_of as _hints_of
from fad.profiling.profiler import profile as profile
from fad.profiling.profiler import record_function as record_function

__all__ = ["emit_trace", "profile", "record_function"]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = _hints_of(__name__)
