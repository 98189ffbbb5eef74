"""Theano's ``theano.tensor.blas_scipy``: PyTensor's BLAS comes through C alone."""

have_fblas = False
