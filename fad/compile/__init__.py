"""The compiler front end: a function of Tensors comes in, and a program of XLA goes out.

`jit` calls the function once, on tracers (`fad.tape.staged`), finds out what it does to Tensors outside of it
(`state`), and keeps the program under a key of all that it depends on (`signatures`). Begin with `jit`.
"""
