"""What of `fad.numpy` JAX's own stub leaves open."""

_P = ParamSpec("_P")

def frompyfunc(
    func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None
) -> Callable[..., Any]: ...
def get_printoptions() -> dict[str, Any]: ...
def vectorize(
    pyfunc: Callable[_P, Any],
    *,
    excluded: Collection[int | str] = ...,
    signature: str | None = None,
) -> Callable[_P, Any]: ...
