"""The names of jax.nn, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Hashable, Sequence
from typing import Any, Literal, overload

import jax

from fad.arrays.annotations import DTypeLike, JaxValue, TensorValue, Value
from fad.core.tensor import Tensor
from fad.nn import initializers as initializers
from fad.nn import utils as utils

@overload
def binary_cross_entropy(
    input: TensorValue, target: Value, weight: Value | None = None, *, reduction: str = "mean"
) -> Tensor:
    """``-(target * log(input) + (1 - target) * log(1 - input))``, for probabilities."""

@overload
def binary_cross_entropy(
    input: Value, target: TensorValue, weight: Value | None = None, *, reduction: str = "mean"
) -> Tensor: ...
@overload
def binary_cross_entropy(
    input: JaxValue, target: JaxValue, weight: JaxValue | None = None, *, reduction: str = "mean"
) -> jax.Array: ...
@overload
def binary_cross_entropy(
    input: Value, target: Value, weight: Value | None = None, *, reduction: str = "mean"
) -> Tensor: ...
@overload
def binary_cross_entropy_with_logits(
    input: TensorValue,
    target: Value,
    weight: Value | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Value | None = None,
) -> Tensor:
    """`binary_cross_entropy` of ``sigmoid(input)``, by a formula that does not overflow."""

@overload
def binary_cross_entropy_with_logits(
    input: Value,
    target: TensorValue,
    weight: Value | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Value | None = None,
) -> Tensor: ...
@overload
def binary_cross_entropy_with_logits(
    input: JaxValue,
    target: JaxValue,
    weight: JaxValue | None = None,
    *,
    reduction: str = "mean",
    pos_weight: JaxValue | None = None,
) -> jax.Array: ...
@overload
def binary_cross_entropy_with_logits(
    input: Value,
    target: Value,
    weight: Value | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Value | None = None,
) -> Tensor: ...
@overload
def celu(x: TensorValue, alpha: Value = 1.0) -> Tensor:
    """Continuously-differentiable exponential linear unit activation."""

@overload
def celu(x: JaxValue, alpha: JaxValue = 1.0) -> jax.Array: ...
@overload
def celu(x: Value, alpha: Value = 1.0) -> Tensor: ...
@overload
def cosine_embedding_loss(
    input1: TensorValue,
    input2: Value,
    target: Value,
    margin: float = 0.0,
    *,
    reduction: str = "mean",
) -> Tensor:
    """``1 - cos`` where the target is 1, and ``max(cos - margin, 0)`` where it is -1."""

@overload
def cosine_embedding_loss(
    input1: Value,
    input2: TensorValue,
    target: Value,
    margin: float = 0.0,
    *,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def cosine_embedding_loss(
    input1: Value,
    input2: Value,
    target: TensorValue,
    margin: float = 0.0,
    *,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def cosine_embedding_loss(
    input1: JaxValue,
    input2: JaxValue,
    target: JaxValue,
    margin: float = 0.0,
    *,
    reduction: str = "mean",
) -> jax.Array: ...
@overload
def cross_entropy(
    input: TensorValue,
    target: Value,
    weight: Value | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor: ...
@overload
def cross_entropy(
    input: Value,
    target: TensorValue,
    weight: Value | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor: ...
@overload
def cross_entropy(
    input: JaxValue,
    target: JaxValue,
    weight: JaxValue | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> jax.Array: ...
@overload
def cross_entropy(
    input: Value,
    target: Value,
    weight: Value | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor: ...
@overload
def dot_product_attention(
    query: TensorValue,
    key: Value,
    value: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Value | None = None,
    key_value_seq_lengths: Value | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None,
    return_residual: Literal[False] = False,
) -> Tensor:
    """Scaled dot product attention function."""

@overload
def dot_product_attention(
    query: Value,
    key: TensorValue,
    value: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Value | None = None,
    key_value_seq_lengths: Value | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None,
    return_residual: Literal[False] = False,
) -> Tensor: ...
@overload
def dot_product_attention(
    query: Value,
    key: Value,
    value: TensorValue,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Value | None = None,
    key_value_seq_lengths: Value | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None,
    return_residual: Literal[False] = False,
) -> Tensor: ...
@overload
def dot_product_attention(
    query: JaxValue,
    key: JaxValue,
    value: JaxValue,
    bias: JaxValue | None = None,
    mask: JaxValue | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: JaxValue | None = None,
    key_value_seq_lengths: JaxValue | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None,
    return_residual: Literal[False] = False,
) -> jax.Array: ...
@overload
def dot_product_attention(
    query: Value,
    key: Value,
    value: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Value | None = None,
    key_value_seq_lengths: Value | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None,
    return_residual: Literal[False] = False,
) -> Tensor: ...
@overload
def dot_product_attention(
    query: TensorValue,
    key: Value,
    value: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Value | None = None,
    key_value_seq_lengths: Value | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None,
    return_residual: Literal[True] = ...,
) -> tuple[Tensor, Tensor]: ...
@overload
def dot_product_attention(
    query: Value,
    key: TensorValue,
    value: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Value | None = None,
    key_value_seq_lengths: Value | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None,
    return_residual: Literal[True] = ...,
) -> tuple[Tensor, Tensor]: ...
@overload
def dot_product_attention(
    query: Value,
    key: Value,
    value: TensorValue,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Value | None = None,
    key_value_seq_lengths: Value | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None,
    return_residual: Literal[True] = ...,
) -> tuple[Tensor, Tensor]: ...
@overload
def dot_product_attention(
    query: JaxValue,
    key: JaxValue,
    value: JaxValue,
    bias: JaxValue | None = None,
    mask: JaxValue | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: JaxValue | None = None,
    key_value_seq_lengths: JaxValue | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None,
    return_residual: Literal[True] = ...,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def dot_product_attention(
    query: Value,
    key: Value,
    value: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Value | None = None,
    key_value_seq_lengths: Value | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None,
    return_residual: Literal[True] = ...,
) -> tuple[Tensor, Tensor]: ...
@overload
def elu(x: TensorValue, alpha: Value = 1.0) -> Tensor:
    """Exponential linear unit activation function."""

@overload
def elu(x: JaxValue, alpha: JaxValue = 1.0) -> jax.Array: ...
@overload
def elu(x: Value, alpha: Value = 1.0) -> Tensor: ...
@overload
def gaussian_nll_loss(
    input: TensorValue,
    target: Value,
    var: Value,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def gaussian_nll_loss(
    input: Value,
    target: TensorValue,
    var: Value,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def gaussian_nll_loss(
    input: Value,
    target: Value,
    var: TensorValue,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def gaussian_nll_loss(
    input: JaxValue,
    target: JaxValue,
    var: JaxValue,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
) -> jax.Array: ...
@overload
def gelu(x: TensorValue, approximate: bool | str = True) -> Tensor:
    """Gaussian error linear unit activation function."""

@overload
def gelu(x: JaxValue, approximate: bool | str = True) -> jax.Array: ...
def get_scaled_dot_general_config(
    mode: Literal["nvfp4", "mxfp8"], global_scale: Tensor | jax.Array | None = None
) -> Any:
    """Get quantization configs for scaled_dot_general."""

@overload
def glu(x: TensorValue, axis: int = -1) -> Tensor:
    """Gated linear unit activation function."""

@overload
def glu(x: JaxValue, axis: int = -1) -> jax.Array: ...
@overload
def glu(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def glu(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def glu(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def glu(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def glu(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def glu(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def hard_sigmoid(x: TensorValue) -> Tensor:
    """Hard Sigmoid activation function."""

@overload
def hard_sigmoid(x: JaxValue) -> jax.Array: ...
@overload
def hard_silu(x: TensorValue) -> Tensor: ...
@overload
def hard_silu(x: JaxValue) -> jax.Array: ...
@overload
def hard_swish(x: TensorValue) -> Tensor: ...
@overload
def hard_swish(x: JaxValue) -> jax.Array: ...
@overload
def hard_tanh(x: TensorValue) -> Tensor: ...
@overload
def hard_tanh(x: JaxValue) -> jax.Array: ...
@overload
def hinge_embedding_loss(
    input: TensorValue, target: Value, margin: float = 1.0, *, reduction: str = "mean"
) -> Tensor:
    """``input`` where the target is 1, and ``max(margin - input, 0)`` where it is -1."""

@overload
def hinge_embedding_loss(
    input: Value, target: TensorValue, margin: float = 1.0, *, reduction: str = "mean"
) -> Tensor: ...
@overload
def hinge_embedding_loss(
    input: JaxValue, target: JaxValue, margin: float = 1.0, *, reduction: str = "mean"
) -> jax.Array: ...
@overload
def huber_loss(
    input: TensorValue,
    target: Value,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Value | None = None,
) -> Tensor: ...
@overload
def huber_loss(
    input: Value,
    target: TensorValue,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Value | None = None,
) -> Tensor: ...
@overload
def huber_loss(
    input: JaxValue,
    target: JaxValue,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: JaxValue | None = None,
) -> jax.Array: ...
@overload
def huber_loss(
    input: Value,
    target: Value,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Value | None = None,
) -> Tensor: ...
@overload
def identity(x: TensorValue) -> Tensor:
    """Identity activation function."""

@overload
def identity(x: JaxValue) -> jax.Array: ...
@overload
def kl_div(
    input: TensorValue, target: Value, *, reduction: str = "mean", log_target: bool = False
) -> Tensor: ...
@overload
def kl_div(
    input: Value, target: TensorValue, *, reduction: str = "mean", log_target: bool = False
) -> Tensor: ...
@overload
def kl_div(
    input: JaxValue, target: JaxValue, *, reduction: str = "mean", log_target: bool = False
) -> jax.Array: ...
@overload
def l1_loss(
    input: TensorValue, target: Value, reduction: str = "mean", weight: Value | None = None
) -> Tensor:
    """The absolute error, ``|input - target|``; its derivative at 0 is 0."""

@overload
def l1_loss(
    input: Value, target: TensorValue, reduction: str = "mean", weight: Value | None = None
) -> Tensor: ...
@overload
def l1_loss(
    input: JaxValue, target: JaxValue, reduction: str = "mean", weight: JaxValue | None = None
) -> jax.Array: ...
@overload
def l1_loss(
    input: Value, target: Value, reduction: str = "mean", weight: Value | None = None
) -> Tensor: ...
@overload
def leaky_relu(x: TensorValue, negative_slope: Value = 0.01) -> Tensor:
    """Leaky rectified linear unit activation function."""

@overload
def leaky_relu(x: JaxValue, negative_slope: JaxValue = 0.01) -> jax.Array: ...
@overload
def leaky_relu(x: Value, negative_slope: Value = 0.01) -> Tensor: ...
@overload
def log1mexp(x: TensorValue) -> Tensor: ...
@overload
def log1mexp(x: JaxValue) -> jax.Array: ...
@overload
def log_sigmoid(x: TensorValue) -> Tensor:
    """Log-sigmoid activation function."""

@overload
def log_sigmoid(x: JaxValue) -> jax.Array: ...
@overload
def log_softmax(
    x: TensorValue, axis: int | Sequence[int] | None = -1, where: Value | None = None
) -> Tensor:
    """Log-Softmax function."""

@overload
def log_softmax(
    x: JaxValue, axis: int | Sequence[int] | None = -1, where: JaxValue | None = None
) -> jax.Array: ...
@overload
def log_softmax(
    x: Value, axis: int | Sequence[int] | None = -1, where: Value | None = None
) -> Tensor: ...
@overload
def log_softmax(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def log_softmax(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def log_softmax(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def log_softmax(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def log_softmax(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def log_softmax(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def logmeanexp(
    x: TensorValue,
    axis: int | Sequence[int] | None = None,
    where: Value | None = None,
    keepdims: bool = False,
) -> Tensor:
    """Log mean exp."""

@overload
def logmeanexp(
    x: JaxValue,
    axis: int | Sequence[int] | None = None,
    where: JaxValue | None = None,
    keepdims: bool = False,
) -> jax.Array: ...
@overload
def logmeanexp(
    x: Value,
    axis: int | Sequence[int] | None = None,
    where: Value | None = None,
    keepdims: bool = False,
) -> Tensor: ...
@overload
def logmeanexp(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def logmeanexp(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def logmeanexp(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def logmeanexp(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def logmeanexp(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def logmeanexp(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def logmeanexp(x: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def logmeanexp(x: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def logmeanexp(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def logsumexp(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    b: Value | None = None,
    keepdims: bool = False,
    return_sign: Literal[False] = False,
    where: Value | None = None,
) -> Tensor:
    """Log-sum-exp reduction."""

@overload
def logsumexp(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    b: JaxValue | None = None,
    keepdims: bool = False,
    return_sign: Literal[False] = False,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def logsumexp(
    a: Value,
    axis: int | Sequence[int] | None = None,
    b: Value | None = None,
    keepdims: bool = False,
    return_sign: Literal[False] = False,
    where: Value | None = None,
) -> Tensor: ...
@overload
def logsumexp(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def logsumexp(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def logsumexp(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def logsumexp(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    b: Value | None = None,
    keepdims: bool = False,
    *,
    return_sign: Literal[True],
    where: Value | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def logsumexp(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    b: JaxValue | None = None,
    keepdims: bool = False,
    *,
    return_sign: Literal[True],
    where: JaxValue | None = None,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def logsumexp(
    a: Value,
    axis: int | Sequence[int] | None = None,
    b: Value | None = None,
    keepdims: bool = False,
    *,
    return_sign: Literal[True],
    where: Value | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def logsumexp(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    b: Value | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: Value | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def logsumexp(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    b: JaxValue | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: JaxValue | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...
@overload
def logsumexp(
    a: Value,
    axis: int | Sequence[int] | None = None,
    b: Value | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: Value | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def margin_ranking_loss(
    input1: TensorValue,
    input2: Value,
    target: Value,
    margin: float = 0.0,
    *,
    reduction: str = "mean",
) -> Tensor:
    """``max(margin - target * (input1 - input2), 0)``: which of two should be ranked higher."""

@overload
def margin_ranking_loss(
    input1: Value,
    input2: TensorValue,
    target: Value,
    margin: float = 0.0,
    *,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def margin_ranking_loss(
    input1: Value,
    input2: Value,
    target: TensorValue,
    margin: float = 0.0,
    *,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def margin_ranking_loss(
    input1: JaxValue,
    input2: JaxValue,
    target: JaxValue,
    margin: float = 0.0,
    *,
    reduction: str = "mean",
) -> jax.Array: ...
@overload
def mish(x: TensorValue) -> Tensor:
    """Mish activation function."""

@overload
def mish(x: JaxValue) -> jax.Array: ...
@overload
def mse_loss(
    input: TensorValue, target: Value, reduction: str = "mean", weight: Value | None = None
) -> Tensor:
    """The squared error, ``(input - target) ** 2``, element by element."""

@overload
def mse_loss(
    input: Value, target: TensorValue, reduction: str = "mean", weight: Value | None = None
) -> Tensor: ...
@overload
def mse_loss(
    input: JaxValue, target: JaxValue, reduction: str = "mean", weight: JaxValue | None = None
) -> jax.Array: ...
@overload
def mse_loss(
    input: Value, target: Value, reduction: str = "mean", weight: Value | None = None
) -> Tensor: ...
@overload
def multi_margin_loss(
    input: TensorValue,
    target: Value,
    p: int = 1,
    margin: float = 1.0,
    weight: Value | None = None,
    *,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def multi_margin_loss(
    input: Value,
    target: TensorValue,
    p: int = 1,
    margin: float = 1.0,
    weight: Value | None = None,
    *,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def multi_margin_loss(
    input: JaxValue,
    target: JaxValue,
    p: int = 1,
    margin: float = 1.0,
    weight: JaxValue | None = None,
    *,
    reduction: str = "mean",
) -> jax.Array: ...
@overload
def multi_margin_loss(
    input: Value,
    target: Value,
    p: int = 1,
    margin: float = 1.0,
    weight: Value | None = None,
    *,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def multilabel_soft_margin_loss(
    input: TensorValue, target: Value, weight: Value | None = None, *, reduction: str = "mean"
) -> Tensor:
    """`binary_cross_entropy_with_logits` of several labels, as the mean over them."""

@overload
def multilabel_soft_margin_loss(
    input: Value, target: TensorValue, weight: Value | None = None, *, reduction: str = "mean"
) -> Tensor: ...
@overload
def multilabel_soft_margin_loss(
    input: JaxValue, target: JaxValue, weight: JaxValue | None = None, *, reduction: str = "mean"
) -> jax.Array: ...
@overload
def multilabel_soft_margin_loss(
    input: Value, target: Value, weight: Value | None = None, *, reduction: str = "mean"
) -> Tensor: ...
@overload
def nll_loss(
    input: TensorValue,
    target: Value,
    weight: Value | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """``-input`` of the target class, for logarithms of probabilities."""

@overload
def nll_loss(
    input: Value,
    target: TensorValue,
    weight: Value | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def nll_loss(
    input: JaxValue,
    target: JaxValue,
    weight: JaxValue | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> jax.Array: ...
@overload
def nll_loss(
    input: Value,
    target: Value,
    weight: Value | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: int | Hashable = -1) -> jax.Array:
    """One-hot encodes the given indices."""

@overload
def one_hot(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def one_hot(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def poisson_nll_loss(
    input: TensorValue,
    target: Value,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-08,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def poisson_nll_loss(
    input: Value,
    target: TensorValue,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-08,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def poisson_nll_loss(
    input: JaxValue,
    target: JaxValue,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-08,
    reduction: str = "mean",
) -> jax.Array: ...
@overload
def relu(x: TensorValue) -> Tensor:
    """Rectified linear unit activation function."""

@overload
def relu(x: JaxValue) -> jax.Array: ...
@overload
def relu6(x: TensorValue) -> Tensor:
    """Rectified Linear Unit 6 activation function."""

@overload
def relu6(x: JaxValue) -> jax.Array: ...
@overload
def scaled_dot_general(
    lhs: TensorValue,
    rhs: Value,
    dimension_numbers: Any,
    preferred_element_type: DTypeLike = ...,
    configs: Any = None,
    implementation: Literal["cudnn"] | None = None,
) -> Tensor:
    """Scaled dot general operation."""

@overload
def scaled_dot_general(
    lhs: Value,
    rhs: TensorValue,
    dimension_numbers: Any,
    preferred_element_type: DTypeLike = ...,
    configs: Any = None,
    implementation: Literal["cudnn"] | None = None,
) -> Tensor: ...
@overload
def scaled_dot_general(
    lhs: JaxValue,
    rhs: JaxValue,
    dimension_numbers: Any,
    preferred_element_type: DTypeLike = ...,
    configs: Any = None,
    implementation: Literal["cudnn"] | None = None,
) -> jax.Array: ...
@overload
def scaled_matmul(
    lhs: jax.Array,
    rhs: jax.Array,
    lhs_scales: jax.Array,
    rhs_scales: jax.Array,
    preferred_element_type: DTypeLike = ...,
) -> jax.Array:
    """Scaled matrix multiplication function."""

@overload
def scaled_matmul(
    lhs: Tensor | jax.Array,
    rhs: Tensor | jax.Array,
    lhs_scales: Tensor | jax.Array,
    rhs_scales: Tensor | jax.Array,
    preferred_element_type: DTypeLike = ...,
) -> Tensor: ...
@overload
def selu(x: TensorValue) -> Tensor:
    """Scaled exponential linear unit activation."""

@overload
def selu(x: JaxValue) -> jax.Array: ...
@overload
def sigmoid(x: TensorValue) -> Tensor:
    """Sigmoid activation function."""

@overload
def sigmoid(x: JaxValue) -> jax.Array: ...
@overload
def silu(x: TensorValue) -> Tensor:
    """SiLU (aka swish) activation function."""

@overload
def silu(x: JaxValue) -> jax.Array: ...
@overload
def smooth_l1_loss(
    input: TensorValue, target: Value, reduction: str = "mean", beta: float = 1.0
) -> Tensor: ...
@overload
def smooth_l1_loss(
    input: Value, target: TensorValue, reduction: str = "mean", beta: float = 1.0
) -> Tensor: ...
@overload
def smooth_l1_loss(
    input: JaxValue, target: JaxValue, reduction: str = "mean", beta: float = 1.0
) -> jax.Array: ...
@overload
def soft_margin_loss(input: TensorValue, target: Value, *, reduction: str = "mean") -> Tensor:
    """``log(1 + exp(-target * input))``, by a formula that does not overflow."""

@overload
def soft_margin_loss(input: Value, target: TensorValue, *, reduction: str = "mean") -> Tensor: ...
@overload
def soft_margin_loss(
    input: JaxValue, target: JaxValue, *, reduction: str = "mean"
) -> jax.Array: ...
@overload
def soft_sign(x: TensorValue) -> Tensor:
    """Soft-sign activation function."""

@overload
def soft_sign(x: JaxValue) -> jax.Array: ...
@overload
def softmax(
    x: TensorValue, axis: int | Sequence[int] | None = -1, where: Value | None = None
) -> Tensor:
    """Softmax function."""

@overload
def softmax(
    x: JaxValue, axis: int | Sequence[int] | None = -1, where: JaxValue | None = None
) -> jax.Array: ...
@overload
def softmax(
    x: Value, axis: int | Sequence[int] | None = -1, where: Value | None = None
) -> Tensor: ...
@overload
def softmax(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def softmax(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def softmax(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def softmax(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def softmax(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def softmax(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def softplus(x: TensorValue) -> Tensor:
    """Softplus activation function."""

@overload
def softplus(x: JaxValue) -> jax.Array: ...
@overload
def sparse_plus(x: TensorValue) -> Tensor:
    """Sparse plus function."""

@overload
def sparse_plus(x: JaxValue) -> jax.Array: ...
@overload
def sparse_sigmoid(x: TensorValue) -> Tensor:
    """Sparse sigmoid activation function."""

@overload
def sparse_sigmoid(x: JaxValue) -> jax.Array: ...
@overload
def squareplus(x: TensorValue, b: Value = 4) -> Tensor:
    """Squareplus activation function."""

@overload
def squareplus(x: JaxValue, b: JaxValue = 4) -> jax.Array: ...
@overload
def squareplus(x: Value, b: Value = 4) -> Tensor: ...
@overload
def standardize(
    x: TensorValue,
    axis: int | Sequence[int] | None = -1,
    mean: Value | None = None,
    variance: Value | None = None,
    epsilon: Value = 1e-05,
    where: Value | None = None,
) -> Tensor:
    """Standardizes input to zero mean and unit variance."""

@overload
def standardize(
    x: JaxValue,
    axis: int | Sequence[int] | None = -1,
    mean: JaxValue | None = None,
    variance: JaxValue | None = None,
    epsilon: JaxValue = 1e-05,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def standardize(
    x: Value,
    axis: int | Sequence[int] | None = -1,
    mean: Value | None = None,
    variance: Value | None = None,
    epsilon: Value = 1e-05,
    where: Value | None = None,
) -> Tensor: ...
@overload
def standardize(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def standardize(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def standardize(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def standardize(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def standardize(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def standardize(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def swish(x: TensorValue) -> Tensor:
    """SiLU (aka swish) activation function."""

@overload
def swish(x: JaxValue) -> jax.Array: ...
@overload
def tanh(x: TensorValue, /) -> Tensor:
    """Calculate element-wise hyperbolic tangent of input."""

@overload
def tanh(x: JaxValue, /) -> jax.Array: ...
@overload
def triplet_margin_loss(
    anchor: TensorValue,
    positive: Value,
    negative: Value,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def triplet_margin_loss(
    anchor: Value,
    positive: TensorValue,
    negative: Value,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def triplet_margin_loss(
    anchor: Value,
    positive: Value,
    negative: TensorValue,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def triplet_margin_loss(
    anchor: JaxValue,
    positive: JaxValue,
    negative: JaxValue,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> jax.Array: ...
