"""What `fad.nn.initializers` calls an initializer."""

Initializer: TypeAlias = TensorInitializer
