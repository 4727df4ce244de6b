"""The names of what is passed around, for annotations of transforms and tools: see `fad.core.types`."""

from fad.core.trees import Rest as Rest
from fad.core.types import Array as Array
from fad.core.types import ArrayFunction as ArrayFunction
from fad.core.types import Aval as Aval
from fad.core.types import DType as DType
from fad.core.types import JaxEquation as JaxEquation
from fad.core.types import JaxProgram as JaxProgram
from fad.core.types import Operand as Operand
from fad.core.types import Outputs as Outputs
from fad.core.types import PyTree as PyTree
from fad.core.types import Value as Value

__all__ = [
    "Array",
    "ArrayFunction",
    "Aval",
    "DType",
    "JaxEquation",
    "JaxProgram",
    "Operand",
    "Outputs",
    "PyTree",
    "Rest",
    "Value",
]
