"""Five tutorials of PyTorch, on small data, run by PyTorch and, with their imports renamed, by fad.

"Per-sample-gradients", "Jacobians, Hessians, hvp, vhp, and more", "Model ensembling", "Forward-mode Automatic
Differentiation", "Double Backward with Custom Functions". Three things are not as they stand there: random
numbers come from `Numbers`, so that both libraries have the same; functions of mathematics are imported by
their names; layers are those of `torch_layers`, and are given numbers by `Numbers.fill`.
"""

from __future__ import annotations

from typing import Any

import pytest
from renamed_imports import Numbers, Program, compare

import fad
import fad.numpy as fnp

pytestmark = pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")

TUTORIALS: list[Program] = []


def tutorial(program: Program) -> Program:
    TUTORIALS.append(program)
    return program


@tutorial
def per_sample_gradients(numbers: Numbers) -> Any:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from torch import allclose
    from torch.func import functional_call, grad, vmap

    class SimpleCNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 3, 3)
            self.conv2 = nn.Conv2d(3, 4, 3)
            self.fc1 = nn.Linear(16, 5)
            self.fc2 = nn.Linear(5, 10)

        def forward(self, x):
            x = self.conv1(x)
            x = F.relu(x)
            x = self.conv2(x)
            x = F.relu(x)
            x = F.max_pool2d(x, 2)
            x = x.flatten(1)
            x = self.fc1(x)
            x = F.relu(x)
            x = self.fc2(x)
            output = F.log_softmax(x, dim=1)
            return output

    def loss_fn(predictions, targets):
        return F.nll_loss(predictions, targets)

    batch_size = 6
    data = numbers.normal(batch_size, 1, 8, 8)
    targets = numbers.integers(10, batch_size)
    model = numbers.fill(SimpleCNN())

    predictions = model(data)
    loss = loss_fn(predictions, targets)
    loss.backward()

    def compute_grad(sample, target):
        sample = sample.unsqueeze(0)
        target = target.unsqueeze(0)
        prediction = model(sample)
        loss = loss_fn(prediction, target)
        return torch.autograd.grad(loss, list(model.parameters()))

    def compute_sample_grads(data, targets):
        sample_grads = [compute_grad(data[i], targets[i]) for i in range(batch_size)]
        sample_grads = zip(*sample_grads)
        sample_grads = [torch.stack(shards) for shards in sample_grads]
        return sample_grads

    per_sample_grads = compute_sample_grads(data, targets)

    params = {k: v.detach() for k, v in model.named_parameters()}
    buffers = {k: v.detach() for k, v in model.named_buffers()}

    def compute_loss(params, buffers, sample, target):
        batch = sample.unsqueeze(0)
        targets = target.unsqueeze(0)
        predictions = functional_call(model, (params, buffers), (batch,))
        loss = loss_fn(predictions, targets)
        return loss

    ft_compute_grad = grad(compute_loss)
    ft_compute_sample_grad = vmap(ft_compute_grad, in_dims=(None, None, 0, 0))
    ft_per_sample_grads = ft_compute_sample_grad(params, buffers, data, targets)

    for per_sample_grad, ft_per_sample_grad in zip(per_sample_grads, ft_per_sample_grads.values()):
        assert allclose(per_sample_grad, ft_per_sample_grad, atol=1e-6, rtol=1e-5)
    return loss, per_sample_grads, ft_per_sample_grads, [p.grad for p in model.parameters()]


