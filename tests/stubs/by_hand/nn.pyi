"""What of `fad.nn` takes an argument in PyTorch's form."""

@overload
def gelu(x: TensorValue, approximate: bool | str = True) -> Tensor:
    """Gaussian error linear unit activation function."""

@overload
def gelu(x: JaxValue, approximate: bool | str = True) -> jax.Array: ...
