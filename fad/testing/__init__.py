"""Checking derivatives and rules: ``gradcheck``, ``check_function``, ``check_operation``, ``check_sparse``.

It is imported on its own, ``import fad.testing``. ``fad.testing.plugin`` makes pytest tests of a
Function; ``fad.testing.strategies`` has hypothesis strategies.
"""

from typing import TYPE_CHECKING

from fad.errors import hints_of as _hints_of
from fad.testing.cases import Violation as Violation
from fad.testing.comparison import assert_close as assert_close
from fad.testing.comparison import difference as difference
from fad.testing.function_checks import LAWS as LAWS
from fad.testing.function_checks import Law as Law
from fad.testing.function_checks import LawError as LawError
from fad.testing.function_checks import Report as Report
from fad.testing.function_checks import check_function as check_function
from fad.testing.gradient_checks import GradcheckError as GradcheckError
from fad.testing.gradient_checks import gradcheck as gradcheck
from fad.testing.gradient_checks import gradgradcheck as gradgradcheck
from fad.testing.operation_checks import OperationError as OperationError
from fad.testing.operation_checks import check_operation as check_operation
from fad.testing.sparse_checks import SparsityError as SparsityError
from fad.testing.sparse_checks import check_sparse as check_sparse

__all__ = [
    "LAWS",
    "GradcheckError",
    "Law",
    "LawError",
    "OperationError",
    "Report",
    "SparsityError",
    "Violation",
    "assert_close",
    "check_function",
    "check_operation",
    "check_sparse",
    "difference",
    "gradcheck",
    "gradgradcheck",
]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = _hints_of(__name__)