@tutorial
def jacobians_hessians_and_products(numbers: Numbers) -> Any:
    from functools import partial

    import torch
    import torch.nn.functional as F
    from torch import allclose
    from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

    def predict(weight, bias, x):
        return F.linear(x, weight, bias).tanh()

    D = 4
    weight = numbers.normal(D, D)
    bias = numbers.normal(D)
    x = numbers.normal(D)  # feature vector

    xp = x.clone().requires_grad_()
    unit_vectors = torch.eye(D)

    def compute_jac(xp):
        jacobian_rows = [
            torch.autograd.grad(predict(weight, bias, xp), xp, vec)[0] for vec in unit_vectors
        ]
        return torch.stack(jacobian_rows)

    jacobian = compute_jac(xp)

    _, vjp_fn = vjp(partial(predict, weight, bias), x)
    (ft_jacobian,) = vmap(vjp_fn)(unit_vectors)
    assert allclose(ft_jacobian, jacobian)

    ft_jacobian = jacrev(predict, argnums=2)(weight, bias, x)
    assert allclose(ft_jacobian, jacobian)
    ft_jac_weight, ft_jac_bias = jacrev(predict, argnums=(0, 1))(weight, bias, x)
    ft_jac_fwd = jacfwd(predict, argnums=2)(weight, bias, x)
    assert allclose(ft_jac_fwd, jacobian)

    hess_api = hessian(predict, argnums=2)(weight, bias, x)
    hess_fwdfwd = jacfwd(jacfwd(predict, argnums=2), argnums=2)(weight, bias, x)
    hess_revrev = jacrev(jacrev(predict, argnums=2), argnums=2)(weight, bias, x)
    assert allclose(hess_api, hess_fwdfwd) and allclose(hess_api, hess_revrev)

    batch_size = 3
    batch_x = numbers.normal(batch_size, D)
    compute_batch_jacobian = vmap(jacrev(predict, argnums=2), in_dims=(None, None, 0))
    batch_jacobian0 = compute_batch_jacobian(weight, bias, batch_x)

    def predict_with_output_summed(weight, bias, x):
        return predict(weight, bias, x).sum(0)

    batch_jacobian1 = jacrev(predict_with_output_summed, argnums=2)(weight, bias, batch_x)
    batch_jacobian1 = batch_jacobian1.movedim(1, 0)
    assert allclose(batch_jacobian0, batch_jacobian1)

    compute_batch_hessian = vmap(hessian(predict, argnums=2), in_dims=(None, None, 0))
    batch_hess = compute_batch_hessian(weight, bias, batch_x)

    def hvp(f, primals, tangents):
        return jvp(grad(f), primals, tangents)[1]

    def f(x):
        return x.sin().sum()

    x = numbers.normal(16)
    tangent = numbers.normal(16)
    result = hvp(f, (x,), (tangent,))

    def hvp_revrev(f, primals, tangents):
        _, vjp_fn = vjp(grad(f), *primals)
        return vjp_fn(*tangents)

    (result_hvp_revrev,) = hvp_revrev(f, (x,), (tangent,))
    assert allclose(result, result_hvp_revrev)
    return jacobian, ft_jac_weight, ft_jac_bias, hess_api, batch_jacobian0, batch_hess, result


@tutorial
def model_ensembling(numbers: Numbers) -> Any:
    import copy

    import torch.nn as nn
    import torch.nn.functional as F
    from torch import allclose
    from torch.func import functional_call, stack_module_state, vmap

    class SimpleMLP(nn.Module):
        def __init__(self, num_classes=10):
            super().__init__()
            self.fc1 = nn.Linear(9, 6)
            self.fc2 = nn.Linear(6, 6)
            self.fc3 = nn.Linear(6, num_classes)

        def forward(self, x):
            x = x.flatten(1)
            x = self.fc1(x)
            x = F.relu(x)
            x = self.fc2(x)
            x = F.relu(x)
            x = self.fc3(x)
            return x

    num_models = 3
    data = numbers.normal(5, 4, 1, 3, 3)
    models = [numbers.fill(SimpleMLP()) for _ in range(num_models)]

    minibatches = data[:num_models]
    predictions_diff_minibatch_loop = [
        model(minibatch) for model, minibatch in zip(models, minibatches)
    ]
    minibatch = data[0]
    predictions2 = [model(minibatch) for model in models]

    params, buffers = stack_module_state(models)

    # The tutorial moves it to the device "meta" besides, which fad does not have.
    base_model = copy.deepcopy(models[0])

    def fmodel(params, buffers, x):
        return functional_call(base_model, (params, buffers), (x,))

    assert tuple(params["fc1.weight"].shape) == (3, 6, 9)
    assert tuple(minibatches.shape) == (3, 4, 1, 3, 3)
    predictions1_vmap = vmap(fmodel)(params, buffers, minibatches)
    for i in range(num_models):
        assert allclose(predictions1_vmap[i], predictions_diff_minibatch_loop[i])

    predictions2_vmap = vmap(fmodel, in_dims=(0, 0, None))(params, buffers, minibatch)
    for i in range(num_models):
        assert allclose(predictions2_vmap[i], predictions2[i])
    predictions2_vmap.sum().backward()
    return predictions1_vmap, predictions2_vmap, {name: p.grad for name, p in params.items()}


