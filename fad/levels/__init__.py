"""The levels beside those that record: forward mode, vmap, and bodies that are staged.

Values that a level has wrapped come in, and the call one level down goes out. Begin with `jvp`, the
shortest.
"""
