"""The names of `jax.nn`, for Tensors and arrays, and PyTorch's losses. See docs/namespaces.md."""

from fad.arrays.namespaces import Namespace, derived_module
from fad.nn import losses as _losses
from fad.nn.losses import binary_cross_entropy as binary_cross_entropy
from fad.nn.losses import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from fad.nn.losses import cosine_embedding_loss as cosine_embedding_loss
from fad.nn.losses import cross_entropy as cross_entropy
from fad.nn.losses import gaussian_nll_loss as gaussian_nll_loss
from fad.nn.losses import hinge_embedding_loss as hinge_embedding_loss
from fad.nn.losses import huber_loss as huber_loss
from fad.nn.losses import kl_div as kl_div
from fad.nn.losses import l1_loss as l1_loss
from fad.nn.losses import margin_ranking_loss as margin_ranking_loss
from fad.nn.losses import mse_loss as mse_loss
from fad.nn.losses import multi_margin_loss as multi_margin_loss
from fad.nn.losses import multilabel_soft_margin_loss as multilabel_soft_margin_loss
from fad.nn.losses import nll_loss as nll_loss
from fad.nn.losses import poisson_nll_loss as poisson_nll_loss
from fad.nn.losses import smooth_l1_loss as smooth_l1_loss
from fad.nn.losses import soft_margin_loss as soft_margin_loss
from fad.nn.losses import triplet_margin_loss as triplet_margin_loss

derived_module("fad.nn.initializers", "jax.nn.initializers")
_namespace = Namespace(__name__, "jax.nn", ("initializers", "utils"), tuple(_losses.__all__))
__getattr__, __dir__ = _namespace.get, _namespace.names
