"""Theano's ``theano.sparse.opt``."""

from pytensor.sparse import rewriting
from pytensor.sparse.rewriting import structured_add_s_v_csr

from theanoguard._pytensor.for_theano import renamed

AddSD_ccode = renamed(rewriting, "AddSD_ccode", "AddSparseDenseC")
StructuredAddSVCSR = type(structured_add_s_v_csr)
