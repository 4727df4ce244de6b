"""The cells of the table in docs/comparison.md: each is a program, run where its library is installed.

`python -m tests.comparison torch` runs the programs of one library and prints what each gives, with `--write`
into the page as well. torchax changes PyTorch in its process, so it runs alone.
"""
