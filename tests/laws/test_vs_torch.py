"""The same programs run in PyTorch and in fad, and must tell the same story; see `two_libraries`."""

from __future__ import annotations

import gc
import math
import random
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from two_libraries import FAD, TORCH, Log, compare, same, story

import fad

torch = pytest.importorskip("torch", reason="the oracle is PyTorch (extra: oracle)")

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning",
    # PyTorch's wrapper of generators, from Python 3.12 on.
    r"ignore:the \(type, exc, tb\) signature of throw:DeprecationWarning",
)

PROGRAMS: dict[str, Callable[[Any, Any], None]] = {}


def program(f: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    assert f.__name__ not in PROGRAMS
    PROGRAMS[f.__name__] = f
    return f


# Order of hooks


@program
def hooks_of_an_inner_tensor(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0
    y.grad_fn.register_hook(log.hook("post"))
    y.grad_fn.register_prehook(log.hook("pre"))
    y.retain_grad()
    y.register_hook(log.hook("a"))
    y.register_hook(log.hook("b"))
    x.register_hook(lambda g: log("leaf", g, y.grad))
    (y * 5.0).backward()
    log(y.grad, x.grad)


@program
def hooks_of_a_leaf(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0
    node = y.grad_fn.next_functions[0][0]
    node.register_hook(lambda i, o: log("post", i, o, x.grad))
    node.register_prehook(lambda o: log("pre", o, x.grad))
    x.register_post_accumulate_grad_hook(lambda t: log("accumulated", t is x, t.grad))
    x.register_hook(lambda g: log("a", g, x.grad))
    x.register_hook(lambda g: log("b", g, x.grad))
    y.backward()
    log(x.grad)


@program
def hooks_of_outputs_of_one_node(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    a, b = lib.halves(x * 1.0)
    a.register_hook(log.hook("a1"))
    b.register_hook(log.hook("b1"))
    a.register_hook(log.hook("a2"))
    b.retain_grad()
    a.grad_fn.register_prehook(log.hook("pre"))
    log(a.grad_fn is b.grad_fn, a.output_nr, b.output_nr)
    (a * 2.0 + b * 3.0).sum().backward()
    log(b.grad, x.grad)


@program
def hooks_where_an_output_has_no_gradient(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    a, b = lib.halves(x * 1.0)
    a.register_hook(log.hook("a"))
    b.register_hook(log.hook("b"))
    b.retain_grad()
    a.grad_fn.register_prehook(log.hook("pre"))
    a.grad_fn.register_hook(log.hook("post"))
    a.sum().backward()
    log(b.grad, x.grad)


@program
def replacement_by_tensor_hooks(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0
    y.retain_grad()
    y.register_hook(lambda g: g * 10.0)
    y.register_hook(log.hook("sees", lambda g: g + 1.0))
    y.grad_fn.register_prehook(log.hook("pre"))
    x.register_hook(lambda g: g * 2.0)
    x.register_hook(log.hook("leaf", lambda g: g + 0.5))
    y.backward()
    log(y.grad, x.grad)


@program
def replacement_by_node_hooks(lib: Any, log: Any) -> None:
    a, b = lib.var(2.0), lib.var(3.0)
    y = a * b
    y.grad_fn.register_prehook(lambda o: (o[0] * 2.0,))
    y.grad_fn.register_prehook(log.hook("pre", lambda o: (o[0] + 1.0,)))
    y.grad_fn.register_hook(lambda i, o: (i[0], i[1] * 10.0))
    y.grad_fn.register_hook(log.hook("post", lambda i, o: (i[0] + 1.0, i[1])))
    y.backward()
    log(a.grad, b.grad)


@program
def replacement_at_the_accumulator(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0
    node = y.grad_fn.next_functions[0][0]
    node.register_prehook(lambda o: (o[0] * 2.0,))
    node.register_hook(log.hook("post"))
    y.backward()
    log(x.grad)


@program
def prehook_that_drops_the_gradient(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0
    y.grad_fn.register_prehook(lambda o: (None,))
    y.grad_fn.register_hook(log.hook("post"))
    x.register_hook(log.hook("leaf"))
    y.backward()
    log(x.grad)


@program
def posthook_that_drops_a_gradient(lib: Any, log: Any) -> None:
    a, b = lib.var(2.0), lib.var(3.0)
    y = a * b
    y.grad_fn.register_hook(lambda i, o: (None, i[1]))
    a.register_hook(log.hook("a"))
    y.backward()
    log(a.grad, b.grad)


@program
def handles_remove_once_and_again(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0
    first = y.register_hook(log.hook("first"))
    second = y.register_hook(log.hook("second"))
    pre = y.grad_fn.register_prehook(log.hook("pre"))
    post = y.grad_fn.register_hook(log.hook("post"))
    leaf = x.register_hook(log.hook("leaf"))
    after = x.register_post_accumulate_grad_hook(log.hook("after"))
    y.backward(retain_graph=True)
    for handle in (first, first, pre, post, leaf, after, after):
        handle.remove()
    log("now")
    y.backward(retain_graph=True)
    second.remove()
    y.backward()
    log(x.grad)


@program
def handle_as_context_manager(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0
    with y.register_hook(log.hook("inside")):
        y.backward(retain_graph=True)
    y.backward()
    log(x.grad)


@program
def a_hook_removes_itself(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0

    def once(g: Any) -> None:
        log("once", g)
        handle.remove()

    handle = y.register_hook(once)
    y.register_hook(log.hook("always"))
    y.backward(retain_graph=True)
    y.backward()


@program
def a_hook_removes_a_later_one(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0
    y.register_hook(lambda g: handle.remove())
    handle = y.register_hook(log.hook("later"))
    y.grad_fn.register_hook(lambda i, o: node_handle.remove())
    node_handle = y.grad_fn.register_hook(log.hook("later post"))
    y.backward(retain_graph=True)
    log("again")
    y.backward()


@program
def a_hook_registers_another(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0

    def hook(g: Any) -> None:
        log("hook")
        y.register_hook(log.hook("new"))
        x.register_hook(log.hook("new leaf"))

    y.register_hook(hook)
    y.backward(retain_graph=True)
    log("again")
    y.backward()


@program
def the_same_hook_twice(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    hook = log.hook("hook", lambda g: g * 2.0)
    first = x.register_hook(hook)
    x.register_hook(hook)
    (x * 3.0).backward()
    first.remove()
    (x * 3.0).backward()
    log(x.grad)


@program
def a_hook_that_fails(lib: Any, log: Any) -> None:
    x, w = lib.var(2.0), lib.var(3.0)
    y = x * w
    handle = x.register_hook(lambda g: 1 / 0)
    with log.raises("division"):
        y.backward(retain_graph=True)
    log(x.grad, lib.is_grad_enabled())
    handle.remove()
    w.grad = None
    y.backward()
    log(x.grad, w.grad)


@program
def results_of_hooks_are_checked(lib: Any, log: Any) -> None:
    def run(hook: Callable[[Any], Any], phrase: str) -> None:
        x = lib.var(2.0)
        y = x * 3.0
        y.register_hook(hook)
        with log.raises(phrase):
            y.backward()
        log(x.grad)

    run(lambda g: lib.tensor([1.0, 1.0]), "has changed the size of value")
    run(lambda g: lib.double(1.0), "has changed the type of value")
    run(lambda g: 1.0, "hook returned 'float'")
    run(lambda g: "text", "hook returned 'str'")


@program
def results_of_node_hooks_are_checked(lib: Any, log: Any) -> None:
    def run(phrase: str, post: Any = None, pre: Any = None) -> None:
        x = lib.var(2.0)
        y = x * 3.0
        if post:
            y.grad_fn.register_hook(post)
        if pre:
            y.grad_fn.register_prehook(pre)
        with log.raises(phrase):
            y.backward()

    one = lib.tensor(1.0)
    run("incorrect number of values (got 1, but expected 2)", lambda i, o: (one,))
    run("incorrect number of values (got 3, but expected 2)", lambda i, o: (one, one, one))
    run("expected tuple, but hook returned 'Tensor'", lambda i, o: one)
    run("can't replace a None gradient with a non-None value", lambda i, o: (one, one))
    run("incorrect number of values (got 2, but expected 1)", pre=lambda o: (one, one))
    run("expected tuple, but hook returned 'Tensor'", pre=lambda o: one)
    run("", lambda i, o: (one, None))


@program
def post_accumulate_hooks(lib: Any, log: Any) -> None:
    x = lib.var(2.0)

    def drop(t: Any) -> None:
        log("drop", t.grad)
        t.grad = None

    x.register_post_accumulate_grad_hook(log.hook("first"))
    x.register_post_accumulate_grad_hook(drop)
    x.register_post_accumulate_grad_hook(lambda t: log("last", t.grad))
    (x * 3.0).backward()
    log(x.grad)
    lib.grad(x * 3.0, x)
    log("grad does not accumulate")
    (x * 3.0).backward(inputs=[x])
    with log.raises("hook returned 'int'"):
        x.register_post_accumulate_grad_hook(lambda t: 3)
        (x * 3.0).backward()


@program
def where_hooks_cannot_be_registered(lib: Any, log: Any) -> None:
    c, x = lib.tensor(1.0), lib.var(1.0)
    with log.raises("cannot register a hook on a tensor that doesn't require gradient"):
        c.register_hook(print)
    with log.raises("cannot register a hook on a tensor that doesn't require gradient"):
        c.register_post_accumulate_grad_hook(print)
    with log.raises("post accumulate grad hooks cannot be registered on non-leaf tensors"):
        (x * 2.0).register_post_accumulate_grad_hook(print)
    with log.raises("can't retain_grad on Tensor that has requires_grad=False"):
        c.retain_grad()
    x.retain_grad()
    log(x.retains_grad, x.is_leaf)


@program
def retain_grad_sees_what_hooks_left(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0
    y.retain_grad()
    y.retain_grad()
    y.register_hook(lambda g: g * 10.0)
    y.backward(retain_graph=True)
    log(y.grad, y.retains_grad, y.is_leaf)
    y.backward()
    log(y.grad, x.grad)


@program
def hooks_after_retain_grad_of_several_outputs(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0, 3.0, 4.0])
    a, b = lib.halves(x)
    a.retain_grad()
    b.register_hook(lambda g: log("b", a.grad))
    (a * b).sum().backward()
    log(a.grad, x.grad)


# What is captured, and what is pruned


@program
def a_captured_tensor_after_its_hooks(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    y.register_hook(log.hook("y", lambda g: g * 10.0))
    y.grad_fn.register_prehook(log.hook("pre"))
    y.grad_fn.register_hook(log.hook("post"))
    x.register_hook(log.hook("x"))
    log(lib.grad(y * 3.0, [y]))


@program
def a_captured_tensor_that_is_also_needed(lib: Any, log: Any) -> None:
    # It is captured before its own hooks: PyTorch runs those when the node runs.
    x = lib.var(2.0)
    y = x * x
    y.register_hook(log.hook("y", lambda g: g * 10.0))
    y.grad_fn.register_prehook(log.hook("pre"))
    log(lib.grad(y * 3.0, [y, x]))


@program
def a_captured_leaf(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0
    node = y.grad_fn.next_functions[0][0]
    x.register_hook(log.hook("x", lambda g: g * 10.0))
    node.register_prehook(log.hook("pre"))
    node.register_hook(log.hook("post"))
    x.register_post_accumulate_grad_hook(log.hook("after"))
    log(lib.grad(y, x), x.grad)


@program
def retain_grad_and_capture(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    y.retain_grad()
    log(lib.grad(y * 3.0, y, retain_graph=True), y.grad)
    y.grad = None
    log(lib.grad(y * 3.0, x), y.grad)


@program
def backward_into_an_inner_tensor(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    y.register_hook(log.hook("y"))
    y.grad_fn.register_prehook(log.hook("pre"))
    y.grad_fn.register_hook(log.hook("post"))
    x.register_hook(log.hook("x"))
    lib.backward(y * 3.0, inputs=[y])
    log(y.grad, x.grad, y.retains_grad)


@program
def backward_into_some_leaves(lib: Any, log: Any) -> None:
    a, b = lib.var(2.0), lib.var(3.0)
    u, v = a * 2.0, b * 5.0
    for name, t in (("a", a), ("b", b), ("u", u), ("v", v)):
        t.register_hook(log.hook(name))
    v.grad_fn.register_prehook(log.hook("pre v"))
    v.grad_fn.register_hook(log.hook("post v"))
    a.register_post_accumulate_grad_hook(log.hook("after a"))
    b.register_post_accumulate_grad_hook(log.hook("after b"))
    lib.backward(u * v, inputs=[a])
    log(a.grad, b.grad)


@program
def grad_of_some_leaves_prunes(lib: Any, log: Any) -> None:
    a, b = lib.var(2.0), lib.var(3.0)
    u, v = a * 2.0, b * 5.0
    y = u * v
    for name, t in (("u", u), ("v", v), ("y", y)):
        t.register_hook(log.hook(name))
        t.grad_fn.register_prehook(log.hook(f"pre {name}"))
        t.grad_fn.register_hook(log.hook(f"post {name}"))
    log(lib.grad(y, a))


@program
def grad_of_a_tensor_between_two_others(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 2.0
    z = y * y
    w = z * y
    for name, t in (("x", x), ("y", y), ("z", z)):
        t.register_hook(log.hook(name))
    log(lib.grad(w, [z, y]))


@program
def grad_of_itself(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0
    log(lib.grad(x, x), lib.grad(y, y), lib.grad([y, x], [x, y, x]))


@program
def grad_of_an_input_given_twice(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    x.register_hook(log.hook("x"))
    log(lib.grad(x * x, [x, x]))


@program
def a_leaf_that_several_nodes_use(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    x.register_hook(log.hook("x"))
    x.register_post_accumulate_grad_hook(lambda t: log("after", t.grad))
    (x * 2.0 + x * 3.0 + lib.sin(x)).backward()


@program
def backward_with_a_leaf_not_reached(lib: Any, log: Any) -> None:
    x, other = lib.var(2.0), lib.var(1.0)
    lib.backward(x * 2.0, inputs=[x, other])
    log(x.grad, other.grad)


# Order of execution


@program
def latest_recorded_runs_first(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    a = x * 2.0
    b = lib.sin(x)
    c = lib.exp(a)
    d = b * 3.0
    e = c + d
    for name, t in zip("abcde", (a, b, c, d, e)):
        t.grad_fn.register_hook(lambda i, o, name=name: log(name))
    e.backward()


@program
def sequence_numbers_reorder(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    parts = [x * k for k in (1.0, 2.0, 3.0)]
    total = parts[0] + parts[1] + parts[2]
    for k, t in enumerate(parts):
        t.grad_fn.register_hook(lambda i, o, k=k: log(k))
    total.backward(retain_graph=True)
    numbers = [lib.sequence_nr(t.grad_fn) for t in parts]
    log(numbers[0] < numbers[1] < numbers[2])
    lib.set_sequence_nr(parts[0].grad_fn, numbers[2] + 1)
    lib.set_sequence_nr(parts[2].grad_fn, 0)
    total.backward()
    log(x.grad)


@program
def sequence_numbers_grow(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    first = x * 2.0
    second = first * 2.0
    log(lib.sequence_nr(second.grad_fn) - lib.sequence_nr(first.grad_fn))
    log(lib.sequence_nr(lib.accumulator(x)))


@program
def sequence_numbers_are_per_thread(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    for _ in range(5):
        x * 2.0
    here = lib.sequence_nr((x * 2.0).grad_fn)
    found = []
    thread = threading.Thread(target=lambda: found.append(lib.sequence_nr((x * 2.0).grad_fn)))
    thread.start()
    thread.join()
    log(found[0] < here)


@program
def an_accumulator_runs_as_soon_as_it_can(lib: Any, log: Any) -> None:
    a, b = lib.var(2.0), lib.var(3.0)
    u = a * 2.0
    v = b * 3.0
    y = u * v
    for name, t in (("a", a), ("b", b), ("u", u), ("v", v)):
        t.register_hook(lambda g, name=name: log(name))
    y.backward()


@program
def fan_in_is_summed_before_hooks(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0
    y.register_hook(log.hook("y"))
    y.grad_fn.register_prehook(log.hook("pre"))
    (y * 2.0 + y * y + lib.sin(y) * 0.0).backward()
    log(x.grad)


@program
def several_roots(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0
    z = y * y
    y.register_hook(log.hook("y"))
    z.register_hook(log.hook("z"))
    lib.backward([y, z], [lib.tensor(10.0), None], retain_graph=True)
    log(x.grad)
    log(lib.grad([z, y, z], x))


@program
def one_root_twice(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    y.register_hook(log.hook("y"))
    lib.backward([y, y])
    log(x.grad)


@program
def roots_of_separate_graphs(lib: Any, log: Any) -> None:
    x, w = lib.var(2.0), lib.var(3.0)
    y, z = x * x, w * w
    y.register_hook(log.hook("y"))
    z.register_hook(log.hook("z"))
    lib.backward([y, z])
    log(x.grad, w.grad)


@program
def a_diamond_many_deep(lib: Any, log: Any) -> None:
    x = lib.var(1.0)
    y = x
    count = [0]
    for _ in range(12):
        y = y + y
        y.grad_fn.register_hook(lambda i, o: count.__setitem__(0, count[0] + 1))
    y.backward()
    log(count[0], x.grad)


# Errors


@program
def roots_without_a_graph(lib: Any, log: Any) -> None:
    x, c = lib.var(2.0), lib.tensor(1.0)
    with log.raises("element 0 of tensors does not require grad and does not have a grad_fn"):
        c.backward()
    with log.raises("element 1 of tensors does not require grad and does not have a grad_fn"):
        lib.backward([x * 2.0, c])
    with log.raises("element 0 of tensors does not require grad"):
        lib.grad(x.detach(), x)


@program
def implicit_gradients(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    with log.raises("grad can be implicitly created only for scalar outputs"):
        (x * 2.0).backward()
    one = lib.var([3.0])
    (one * one).backward()
    log(one.grad)
    nested = lib.var([[3.0]])
    (nested * nested).backward()
    log(nested.grad)
    z = lib.var(1.0 + 2.0j)
    with log.raises("grad can be implicitly created only for real scalar outputs"):
        (z * 2.0).backward()


@program
def gradients_of_the_wrong_form(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    y = x * 2.0
    with log.raises("Mismatch in shape: grad_output[0] has a shape of"):
        lib.backward(y, lib.tensor([1.0, 1.0, 1.0]))
    with log.raises("Mismatch in shape: grad_output[0] has a shape of"):
        lib.grad([y, x.sum()], x, [lib.tensor(1.0), None])
    with log.raises("gradients can be either Tensors or None, but got str"):
        lib.backward(y, ["text"])
    with log.raises("Mismatch in dtype"):
        lib.backward(y, lib.tensor([1.0 + 1.0j, 0.0j]))


@program
def inputs_of_the_wrong_form(lib: Any, log: Any) -> None:
    x, c = lib.var(2.0), lib.tensor(1.0)
    with log.raises("`inputs` argument to `grad()` cannot be empty"):
        lib.grad(x * 2.0, [])
    with log.raises("`inputs` argument to `backward()` cannot be empty"):
        lib.backward(x * 2.0, inputs=[])
    with log.raises("One of the differentiated Tensors does not require grad"):
        lib.grad(x * 2.0, c)
    with log.raises(""):
        lib.backward(x * 2.0, inputs=[c])
    with log.raises("", TypeError):
        lib.grad(x * 2.0, 3)


@program
def unused_inputs(lib: Any, log: Any) -> None:
    x, other = lib.var(2.0), lib.var([1.0, 2.0])
    y = x * x
    with log.raises("Tensor at index 1 appears to not have been used in the graph"):
        lib.grad(y, [x, other], retain_graph=True)
    log(lib.grad(y, [x, other], retain_graph=True, allow_unused=True))
    log(lib.grad(y, [x, other], retain_graph=True, materialize_grads=True))
    log(lib.grad(y, [other], retain_graph=True, allow_unused=True, materialize_grads=True))
    with log.raises("Expected allow_unused to be True or not passed when materialize_grads=True"):
        lib.grad(y, [x], allow_unused=False, materialize_grads=True)
    log(lib.grad(y, x))


@program
def changing_requires_grad(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 2.0
    with log.raises("you can only change requires_grad"):
        y.requires_grad_(False)
    log(y.requires_grad_().requires_grad)
    x.requires_grad_(False)
    log(x.requires_grad, (x * 2.0).requires_grad, y.requires_grad)
    y.backward()
    log(x.grad)


@program
def second_time(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    z = y * 3.0
    z.backward()
    with log.raises("backward through the graph a second time"):
        z.backward()
    with log.raises("backward through the graph a second time"):
        lib.grad(y, x)
    with log.raises("Specify retain_graph=True if you need to backward through the graph"):
        y.backward()
    log(x.grad)


@program
def nothing_saved_nothing_missed(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x + 1.0
    y.backward()
    y.backward()
    log(x.grad)


@program
def a_freed_node_that_multiplied_by_a_number(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    for y in (x * 2.0, x / 2.0):
        y.backward()
        with log.raises("Trying to backward through the graph a second time"):
            y.backward()
    log(x.grad)


@program
def a_freed_node_as_the_end_of_a_pass(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = lib.sin(x)
    y.backward()
    with log.raises("Trying to backward through the graph a second time"):
        lib.backward(y, inputs=[y])
    log(x.grad)


@program
def a_root_that_leads_to_none_of_the_inputs(lib: Any, log: Any) -> None:
    """Its Tensor's hooks run if it is the only root; nothing of its node runs."""
    x, other = lib.var(2.0), lib.var(1.0)
    y, z = x * x, other * other
    y.register_hook(log.hook("y"))
    y.retain_grad()
    y.grad_fn.register_prehook(log.hook("pre"))
    z.register_hook(log.hook("z"))
    log(lib.grad(y, other, allow_unused=True), y.grad)
    log(lib.grad([y, z], other, retain_graph=True), y.grad)
    lib.backward(y, inputs=[other])
    log(other.grad, y.grad)


@program
def retained_graph(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    y.backward()
    log(x.grad)
    with log.raises("second time"):
        y.backward(retain_graph=True)


@program
def a_part_of_the_graph_is_freed(lib: Any, log: Any) -> None:
    x, w = lib.var(2.0), lib.var(3.0)
    a = x * x
    b = w * w
    lib.grad(a * b, x)
    log(lib.grad(b, w))
    with log.raises("second time"):
        a.backward()


@program
def only_what_ran_is_freed(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    z = lib.exp(y)
    log(lib.grad(z, y))
    log(lib.grad(y, x))
    with log.raises("second time"):
        lib.grad(z, y)


@program
def freed_by_a_pass_that_failed(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    z = y * y
    handle = x.register_hook(lambda g: 1 / 0)
    with log.raises():
        z.backward()
    handle.remove()
    with log.raises("second time"):
        z.backward()
    log(x.grad)


@program
def saved_values_after_release(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    e = lib.exp(x)
    log(y.grad_fn._saved_self, y.grad_fn._saved_other, e.grad_fn._saved_result)
    log(y.grad_fn._saved_self.requires_grad, e.grad_fn._saved_result.grad_fn is e.grad_fn)
    lib.backward([y, e])
    for node, name in ((y.grad_fn, "self"), (y.grad_fn, "other"), (e.grad_fn, "result")):
        with log.raises("after they have already been freed"):
            getattr(node, f"_saved_{name}")
    with log.raises(""):
        y.grad_fn._saved_nonsense


@program
def callbacks_outside_of_a_pass(lib: Any, log: Any) -> None:
    with log.raises("Final callbacks can only be installed during backward pass"):
        lib.queue(print)


# .grad


@program
def gradients_accumulate(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    for k in range(3):
        (x * x * float(k)).sum().backward()
        log(x.grad)
    x.grad = lib.tensor([100.0, 100.0])
    (x * 2.0).sum().backward()
    log(x.grad)
    x.grad = None
    (x * 2.0).sum().backward()
    log(x.grad)


@program
def assigning_grad(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    with log.raises():
        x.grad = lib.tensor([1.0, 2.0, 3.0])
    with log.raises():
        x.grad = lib.double([1.0, 2.0])
    log(x.grad)


@program
def grad_with_create_graph_has_history(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    (x * x * x).backward(create_graph=True)
    log(x.grad, x.grad.requires_grad)
    log(lib.grad(x.grad, x))
    y = lib.var(2.0)
    (y * y).backward()
    log(y.grad.requires_grad, y.grad.grad_fn is None)


@program
def grads_of_different_kinds_add_up(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    (x * x).backward()
    (x * x * x).backward(create_graph=True)
    log(x.grad, x.grad.requires_grad)
    log(lib.grad(x.grad, x, retain_graph=True))
    (x * 1.0).backward()
    log(x.grad)


@program
def create_graph_keeps_the_graph(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    lib.grad(y, x, create_graph=True)
    log(lib.grad(y, x))
    with log.raises("second time"):
        lib.grad(y, x)
    z = x * x
    lib.grad(z, x, create_graph=True, retain_graph=False)
    with log.raises("second time"):
        lib.grad(z, x)


@program
def third_derivative(lib: Any, log: Any) -> None:
    x = lib.var(0.5)
    y = lib.sin(x) * lib.exp(x) + x * x * x
    for _ in range(3):
        (y,) = lib.grad(y, x, create_graph=True)
        log(y)


@program
def hooks_are_part_of_a_differentiable_pass(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    y.register_hook(lambda g: g * x)
    y.grad_fn.register_prehook(lambda o: (o[0] * x,))
    x.register_hook(lambda g: g * x)
    (g,) = lib.grad(y, x, create_graph=True)
    log(g)
    log(lib.grad(g, x))


@program
def a_second_backward_runs_hooks_of_the_first_graph(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    x.register_hook(log.hook("x"))
    (g,) = lib.grad(y, x, create_graph=True)
    g.register_hook(log.hook("g"))
    g.backward()
    log(x.grad)


@program
def grad_mode_in_hooks(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    y.register_hook(lambda g: log(lib.is_grad_enabled(), g.requires_grad, (x * g).requires_grad))
    y.backward(retain_graph=True)
    y.backward(create_graph=True, retain_graph=True)
    with lib.no_grad():
        y.backward(create_graph=True, retain_graph=True)
        y.backward(retain_graph=True)
        log(lib.is_grad_enabled())
    log(lib.is_grad_enabled())


@program
def create_graph_under_no_grad(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    with lib.no_grad():
        (g,) = lib.grad(y, x, create_graph=True)
    log(g.requires_grad)
    log(lib.grad(g, x))


@program
def gradients_given_by_the_user_are_differentiated(lib: Any, log: Any) -> None:
    x, v = lib.var(2.0), lib.var(5.0)
    (g,) = lib.grad(x * x, x, v, create_graph=True)
    log(g, lib.grad(g, [x, v]))
    (g,) = lib.grad(x * x, x, v)
    log(g, g.requires_grad)


@program
def batched_gradients(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0, 3.0])
    y = x * x
    rows = lib.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    (jacobian,) = lib.grad(y, x, rows, is_grads_batched=True, retain_graph=True)
    log(jacobian)
    (jacobian,) = lib.grad(y, x, rows, is_grads_batched=True, create_graph=True)
    log(jacobian.requires_grad, lib.grad(jacobian.sum(), x))
    with log.raises("If `is_grads_batched=True`, we interpret the first dimension"):
        lib.grad(x * x, x, lib.tensor([[1.0, 1.0]]), is_grads_batched=True)
    other = lib.var(1.0)
    log(lib.grad(x * x, [x, other], rows, is_grads_batched=True, allow_unused=True))


@program
def dict_of_inputs(lib: Any, log: Any) -> None:
    a, b, c = lib.var(2.0), lib.var(3.0), lib.var(1.0)
    y = a * b
    log(lib.grad(y, {"b": b, "a": a}, retain_graph=True))
    log(lib.grad(y, {"a": a, "c": c}, retain_graph=True, allow_unused=True))
    lib.backward(y, inputs={"b": b})
    log(a.grad, b.grad)


@program
def a_tuple_of_results_for_one_input(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    result = lib.grad(x * x, x)
    log(type(result).__name__, len(result))


# Gradient edges


@program
def edges_as_inputs(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    log(lib.grad(y * 3.0, [lib.edge(y), lib.edge(x)]))
    a, b = lib.halves(lib.var([1.0, 2.0, 3.0, 4.0]))
    log(lib.edge(a).output_nr, lib.edge(b).output_nr, lib.edge(a).node is lib.edge(b).node)
    log(lib.grad((a * b).sum(), [lib.edge(b), lib.edge(a)]))


@program
def edges_as_roots(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    edge = lib.edge(y)
    log(lib.grad(edge, x, retain_graph=True))
    log(lib.grad(edge, x, lib.tensor(3.0), retain_graph=True))
    lib.backward(edge)
    log(x.grad)
    with log.raises("Mismatch in shape"):
        lib.backward(lib.edge(x * x), lib.tensor([1.0, 2.0]))
    with log.raises("grad can be implicitly created only for scalar outputs"):
        lib.backward(lib.edge(lib.var([1.0, 2.0]) * 2.0))


@program
def an_edge_outlives_its_tensor(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    edge = lib.edge(y)
    del y
    lib.backward(edge)
    log(x.grad)


@program
def edges_of_leaves(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    edge = lib.edge(x)
    log(lib.op(edge.node), edge.output_nr, edge.node is lib.edge(x).node)
    lib.backward(x * x, inputs=[edge])
    log(x.grad)
    with log.raises("It is not possible to get the gradient edge for a Tensor that does not"):
        lib.edge(lib.tensor(1.0))


@program
def backward_into_an_inner_edge(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    y.register_hook(log.hook("y"))
    y.grad_fn.register_hook(log.hook("post"))
    lib.backward(y * 3.0, inputs=[lib.edge(y)])
    log(x.grad, y.retains_grad)


# Hooks of several Tensors


@program
def all_of_several(lib: Any, log: Any) -> None:
    a, b = lib.var(2.0), lib.var(3.0)
    c, d = a * b, a * b
    lib.graph.register_multi_grad_hook((a, b, c, d), log.hook("all"))
    # Not c.backward(): PyTorch forgets to count a Tensor that is the only root.
    (c * 1.0).backward(retain_graph=True)
    log(a.grad)
    lib.backward(c * 1.0, inputs=[a], retain_graph=True)
    lib.backward(c + d, retain_graph=True)
    lib.grad(c * 1.0, [c], retain_graph=True)


@program
def any_of_several(lib: Any, log: Any) -> None:
    a, b = lib.var(2.0), lib.var(3.0)
    c, d = a * b, b * 5.0
    handle = lib.graph.register_multi_grad_hook((a, b, c, d), log.hook("any"), mode="any")
    c.backward(retain_graph=True)
    d.backward(retain_graph=True)
    handle.remove()
    c.backward()
    log(a.grad)


@program
def any_of_several_that_need_no_gradient(lib: Any, log: Any) -> None:
    x, c = lib.var(2.0), lib.tensor(3.0)
    with lib.graph.register_multi_grad_hook([c, x], log.hook("any"), mode="any"):
        (x * c).backward()
    (x * c).backward()
    log(x.grad)


@program
def multi_hooks_are_removed(lib: Any, log: Any) -> None:
    a, b = lib.var(2.0), lib.var(3.0)
    handle = lib.graph.register_multi_grad_hook((a, b), log.hook("all"))
    (a * b).backward()
    handle.remove()
    handle.remove()
    (a * b).backward()
    with log.raises("Expects mode to be one of ('all', 'any') but got some"):
        lib.graph.register_multi_grad_hook([a], print, mode="some")


@program
def multi_hooks_of_one_tensor_given_twice(lib: Any, log: Any) -> None:
    a = lib.var(2.0)
    lib.graph.register_multi_grad_hook((a, a), log.hook("all"))
    (a * 3.0).backward()


@program
def multi_hooks_where_a_gradient_is_missing(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    y = x * 1.0
    a, b = lib.halves(y)
    lib.graph.register_multi_grad_hook((y, a, b), log.hook("all"))
    a.sum().backward()


@program
def multi_hooks_in_a_differentiable_pass(lib: Any, log: Any) -> None:
    a, b = lib.var(2.0), lib.var(3.0)
    y = a * a * b
    lib.graph.register_multi_grad_hook((a, b), lambda gs: log([g.requires_grad for g in gs]))
    lib.backward(y, create_graph=True)
    log(a.grad)


# Saved values


@program
def order_of_packing(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    hooks = lib.graph.saved_tensors_hooks(
        log.hook("pack", lambda t: t.detach()), log.hook("unpack", lambda t: t)
    )
    with hooks:
        y = lib.sin(lib.exp(x))
        z = lib.exp(y * 3.0)
    z = lib.sin(z)
    z.backward(retain_graph=True)
    log("second")
    z.backward()
    log(x.grad)


@program
def innermost_hooks_apply(lib: Any, log: Any) -> None:
    def hooks(name: str) -> Any:
        return lib.graph.saved_tensors_hooks(
            log.hook(f"pack {name}", lambda t: t.detach()), log.hook(f"unpack {name}", lambda t: t)
        )

    x = lib.var(2.0)
    with hooks("outer"):
        y = lib.sin(x)
        with hooks("inner"):
            z = lib.exp(y)
        z = lib.sin(z)
    z.backward()
    log(x.grad)


@program
def modes_inside_pack_and_unpack(lib: Any, log: Any) -> None:
    x = lib.var(2.0)

    def pack(t: Any) -> Any:
        log("pack", lib.is_grad_enabled(), (t * t).requires_grad)
        return t.detach()

    def unpack(t: Any) -> Any:
        log("unpack", (t * t).requires_grad)
        return t

    with lib.graph.saved_tensors_hooks(pack, unpack):
        y = x * x
    y.backward()


@program
def hooks_that_change_what_is_saved(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    with lib.graph.saved_tensors_hooks(lambda t: t.detach() * 10.0, lambda t: t + 1.0):
        y = x * x
    log(lib.grad(y, x))


@program
def failing_pack_and_unpack(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    with log.raises("division"):
        with lib.graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t):
            x * x
    with lib.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: 1 / 0):
        y = x * x
    with log.raises("division"):
        y.backward()
    for wrong in (3, None):
        with lib.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t, wrong=wrong: wrong):
            y = x * x
        with log.raises(
            "Output of saved tensor unpack_hook expected to be a Tensor but got result"
        ):
            y.backward()
    log((x * x).requires_grad)


@program
def a_pack_hook_that_changes_its_input(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    with (
        log.raises("A saved tensor pack hook is modifying its input in place"),
        lib.graph.saved_tensors_hooks(lambda t: lib.write(t), lambda t: t),
    ):
        x * x
    log((x * x).requires_grad)


@program
def unpacking_in_a_differentiable_pass(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    with lib.graph.saved_tensors_hooks(lambda t: t.detach(), log.hook("unpack", lambda t: t)):
        y = lib.exp(lib.sin(x))
    (g,) = lib.grad(y, x, create_graph=True)
    log(g)
    log(len(log))


@program
def nothing_is_packed_without_a_graph(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    with lib.graph.saved_tensors_hooks(log.hook("pack", lambda t: t.detach()), lambda t: t):
        with lib.no_grad():
            x * x
        lib.tensor(2.0) * lib.tensor(3.0)
        x + 1.0
    log("done")


@program
def reading_a_saved_value_unpacks_it(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    with lib.graph.saved_tensors_hooks(lambda t: t.detach(), log.hook("unpack", lambda t: t)):
        y = x * x
    log(y.grad_fn._saved_self)


@program
def saved_hooks_disabled(lib: Any, log: Any) -> None:
    def use() -> None:
        with lib.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
            log("used")

    disable = lib.graph.disable_saved_tensors_hooks
    with disable("outer"):
        with log.raises("outer"):
            use()
        with disable("inner"):
            with log.raises("inner"):
                use()
            with log.raises("inner"):
                with lib.graph.save_on_cpu():
                    pass
        with log.raises("outer"):
            use()
    use()
    with log.raises("active"):
        with lib.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
            with disable("active"):
                pass
    use()


@program
def values_saved_on_the_host(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    with lib.graph.save_on_cpu():
        y = (lib.exp(x) * x).sum()
    (g,) = lib.grad(y, x, create_graph=True)
    log(g, lib.grad(g.sum(), x))
    with lib.graph.save_on_cpu(pin_memory=False):
        (x * x).sum().backward()
    log(x.grad)


@program
def hooks_of_one_saved_value(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = lib.exp(x)
    raw = y.grad_fn._raw_saved_result
    raw.register_hooks(log.hook("pack", lambda t: t.detach()), log.hook("unpack", lambda t: t))
    with log.raises("Calling register_hooks on a saved tensor"):
        raw.register_hooks(lambda t: t, lambda t: t)
    y.backward()
    log(x.grad)
    with log.raises("Calling register_hooks on a saved tensor after it has been freed"):
        raw.register_hooks(lambda t: t, lambda t: t)


@program
def a_saved_value_is_changed_in_place(lib: Any, log: Any) -> None:
    x, w = lib.var(2.0), lib.tensor(3.0)
    y = x * w
    lib.write(w)
    with log.raises("one of the variables needed for gradient computation has been modified by an"):
        y.backward()
    with log.raises("is at version 1; expected version 0 instead"):
        y.backward()
    with log.raises("has been modified by an inplace operation"):
        y.grad_fn._saved_other
    z = x * w
    z.backward()
    log(w.is_leaf)


@program
def a_result_that_is_not_saved_is_changed_in_place(lib: Any, log: Any) -> None:
    x, w = lib.var(2.0), lib.tensor(3.0)
    y = x + w
    lib.write(w)
    y.backward()
    log(x.grad)


@program
def mutation_allowed(lib: Any, log: Any) -> None:
    x, w = lib.var(2.0), lib.tensor(3.0)
    with lib.graph.allow_mutation_on_saved_tensors():
        y = x * w
        lib.write(w)
        y.backward()
    log(x.grad)
    y = x * w
    lib.write(w)
    with log.raises("modified by an inplace operation"):
        y.backward()


# Release


class Marker:
    """What a weak reference can point to: PyTorch's own nodes are not such."""


@program
def nodes_and_values_die(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    marker = Marker()
    seen = weakref.ref(marker)
    y = (lib.exp(x) * x).sum()
    y.grad_fn.metadata["marker"] = marker
    del marker
    y.backward()
    log(seen() is not None)
    del y
    log(seen() is None)


@program
def a_graph_dies_with_its_last_tensor(lib: Any, log: Any) -> None:
    gc.collect()
    gc.disable()
    try:
        x = lib.var(2.0)
        y = lib.exp(x)
        z = y * y
        z.grad_fn.metadata["marker"] = marker = Marker()
        seen = weakref.ref(marker)
        del marker
        log(seen() is not None)
        del z
        log(seen() is None, y.grad_fn is lib.edge(y).node)
    finally:
        gc.enable()


# Modes


@program
def modes_nest(lib: Any, log: Any) -> None:
    x = lib.var(2.0)

    def state() -> None:
        log(lib.is_grad_enabled(), (x * 2.0).requires_grad)

    state()
    with lib.no_grad():
        state()
        with lib.enable_grad():
            state()
            with lib.set_grad_enabled(False):
                state()
            state()
        state()
    state()


@program
def set_grad_enabled_as_a_function(lib: Any, log: Any) -> None:
    lib.set_grad_enabled(False)
    log(lib.is_grad_enabled())
    lib.set_grad_enabled(True)
    log(lib.is_grad_enabled())
    with lib.no_grad():
        lib.set_grad_enabled(True)
        log(lib.is_grad_enabled())
    log(lib.is_grad_enabled())


@program
def modes_survive_exceptions(lib: Any, log: Any) -> None:
    for mode in (lib.no_grad, lib.inference_mode, lambda: lib.set_grad_enabled(False)):
        with log.raises("inside"):
            with mode():
                raise ValueError("inside")
        log(lib.is_grad_enabled())


@program
def modes_decorate_functions(lib: Any, log: Any) -> None:
    def f(x: Any) -> Any:
        """Twice x."""
        return lib.is_grad_enabled(), (x * 2.0).requires_grad

    x = lib.var(2.0)
    log(lib.no_grad()(f)(x), lib.no_grad(f)(x), lib.no_grad(f).__name__, lib.no_grad(f).__doc__)
    with lib.no_grad():
        log(lib.enable_grad()(f)(x), lib.enable_grad(f)(x), f(x))
    decorated = lib.set_grad_enabled(False)(f)
    log(lib.is_grad_enabled(), decorated(x), decorated(x), f(x))
    log(lib.inference_mode()(f)(x), lib.inference_mode(f)(x), f(x))

    @lib.no_grad()
    def recursive(n: int) -> list[bool]:
        return [lib.is_grad_enabled()] + (recursive(n - 1) if n else [])

    log(recursive(3), lib.is_grad_enabled())


@program
def modes_decorate_generators(lib: Any, log: Any) -> None:
    @lib.no_grad()
    def generator() -> Any:
        try:
            got = yield lib.is_grad_enabled()
            log("got", got, lib.is_grad_enabled())
            try:
                yield "second"
            except KeyError:
                log("caught", lib.is_grad_enabled())
            yield lib.is_grad_enabled()
        finally:
            log("closed", lib.is_grad_enabled())
        return "end"

    g = generator()
    log(next(g), lib.is_grad_enabled())
    log(g.send("value"), lib.is_grad_enabled())
    log(g.throw(KeyError("k")), lib.is_grad_enabled())
    g.close()
    log(lib.is_grad_enabled())

    def outer() -> Any:
        log("result", (yield from generator()))

    log([v for v in outer()])
    with lib.no_grad():
        h = lib.enable_grad()(lambda: (yield lib.is_grad_enabled()))()
        log(next(h), lib.is_grad_enabled())


@program
def modes_belong_to_threads(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    seen: list[Any] = []

    def work() -> None:
        seen.append(lib.is_grad_enabled())
        lib.set_grad_enabled(False)
        seen.append((x * 2.0).requires_grad)

    with lib.no_grad():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        log(seen, lib.is_grad_enabled())
    log(lib.is_grad_enabled())


@program
def backward_in_another_thread(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    y.register_hook(lambda g: log(lib.is_grad_enabled(), threading.current_thread() is thread))
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    log(x.grad, lib.is_grad_enabled())


@program
def detach_and_clone(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * 3.0
    d, c = y.detach(), y.clone()
    log(d.requires_grad, d.grad_fn is None, d.is_leaf, c.requires_grad, c.is_leaf)
    (c * d).backward()
    log(x.grad)
    y.detach_()
    log(y.requires_grad, y.is_leaf)


# Inference mode


@program
def inference_tensors(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    with lib.inference_mode():
        made = lib.tensor([1.0, 2.0])
        computed = x * 2.0
        log(made.is_inference(), computed.is_inference(), x.is_inference())
        log(lib.is_grad_enabled(), computed.requires_grad, computed.is_leaf)
    log(made.is_inference(), (made * 2.0).is_inference(), made.clone().is_inference())
    log(lib.tensor(1.0).is_inference(), x.is_inference(), lib.is_grad_enabled())


@program
def inference_tensors_are_not_saved(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    with lib.inference_mode():
        made = lib.tensor(3.0)
    with log.raises("Inference tensors cannot be saved for backward"):
        x * made
    with log.raises("you can make a clone to get a normal tensor"):
        made * x
    (x + made).backward()
    log(x.grad)
    (x * made.clone()).backward()
    log(x.grad)
    with lib.no_grad():
        log(x * made)


@program
def inference_tensors_and_requires_grad(lib: Any, log: Any) -> None:
    with lib.inference_mode():
        made = lib.tensor(3.0)
        leaf = lib.var(3.0)
        log(leaf.requires_grad, leaf.is_inference(), (leaf * 2.0).requires_grad)
    with log.raises("Setting requires_grad=True on inference tensor outside InferenceMode is not"):
        made.requires_grad_()
    log(made.requires_grad_(False).requires_grad)
    (leaf + 1.0).backward()
    log(leaf.grad)
    with lib.inference_mode():
        log(made.requires_grad_().requires_grad)


@program
def inference_tensors_have_no_version(lib: Any, log: Any) -> None:
    def version(t: Any) -> int:
        return t._version if lib.is_torch else t.version

    with lib.inference_mode():
        made = lib.tensor(3.0)
    with log.raises("Inference tensors do not track version counter"):
        version(made)
    log(version(lib.tensor(3.0)))


@program
def inference_mode_switched_off(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    with lib.inference_mode():
        made = lib.tensor(3.0)
        with lib.inference_mode(False):
            log(lib.is_grad_enabled(), lib.tensor(1.0).is_inference(), (x * 2.0).requires_grad)
            with log.raises("Inference tensors cannot be saved"):
                x * made
        log(lib.tensor(1.0).is_inference())
    with lib.inference_mode(False):
        log(lib.tensor(1.0).is_inference(), (x * 2.0).requires_grad)
    with lib.no_grad():
        with lib.inference_mode(False):
            log(lib.is_grad_enabled())


@program
def enable_grad_does_not_record_in_inference_mode(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    with lib.inference_mode():
        with lib.enable_grad():
            y = x * 2.0
            log(y.requires_grad, y.is_inference())
        with lib.set_grad_enabled(True):
            log((x * 2.0).requires_grad)


@program
def inference_mode_decorates(lib: Any, log: Any) -> None:
    x = lib.var(2.0)

    @lib.inference_mode()
    def f(x: Any) -> Any:
        return x * 2.0

    @lib.inference_mode
    def g(x: Any) -> Any:
        yield x * 2.0
        yield x * 3.0

    log(f(x).is_inference(), [y.is_inference() for y in g(x)])
    log(lib.inference_mode(False)(lambda: (x * 2.0).requires_grad)())


@program
def inference_mode_belongs_to_a_thread(lib: Any, log: Any) -> None:
    seen: list[bool] = []
    with lib.inference_mode():
        thread = threading.Thread(target=lambda: seen.append(lib.tensor(1.0).is_inference()))
        thread.start()
        thread.join()
    log(seen)


# Anomaly mode


def messages(f: Callable[[], Any]) -> str:
    """All messages about a failure: warnings, the error, and the notes on it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            f()
        except Exception as error:
            notes = getattr(error, "__notes__", [])
            text = "\n".join([type(error).__name__, str(error), *notes])
        else:
            text = "no error"
    return "\n".join([*(str(w.message) for w in caught), text])


@program
def anomaly_names_node_and_output(lib: Any, log: Any) -> None:
    def marked_line() -> Any:
        return lib.sqrt(lib.var(0.0)) * 0.0

    def run() -> None:
        with lib.autograd.detect_anomaly():
            marked_line().backward()

    text = messages(run)
    log("' returned nan values in its 0th output" in text, "Error detected in Sqrt" in text)
    log("Traceback of forward call that caused the error" in text, "in marked_line" in text)


@program
def anomaly_without_check_nan(lib: Any, log: Any) -> None:
    x = lib.var(0.0)
    with lib.autograd.detect_anomaly(check_nan=False):
        (lib.sqrt(x) * 0.0).backward()
    log(math.isnan(float(x.grad)))


@program
def anomaly_explains_errors_of_hooks(lib: Any, log: Any) -> None:
    def run() -> None:
        with lib.autograd.detect_anomaly():
            y = lib.exp(lib.var(0.0))
            y.register_hook(lambda g: 1 / 0)
            y.backward()

    text = messages(run)
    log("ZeroDivisionError" in text, "Error detected in Exp" in text, "lib.exp(" in text)


@program
def anomaly_needs_the_forward_pass_too(lib: Any, log: Any) -> None:
    y = lib.sqrt(lib.var(0.0)) * 0.0

    def run() -> None:
        with lib.autograd.detect_anomaly():
            y.backward()

    log("No forward pass information available" in messages(run))


@program
def anomaly_tells_who_induced_a_node(lib: Any, log: Any) -> None:
    def first_line(x: Any) -> Any:
        return x**1.5

    def second_line(y: Any, x: Any) -> Any:
        return lib.grad(y, x, create_graph=True)[0]

    def run() -> None:
        with lib.autograd.detect_anomaly():
            x = lib.var(0.0)
            g = second_line(first_line(x), x)
            log("parent_" in g.grad_fn.metadata, "traceback_" in g.grad_fn.metadata)
            lib.backward(second_line(g, x), lib.tensor(0.0))

    text = messages(run)
    log("returned nan values in its" in text, "Previous calculation was induced by" in text)
    log("in first_line" in text, "in second_line" in text)


@program
def anomaly_mode_as_a_switch(lib: Any, log: Any) -> None:
    def is_on() -> bool:
        return "traceback_" in (lib.var(1.0) * 2.0).grad_fn.metadata

    log(is_on())
    lib.autograd.set_detect_anomaly(True)
    log(is_on())
    lib.autograd.set_detect_anomaly(False)
    with lib.autograd.set_detect_anomaly(True):
        log(is_on())
        with lib.autograd.set_detect_anomaly(False):
            log(is_on())
        log(is_on())
    with lib.autograd.detect_anomaly():
        log(is_on())
        with lib.autograd.detect_anomaly(check_nan=False):
            log(is_on())
        log(is_on())
    log(is_on())
    with log.raises("inside"):
        with lib.autograd.detect_anomaly():
            raise ValueError("inside")
    log(is_on())


# Passes inside of passes, and callbacks


@program
def a_pass_inside_of_a_hook(lib: Any, log: Any) -> None:
    x, w = lib.var(2.0), lib.var(3.0)
    inner = w * w
    y = x * x

    def hook(g: Any) -> None:
        log("hook")
        inner.backward()
        log("inner done", w.grad)

    y.register_hook(hook)
    x.register_hook(log.hook("x"))
    w.register_hook(log.hook("w"))
    y.backward()
    log(x.grad)


@program
def passes_a_hundred_deep(lib: Any, log: Any) -> None:
    x = lib.var(1.0)

    def nest(depth: int) -> None:
        with lib.enable_grad():
            y = x * 2.0
        if depth:
            y.register_hook(lambda g: nest(depth - 1))
        y.backward()

    nest(100)
    log(x.grad, lib.is_grad_enabled())


@program
def an_error_in_an_inner_pass(lib: Any, log: Any) -> None:
    x, w = lib.var(2.0), lib.var(3.0)
    inner = w * 2.0
    inner.register_hook(lambda g: 1 / 0)
    y = x * x
    y.register_hook(lambda g: inner.backward())
    with log.raises("division"):
        y.backward()
    log(x.grad, w.grad, lib.is_grad_enabled())
    (x * x).backward()
    log(x.grad)


@program
def the_same_graph_inside_of_itself(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    state = {"depth": 0}

    def hook(g: Any) -> None:
        if state["depth"] < 3:
            state["depth"] += 1
            y.backward(retain_graph=True)

    y.register_hook(hook)
    y.backward(retain_graph=True)
    log(x.grad, state["depth"])


@program
def a_leaf_hook_that_differentiates(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    x.register_hook(lambda g: lib.grad(lib.edge(y), x, retain_graph=True)[0] if first() else None)
    calls: list[int] = []

    def first() -> bool:
        calls.append(1)
        return len(calls) == 1

    y = x * x
    y.backward(retain_graph=True)
    log(x.grad, len(calls))


@program
def callbacks_run_last(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x

    def hook(g: Any) -> None:
        log("hook")
        lib.queue(lambda: log("first", x.grad))
        lib.queue(lambda: (log("second"), lib.queue(lambda: log("third"))))

    y.register_hook(hook)
    x.register_hook(log.hook("leaf"))
    y.backward()
    log("end")


@program
def callbacks_of_an_inner_pass(lib: Any, log: Any) -> None:
    x, w = lib.var(2.0), lib.var(3.0)
    inner = w * 2.0

    def hook(g: Any) -> None:
        lib.queue(lambda: log("outer callback"))
        inner.backward()
        log("after inner")

    y = x * x
    inner.register_hook(lambda g: lib.queue(lambda: log("inner callback")))
    y.register_hook(hook)
    x.register_hook(log.hook("x"))
    y.backward()


@program
def a_callback_that_fails(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    y.register_hook(lambda g: lib.queue(lambda: 1 / 0))
    with log.raises("division"):
        y.backward()
    log(x.grad, lib.is_grad_enabled())


@program
def callbacks_are_dropped_by_a_failure(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y = x * x
    y.register_hook(lambda g: lib.queue(lambda: log("callback")))
    x.register_hook(lambda g: 1 / 0)
    with log.raises("division"):
        y.backward()
    (x * 1.0).detach()
    log("end")


# The graph as data


@program
def next_functions(lib: Any, log: Any) -> None:
    x, w = lib.var(2.0), lib.var(3.0)
    y = lib.exp(x * w + x)
    log(lib.op(y.grad_fn))
    ((add, _),) = y.grad_fn.next_functions
    (mul, nr), (leaf, leaf_nr) = add.next_functions
    log(lib.op(add), lib.op(mul), lib.op(leaf), nr, leaf_nr)
    log([(lib.op(n), k) for n, k in mul.next_functions])
    log(mul.next_functions[0][0] is leaf, leaf.variable is x, leaf.next_functions)
    log((x * 2.0).grad_fn.next_functions[1])
    c = lib.tensor(5.0)
    log([lib.op(n) for n, _ in (c * x).grad_fn.next_functions])


@program
def edges_into_a_node_with_two_outputs(lib: Any, log: Any) -> None:
    a, b = lib.halves(lib.var([1.0, 2.0]))
    log([(lib.op(n), k) for n, k in (b * a).grad_fn.next_functions])


@program
def leaves_and_their_accumulators(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    log(x.is_leaf, x.grad_fn, x.output_nr, lib.tensor(1.0).is_leaf)
    first = x * 2.0
    log(lib.accumulator(x) is first.grad_fn.next_functions[0][0])
    log(lib.sequence_nr(lib.accumulator(x)) == 2**64 - 1)
    y = x * 2.0
    log(y.is_leaf, y.requires_grad, y.grad)


@program
def metadata_is_the_users(lib: Any, log: Any) -> None:
    y = lib.var(2.0) * 2.0
    log(y.grad_fn.metadata)
    y.grad_fn.metadata["key"] = 1
    log(y.grad_fn.metadata, y.grad_fn is y.grad_fn)


@program
def nodes_are_hashable_and_equal_to_themselves(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    y, z = x * 2.0, x * 2.0
    log(y.grad_fn == y.grad_fn, y.grad_fn == z.grad_fn, len({y.grad_fn, z.grad_fn, y.grad_fn}))
    log(isinstance(y.grad_fn, lib.graph.Node))


@program
def nodes_are_not_copied(lib: Any, log: Any) -> None:
    import copy

    y = lib.var(2.0) * 2.0
    with log.raises():
        copy.copy(y.grad_fn)
    with log.raises():
        copy.deepcopy(y.grad_fn)


@program
def calling_a_node(lib: Any, log: Any) -> None:
    x, w = lib.var(2.0), lib.var(3.0)
    y = x * w
    y.register_hook(log.hook("tensor"))
    y.grad_fn.register_prehook(log.hook("pre"))
    y.grad_fn.register_hook(log.hook("post"))
    log(y.grad_fn(lib.tensor(10.0)), y.grad_fn(lib.tensor(1.0))[0].requires_grad)
    log(lib.exp(x).grad_fn(lib.tensor(1.0)))
    log(x.grad)
    with lib.no_grad():
        log(y.grad_fn(lib.tensor(1.0))[0].requires_grad)
    y.backward()
    with log.raises("second time"):
        y.grad_fn(lib.tensor(1.0))


@program
def calling_a_node_with_none_or_too_many(lib: Any, log: Any) -> None:
    y = lib.var(2.0) * lib.var(3.0)
    log(y.grad_fn(None))
    with log.raises("expected 1 arguments, got 2"):
        y.grad_fn(lib.tensor(1.0), lib.tensor(1.0))
    with log.raises("expected 1 arguments, got 0"):
        y.grad_fn()


@program
def calling_an_accumulator(lib: Any, log: Any) -> None:
    x = lib.var(2.0)
    x.register_hook(log.hook("hook"))
    x.register_post_accumulate_grad_hook(lambda t: log("after", t.grad))
    node = lib.accumulator(x)
    log(node(lib.tensor(5.0)))
    log(x.grad)
    node(lib.tensor(5.0))
    log(x.grad)


@program
def what_nodes_know_of_their_inputs(lib: Any, log: Any) -> None:
    x = lib.var([[1.0, 2.0]])
    for y in (x * 2.0, x.sum(), *lib.halves(lib.var([1.0, 2.0]))):
        log([list(m.shape) for m in y.grad_fn._input_metadata])
    log([str(m.dtype).split(".")[-1] for m in (x * 2.0).grad_fn._input_metadata])
    log(y.grad_fn._sequence_nr() == lib.sequence_nr(y.grad_fn), y.grad_fn.requires_grad)


@program
def a_copy_in_another_dtype(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    half = torch.float16 if lib.is_torch else jnp.float16
    y = x.to(half)
    log(lib.op(y.grad_fn), y.requires_grad, lib.op(y.grad_fn.next_functions[0][0]))
    y.sum().backward()
    log(x.grad, x.grad.dtype == x.dtype)
    log(x.to(x.dtype) is x)


@program
def integers_have_no_history(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    log((x > 1.0).requires_grad, x.argmax().requires_grad)
    with log.raises():
        lib.backward((x > 1.0).sum())


@program
def broadcast_gradients_are_reduced(lib: Any, log: Any) -> None:
    x, s = lib.var([[1.0, 2.0], [3.0, 4.0]]), lib.var([2.0])
    (x * s).sum().backward()
    log(x.grad, s.grad)


@program
def complex_gradients(lib: Any, log: Any) -> None:
    z = lib.var(1.0 + 2.0j)
    (z * z.conj()).real.backward()
    log([z.grad.real, z.grad.imag])


# Inside of functional transforms, where both libraries have hooks


@program
def hooks_inside_of_a_functional_grad(lib: Any, log: Any) -> None:
    grad = torch.func.grad if lib.is_torch else fad.grad

    def f(x: Any) -> Any:
        y = x * 3.0
        y.register_hook(lambda g: g * 10.0)
        return y * y

    log(grad(f)(lib.tensor(2.0)), grad(grad(f))(lib.tensor(2.0)))


@program
def no_grad_inside_and_around_a_functional_grad(lib: Any, log: Any) -> None:
    grad = torch.func.grad if lib.is_torch else fad.grad

    def f(x: Any) -> Any:
        with lib.no_grad():
            c = x * x
        return x * c

    x = lib.tensor(3.0)
    log(grad(f)(x))
    with lib.no_grad():
        log(grad(lambda x: x * x)(x), grad(grad(lambda x: x * x * x))(x))


@program
def requires_grad_around_a_functional_grad(lib: Any, log: Any) -> None:
    grad = torch.func.grad if lib.is_torch else fad.grad
    x = lib.var(2.0)
    y = grad(lambda t: t * t * t)(x)
    log(y.requires_grad)
    y.backward()
    log(x.grad)


# Random graphs


def random_program(seed: int) -> Callable[[Any, Any], None]:
    """A random graph with random hooks, and random passes through it, the same in both libraries."""

    def program(lib: Any, log: Any) -> None:
        draw = random.Random(seed)
        values = [lib.var([draw.uniform(-1, 1), draw.uniform(-1, 1)]) for _ in range(3)]
        leaves = list(values)
        for _ in range(draw.randint(3, 14)):
            a, b = draw.choice(values), draw.choice(values)
            match draw.randint(0, 8):
                case 0 | 1:
                    values.append(a * b)
                case 2:
                    values.append(a + b)
                case 3:
                    values.append(lib.sin(a))
                case 4:
                    values.append(a * 2.0)
                case 5:
                    first, second = lib.halves(a * b)
                    values.append(a * first)
                    if draw.random() < 0.5:
                        values.append(second * b)
                case 6:
                    values.append(lib.exp(lib.sin(a)))
                case 7:
                    values.append(a * b.sum())
                case 8:
                    with lib.no_grad():
                        c = a * b
                    values.append(b * c)
        inner = [v for v in values if v.grad_fn is not None]
        hooked = draw.sample(values, min(len(values), draw.randint(0, 6)))
        accumulators = [lib.accumulator(v) for v in leaves]

        def twice(g: Any) -> Any:
            return None if g is None else g * 2.0

        for v in hooked:
            k = [i is v for i in values].index(True)
            node = accumulators[k] if v.grad_fn is None else v.grad_fn
            change = draw.choice([None, None, twice])
            changes = change and (lambda gs, *_: tuple([twice(g) for g in gs]))
            match draw.randint(0, 6):
                case 0 | 1:
                    v.register_hook(log.hook(("tensor", k), change))
                case 2:
                    v.retain_grad()
                case 3:
                    node.register_prehook(log.hook(("pre", k), changes))
                case 4:
                    node.register_hook(log.hook(("post", k), changes))
                case 5 if v.grad_fn is None:
                    v.register_post_accumulate_grad_hook(log.hook(("after", k)))
                case 6 if v.grad_fn is not None:
                    # above all that nodes get by themselves, however many this process has made
                    lib.set_sequence_nr(node, 10**12 + draw.randint(0, 10**6))
        for _ in range(3):
            keep, again = draw.random() < 0.6, draw.random() < 0.3
            roots = draw.sample(inner, min(len(inner), draw.randint(1, 3)))
            gradients = [lib.tensor([1.0, draw.choice([0.5, 2.0])]) for _ in roots]
            ends = draw.sample(values, draw.randint(1, 3))
            if draw.random() < 0.3:
                roots = [lib.edge(v) for v in roots]
            if draw.random() < 0.3:
                ends = [lib.edge(v) for v in ends]
            kind = draw.randint(0, 3)
            try:
                if kind == 0:
                    lib.backward(roots, gradients, retain_graph=keep)
                elif kind == 1:
                    lib.backward(roots, gradients, retain_graph=keep, inputs=ends)
                elif kind == 2:
                    log(lib.grad(roots, ends, gradients, retain_graph=keep, allow_unused=True))
                else:
                    gs = lib.grad(roots, leaves, gradients, create_graph=True, allow_unused=True)
                    log([None if g is None else (g, g.requires_grad) for g in gs])
                    total = sum((g * g).sum() for g in gs if g is not None and g.requires_grad)
                    if again and not isinstance(total, int):
                        log(lib.grad(total, leaves, retain_graph=keep, allow_unused=True))
            except RuntimeError as error:
                log("raises", "second time" in str(error))
            log([v.grad for v in (*leaves, *hooked) if v.grad_fn is None or v.retains_grad])

    return program


@pytest.mark.sweep("seed", range(2_000), sample=20)
def test_random_graphs_give_the_same_log(seed: int) -> None:
    program = random_program(seed)
    expected, found = story(TORCH, program), story(FAD, program)
    assert len(expected) >= 3 and len(found) == len(expected)
    for a, b in zip(expected, found, strict=True):
        assert same(a, b, 1e-3), f"seed {seed}:\ntorch {a}\nfad   {b}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_story(name: str) -> None:
    compare(PROGRAMS[name])


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 60


def test_a_different_story_is_caught() -> None:
    assert not same([1.0], [1.001]) and not same([1], [1.0]) and not same([[1]], [[1], [2]])
    assert same([1.0, {"a": [None, "x"]}], [1.0, {"a": [None, "x"]}])
    with pytest.raises(AssertionError, match="says"):
        with Log(FAD).raises("another phrase"):
            raise ValueError("one phrase")
