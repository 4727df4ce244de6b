"""How the functions of JAX are treated where the one rule of `namespace` does not say it all.

Everything that is in none of these tables is an array function: its arrays and Python scalars are
the arguments of a Primitive, the rest of its arguments is static.
docs/namespaces.md explains each table to users, and the tests compare the two.
"""

from __future__ import annotations

from fad.arrays.arguments import ARRAY, EXPONENT, ONE, OPERAND, OPERANDS, STATIC, STRUCTURE, Role
from fad.views.chains import Write
from fad.views.make_view import Test, is_row_major


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LISTED = (ARRAY, ONE)

# Roles that an annotation does not give. Keys: JAX module, function, parameter. A pair has in addition what
# a list is (0: a structure with arrays in it).
ROLES: dict[str, dict[str, dict[str, Role]]] = {
    "jax.numpy": {
        "arange": {"start": STRUCTURE, "stop": STRUCTURE, "step": STRUCTURE},
        "array": {"object": ARRAY},
        "asarray": {"a": ARRAY},
        "block": {"arrays": (ARRAY, 0)},
        "cross": {"a": _LISTED, "b": _LISTED},
        "einsum": {"subscripts": STRUCTURE, "operands": (OPERAND, OPERANDS)},
        "float_power": {"y": EXPONENT},
        "histogram": {"bins": STRUCTURE},
        "histogram2d": {"bins": STRUCTURE},
        "histogram_bin_edges": {"bins": STRUCTURE},
        "histogramdd": {"bins": STRUCTURE},
        "intersect1d": {"fill_value": STATIC},
        "isneginf": {"x": _LISTED},
        "isposinf": {"x": _LISTED},
        "pad": {"pad_width": STATIC, "kwargs": OPERAND, "stat_length": STATIC},
        "polyint": {"k": ARRAY},
        "pow": {"x2": EXPONENT},
        "power": {"x2": EXPONENT},
        "repeat": {"repeats": STRUCTURE},
        "unwrap": {"period": STRUCTURE},
        "where": {"condition": _LISTED, "x": _LISTED, "y": _LISTED},
    },
    "jax.numpy.linalg": {"cond": {"p": STATIC}},
    "jax.lax": {
        "fft": {"fft_lengths": STATIC},
        "gather": {"fill_value": STATIC},
        "pow": {"y": EXPONENT},
        "reduce": {"init_values": STRUCTURE},
        "reduce_window": {"init_value": STRUCTURE},
        "slice_in_dim": {"start_index": STATIC, "limit_index": STATIC},
    },
    "jax.scipy.ndimage": {"map_coordinates": {"cval": STATIC}},
    "jax.scipy.optimize": {"minimize": {"args": ARRAY}},
    "jax.scipy.special": {
        "bernoulli": {"n": STATIC},
        "multigammaln": {"d": STRUCTURE},
        "polygamma": {"n": STRUCTURE},
    },
    "jax.scipy.stats.truncnorm": {
        name: dict.fromkeys(("x", "a", "b", "loc", "scale"), _LISTED)
        for name in ("cdf", "logcdf", "logpdf", "logsf", "pdf", "sf")
    },
}

# Functions of jax.numpy and its linalg that return views of their first argument, and how a write to one goes
# back; others are in `fad.arrays.namespaces`.
VIEWS: dict[str, Write] = {
    **dict.fromkeys("expand_dims ravel squeeze".split(), Write.RESHAPE),
    **dict.fromkeys(
        "matrix_transpose moveaxis permute_dims rollaxis swapaxes transpose".split(), Write.PERMUTE
    ),
    **dict.fromkeys(
        """array_split diagonal dsplit flip fliplr flipud hsplit rot90 split unstack vsplit""".split(),
        Write.INDICES,
    ),
    "broadcast_to": Write.BROADCAST,
}

# Those of them that copy unless this holds of where the elements of the result are.
COPIES_UNLESS: dict[str, Test] = {"ravel": is_row_major}

# Evaluated on the host, from shapes and dtypes: a Tensor's values are never read.
HOST: dict[str, frozenset[str]] = {
    "jax.numpy": _names(
        """broadcast_shapes can_cast diag_indices einsum_path frombuffer fromfile fromiter
        fromstring get_printoptions iscomplexobj isdtype isrealobj isscalar issubdtype iterable
        load mask_indices ndim printoptions promote_types result_type set_printoptions shape size
        tril_indices_from triu_indices_from diag_indices_from"""
    ),
    "jax.lax": _names(
        """broadcast_shapes conv_dimension_numbers conv_general_permutations
        conv_general_shape_tuple conv_shape_tuple conv_transpose_shape_tuple create_token dtype
        padtype_to_pads reduce_window_shape_tuple shape_as_value"""
    ),
    "jax.nn": _names("get_scaled_dot_general_config"),
    "jax.random": _names("key_dtype key_impl"),
}

# Run on the host with the values of Tensors: what is printed or stored has no derivative.
ON_VALUES: dict[str, frozenset[str]] = {"jax.numpy": _names("array_repr array_str save savez")}

# Take functions, which may be written in fad and may close over tracked Tensors.
BODIES: dict[str, frozenset[str]] = {
    "jax.numpy": _names("apply_along_axis apply_over_axes fromfunction pad piecewise"),
    "jax.lax": _names(
        """associative_scan cond custom_linear_solve custom_root fori_loop map platform_dependent
        reduce reduce_window scan scatter_apply switch while_loop"""
    ),
    "jax.lax.linalg": _names("schur"),
    "jax.scipy.linalg": _names("funm"),
    "jax.scipy.optimize": _names("minimize"),
    "jax.scipy.sparse.linalg": _names("bicgstab cg gmres"),
}

