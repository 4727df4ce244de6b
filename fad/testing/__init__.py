"""Checking derivatives and rules: ``gradcheck``, ``check_function``, comparisons of programs.

It is imported on its own, ``import fad.testing``. Hypothesis strategies are in
``fad.testing.strategies``, a fuzzer in ``fad.testing.fuzz``; both need hypothesis.
"""

from fad.testing.cases import Violation as Violation
from fad.testing.comparison import assert_close as assert_close
from fad.testing.comparison import assert_same_program as assert_same_program
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
