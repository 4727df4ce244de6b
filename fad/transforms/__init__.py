"""The transforms: each takes a function and gives a function."""
