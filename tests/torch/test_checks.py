"""What a function of PyTorch may not do, found at its first call or at a later one."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError, GradientError, HostValueError, RuleError

X = jnp.ones((4, 3))


def refused(f, match, x=X):
    with pytest.raises(RuleError, match=match):
        fad.from_torch(f)(x)
    with pytest.raises(RuleError, match=match):
        fad.jit(fad.from_torch(f))(x)


def test_random_numbers_are_refused(torch):
    before = torch.get_rng_state()
    generator = torch.Generator()
    refused(torch.nn.Dropout(), r"from_torch\(Dropout\) draws random numbers.*module.eval\(\)")
    refused(lambda x: x + torch.randn(3), "fad.random")
    refused(lambda x: x + torch.rand(3, generator=generator), "draws random numbers")
    assert torch.equal(before, torch.get_rng_state())


def test_random_numbers_of_a_later_call_are_refused(torch):
    module = torch.nn.Dropout().eval()
    f = fad.from_torch(module)
    np.testing.assert_array_equal(f(X), X)
    module.train()
    before = torch.get_rng_state()
    with pytest.raises(RuleError, match="draws random numbers.*not in the first one"):
        f(X)
    assert torch.equal(before, torch.get_rng_state())
    module.eval()
    np.testing.assert_array_equal(f(X), X)


def test_writes_to_what_is_not_its_own_are_refused(torch):
    outside = torch.zeros(3)
    refused(
        lambda x: x.add_(1), r"writes in place to its argument 0 \(float32\[4, 3\]\).*x.clone\(\)"
    )
    refused(lambda x: x[0].mul_(2), "its argument 0")
    refused(lambda x: outside.add_(1), r"a tensor from outside \(float32\[3\]\)")
    refused(lambda x: torch.add(x[0], 1, out=outside), "a tensor from outside")
    linear = torch.nn.Linear(3, 2)
    refused(lambda x: linear.weight.data.t().mul_(2), "a tensor from outside")
    np.testing.assert_array_equal(X, np.ones((4, 3)))
    assert torch.equal(outside, torch.zeros(3))


def test_writes_to_its_own_tensors_are_no_harm(torch):
    def f(x):
        y = x.clone()
        y[0].mul_(3)
        y.add_(1)
        return torch.cat([y, torch.zeros(1, 3).add_(2)])

    got = fad.grad(lambda x: fnp.sum(fad.from_torch(f)(x)))(X)
    np.testing.assert_array_equal(got, np.array([[3.0] * 3] + [[1.0] * 3] * 3))


def test_a_write_to_an_argument_in_a_later_call_is_refused(torch):
    seen = []
    f = fad.from_torch(lambda x: x.add_(1) if len(seen) > 1 else seen.append(0) or x + 1)
    f(jnp.ones(3))
    seen.append(0)
    with pytest.raises(RuleError, match="writes in place to its argument 0"):
        f(jnp.ones(3))


def test_statistics_of_batch_normalization_are_refused(torch):
    module = torch.nn.BatchNorm1d(3)
    refused(module, r"module.eval\(\) where batch normalization")
    mean, var = torch.zeros(3), torch.ones(3)
    refused(lambda x: torch.nn.functional.batch_norm(x, mean, var, training=True), "its statistics")
    assert torch.equal(mean, torch.zeros(3)) and int(module.num_batches_tracked) == 0
    f = fad.from_torch(module.eval())
    assert f(X).shape == (4, 3)
    module.train()
    with pytest.raises(RuleError, match="a tensor from outside"):
        f(X)
    without = torch.nn.BatchNorm1d(3, track_running_stats=False)
    assert fad.from_torch(without)(X).shape == (4, 3)


def test_parameters_that_change_before_the_derivative_are_refused(torch):
    module = torch.nn.Linear(3, 2)
    x = fad.tensor(X, requires_grad=True)
    y = fnp.sum(fad.from_torch(module)(x))
    with torch.no_grad():
        module.weight.add_(1)
    with pytest.raises(GradientError, match=r"changed in place.*parameters=True"):
        y.backward()
    y = fnp.sum(fad.from_torch(module)(x))
    y.backward()
    np.testing.assert_allclose(x.grad, np.tile(module.weight.detach().sum(0).numpy(), (4, 1)))


def test_tensors_of_inference_mode_are_refused(torch):
    """They raised PyTorch's error about version counters, which named nothing."""
    with torch.inference_mode():
        w, layer = torch.ones(3), torch.nn.Linear(3, 1)
    for f in [lambda x: x * w, layer]:
        with pytest.raises(ArgumentError, match=r"of inference mode .*\[.*3\].*clone"):
            fad.from_torch(f)(jnp.ones(3))
    v = w.clone()
    assert fad.grad(fad.from_torch(lambda x: (x * v).sum()))(jnp.ones(3)).tolist() == [1.0] * 3
    with torch.inference_mode():
        assert fad.from_torch(lambda x: x * v)(jnp.ones(3)).tolist() == [1.0] * 3


def test_a_function_that_reads_numbers_runs_before_it_is_compiled(torch):
    f = fad.from_torch(lambda x: x * 2 if x.sum() > 0 else x * 3)
    with pytest.raises(HostValueError, match="call it once outside of jit"):
        fad.jit(f)(X)
    np.testing.assert_array_equal(f(X), 2 * X)
    compiled = fad.jit(f)
    np.testing.assert_array_equal(compiled(X), 2 * X)
    np.testing.assert_array_equal(compiled(-X), -3 * X)
    np.testing.assert_array_equal(fad.grad(lambda x: fnp.sum(f(x)))(-X), np.full((4, 3), 3.0))


def test_a_function_that_leaves_pytorch_says_that_it_had_no_numbers(torch):
    def f(x):
        return torch.from_numpy(np.sin(x.detach().numpy()))

    with pytest.raises(RuntimeError, match="numpy") as caught:
        fad.jit(fad.from_torch(f))(X)
    assert "a first run without numbers, under jit" in str(caught.value)
    np.testing.assert_allclose(fad.from_torch(f)(X), np.sin(X), rtol=1e-6)


def test_errors_of_pytorch_say_what_the_function_was_called_with(torch):
    module = torch.nn.Linear(5, 2)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        fad.from_torch(module)(X)
    assert "from_torch(Linear), called with float32[4, 3]" in "".join(caught.value.__notes__)
    targets = jnp.zeros(4, jnp.int32)
    with pytest.raises(RuntimeError, match="Long") as caught:
        fad.from_torch(torch.nn.functional.cross_entropy)(X, targets)
    assert "write x.long()" in str(caught.value)
