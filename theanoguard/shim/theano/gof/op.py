"""Operations."""

import warnings

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph import op as graph_op
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.utils import MethodNotDefined, get_variable_trace_string
from pytensor.link.c import op as c_op
from pytensor.tensor.basic import as_tensor_variable

from theanoguard.testvalue import config

from . import utils
from ._oldstyle import NUMPY_FLAG

# Op classes with a function inside, by the name of the attribute that holds it.
ops_with_inner_function = {}


class NoSuchMethod(MethodNotDefined, NotImplementedError):
    """A method that an operation lacks; PyTensor expects the one base, Theano's code the other."""


class PureOp(graph_op.Op, metaclass=utils.StandsFor):
    """An operation without C code, which may have a thunk instead of a ``perform``."""

    stands_for = graph_op.Op

    def perform(self, node, inputs, output_storage):
        """Raise MethodNotDefined: the operation has only C code, or a thunk."""
        raise NoSuchMethod("perform", type(self), type(self).__name__)

    def L_op(self, inputs, outputs, output_grads):
        """Return the gradients by ``grad``."""
        return self.grad(inputs, output_grads)


class Op(PureOp, c_op.COp):
    """An operation, which may have C code, Python code, or both; see Theano's ``Op``."""

    stands_for = graph_op.Op

    def c_code(self, node, name, inputs, outputs, sub):
        """Raise MethodNotDefined: the operation has only Python code."""
        raise NoSuchMethod("c_code", type(self), type(self).__name__)

    def c_compile_args(self, **kwargs):
        """Return the flag with which C code may look into NumPy's descriptors, as it used to."""
        return [NUMPY_FLAG]

    def c_code_cache_version(self):
        """Return (): the C code is compiled anew in each process."""
        return ()


class COp(c_op.ExternalCOp, Op):
    """An operation whose C code stands in files, in sections; see Theano's ``COp``."""

    perform = Op.perform


class OpenMPOp(c_op.OpenMPOp, Op):
    """An operation whose C code may use OpenMP."""

    perform = Op.perform
    c_code = Op.c_code


def _get_test_value(v):
    """Return the test value that a variable has; raise AttributeError if it has none."""
    if isinstance(v, Constant):
        return v.data
    if isinstance(v, SharedVariable):
        return v.get_value(borrow=True, return_internal_type=True)
    trace = get_variable_trace_string(v)
    if not (isinstance(v, Variable) and hasattr(v.tag, "test_value")):
        raise utils.TestValueError(f"{v} has no test value {trace}")
    try:
        return v.type.filter(v.tag.test_value)
    except Exception as error:
        told = "For compute_test_value, one input test value does not have the requested type.\n"
        reason = "\nThe error when converting the test value to that variable type:"
        error.args = ("\n".join([told + trace + reason, *map(str, error.args)]),)
        raise


def get_test_value(v):
    """Return the test value of a variable, or of what can be made one.

    Raises
    ------
    AttributeError
        It has none.
    """
    return _get_test_value(v if isinstance(v, Variable) else as_tensor_variable(v))


def missing_test_message(msg):
    """Raise AttributeError or warn, as ``config.compute_test_value`` wants it."""
    if config.compute_test_value == "raise":
        raise AttributeError(msg)
    if config.compute_test_value == "warn":
        warnings.warn(msg, stacklevel=2)


def debug_error_message(msg):
    """Raise ValueError for a wrong test value, or warn where the switch says "warn"."""
    if config.compute_test_value != "warn":
        raise ValueError(msg)
    warnings.warn(msg, stacklevel=2)


def debug_assert(condition, msg=None):
    """Raise AssertionError for a wrong test value, or warn where the switch says "warn"."""
    if condition:
        return
    msg = "debug_assert failed" if msg is None else msg
    if config.compute_test_value != "warn":
        raise AssertionError(msg)
    warnings.warn(msg, stacklevel=2)


def get_debug_values(*args):
    """Return a list of one element, the test values of `args`, or an empty list.

    The element is a tuple where there is more than one argument.  The list is empty where test
    values are off, or one is missing and that is no error.
    """
    if config.compute_test_value == "off":
        return []
    values = []
    for i, arg in enumerate(args):
        try:
            values.append(get_test_value(arg))
        except AttributeError:
            name = getattr(arg, "name", None)
            what = f"Argument {i}" + (f"('{name}')" if name is not None else "")
            missing_test_message(f"{what} has no test value")
            return []
    return values if len(values) == 1 else [tuple(values)]
