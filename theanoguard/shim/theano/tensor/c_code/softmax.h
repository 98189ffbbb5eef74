/* The softmax of the rows of a matrix, its logarithm, its gradient, and the cross-entropy. */
#ifndef THEANOGUARD_SOFTMAX_H
#define THEANOGUARD_SOFTMAX_H

#include <cmath>

template <typename T>
struct Row {
    T max, sum;
    npy_intp argmax;

    /* Writes x + b - max(x + b) if `logarithm`, else its exponential. */
    Row(const T *x, const T *b, T *out, npy_intp n, bool logarithm) : max(0), sum(0), argmax(0) {
        for (npy_intp j = 0; j < n; ++j) out[j] = b ? x[j] + b[j] : x[j];
        for (npy_intp j = 1; j < n; ++j)
            if (out[j] > out[argmax]) argmax = j;
        if (n) max = out[argmax];
        for (npy_intp j = 0; j < n; ++j) {
            const T shifted = out[j] - max, e = std::exp(shifted);
            sum += e;
            out[j] = logarithm ? shifted : e;
        }
    }
};

/* `b` may be NULL. */
template <typename T>
static int softmax(PyArrayObject *x_, PyArrayObject *b_, PyArrayObject **z, bool logarithm) {
    npy_intp *dims = PyArray_DIMS(x_);
    if (b_ && PyArray_DIMS(b_)[0] != dims[1])
        return value_error("b must have same number of columns as x");
    Contiguous<T> x(x_), b(b_);
    if (!x.array || (b_ && !b.array) || prepare(z, 2, dims, PyArray_TYPE(x_))) return -1;
    T *out = (T *)PyArray_DATA(*z);
    const npy_intp n = dims[1];
    for (npy_intp i = 0; i < dims[0]; ++i, out += n) {
        const Row<T> row(x.data() + i * n, b.data(), out, n, logarithm);
        const T by = logarithm ? std::log(row.sum) : 1 / row.sum;
        for (npy_intp j = 0; j < n; ++j) out[j] = logarithm ? out[j] - by : out[j] * by;
    }
    return 0;
}

template <typename T>
static int softmax_grad(PyArrayObject *dy_, PyArrayObject *sm_, PyArrayObject **z) {
    npy_intp *dims = PyArray_DIMS(sm_);
    if (!std::equal(dims, dims + 2, PyArray_DIMS(dy_)))
        return value_error("dy.shape != sm.shape");
    Contiguous<T> dy_c(dy_), sm_c(sm_);
    if (!dy_c.array || !sm_c.array || prepare(z, 2, dims, PyArray_TYPE(sm_))) return -1;
    const T *dy = dy_c.data(), *sm = sm_c.data();
    T *out = (T *)PyArray_DATA(*z);
    const npy_intp n = dims[1];
    for (npy_intp i = 0; i < dims[0]; ++i, out += n, dy += n, sm += n) {
        T sum = 0;
        for (npy_intp j = 0; j < n; ++j) sum += dy[j] * sm[j];
        for (npy_intp j = 0; j < n; ++j) out[j] = (dy[j] - sum) * sm[j];
    }
    return 0;
}

template <typename T, typename I>
static int crossentropy(PyArrayObject *x_, PyArrayObject *b_, PyArrayObject *y_,
                        PyArrayObject **nll, PyArrayObject **sm, PyArrayObject **am) {
    npy_intp *dims = PyArray_DIMS(x_);
    const npy_intp n = dims[1];
    if (PyArray_DIMS(b_)[0] != n)
        return value_error("b must have same number of columns as x");
    if (PyArray_DIMS(y_)[0] != dims[0])
        return value_error("y_idx must have same number of rows as x");
    Contiguous<T> x(x_), b(b_);
    Contiguous<I> y(y_);
    if (!x.array || !b.array || !y.array || prepare(sm, 2, dims, PyArray_TYPE(x_)) ||
        prepare(nll, 1, dims, PyArray_TYPE(x_)) || prepare(am, 1, dims, PyArray_TYPE(y_)))
        return -1;
    for (npy_intp i = 0; i < dims[0]; ++i) {
        const npy_intp label = (npy_intp)y.data()[i];
        if (label < 0 || label >= n) return value_error("y_i value out of bounds");
        const T *in = x.data() + i * n;
        T *out = (T *)PyArray_DATA(*sm) + i * n;
        const Row<T> row(in, b.data(), out, n, false);
        for (npy_intp j = 0; j < n; ++j) out[j] *= 1 / row.sum;
        ((T *)PyArray_DATA(*nll))[i] =
            row.max - in[label] - b.data()[label] + std::log(row.sum);
        ((I *)PyArray_DATA(*am))[i] = (I)row.argmax;
    }
    return 0;
}

template <typename T, typename I>
static int crossentropy_dx(PyArrayObject *dy_, PyArrayObject *sm_, PyArrayObject *y_,
                           PyArrayObject **z) {
    npy_intp *dims = PyArray_DIMS(sm_);
    const npy_intp n = dims[1], given = PyArray_SIZE(dy_);
    if (given != 1 && given != dims[0]) return value_error("dy.shape[0] != sm.shape[0]");
    if (PyArray_DIMS(y_)[0] != dims[0]) return value_error("sm.shape[0] != y_idx.shape[0]");
    Contiguous<T> dy(dy_), sm(sm_);
    Contiguous<I> y(y_);
    if (!dy.array || !sm.array || !y.array || prepare(z, 2, dims, PyArray_TYPE(sm_))) return -1;
    T *out = (T *)PyArray_DATA(*z);
    const T *in = sm.data();
    for (npy_intp i = 0; i < dims[0]; ++i, out += n, in += n) {
        const npy_intp label = (npy_intp)y.data()[i];
        if (label < 0 || label >= n) return value_error("y_i value out of bounds");
        const T by = dy.data()[given > 1 ? i : 0];
        for (npy_intp j = 0; j < n; ++j) out[j] = by * in[j];
        out[label] -= by;
    }
    return 0;
}

#endif
