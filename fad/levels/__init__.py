"""The levels beside that of `grad`: forward mode, Taylor mode, vmap, Laplacians, and bodies that are staged.

Values that a level has wrapped come in, and the call one level down goes out. Begin with `jvp`, the
shortest.
"""