@tutorial
def forward_mode(numbers: Numbers) -> Any:
    import functools

    import torch
    import torch.autograd.forward_ad as fwAD
    import torch.func as ft
    import torch.nn as nn
    from torch import allclose, exp
    from torch.func import functional_call

    primal = numbers.normal(10, 10)
    tangent = numbers.normal(10, 10)

    def fn(x, y):
        return x**2 + y**2

    with fwAD.dual_level():
        dual_input = fwAD.make_dual(primal, tangent)
        assert fwAD.unpack_dual(dual_input).tangent is tangent
        plain_tensor = numbers.normal(10, 10)
        dual_output = fn(dual_input, plain_tensor)
        jvp = fwAD.unpack_dual(dual_output).tangent
        first = jvp
    assert fwAD.unpack_dual(dual_output).tangent is None

    # Usage with modules
    model = numbers.fill(nn.Linear(5, 5))
    input = numbers.normal(16, 5)
    params = {name: p for name, p in model.named_parameters()}
    tangents = {name: numbers.uniform(*p.shape) for name, p in params.items()}

    with fwAD.dual_level():
        for name, p in params.items():
            delattr(model, name)
            setattr(model, name, fwAD.make_dual(p, tangents[name]))
        out = model(input)
        jvp = fwAD.unpack_dual(out).tangent

    # Using the functional Module API
    model = numbers.fill(nn.Linear(5, 5))
    dual_params = {}
    with fwAD.dual_level():
        for name, p in params.items():
            dual_params[name] = fwAD.make_dual(p, tangents[name])
        out = functional_call(model, dual_params, input)
        jvp2 = fwAD.unpack_dual(out).tangent
    assert allclose(jvp, jvp2)

    # Custom autograd Function
    class Fn(torch.autograd.Function):
        @staticmethod
        def forward(ctx, foo):
            result = exp(foo)
            # Tensors stored in ``ctx`` can be used in the subsequent forward grad computation.
            ctx.result = result
            return result

        @staticmethod
        def jvp(ctx, gI):
            gO = gI * ctx.result
            # If the tensor stored in ``ctx`` will not also be used in the backward pass,
            # one can manually free it using ``del``
            del ctx.result
            return gO

    fn = Fn.apply
    primal = numbers.normal(3, 3, requires_grad=True)
    tangent = numbers.normal(3, 3)
    with fwAD.dual_level():
        dual_input = fwAD.make_dual(primal, tangent)
        dual_output = fn(dual_input)
        jvp3 = fwAD.unpack_dual(dual_output).tangent

    # It is important to use ``autograd.gradcheck`` to verify that your custom autograd Function is right.
    assert torch.autograd.gradcheck(
        Fn.apply, (primal,), check_forward_ad=True, check_backward_ad=False,
        check_undefined_grad=False, check_batched_grad=False,
    )  # fmt: skip

    # Functional API (beta)
    primal0, tangent0 = numbers.normal(10, 10), numbers.normal(10, 10)
    primal1, tangent1 = numbers.normal(10, 10), numbers.normal(10, 10)

    def fn(x, y):
        return x**2 + y**2

    primal_out, tangent_out = ft.jvp(fn, (primal0, primal1), (tangent0, tangent1))
    primal = numbers.normal(10, 10)
    y = numbers.normal(10, 10)
    new_fn = functools.partial(fn, y)
    primal_out2, tangent_out2 = ft.jvp(new_fn, (primal,), (tangent0,))

    # Using the functional API with modules
    primals = {name: p.detach() for name, p in model.named_parameters()}

    def func(params, input):
        return functional_call(model, params, input)

    _, jvp4 = ft.jvp(lambda params: func(params, input), (primals,), (tangents,))
    return first, jvp, jvp3, primal_out, tangent_out, primal_out2, tangent_out2, jvp4


