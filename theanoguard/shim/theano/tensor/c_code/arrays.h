/* Arrays as the operations want them. */
#ifndef THEANOGUARD_ARRAYS_H
#define THEANOGUARD_ARRAYS_H

#include <algorithm>

/* A C-contiguous view or copy of an array, for as long as it lives; of NULL, NULL. */
template <typename T>
struct Contiguous {
    PyArrayObject *array;
    explicit Contiguous(PyArrayObject *x) : array(x ? PyArray_GETCONTIGUOUS(x) : NULL) {}
    ~Contiguous() { Py_XDECREF(array); }
    T *data() const { return array ? (T *)PyArray_DATA(array) : NULL; }
};

/* Makes `*z` a C-contiguous array of this shape, the old one if it will do.  Its contents are
 * anything.  Returns -1 with an exception set where there is no memory. */
static inline int prepare(PyArrayObject **z, int nd, const npy_intp *dims, int typenum) {
    if (*z && PyArray_NDIM(*z) == nd && std::equal(dims, dims + nd, PyArray_DIMS(*z)) &&
        PyArray_IS_C_CONTIGUOUS(*z))
        return 0;
    Py_XDECREF(*z);
    *z = (PyArrayObject *)PyArray_EMPTY(nd, (npy_intp *)dims, typenum, 0);
    return *z ? 0 : -1;
}

static inline int value_error(const char *text) {
    PyErr_SetString(PyExc_ValueError, text);
    return -1;
}

#endif
