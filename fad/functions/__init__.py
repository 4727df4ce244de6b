"""Custom Functions: a class with rules comes in, and an operation goes out.

`function` has the class that users derive from, and `context` what its rules are given. `rules` says how a
call is evaluated and differentiated, and which rules are derived; `native` is the same under JAX's own
transforms. Begin with `function` and `rules`.
"""
