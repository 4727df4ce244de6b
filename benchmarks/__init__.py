"""Side-by-side times of fad, torch.func and eager JAX: `python -m benchmarks`."""
