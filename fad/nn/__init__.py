"""The names of `jax.nn`, for Tensors and arrays, and PyTorch's losses. See docs/namespaces.md."""

from fad.arrays.namespaces import Namespace, derived_module

derived_module("fad.nn.initializers", "jax.nn.initializers")
_LOSSES = """binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy
    gaussian_nll_loss hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss
    multi_margin_loss multilabel_soft_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
    triplet_margin_loss"""
_defined = dict.fromkeys(_LOSSES.split(), "fad.nn.losses")
_namespace = Namespace(__name__, "jax.nn", ("initializers", "utils"), _defined)
__getattr__, __dir__ = _namespace.get, _namespace.names
