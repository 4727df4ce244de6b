"""The transforms: a function comes in, and another one goes out.

Each opens a level, calls the function on Tensors of it, and closes it (`boundary`). Begin with `grad`.
"""
