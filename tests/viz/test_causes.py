"""`fad.why` and `fad.autograd.why`: each row of the page's table, as a function, jitted and on the tape."""

from __future__ import annotations

import functools
import inspect
import linecache
import re
import warnings
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ROOT

import fad
import fad.numpy as fnp
from fad import errors

PAGE = (ROOT / "docs/why-is-my-gradient.md").read_text()
X = [0.5, 2.0]


class Row(NamedTuple):
    cause: str
    program: str
    derivative: str
    kind: str
    text: str


def _rows() -> list[Row]:
    table = PAGE.partition("## The causes")[2].partition("What is cut in one place")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    rows = []
    for cause, program, derivative, *rest in [c for c in cells if c[0] not in ("cause",)]:
        kind, text = rest if len(rest) == 2 else ("", "")
        rows.append(Row(cause, program.strip("`"), derivative, kind.strip(), text.strip("`| ")))
    return rows


ROWS = _rows()


@functools.cache
def _names() -> dict[str, object]:
    """The functions that the programs of the table call."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    names: dict[str, object] = {}
    exec(compile(blocks[0].partition("\n\n\n")[0], "page", "exec"), names)
    (source,) = [b for b in blocks if b.startswith("class Forgotten")]
    linecache.cache["causes_page.py"] = (
        len(source),
        None,
        source.splitlines(True),
        "causes_page.py",
    )
    exec(compile(source, "causes_page.py", "exec"), names)
    return names


def _program(row: Row):
    source = f"def f(x):\n    return {row.program}\n"
    linecache.cache["causes_row.py"] = (len(source), None, source.splitlines(True), "causes_row.py")
    names = dict(_names())
    exec(compile(source, "causes_row.py", "exec"), names)
    return names["f"]


def _check(row: Row, report: object, derivative: str = "") -> None:
    (finding,) = report.inputs
    assert finding.derivative == (derivative or row.derivative), str(report)
    assert len(str(report).splitlines()) <= 10
    if row.kind:
        cause = (
            finding.causes[0] if row.kind != "nan" or "back" not in row.text else finding.causes[-1]
        )
        assert cause.kind == row.kind, str(report)
        assert row.text in cause.text, str(report)
        if row.kind not in ("unused",):
            assert re.match(r"causes_(row|page)\.py:\d+$", cause.line), str(report)
            assert cause.source
    else:
        assert not finding.causes, str(report)


def test_the_table_was_read():
    assert len(ROWS) >= 30
    assert {row.derivative for row in ROWS} == {"None", "zero", "nonzero", "NaN", "infinite"}


@pytest.mark.filterwarnings("ignore::fad.errors.DroppedDerivativeWarning")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.cause)
@pytest.mark.parametrize("way", [lambda f: f, fad.jit], ids=["function", "jit"])
def test_each_row_of_the_table(row, way):
    _check(row, fad.why(way(_program(row)))(jnp.asarray(X)))


@pytest.mark.filterwarnings("ignore::fad.errors.DroppedDerivativeWarning")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.cause)
def test_each_row_in_transforms(row):
    f, x = _program(row), jnp.asarray(X)
    _check(row, fad.why(lambda x: fad.value_and_grad(f)(x)[0])(x))
    _check(row, fad.why(lambda x: fad.vmap(lambda _: f(x))(fnp.ones(1))[0])(x))
    if row.kind in (
        "read",
        "unused",
    ):  # a number of Python that differs from lane to lane is an error
        return
    report = fad.why(lambda x: fad.vmap(f)(x[None])[0])(x)
    if row.cause == "a cut inside of a branch":  # where lanes choose, it is one operation
        row = row._replace(derivative="zero", kind="flat", text="cond has the derivative 0")
    if row.cause == "a rule that returns None":
        row = row._replace(kind="flat", text="Forgotten has the derivative 0")
    index = row.kind == "flat" and row.derivative == "nonzero"
    _check(row if index else row._replace(text=row.text.replace("[0]", "[0, 0]")), report)


@pytest.mark.filterwarnings("ignore::fad.errors.DroppedDerivativeWarning")
@pytest.mark.sweep(
    "row, way",
    [(row, way) for row in ROWS for way in ("inside of jit", "checkpoint", "pytree")],
    sample=len(ROWS),
    ids=lambda part: getattr(part, "cause", part),
)
def test_each_row_in_a_part_of_the_function(row, way):
    f, x = _program(row), jnp.asarray(X)
    if way == "pytree":
        report = fad.why(lambda tree: f(tree["x"][0]))({"x": [x]})
        assert report.inputs[0].name == "tree['x'][0]"
    elif way == "checkpoint":
        report = fad.why(fad.checkpoint(f))(x)
    else:
        inner = fad.jit(f)
        report = fad.why(lambda x: inner(x) * 2.0)(x)
        row = row._replace(text=row.text.replace("of the gradient 1", "of the gradient 2"))
    _check(row, report)


FORWARD = {
    "jvp": lambda f, x, t: fad.jvp(f, (x,), (t,)),
    "vmap(jvp)": lambda f, x, t: [
        o[0] for o in fad.vmap(lambda t: fad.jvp(f, (x,), (t,)))(t[None])
    ],
    "linearize": lambda f, x, t: (lambda y, push: (y, push(t)))(*fad.linearize(f, x)),
    "jacfwd": lambda f, x, t: (f(x), fad.jacfwd(f)(x)),
    "hessian": lambda f, x, t: (f(x), fad.hessian(f)(x)),
}


@pytest.mark.filterwarnings("ignore::fad.errors.DroppedDerivativeWarning")
@pytest.mark.sweep(
    "row, way",
    [(row, way) for row in ROWS for way in FORWARD],
    sample=len(ROWS),
    ids=lambda part: getattr(part, "cause", part),
)
def test_each_row_in_forward_mode(row, way):
    """The value of `fad.jvp` is cut as that of the function is, and what is derived is cut there too."""
    f, x, t = _program(row), jnp.asarray(X), jnp.asarray([1.0, 2.0])
    (plain,) = fad.why(f)(x).inputs
    report = fad.why(lambda x: FORWARD[way](f, x, t)[0])(x)
    (value,) = report.inputs
    assert value == plain, str(report)
    operations = {_base(c.operation) for c in plain.causes}

    report = fad.why(lambda x: FORWARD[way](f, x, t)[1])(x)
    (finding,) = report.inputs
    assert len(str(report).splitlines()) <= 10
    if way == "hessian" and row.cause in ("a NaN in the result", "a rule that returns None"):
        # It has finite second derivatives; and nothing is left of a gradient that is None.
        assert finding.derivative == {"NaN": "nonzero", "None": "None"}[row.derivative]
    elif row.derivative in ("None", "zero", "nonzero") and plain.causes:
        assert finding.derivative in ("None", "zero"), str(report)
        # A product with a constant is a cause of its own: its second derivative is zero.
        operations |= {"multiply"} if "* 0.0" in row.program or way == "hessian" else set()
        assert _base(finding.causes[0].operation) in operations, str(report)
        if row.kind in ("detach", "no_grad", "comparison", "integers", "read", "unused"):
            # The derivative of `linearize` has products with constants, too.
            count = len(plain.causes) if way == "linearize" else len(finding.causes)
            assert finding.causes[:count] == plain.causes, str(report)
    elif row.kind == "nan":
        assert _base(finding.causes[0].operation) in operations, str(report)
    else:
        assert finding == plain


def _base(name: str) -> str:
    return re.sub(r"(_(vjp|jvp|vmap))+$", "", name)


@pytest.mark.filterwarnings("ignore::fad.errors.DroppedDerivativeWarning")
def test_a_tangent_is_zero_where_the_gradient_is_but_for_two_rows():
    x, t = jnp.asarray(X), jnp.asarray([1.0, 2.0])
    others = {}
    for row in ROWS:
        if row.kind != "read":
            tangent = np.asarray(fad.jvp(_program(row), (x,), (t,))[1])
            kind = "NaN" if np.isnan(tangent) else "infinite" if np.isinf(tangent) else "nonzero"
            kind = kind if tangent else "zero"
            if kind != row.derivative.replace("None", "zero"):
                others[row.cause] = kind
    assert others == {"`no_grad`": "nonzero", "a NaN that `where` hides": "nonzero"}


@pytest.mark.filterwarnings("ignore::fad.errors.DroppedDerivativeWarning")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.cause)
def test_what_is_said_is_what_grad_gives(row):
    """The kind of number that `fad.grad` gives; and the report changes nothing."""
    f = _program(row)
    x = fad.tensor(X)
    fad.why(f)(x)
    assert x.tolist() == X and not x.requires_grad and x.version == 0
    if row.kind == "read" and "numpy" in row.text:
        return
    gradient = np.asarray(fad.grad(f)(jnp.asarray(X)))
    numbers = {
        "None": not gradient.any(),
        "zero": not gradient.any(),
        "nonzero": np.isfinite(gradient).all() and gradient.any(),
        "NaN": np.isnan(gradient).any(),
        "infinite": np.isinf(gradient).any() and not np.isnan(gradient).any(),
    }
    assert numbers[row.derivative], gradient


@pytest.mark.filterwarnings("ignore::fad.errors.DroppedDerivativeWarning")
@pytest.mark.parametrize("lines", [False, True], ids=["plain", "anomaly mode"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.cause)
def test_each_row_on_the_tape(row, lines):
    """After the fact: the same kind of derivative, as far as the graph has it, and `backward` agrees."""
    x = fad.tensor(X, requires_grad=True)
    with fad.autograd.set_detect_anomaly(lines, check_nan=False):
        loss = _program(row)(x)
    if not isinstance(loss, fad.Tensor):
        loss = fad.tensor(loss)
    if row.cause == "a cut inside of a branch":
        row = row._replace(derivative="zero", kind="")  # a branch is one node
    report = fad.autograd.why(loss, x)
    (finding,) = report.inputs
    assert finding.derivative == row.derivative, str(report)
    assert len(str(report).splitlines()) <= 10
    if row.kind in ("flat", "rule", "cancels") and row.derivative != "nonzero":
        in_one_node = row.cause == "inside of a loop"
        said = "has the derivative 0" if in_one_node else row.text.partition(" (")[0]
        assert said in finding.causes[0].text, str(report)
    if row.kind == "nan":
        assert "gives" in finding.causes[-1].text and "backwards" in finding.causes[-1].text
    if lines and row.derivative in ("zero", "NaN", "infinite"):
        assert finding.causes[-1].line.startswith("causes_"), str(report)
    if loss.requires_grad:
        loss.backward()
        assert (x.grad is None) == (row.derivative == "None")


def _kinds(report: object) -> dict[str, tuple[str, list[str]]]:
    return {f.name: (f.derivative, [c.kind for c in f.causes]) for f in report.inputs}


def test_inputs_are_told_apart():
    def f(params, x, *rest, scale=1.0):
        h = fnp.tanh(x @ params["w"])
        return (h * scale).sum() + rest[0].detach().sum() + fnp.floor(params["b"]).sum()

    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3), "n": 3, "name": "net"}
    report = fad.why(f)(params, jnp.ones((1, 2)), jnp.ones(2), scale=2.0)
    assert _kinds(report) == {
        "params['b']": ("zero", ["flat"]),
        "params['w']": ("nonzero", []),
        "x": ("nonzero", []),
        "rest[0]": ("None", ["detach"]),
        "scale": ("nonzero", []),
    }
    assert "params['w'], x, scale: a plain number, not zero" in str(report)


def test_nothing_plain_is_accused():
    """Derivatives that are numbers, of programs full of what may cut others."""
    w = fad.tensor([1.0, 2.0], requires_grad=True)

    def by_value(x):
        for _ in range(3):
            if x.sum() > 0 and x.max().item() > -1.0:
                x = fnp.where(x > 0, x * w, -x) + fad.nn.relu(x + 5.0)
        return x.sum()

    programs = [
        by_value,
        lambda x: fnp.linalg.norm(x),
        lambda x: fad.nn.softmax(x)[0] if fad.nn.softmax(x)[0] is not None else x,
        lambda x: fad.vmap(lambda y: fnp.sin(y) * y)(x).sum(),
        lambda x: fad.grad(lambda y: (y**3).sum())(x).sum(),
        lambda x: fad.jvp(fnp.sin, (x,), (x,))[1].sum(),
        lambda x: fad.lax.scan(lambda c, r: (c * r, c), x[0], x)[0] * x[1],
        lambda x: fad.jit(fad.grad(fad.jit(lambda y: (y**3).sum())))(x).sum(),
        lambda x: fad.safe_where(x > 1.0, fnp.log, lambda y: y, x).sum(),
        lambda x: fnp.sort(x)[::-1] @ fnp.arange(1.0, 3.0),
        lambda x: fnp.cumsum(x).reshape(2, 1).T.sum(),
        lambda x: {"a": x, "b": [x * 2]},
        lambda x: x,
        lambda x: fnp.exp(1j * x).real.sum(),
    ]
    for f in programs:
        report = fad.why(f)(jnp.asarray(X))
        (finding,) = report.inputs
        assert finding.derivative == "nonzero", f"{inspect.getsource(f)}\n{report}"
        assert not finding.causes or "element" in finding.causes[0].text, str(report)
    assert w.grad is None


def test_elements_are_told_apart():
    def text(f, x):
        (finding,) = fad.why(f)(jnp.asarray(x)).inputs
        return finding.derivative, finding.text, [c.text for c in finding.causes]

    kind, said, (cause,) = text(lambda x: fad.nn.relu(x).sum(), [1.0, -2.0, 3.0])
    assert (kind, said) == ("nonzero", "not zero, but for 1 of 3 elements")
    assert cause.startswith("element [1]: relu does not pass") and "(-2)" in cause
    *_, (cause,) = text(lambda x: x[x.argmax()], [1.0, 5.0])
    assert cause.startswith("element [0]: getitem leaves it out")
    *_, (cause,) = text(lambda x: x.max(), [1.0, 5.0])
    assert "max picks another one" in cause

    def written(x):
        x[0] = 3.0
        return (x * x).sum()

    *_, (cause,) = text(written, [1.0, 5.0])
    assert "a write in place writes over it" in cause


def test_the_first_cut_of_several_is_named_by_its_line():
    def f(x):
        y = fnp.sin(x)
        with fad.no_grad():
            z = y * 2.0
            z = z + 1.0
        return z.sum()

    (finding,) = fad.why(f)(jnp.asarray(X)).inputs
    assert [c.source for c in finding.causes] == ["z = y * 2.0"]
    assert finding.causes[0].line.startswith("test_causes.py:")


def test_a_nan_is_followed_to_where_it_is_born():
    def f(x):
        y = fnp.log(x)
        z = y * 2.0
        return fnp.exp(z).sum()

    (finding,) = fad.why(f)(jnp.asarray([1.0, -1.0])).inputs
    assert finding.causes[0].source == "y = fnp.log(x)"
    assert "log gives nan, forwards, of (-1) at element [1]" in finding.causes[0].text
    (finding,) = fad.why(lambda x: (x * 2.0).sum())(jnp.asarray([1.0, jnp.nan])).inputs
    assert finding.derivative == "nonzero"  # a NaN comes in, the derivative is 2
    assert finding.text == "not zero; but the result is not finite"
    (finding,) = fad.why(lambda x: (x * x).sum())(jnp.asarray([1.0, jnp.nan])).inputs
    assert finding.causes[0].text == "the input has NaN or infinity in it"


def test_what_it_takes():
    with pytest.raises(errors.ArgumentError, match=r"write fad.why\(f\)\(x\)"):
        fad.why(jnp.ones(2))
    with pytest.raises(errors.ArgumentError, match="outside of transforms"):
        fad.jit(lambda x: fad.why(fnp.sin)(x) and x)(jnp.ones(()))
    with pytest.raises(errors.ArgumentError, match="outside of transforms"):
        fad.vmap(lambda x: fad.why(fnp.sin)(x) and x)(jnp.ones(2))
    report = fad.why(lambda n: n * 2)(3)
    assert not report.inputs and "integers have no derivative" in str(report)
    with pytest.raises(ZeroDivisionError):
        fad.why(lambda x: x.sum() / (1 // 0))(jnp.ones(2))
    assert fad.is_grad_enabled()


def test_it_is_at_home_in_no_grad_and_on_tape_tensors():
    x = fad.tensor(X, requires_grad=True)
    with fad.no_grad():
        (finding,) = fad.why(lambda x: fnp.sin(x).sum())(x).inputs
    assert finding.derivative == "nonzero" and x.grad is None


def test_on_the_tape_it_says_what_is_missing():
    x, other = fad.tensor(X, requires_grad=True), fad.tensor(X, requires_grad=True)
    loss = (x * 2.0).sum()
    report = fad.autograd.why(loss, [other, fad.tensor(1.0), fad.tensor([1])])
    assert [f.causes[0].kind for f in report.inputs] == ["not in the graph", "leaf", "leaf"]
    assert "float32[2]" in report.inputs[0].causes[0].text
    assert "For lines: fad.why(f)(x)" in str(report)
    h = x * 2.0  # a Tensor in the middle
    assert fad.autograd.why(fad.nn.relu(-h).sum(), h).inputs[0].derivative == "zero"
    assert fad.autograd.why(h.sum(), h).inputs[0].derivative == "nonzero"
    loss.backward()
    with pytest.raises(errors.GradientError, match="before loss.backward"):
        fad.autograd.why(loss, x)
    with pytest.raises(errors.ArgumentError, match=r"fad.why\(f\)\(x\)"):
        fad.autograd.why(lambda x: x, x)
    with pytest.raises(errors.ArgumentError, match="must be a Tensor"):
        fad.autograd.why(x.sum(), jnp.ones(2))


def test_pictures(tmp_path):
    report = fad.why(lambda x: (fad.nn.relu(x - 9.0) * 2.0).sum())(jnp.asarray(X))
    dot = report.dot()
    assert dot.count("#ffcdd2") == 1 and "relu" in dot and dot.count("->") == 5
    for name in ("why.dot", "why.html", "why.txt"):
        report.save(tmp_path / name)
    assert (tmp_path / "why.txt").read_text() == str(report)
    assert "<pre>" in (tmp_path / "why.html").read_text()
    assert repr(report) == "<fad.why: x: zero>"
    with pytest.raises(errors.ArgumentError, match="must end with one of"):
        report.save(tmp_path / "why.bmp")
    x = fad.tensor(X, requires_grad=True)
    assert "relu" in fad.autograd.why(fad.nn.relu(-x).sum(), x)._repr_html_()


def test_many_inputs_are_ten_lines():
    report = fad.why(lambda xs: sum(fnp.sqrt(x - k) for k, x in enumerate(xs)))([0.0] * 30)
    text = str(report).splitlines()
    assert len(text) <= 10 and "more inputs: see .inputs" in text[-1]
    assert len(report.inputs) == 30


def test_inputs_with_one_cause_share_its_line():
    report = fad.why(lambda xs: sum(x.detach().sum() for x in xs))([jnp.ones(2)] * 30)
    _, names, cause = str(report).splitlines()
    assert (
        names
        == "xs[0], xs[1], xs[2], xs[3], xs[4] and 25 more: None: every way to the result is cut"
    )
    assert "detach: a constant" in cause and len(report.inputs) == 30


def test_a_mask_of_infinity_is_not_where_a_nan_is_born():
    def attention(x, scale=1.0):
        scores = fnp.where(x > 9.0, x, -fnp.inf)
        scores = scores if scale == 1.0 else scores * scale
        return (fad.nn.softmax(scores) * x).sum()

    x = jnp.asarray([1.0, 2.0])
    first = fad.why(attention)(x, 2.0).inputs[0].causes[0]
    assert first.operation == "softmax" and "return (fad.nn.softmax" in first.source
    t = fad.tensor(x, requires_grad=True)
    with fad.autograd.detect_anomaly(check_nan=False):
        loss = attention(t)
    first = fad.autograd.why(loss, t).inputs[0].causes[0]
    assert first.operation == "softmax" and "return (fad.nn.softmax" in first.source
    # An infinity that is computed is where it begins; so is a mask that is the result.
    for f in (
        lambda x: (fnp.log(x * 0.0) - fnp.log(x * 0.0)).sum(),
        lambda x: fnp.log(x * 0.0).sum(),
    ):
        assert fad.why(f)(x).inputs[0].causes[0].operation == "log"
    masked = lambda x: fnp.where(x > 9.0, x, -fnp.inf).sum()
    assert fad.why(masked)(x).inputs[0].causes[0].operation == "where"


def test_a_long_chain_takes_no_recursion():
    def f(x):
        for _ in range(3000):
            x = x * 1.0
        return fnp.floor(x).sum()

    (finding,) = fad.why(f)(jnp.asarray(X)).inputs
    assert finding.causes[0].text.startswith("floor")


def test_warnings_are_those_of_the_program():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fad.why(lambda x: fnp.sin(x).sum())(jnp.asarray(X))


def test_a_derivative_that_is_constant_is_no_cut_of_ones_own():
    for f in (fad.laplacian, lambda g: lambda x: fad.hessian(g)(x).sum()):
        (finding,) = fad.why(f(lambda y: (y**2).sum()))(jnp.asarray(X)).inputs
        assert finding.derivative == "None" and finding.causes[0].kind == "flat"
        assert "a part of a derivative, does not change with it" in finding.causes[0].text


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_that_calls_backward_is_told_to_give_its_loss(compiled):
    """Its parameters are outside; that of a compiled one looks like it."""
    w = fad.tensor(X, requires_grad=True)

    def step(x):
        loss = (w * x).sum()
        loss.backward()
        return loss

    with pytest.raises(
        errors.GradientError, match=r"why: step calls backward.*fad\.why\(loss\)\(params"
    ):
        fad.why(fad.jit(step) if compiled else step)(jnp.ones(2))
    assert w.grad is None
    report = fad.why(lambda w, x: fad.nn.relu(w * x - 9.0).sum())(w, jnp.ones(2))
    assert report.inputs[0].causes[0].operation == "relu"
    inner = fad.jit(lambda x: fad.nn.relu(w * x - 9.0).sum())
    (finding,) = fad.autograd.why(inner(jnp.ones(2)), w).inputs
    assert finding.derivative == "zero"


def test_a_nan_that_is_closed_over_and_a_copy_are_named():
    (finding,) = fad.why(lambda x: (x * jnp.asarray([1.0, np.nan])).sum())(jnp.ones(2)).inputs
    assert finding.causes[0].text.endswith("operand 1, a constant, has a NaN already")
    (finding,) = fad.why(lambda x: fad.tensor(x).sum())(fad.tensor(X)).inputs
    assert finding.causes[0].text == "fad.tensor: a constant from here on"


@pytest.mark.parametrize(
    ("f", "x", "operation", "words"),
    [
        (lambda x: fnp.sqrt((x**2).sum()), [0.0, 0.0], "sqrt", "fad.numpy.linalg.norm"),
        (lambda x: (x * fnp.log(x)).sum(), [0.0, 1.0], "log", "xlogy"),
        (lambda x: (x / x).sum(), [0.0, 1.0], "true_divide", "fad.safe_where"),
        (lambda x: (x / fnp.linalg.norm(x)).sum(), [0.0, 0.0], "true_divide", "the divisor + eps"),
        (lambda x: fnp.log(fnp.exp(x).sum()), [100.0, 1.0], "exp", "logsumexp"),
        (lambda x: (fnp.exp(x) / fnp.exp(x).sum())[0], [100.0, 1.0], "exp", "softmax"),
        (lambda x: fnp.log(fad.nn.softmax(x))[0], [-200.0, 1.0], "log", "log_softmax"),
        (lambda x: fnp.arctan2(x[0], x[1]), [0.0, 0.0], "arctan2", "fad.safe_where"),
        (lambda x: (x**0.3).sum(), [-1.0, 1.0], "power", "a base that is above 0"),
        (lambda x: fnp.arccos(x).sum(), [1.0, 0.0], "arccos", "keep away"),
        (
            lambda x: fad.nn.softmax(fnp.where(x < 9, -fnp.inf, x))[0],
            [1.0, 2.0],
            "softmax",
            "finfo",
        ),
        (lambda x: fnp.linalg.inv(fnp.diag(x)).sum(), [0.0, 1.0], "inv", "singular"),
        (lambda x: -fnp.log(1 - fad.nn.sigmoid(x)).sum(), [200.0, 0.0], "log", "log1p"),
    ],
)
@pytest.mark.parametrize("way", ["function", "jit", "tape"])
def test_where_a_nan_is_born_it_says_what_to_write(f, x, operation, words, way):
    if way == "tape":
        w = fad.tensor(x, requires_grad=True)
        (finding,) = fad.autograd.why(f(w), w).inputs
    else:
        (finding,) = fad.why(fad.jit(f) if way == "jit" else f)(jnp.asarray(x)).inputs
    said = [c for c in finding.causes if c.kind == "nan" and c.operation == operation]
    if way == "tape":  # nodes, not lines: what was saved may begin further on
        assert finding.derivative == "zero" or any(
            "; " in c.text or "safe_where" in c.text for c in finding.causes
        ), finding
    else:
        assert any(words in c.text or "safe_where" in c.text for c in said), finding


def test_a_derivative_of_a_tangent_that_is_zero():
    """The derivative changes with its point; what is 0 is the tangent."""
    x = fnp.array(X)
    along = lambda x: fad.jvp(lambda x: fnp.sin(x).sum(), (x,), (fnp.zeros(2),))[1]
    (cause,) = fad.why(along)(x).inputs[0].causes
    assert "sin_jvp (the derivative of sin) takes a tangent, or gradient, that is 0" in cause.text
    t = fad.tensor(X, requires_grad=True)
    (g,) = fad.autograd.grad((fnp.sin(t) * 0.0).sum(), [t], create_graph=True)
    (cause,) = fad.autograd.why(g.sum(), t).inputs[0].causes
    assert "sin_vjp (the derivative of sin) takes a tangent, or gradient, that is 0" in cause.text


def test_what_makes_a_constant_derivative_is_named_beside_what_is_flat():
    f = lambda x: fad.nn.relu(x).sum() + (x**2).sum()
    report = fad.why(lambda x: fad.hessian(f)(x).sum())(fnp.array(X))
    assert "the result is 4" in str(report)
    assert {"relu_vjp", "power_vjp_jvp"} <= {cause.operation for cause in report.inputs[0].causes}


@pytest.mark.parametrize("name", ["step_linear", "my_jvp", "my_vjp_vmap", "go_forward"])
def test_an_operation_of_the_user_has_any_name(name):
    def floor(x):
        return jnp.floor(x)

    floor.__name__ = name
    op = fad.extend.operation(floor)
    t = fad.tensor(X, requires_grad=True)
    slope = lambda x: fad.jvp(lambda x: op(x).sum(), (x,), (fnp.ones(2),))[1]
    for report in (
        fad.why(lambda x: op(x).sum())(fnp.array(X)),
        fad.why(slope)(fnp.array(X)),
        fad.why(lambda x: fad.vmap(op)(x).sum())(fnp.array(X)),
        fad.autograd.why(op(t).sum(), t),
    ):
        (cause,) = report.inputs[0].causes
        assert cause.operation == name and cause.text.startswith(f"{name} has the derivative 0")
