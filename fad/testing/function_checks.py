"""``check_function``: every law that the rules of a Function must obey, with a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fad.errors import FadError, StructureError
from fad.testing import batch_laws, laws, order_laws
from fad.testing.cases import Case, NotChecked, Subject, Violation


class LawError(FadError, AssertionError):
    """A Function breaks a law. ``report`` says which, and what was checked.

    >>> import fad, numpy as np
    >>> class Triple(fad.Function):
    ...     @staticmethod
    ...     def forward(x):
    ...         return 3.0 * x
    ...     @staticmethod
    ...     def vjp(ctx, g):
    ...         return 2.0 * g
    >>> fad.testing.check_function(Triple, np.array(1.0), laws=("vjp",))
    Traceback (most recent call last):
    fad.testing.LawError: [vjp] Triple.vjp, argument 'x': the gradient differs from finite differences
    """

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


@dataclasses.dataclass(frozen=True)
class Law:
    """A law by its name: what it says, how it is checked, and which laws must hold for it to make sense.

    >>> from fad.testing import LAWS
    >>> LAWS[0].name
    'deterministic'
    """

    name: str
    says: str
    check: Callable[[Case], Iterator[Violation]]
    after: tuple[str, ...] = ()


def _law(name: str, check: Callable[[Case], Iterator[Violation]], *after: str) -> Law:
    return Law(name, (check.__doc__ or "").partition("\n")[0].rstrip("."), check, after)


_CALL = ("deterministic", "no mutation", "forward")
_FIRST = ("linear", "None gradients", "vjp", "jvp", "adjoint", "masks", "well-formed")

LAWS: tuple[Law, ...] = (
    _law("deterministic", laws.deterministic),
    _law("no mutation", laws.no_mutation, "deterministic"),
    _law("forward", laws.primal, "no mutation", "deterministic"),
    _law("linear", laws.linear, *_CALL),
    _law("None gradients", laws.none_gradients, *_CALL, "linear"),
    _law("vjp", laws.pullback, *_CALL, "linear", "None gradients"),
    _law("jvp", laws.pushforward, *_CALL, "linear"),
    _law("sparsity", laws.sparsity_rule, *_CALL, "linear", "jvp"),
    _law("adjoint", laws.adjoint, *_CALL, "linear", "vjp", "jvp", "None gradients"),
    _law("masks", laws.masks, *_CALL, "linear"),
    _law("unused outputs", laws.unused_outputs, *_CALL, "linear"),
    _law("saved values", laws.saved_values, *_CALL),
    _law("dtype", laws.dtype, *_CALL),
    _law("eager tape", laws.eager_tape, *_CALL, *_FIRST, "saved values"),
    _law("shapes", order_laws.shapes, *_CALL, *_FIRST),
    _law("broadcasting", order_laws.broadcasting, *_CALL, *_FIRST),
    _law("vmap", batch_laws.batched, *_CALL),
    _law("nested vmap", batch_laws.nested, *_CALL, "vmap"),
    _law("vmap of vjp", batch_laws.vmap_of_vjp, *_CALL, *_FIRST, "vmap"),
    _law("vmap of jvp", batch_laws.vmap_of_jvp, *_CALL, *_FIRST, "vmap"),
    _law("vjp of vmap", batch_laws.vjp_of_vmap, *_CALL, *_FIRST, "vmap"),
    _law("jvp of vmap", batch_laws.jvp_of_vmap, *_CALL, *_FIRST, "vmap"),
    _law("jit", order_laws.compiled, *_CALL),
    _law("native JAX", order_laws.native, *_CALL, "vmap"),
    _law("jet", order_laws.along_curves, *_CALL, *_FIRST),
    _law("second order", order_laws.second_order, *_CALL, *_FIRST, "saved values"),
)
HIGHER = "higher orders"
NAMES = (*[law.name for law in LAWS], "well-formed", HIGHER)


@dataclasses.dataclass
class Report:
    """What `check_function` found.

    Attributes:
        function: the name of the Function.
        passed: the names of the laws that hold.
        not_checked: for each law that was not checked, why.
        violations: each fault once, with the smallest case found.
        remarks: what breaks no law, and could be better: a gradient that is larger than its argument
            by broadcasting, which is summed for the rule; a Function that has no rules of its own.

    >>> import fad, numpy as np
    >>> class Triple(fad.Function):
    ...     @staticmethod
    ...     def forward(x):
    ...         return 3.0 * x
    >>> report = fad.testing.check_function(Triple, np.array(1.0), laws=("vjp", "jvp"))
    >>> report.ok, report.passed
    (True, ['vjp', 'jvp'])
    """

    function: str
    passed: list[str] = dataclasses.field(default_factory=list)
    not_checked: dict[str, str] = dataclasses.field(default_factory=dict)
    violations: list[Violation] = dataclasses.field(default_factory=list)
    remarks: list[str] = dataclasses.field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every law that was checked holds."""
        return not self.violations

    def __str__(self) -> str:
        failed = len({v.law for v in self.violations})
        count = len(self.passed) + failed
        head = f"{self.function}: {failed or 'none'} of {count} laws broken"
        lines = [head + ("." if self.ok else ":"), *map(str, self.violations)]
        lines += [f"Remark: {remark}" for remark in self.remarks]
        if self.not_checked:
            lines.append("Not checked:")
            reasons: dict[str, list[str]] = {}
            for name, why in self.not_checked.items():
                reasons.setdefault(why, []).append(name)
            lines += [f"  {', '.join(names)}: {why}" for why, names in reasons.items()]
        return "\n".join(lines)


