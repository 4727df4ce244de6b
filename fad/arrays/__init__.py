"""How the functions of JAX become functions of fad.

A JAX function comes in; a fad function of the same name goes out, which takes Tensors at all levels.
`arguments` tells arrays from options, `operations` makes a Primitive for each combination of options, and
`special_cases` lists what the one rule does not say. Begin with `operations`.
"""
