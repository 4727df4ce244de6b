"""Profiles: what a program does, and where its time and its memory go.

Calls come in, from the places that `fad.core.observation` lists; events go out, and tables, traces and
pictures made of them. Begin with NOTE [profiles] in `fad.profiling.collector`.
"""