def check_function(
    function: Any,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    order: int = 2,
    laws: Sequence[str] | None = None,
    skip: Sequence[str] = (),
    double: bool = True,
    seed: int = 0,
    raise_exception: bool = True,
) -> Report:
    """Check a Function, or any function of fad, against every law that its rules must obey.

    The laws, by name (``fad.testing.LAWS`` has what each says):

    * of the call: deterministic, no mutation, forward;
    * of the rules: linear, None gradients, vjp, jvp, sparsity, adjoint, masks, unused outputs, saved
      values, dtype, well-formed;
    * of their use: eager tape, shapes, broadcasting, jit, native JAX;
    * of vmap: vmap, nested vmap, vmap of vjp, vmap of jvp, vjp of vmap, jvp of vmap;
    * of higher derivatives: jet, second order, and with ``order=3`` or more, higher orders.

    A law that does not apply is not checked, and the report says why: a body that leaves JAX has no
    place under ``jit``, for instance. A law that follows from a broken one is not checked either.

    Arguments:
        function: a Function class, or a function.
        args: arguments for it. Arrays among them are differentiated and batched; all else, Python
            numbers too, stays as it is. Small arrays will do, such as of shape (2,) or (2, 3).
        kwargs: keyword arguments for it.
        order: up to which order derivatives and vmap are stacked.
        laws: the names of the laws to check; default are all.
        skip: the names of laws not to check. ``skip=("vjp", "jvp")`` is for rules which are not
            derivatives on purpose.
        double: cast floating and complex arguments to 64 bits, without which finite differences are
            coarse.
        seed: of the random directions.
        raise_exception: False returns the report instead of raising.

    Returns:
        A `Report`.

    Raises:
        LawError: a law is broken. Its message names law, Function, rule and argument, what was got
            and expected, and the smallest failing case.
        StructureError: ``laws`` or ``skip`` has a name that is none.

    Source: the idea of ChainRulesTestUtils.jl, with batching.

    >>> import fad
    >>> class Square(fad.Function):
    ...     @staticmethod
    ...     def forward(x):
    ...         return x * x
    ...     @staticmethod
    ...     def setup_context(ctx, inputs, output):
    ...         ctx.save_for_backward(*inputs)
    ...     @staticmethod
    ...     def vjp(ctx, g):
    ...         return 3 * g * ctx.saved_tensors[0]
    >>> check_function(Square, np.ones(2))
    Traceback (most recent call last):
    fad.testing.function_checks.LawError: Square: 2 of 20 laws broken:
    [vjp] Square.vjp, argument 'x': the gradient differs from finite differences
    """
    wrong = [name for name in (*(laws or ()), *skip) if name not in NAMES]
    if wrong:
        raise StructureError(
            f"check_function: {wrong[0]!r} is no law; there are {', '.join(NAMES)}"
        )
    with jax.enable_x64(True):
        subject = Subject(function, args, kwargs or {})
        arrays = [_doubled(a) if double else a for a in subject.arrays]
        subject.dirty = _marks_dirty(subject, arrays)
        case = Case(subject, arrays, seed)
        table = [law for law in LAWS if law.name not in skip and (not laws or law.name in laws)]
        if order >= 3 and HIGHER not in skip and (not laws or HIGHER in laws):

            def check(case: Case) -> Iterator[Violation]:
                """Every stack of vjp, jvp and vmap up to ``order``."""
                return order_laws.higher_orders(case, order)

            table.append(_law(HIGHER, check, *_CALL, *_FIRST, "vmap", "second order"))
        if order < 2:
            table = [law for law in table if law.name != "second order"]
        report = Report(subject.name)
        for law in _in_order(table, subject):
            _check_law(law, case, report)
        if isinstance(function, type) and not any(map(subject.has, ("vjp", "jvp", "jet", "vmap"))):
            report.remarks.append(f"{subject.name} has no rules: all are derived from forward")
        if report.ok and any(law.name == "broadcasting" for law in table):
            report.remarks += order_laws.missing_sums(case)
        report.violations = [_smallest(v, table, case) for v in report.violations]
    if not report.ok and raise_exception:
        raise LawError(report)
    return report


