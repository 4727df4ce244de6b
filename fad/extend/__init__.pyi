"""Extending fad: new operations, and new transforms.

`operation` makes an operation from a JAX function. A transform is a `Level` and a function that enters it:
`bind` hands an operation to the highest level among its arguments, and that level's ``process`` binds what it
is made of one level down. What a transform is given goes through `enter`, what it returns through `leave`.
docs/extending.md shows one of each.
"""

# Made by `python -m tests.stubs`, of the tables in `__init__.py` and of tests/stubs/by_hand.

from fad.arrays.operations import array_function as array_function
from fad.bridge.jax_functions import by_structure as by_structure
from fad.core.dataflow import Dataflow as Dataflow
from fad.core.jaxapi import axes_named as axes_named
from fad.core.jaxapi import branches as branches
from fad.core.jaxapi import called as called
from fad.core.jaxapi import evaluate_equation as evaluate_equation
from fad.core.jaxapi import parameters as parameters
from fad.core.jaxapi import programs as programs
from fad.core.jaxapi import run_jaxpr as _run_program
from fad.core.jaxapi import scan_parts as scan_parts
from fad.core.jaxapi import while_parts as while_parts
from fad.core.jaxprs import is_elementwise_equation as _is_elementwise
from fad.core.jaxprs import jaxpr_key as _program_key
from fad.core.jaxprs import trace as trace
from fad.core.jaxprs import with_programs as with_programs
from fad.core.level import Level as Level
from fad.core.level import bind as bind
from fad.core.level import flush as flush
from fad.core.level import layers as layers
from fad.core.level import map_tensors as _map_outputs
from fad.core.level import new_argument as new_argument
from fad.core.level import outlived as outlived
from fad.core.level import restores_modes as restores_modes
from fad.core.level import uncompiled as uncompiled
from fad.core.level import with_default_state as with_default_state
from fad.core.primitive import Primitive as Primitive
from fad.core.tensor import Tensor as Tensor
from fad.core.tensor import bottom as bottom
from fad.core.tensor import new_tensor as new_tensor
from fad.core.trees import Static as Static
from fad.core.trees import flatten as flatten
from fad.core.trees import map_leaves as map_leaves
from fad.core.trees import partition as partition
from fad.core.trees import path_names as path_names
from fad.core.trees import skeleton as skeleton
from fad.core.trees import unflatten as unflatten
from fad.core.types import Operation as Operation
from fad.extend.derivatives import depends_on_point as depends_on_point
from fad.extend.derivatives import linear_call as linear_call
from fad.extend.interpretation import interpret as interpret
from fad.extend.interpretation import scattered_to as scattered_to
from fad.extend.jax_programs import aval_of as aval_of
from fad.extend.jax_programs import batched_program as batched_program
from fad.extend.jax_programs import body_of as body_of
from fad.extend.jax_programs import dependence as dependence
from fad.extend.jax_programs import derivative_of as derivative_of
from fad.extend.jax_programs import derivative_program as derivative_program
from fad.extend.jax_programs import function_call as function_call
from fad.extend.jax_programs import native_primitive as native_primitive
from fad.extend.jax_programs import split_call as split_call
from fad.extend.jax_programs import stage as stage
from fad.extend.jax_programs import varying_alike as varying_alike
from fad.extend.observing import is_deferred as is_deferred
from fad.extend.observing import node_info as node_info
from fad.extend.observing import observe as observe
from fad.extend.observing import observe_nodes as observe_nodes
from fad.extend.observing import running_levels as running_levels
from fad.extend.observing import thread_id as thread_id
from fad.extend.operations import operation as operation
from fad.functions.calls import with_derivative as with_derivative
from fad.functions.user_rules import HOST_ERRORS as HOST_ERRORS
from fad.tape.anomaly import choosing as choosing
from fad.tape.recorder import RecordingLevel as RecordingLevel
from fad.transforms.boundary import Call as Call
from fad.transforms.boundary import enter as enter
from fad.transforms.boundary import has_tensor as has_tensor
from fad.transforms.boundary import leave as leave
from fad.transforms.boundary import zeros_like as zeros_like

is_elementwise = _is_elementwise
map_outputs = _map_outputs
program_key = _program_key
run_program = _run_program
