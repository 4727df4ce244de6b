"""Between fad and PyTorch: a function of one comes in, and a function of the other goes out.

`from_torch` and `to_torch` are both made of the operations of `flat_operations`; `memory` has arrays as
tensors and tensors as arrays, and `checks` what a function of PyTorch does besides computing.
"""
