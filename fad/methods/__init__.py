"""What a Tensor gains besides its value: operators, methods, in-place methods, and how Tensors are made.

Each module has a table of members; `install` puts all of them into the class.
"""
