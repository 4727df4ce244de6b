"""What of `fad.numpy` JAX's own stub leaves open."""

_P = ParamSpec("_P")
_R = TypeVar("_R")

def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]: ...
def frompyfunc(
    func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None
) -> Callable[..., Any]: ...
def get_printoptions() -> dict[str, Any]: ...
def printoptions(*args: Any, **kwargs: Any) -> AbstractContextManager[dict[str, Any]]: ...
@overload
def unique(
    ar: JaxValue,
    return_index: Literal[False] = False,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Value | None = None,
    sorted: bool = True,
) -> jax.Array: ...
@overload
def unique(
    ar: TensorValue,
    return_index: Literal[False] = False,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Value | None = None,
    sorted: bool = True,
) -> Tensor: ...
@overload
def unique(
    ar: JaxValue,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Value | None = None,
    sorted: bool = True,
) -> tuple[jax.Array, ...]: ...
@overload
def unique(
    ar: TensorValue,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Value | None = None,
    sorted: bool = True,
) -> tuple[Tensor, ...]: ...
def vectorize(
    pyfunc: Callable[_P, _R],
    *,
    excluded: Collection[int | str] = ...,
    signature: str | None = None,
) -> Callable[_P, _R]: ...