@tutorial
def double_backward_with_custom_functions(numbers: Numbers) -> Any:
    import torch
    from torch import exp

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            # Because we are saving one of the inputs use `save_for_backward`
            # Save non-tensors and non-inputs/non-outputs directly on ctx
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx, grad_out):
            # A function support double backward automatically if autograd
            # is able to record the computations performed in backward
            (x,) = ctx.saved_tensors
            return grad_out * 2 * x

    x = numbers.uniform(3, 3, requires_grad=True)
    torch.autograd.gradcheck(Square.apply, x)
    torch.autograd.gradgradcheck(Square.apply, x)

    def second(f):
        out = f(x)
        (gx,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        (ggx,) = torch.autograd.grad(gx.sum(), x)
        return out, gx, ggx

    square = second(Square.apply)

    class Exp(torch.autograd.Function):
        # Simple case where everything goes well
        @staticmethod
        def forward(ctx, x):
            # This time we save the output
            result = exp(x)
            # Note that we should use `save_for_backward` here when the tensor saved is an output.
            ctx.save_for_backward(result)
            return result

        @staticmethod
        def backward(ctx, grad_out):
            (result,) = ctx.saved_tensors
            return result * grad_out

    torch.autograd.gradcheck(Exp.apply, x)
    torch.autograd.gradgradcheck(Exp.apply, x)
    exponential = second(Exp.apply)

    class Sinh(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            expx = exp(x)
            expnegx = exp(-x)
            ctx.save_for_backward(expx, expnegx)
            # In order to be able to save the intermediate results, a trick is to
            # include them as our outputs, so that the backward graph is constructed
            return (expx - expnegx) / 2, expx, expnegx

        @staticmethod
        def backward(ctx, grad_out, _grad_out_exp, _grad_out_negexp):
            expx, expnegx = ctx.saved_tensors
            grad_input = grad_out * (expx + expnegx) / 2
            # We cannot skip accumulating these even though we won't use the outputs
            # directly. They will be used later in the second backward.
            grad_input += _grad_out_exp * expx
            grad_input -= _grad_out_negexp * expnegx
            return grad_input

    def sinh(x):
        # Create a wrapper that only returns the first output
        return Sinh.apply(x)[0]

    torch.autograd.gradcheck(sinh, x)
    torch.autograd.gradgradcheck(sinh, x)
    hyperbolic = second(sinh)

    def cube_forward(x):
        return x**3

    def cube_backward(grad_out, x):
        return grad_out * 3 * x**2

    def cube_backward_backward(grad_out, sav_grad_out, x):
        return grad_out * sav_grad_out * 6 * x

    def cube_backward_backward_grad_out(grad_out, x):
        return grad_out * 3 * x**2

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return cube_forward(x)

        @staticmethod
        def backward(ctx, grad_out):
            (x,) = ctx.saved_tensors
            return CubeBackward.apply(grad_out, x)

    class CubeBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, grad_out, x):
            ctx.save_for_backward(x, grad_out)
            return cube_backward(grad_out, x)

        @staticmethod
        def backward(ctx, grad_out):
            x, sav_grad_out = ctx.saved_tensors
            dx = cube_backward_backward(grad_out, sav_grad_out, x)
            dgrad_out = cube_backward_backward_grad_out(grad_out, x)
            return dgrad_out, dx

    torch.autograd.gradcheck(Cube.apply, x)
    torch.autograd.gradgradcheck(Cube.apply, x)
    return square, exponential, hyperbolic, second(Cube.apply)


@pytest.mark.parametrize("program", TUTORIALS, ids=lambda p: p.__name__)
def test_tutorial(program: Program) -> None:
    compare(program)


def test_what_the_tutorial_of_double_backward_warns_of_is_right_in_fad() -> None:
    """An intermediate value that is kept on ctx, and is no output, has a history in the second backward."""

    class SinhBad(fad.Function):
        @staticmethod
        def forward(ctx, x):
            expx = fnp.exp(x)
            expnegx = fnp.exp(-x)
            ctx.expx = expx
            ctx.expnegx = expnegx
            return (expx - expnegx) / 2

        @staticmethod
        def backward(ctx, grad_out):
            return grad_out * (ctx.expx + ctx.expnegx) / 2

    x = fad.tensor([0.5, -1.0], requires_grad=True)
    assert fad.autograd.gradgradcheck(SinhBad.apply, x)


@pytest.mark.parametrize("name", ["torch", "fad"])
def test_a_function_goes_over_a_dict_in_its_own_order(name: str, torch: Any) -> None:
    """As the tutorials do: over `params.values()` inside of transforms, over `grads.values()` outside."""
    lib: Any = torch if name == "torch" else fad
    params = {"second": lib.tensor([2.0]), "first": lib.tensor([5.0]), "0": lib.tensor([1.0])}
    tangents = {k: lib.ones(1) for k in params}

    def f(params):
        out = 1.0
        for x in params.values():
            out = x - 2.0 * out
        return out.sum()

    def g(params):
        assert list(params) == list(tangents)
        return {"z": f(params), "a": (f(params), {"y": params["0"], "x": f(params)})}

    def orders(out):
        return list(out), list(out["a"][1])

    func = lib.func
    want = (["z", "a"], ["y", "x"])
    for d in (
        func.grad(f)(params), func.vjp(f, params)[1](lib.tensor(1.0))[0], func.jacrev(f)(params),
        func.jacfwd(f)(params), func.grad_and_value(f)(params)[0],
        func.hessian(f)(params), func.hessian(f)(params)["first"],
    ):  # fmt: skip
        assert list(d) == list(params)
    assert [x.tolist() for x in func.grad(f)(params).values()] == [[4.0], [-2.0], [1.0]]
    assert list(func.vmap(lambda p: p)(params)) == list(params)
    assert func.jvp(f, (params,), (tangents,))[1].item() == 3.0
    assert orders(func.vjp(g, params)[0]) == want
    assert orders(func.vmap(g)(params)) == want
    out, out_t = func.jvp(g, (params,), (tangents,))
    assert orders(out) == orders(out_t) == want
    out, push = func.linearize(g, params)
    assert orders(out) == orders(push(tangents)) == want
    assert orders(func.jacfwd(g)(params)) == orders(func.jacrev(g)(params)) == want
