"""What of `fad.lax` takes functions or pytrees: its results have the types that these have."""

_T = TypeVar("_T")
_X = TypeVar("_X")
_Y = TypeVar("_Y")
_P = ParamSpec("_P")
_Carry = TypeVar("_Carry")
_Ts = TypeVarTuple("_Ts")

PrecisionLike: TypeAlias = PrecisionArgument | None

def after_all(*operands: Any) -> Any: ...
def all_gather(
    x: _T,
    axis_name: Hashable,
    *,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    axis: int = 0,
    tiled: bool = False,
    to: str = "varying",
) -> _T: ...
def all_to_all(
    x: _T,
    axis_name: Hashable,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    tiled: bool = False,
) -> _T: ...
def associative_scan(
    fn: Callable[[_T, _T], _T], elems: _T, reverse: bool = False, axis: int = 0
) -> _T: ...
def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]: ...
def composite(decomposition: Callable[_P, _T], name: str, version: int = 0) -> Callable[_P, _T]: ...
def cond(
    pred: Value,
    true_fun: Callable[[*_Ts], _T],
    false_fun: Callable[[*_Ts], _T],
    *operands: *_Ts,
) -> _T: ...
def conv_general_permutations(
    dimension_numbers: Any,
) -> tuple[Sequence[int], Sequence[int], Sequence[int]]: ...
def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Any,
) -> tuple[int, ...]: ...
def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: str | Sequence[tuple[int, int]],
    batch_group_count: int = 1,
) -> tuple[int, ...]: ...
def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Any,
) -> tuple[int, ...]: ...
def custom_linear_solve(
    matvec: Callable[[_T], _T],
    b: _T,
    solve: Callable[[Callable[[_T], _T], _T], Any],
    transpose_solve: Callable[[Callable[[_T], _T], _T], Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> _T: ...
def custom_root(
    f: Callable[[_T], _T],
    initial_guess: _T,
    solve: Callable[[Callable[[_T], _T], _T], Any],
    tangent_solve: Callable[[Callable[[_T], _T], _T], _T],
    has_aux: bool = False,
) -> _T: ...
def dce_sink(val: object, *, prevent_mlir_dce: bool = False) -> None: ...
def fori_loop(
    lower: Value,
    upper: Value,
    body_fun: Callable[[Any, _T], _T],
    init_val: _T,
    *,
    unroll: int | bool | None = None,
) -> _T: ...
def map(f: Callable[[_X], _Y], xs: _X, *, batch_size: int | None = None) -> _Y: ...
def optimization_barrier(operand: _T, /) -> _T: ...
def pbroadcast(x: _T, axis_name: Hashable, source: int) -> _T: ...
def pcast(x: _T, axis_name: Hashable, *, to: str) -> _T: ...
def platform_dependent(
    *args: Any, default: Callable[..., _T] | None = None, **per_platform: Callable[..., _T]
) -> _T: ...
def pmax(
    x: _T, axis_name: Hashable, *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> _T: ...
def pmean(
    x: _T, axis_name: Hashable, *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> _T: ...
def pmin(
    x: _T, axis_name: Hashable, *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> _T: ...
def ppermute(x: _T, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> _T: ...
def precv(
    token: Any, out_shape: Any, axis_name: Hashable, perm: Sequence[tuple[int, int]]
) -> Any: ...
def psend(x: _T, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> Any: ...
def pshuffle(x: _T, axis_name: Hashable, perm: Sequence[int]) -> _T: ...
def psum(
    x: _T, axis_name: Hashable, *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> _T: ...
def psum_scatter(
    x: _T,
    axis_name: Hashable,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    tiled: bool = False,
) -> _T: ...
def pswapaxes(
    x: _T,
    axis_name: Hashable,
    axis: int,
    *,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
) -> _T: ...
def reduce(
    operands: _T,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> _T: ...
def reduce_window(
    operand: _T,
    init_value: Any,
    computation: Callable[..., Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> _T: ...
def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]: ...
def scan(
    f: Callable[[_Carry, _X], tuple[_Carry, _Y]],
    init: _Carry,
    xs: _X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[_Carry, _Y]: ...
def stop_gradient(x: _T) -> _T: ...
def switch(index: Value, branches: Sequence[Callable[[*_Ts], _T]], *operands: *_Ts) -> _T: ...
def while_loop(
    cond_fun: Callable[[_T], Value],
    body_fun: Callable[[_T], _T],
    init_val: _T,
    max_steps: int | None = None,
    checkpoints: int | str = "auto",
) -> _T: ...
def with_sharding_constraint(x: _T, shardings: Any) -> _T: ...