# Take a function and return a function.
MAKERS: dict[str, frozenset[str]] = {
    "jax.numpy": _names("frompyfunc vectorize"),
    "jax.lax": _names("composite"),
}

# Name a mapped axis.
COLLECTIVES: dict[str, frozenset[str]] = {
    "jax.lax": _names(
        """all_gather all_to_all axis_index axis_size pbroadcast pcast pgather pmax pmean pmin
        ppermute precv psend pshuffle psum psum_scatter pswapaxes pvary ragged_all_to_all"""
    ),
}

# Make an array from a shape, numbers, lists or a random key: their results are Tensors. All draws
# of jax.random, and what jax.nn.initializers returns, do so too.
CREATION: dict[str, frozenset[str]] = {
    "jax.numpy": _names(
        """arange array asarray bartlett blackman c_ diag_indices diag_indices_from empty empty_like
        eye from_dlpack frombuffer fromfile fromfunction fromiter fromstring full full_like
        geomspace hamming hanning identity indices kaiser linspace load logspace mask_indices
        meshgrid mgrid ogrid ones ones_like r_ tri tril_indices tril_indices_from triu_indices
        triu_indices_from zeros zeros_like"""
    ),
    "jax.numpy.fft": _names("fftfreq rfftfreq"),
    "jax.lax": _names("broadcasted_iota empty full full_like iota rng_uniform"),
    "jax.nn.initializers": _names("ones zeros"),
    "jax.scipy.linalg": _names("dft hadamard helmert hilbert invhilbert invpascal pascal"),
    "jax.scipy.special": _names("bernoulli"),
}

# In jax.random: handle keys, and do not draw.
NOT_DRAWING = _names("PRNGKey clone fold_in key key_data split wrap_key_data")

# Return functions that draw: all of these but the ones that are initializers themselves.
FACTORIES: dict[str, frozenset[str]] = {
    "jax.nn.initializers": _names(
        """constant delta_orthogonal glorot_normal glorot_uniform he_normal he_uniform
        kaiming_normal kaiming_uniform lecun_normal lecun_uniform normal orthogonal
        truncated_normal uniform variance_scaling xavier_normal xavier_uniform"""
    ),
}

# Classes whose instances contain arrays and whose methods compute.
CLASSES: dict[str, frozenset[str]] = {
    "jax.scipy.interpolate": _names("RegularGridInterpolator"),
    "jax.scipy.stats": _names("gaussian_kde"),
}

# Objects that compute when they are indexed.
INDEXERS: dict[str, frozenset[str]] = {"jax.numpy": _names("c_ mgrid ogrid r_")}

# Functions that the tool `fad.formulas` has in place of JAX's: with other derivatives, or more arguments.
WRITTEN: dict[str, frozenset[str]] = {
    "jax.lax": _names(
        """acosh asinh bessel_i0e bessel_i1e betainc digamma igamma igamma_grad_a igammac lgamma polygamma
        pow scatter_mul"""
    ),
    "jax.nn": _names("gelu log1mexp logsumexp soft_sign"),
    "jax.numpy": _names(
        """abs absolute acosh angle arccosh arcsinh arctan2 argpartition asinh atan2 divide einsum
        float_power fromfunction gradient histogram histogram2d histogram_bin_edges histogramdd hypot i0 ix_
        kaiser ldexp logaddexp logaddexp2 multiply.at nanstd nanvar pad partition polyfit pow power ravel
        reshape sign sinc std take true_divide unravel_index vander var vectorize"""
    ),
    "jax.numpy.linalg": _names("cond det matrix_norm norm vector_norm"),
    "jax.scipy.cluster.vq": _names("vq"),
    "jax.scipy.linalg": _names("det"),
    "jax.scipy.special": _names(
        """beta betainc betaln boxcox boxcox1p comb dawsn digamma erfcx exp1 expn gamma gammainc gammaincc
        gammaln i0 i0e i1 i1e kl_div log_ndtr logsumexp poch polygamma rel_entr sici spence sph_harm_y
        xlog1py xlogy"""
    ),
    "jax.scipy.stats": _names("sem"),
}

# Loops of `fad.formulas` with arguments of their own.
LOOPS: dict[str, frozenset[str]] = {"jax.lax": _names("fori_loop while_loop")}

# What a ufunc has besides its call.
UFUNC_ATTRIBUTES = ("nin", "nout", "nargs", "identity")
UFUNC_METHODS = ("accumulate", "at", "outer", "reduce", "reduceat")

# What fad does not have, and what to write instead.
MISSING: dict[str, dict[str, str]] = {
    "jax.scipy.spatial.transform": {
        "Rotation": "its methods build new Rotations in JAX; wrap the code that uses it in "
        "fad.from_jax",
        "Slerp": "it is built of Rotations; wrap the code that uses it in fad.from_jax",
    },
}

_PRIMITIVE = "JAX's primitive objects bind JAX values only; call the function of that name"


def missing(module: str, name: str, value: object = None) -> str | None:
    """Why fad does not have a public name of JAX; None if it has."""
    if name.endswith("_p") and type(value).__name__ == "Primitive":
        return _PRIMITIVE
    return MISSING.get(module, {}).get(name)
