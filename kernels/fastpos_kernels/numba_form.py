"""The form of a rotation: what its kernel is compiled for besides the storage, so that no form pays for another."""

from dataclasses import dataclass

from numba.core.imputils import lower_constant
from numba.extending import models, overload, register_model, typeof_impl, types

# Channels of pair i: (i, i + pairs); (2 i, 2 i + 1); read there and written to (i, i + pairs); (i, i + section) inside
# the block of channels of each axis.
SPLIT, INTERLEAVED, DEINTERLEAVED, BLOCKS = "split", "interleaved", "deinterleaved", "blocks"
# One integer position a token; several, or real-valued ones; float32 angles, and every step rounded to the storage.
EXACT, AXIAL, ROUNDED = "exact", "axial", "rounded"


@dataclass(frozen=True)
class Form:
    """A compile-time constant, as a storage is; ``scaled``: whether the first array is scaled by its positions."""

    pairing: str
    clock: str
    scaled: bool


class FormType(types.Type):
    def __init__(self, form: Form):
        self.form = form
        super().__init__(name=str(form))


register_model(FormType)(models.OpaqueModel)


@typeof_impl.register(Form)
def _typeof_form(value, context):
    return FormType(value)


@lower_constant(FormType)
def _lower_form(context, builder, kind, value):
    return context.get_dummy_value()


def by_form(choose):
    """Make a function whose first argument is a form: of the functions that ``choose(form)`` may give, one is compiled."""

    def stub(form, *arguments):
        raise NotImplementedError("a function of a form runs in compiled kernels alone")

    # Not strict: the arguments' names are those of the chosen function.
    overload(stub, strict=False, prefer_literal=True)(lambda form, *arguments: choose(form.form))
    return stub