def _in_order(table: Sequence[Law], subject: Subject) -> list[Law]:
    """The laws with a derived rule after the one it is derived from, and dependent on it."""
    laws = list(table)
    at = {law.name: k for k, law in enumerate(laws)}
    if "vjp" in at and "jvp" in at and subject.has("vjp") != subject.has("jvp"):
        if subject.has("jvp"):
            laws[at["vjp"]], laws[at["jvp"]] = laws[at["jvp"]], laws[at["vjp"]]
        second, first = laws[at["jvp"]], laws[at["vjp"]].name
        after = (*second.after, first, "None gradients")
        laws[at["jvp"]] = dataclasses.replace(second, after=after)
    return laws


def _doubled(a: np.ndarray) -> np.ndarray:
    if a.dtype in (np.float32, np.float16) or a.dtype.kind == "V" or a.dtype.name == "bfloat16":
        return a.astype(np.float64)
    return a.astype(np.complex128) if a.dtype == np.complex64 else a


def _marks_dirty(subject: Subject, arrays: Sequence[np.ndarray]) -> bool:
    """Whether a call changes Tensors that it is given."""
    operands = [laws.tensor(a) for a in arrays]
    subject.call(operands)
    return any(t.version > 0 for t in operands)


def _check_law(law: Law, case: Case, report: Report) -> None:
    broken = {v.law for v in report.violations}
    violations: list[Violation] = []
    cause = next((name for name in law.after if name in broken), None)
    if cause is not None:
        report.not_checked[law.name] = f"it makes no sense while {cause!r} is broken"
        return
    try:
        violations = _violations(law, case)
    except NotChecked as reason:
        report.not_checked[law.name] = str(reason)
        return
    reported = {v.key for v in report.violations}
    same_fault = {(v.rule, v.what) for v in report.violations}
    fresh = [v for v in violations if v.key not in reported and (v.rule, v.what) not in same_fault]
    report.violations.extend(fresh)
    if not violations:
        report.passed.append(law.name)


def _violations(law: Law, case: Case) -> list[Violation]:
    """What a law finds; an exception inside is a violation too."""
    violations: list[Violation] = []
    try:
        violations.extend(law.check(case))
    except NotChecked:
        if not violations:
            raise
    except Exception as error:  # any error of a rule breaks the law
        violations.append(case.subject.judge(law.name, error, str(case)))
    return violations


TRIES = 6


def _smallest(violation: Violation, table: Sequence[Law], case: Case) -> Violation:
    """The same fault in a smaller case, where there is one."""
    law = next((x for x in table if x.name == violation.law), None)
    if law is None or law.name in ("shapes", "broadcasting"):
        return violation
    for arrays in _smaller(case.arrays)[:TRIES]:
        try:
            smaller = Case(case.subject, arrays, case.seed)
        except Exception:  # forward, which may raise anything, does not take these
            continue
        try:
            violations = _violations(law, smaller)
        except NotChecked:
            continue
        same = [v for v in violations if v.key == violation.key]
        if same:
            return same[0]
    return violation


def _smaller(arrays: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """Smaller arrays, the smallest first: no dimensions; dimensions of 1; of 2; simpler numbers."""
    choices = []
    simple = [_rounded(a) for a in arrays]
    if any(a.dtype.kind in "iu" for a in arrays):  # they may be positions in other arrays
        return [simple]
    if any(a.ndim for a in arrays) and all(a.size for a in arrays):
        choices.append([a.reshape(-1)[0] for a in simple])
    for limit in (1, 2):
        if any(n > limit for a in arrays for n in a.shape):
            choices.append([a[tuple([slice(0, limit)] * a.ndim)] for a in simple])
    choices.append(simple)
    return choices


def _rounded(a: np.ndarray) -> np.ndarray:
    return np.round(a, 1) + 0 if a.dtype.kind in "fc" else a
