"""Inputs and outputs of functions."""

from pytensor.compile.io import In as PyTensorIn
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.link.basic import Container


class In(PyTensorIn):
    """An input with what becomes of its value; see Theano's ``In``.

    Unlike PyTensor's, it may have a default `value`: where the caller gives none, the function
    computes with it, and where the input has an `update`, it is the first value of the state.
    """

    def __init__(
        self,
        variable,
        name=None,
        value=None,
        update=None,
        mutable=None,
        strict=False,
        allow_downcast=None,
        autoname=True,
        implicit=None,
        borrow=None,
        shared=False,
    ):
        if mutable and borrow is False:
            raise AssertionError(
                f"Symbolic input for variable {variable} (name={name}) has mutable=True and "
                "borrow=False.\nWhat may be overwritten may also be aliased: leave borrow out.",
                variable,
                name,
            )
        if update is not None and variable.type != update.type:
            raise TypeError(
                f"Variable {variable} has type {variable.type} but an update of type "
                f"{update.type}.\nAn update has the type of its variable."
            )
        is_state = isinstance(value, Container | SharedVariable)
        super().__init__(
            variable=variable,
            name=name,
            value=value if is_state else None,
            update=update,
            mutable=mutable,
            strict=strict,
            allow_downcast=allow_downcast,
            autoname=autoname,
            implicit=is_state if implicit is None else implicit and value is None,
            borrow=borrow,
            shared=shared,
        )
        self.value = value
        if implicit:
            self.implicit = True
