"""Random programs under random transforms, compared with JAX and PyTorch: `python -m tests.fuzzing`."""
