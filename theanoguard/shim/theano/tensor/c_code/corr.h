/* Correlation of 2-d and 3-d images with filters, and its two gradients, by im2col and gemm.
 *
 * A 2-d image is a 3-d one of depth 1.  All arrays are C-contiguous:
 *   bottom  (batch, channels, image...)
 *   weights (filters, channels / groups, kernel...)
 *   top     (batch, filters, out...)
 */
#ifndef THEANOGUARD_CORR_H
#define THEANOGUARD_CORR_H

#include <algorithm>
#include <new>
#include <vector>

enum { CORR_HALF = -1, CORR_FULL = -2 };

struct Corr {
    npy_intp batch, channels, filters, groups;
    npy_intp image[3], kernel[3], out[3], left[3], right[3], stride[3], dilation[3];

    npy_intp image_size() const { return image[0] * image[1] * image[2]; }
    npy_intp kernel_size() const { return kernel[0] * kernel[1] * kernel[2]; }
    npy_intp positions() const { return out[0] * out[1] * out[2]; }
    npy_intp rows() const { return channels / groups * kernel_size(); }
    npy_intp dilated(int i) const { return (kernel[i] - 1) * dilation[i] + 1; }
};

/* The outputs [first, last) along one axis whose element lies inside the image, for the element
 * at `offset` of the window of output 0. */
static inline void inside(npy_intp offset, npy_intp stride, npy_intp image, npy_intp out,
                          npy_intp *first, npy_intp *last) {
    *first = offset < 0 ? std::min(out, (-offset + stride - 1) / stride) : 0;
    *last = offset < image ? std::min(out, (image - 1 - offset) / stride + 1) : 0;
    *last = std::max(*first, *last);
}

/* Calls `body(row of the image, row of the column matrix, offset, first, last)` for each line of
 * outputs; a null pointer stands for a line of the image that lies in the padding. */
template <typename Image, typename Col, typename Body>
static void each_line(Image *image, Col *col, const Corr &c, Body body) {
    const npy_intp channels = c.channels / c.groups;
    npy_intp d0, d1, h0, h1, w0, w1;
    for (npy_intp channel = 0; channel < channels; ++channel, image += c.image_size())
        for (npy_intp kd = 0; kd < c.kernel[0]; ++kd)
            for (npy_intp kh = 0; kh < c.kernel[1]; ++kh)
                for (npy_intp kw = 0; kw < c.kernel[2]; ++kw) {
                    const npy_intp d = kd * c.dilation[0] - c.left[0];
                    const npy_intp h = kh * c.dilation[1] - c.left[1];
                    const npy_intp w = kw * c.dilation[2] - c.left[2];
                    inside(d, c.stride[0], c.image[0], c.out[0], &d0, &d1);
                    inside(h, c.stride[1], c.image[1], c.out[1], &h0, &h1);
                    inside(w, c.stride[2], c.image[2], c.out[2], &w0, &w1);
                    for (npy_intp i = 0; i < c.out[0]; ++i)
                        for (npy_intp j = 0; j < c.out[1]; ++j, col += c.out[2]) {
                            const bool in = i >= d0 && i < d1 && j >= h0 && j < h1;
                            const npy_intp line =
                                (i * c.stride[0] + d) * c.image[1] + j * c.stride[1] + h;
                            body(in ? image + line * c.image[2] : (Image *)NULL, col, w, w0, w1);
                        }
                }
}

template <typename T>
static void im2col(const T *image, T *col, const Corr &c) {
    const npy_intp n = c.out[2], stride = c.stride[2];
    each_line(image, col, c, [=](const T *line, T *to, npy_intp w, npy_intp first, npy_intp last) {
        if (!line) {
            std::fill(to, to + n, T(0));
            return;
        }
        std::fill(to, to + first, T(0));
        if (stride == 1)
            std::copy(line + first + w, line + last + w, to + first);
        else
            for (npy_intp k = first; k < last; ++k) to[k] = line[k * stride + w];
        std::fill(to + last, to + n, T(0));
    });
}

/* Adds into `image`. */
template <typename T>
static void col2im(T *image, const T *col, const Corr &c) {
    const npy_intp stride = c.stride[2];
    each_line(image, col, c, [=](T *line, const T *from, npy_intp w, npy_intp first, npy_intp last) {
        if (!line) return;
        T *const to = line + w;
        if (stride == 1)
            for (npy_intp k = first; k < last; ++k) to[k] += from[k];
        else
            for (npy_intp k = first; k < last; ++k) to[k * stride] += from[k];
    });
}

/* c = op(a) op(b) + beta c for row-major matrices, c of m rows and n columns.  `gemm` is
 * Fortran's, which sees the transposes. */
template <typename T>
struct Blas {
    typedef void (*gemm_t)(char *, char *, int *, int *, int *, T *, T *, int *, T *, int *, T *,
                           T *, int *);
    static gemm_t gemm;

    static void multiply(bool ta, const T *a, bool tb, const T *b, npy_intp m, npy_intp n,
                         npy_intp k, T beta, T *c) {
        char trans[] = {'N', 'T'};
        int im = (int)m, in = (int)n, ik = (int)k;
        int lda = std::max(1, ta ? im : ik), ldb = std::max(1, tb ? ik : in), ldc = std::max(1, in);
        T one = 1;
        gemm(trans + tb, trans + ta, &in, &im, &ik, &one, (T *)b, &ldb, (T *)a, &lda, &beta, c,
             &ldc);
    }
};
template <typename T>
typename Blas<T>::gemm_t Blas<T>::gemm = NULL;

/* SciPy's BLAS, whatever PyTensor links to: returns -1 with an exception set. */
template <typename T>
static int load_gemm(const char *name) {
    PyObject *module = PyImport_ImportModule("scipy.linalg.cython_blas");
    PyObject *table = module ? PyObject_GetAttrString(module, "__pyx_capi__") : NULL;
    PyObject *capsule = table ? PyMapping_GetItemString(table, name) : NULL;
    if (capsule)
        Blas<T>::gemm = (typename Blas<T>::gemm_t)PyCapsule_GetPointer(
            capsule, PyCapsule_GetName(capsule));
    Py_XDECREF(capsule);
    Py_XDECREF(table);
    Py_XDECREF(module);
    return Blas<T>::gemm ? 0 : -1;
}

template <typename T>
static void corr_forward(const T *bottom, const T *weights, T *top, const Corr &c) {
    const npy_intp filters = c.filters / c.groups, channels = c.channels / c.groups;
    const npy_intp rows = c.rows(), n = c.positions();
    std::vector<T> col(rows * n);
    for (npy_intp image = 0; image < c.batch; ++image)
        for (npy_intp group = 0; group < c.groups; ++group) {
            im2col(bottom, col.data(), c);
            Blas<T>::multiply(false, weights + group * filters * rows, false, col.data(), filters,
                              n, rows, T(0), top);
            bottom += channels * c.image_size();
            top += filters * n;
        }
}

template <typename T>
static void corr_weights(const T *bottom, T *weights, const T *top, const Corr &c) {
    const npy_intp filters = c.filters / c.groups, channels = c.channels / c.groups;
    const npy_intp rows = c.rows(), n = c.positions();
    std::vector<T> col(rows * n);
    std::fill(weights, weights + c.filters * rows, T(0));
    for (npy_intp image = 0; image < c.batch; ++image)
        for (npy_intp group = 0; group < c.groups; ++group) {
            im2col(bottom, col.data(), c);
            Blas<T>::multiply(false, top, true, col.data(), filters, rows, n, T(1),
                              weights + group * filters * rows);
            bottom += channels * c.image_size();
            top += filters * n;
        }
}

template <typename T>
static void corr_inputs(T *bottom, const T *weights, const T *top, const Corr &c) {
    const npy_intp filters = c.filters / c.groups, channels = c.channels / c.groups;
    const npy_intp rows = c.rows(), n = c.positions();
    std::vector<T> col(rows * n);
    std::fill(bottom, bottom + c.batch * c.channels * c.image_size(), T(0));
    for (npy_intp image = 0; image < c.batch; ++image)
        for (npy_intp group = 0; group < c.groups; ++group) {
            Blas<T>::multiply(true, weights + group * filters * rows, false, top, rows, n, filters,
                              T(0), col.data());
            col2im(bottom, col.data(), c);
            bottom += channels * c.image_size();
            top += filters * n;
        }
}

/* Filters as wide as the image, as those of texts, move along one axis only.  Its lines then follow
 * each other in memory, so that image and filters are lines, and an output is a step of a line. */
static void flatten(Corr &c) {
    const npy_intp width = c.image[2];
    if (c.kernel[2] != width || c.out[2] != 1 || c.left[2] || c.dilation[1] != 1 ||
        c.dilation[2] != 1)
        return;
    c.image[2] *= c.image[1];
    c.kernel[2] *= c.kernel[1];
    c.left[2] = c.left[1] * width;
    c.right[2] = c.right[1] * width;
    c.stride[2] = c.stride[1] * width;
    c.out[2] = c.out[1];
    c.image[1] = c.kernel[1] = c.out[1] = c.stride[1] = 1;
    c.left[1] = c.right[1] = 0;
}

static inline npy_intp floor_div(npy_intp a, npy_intp b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* What the three operations have in common: shapes, and an output that fits.
 *
 * `params` are left, right (or CORR_HALF, CORR_FULL), stride and dilation of each axis, then the
 * number of groups.  `shape` gives the spatial shape of the result where top does not settle it,
 * else NULL.  The array among bottom, weights and top that `result` names is made; the others are
 * given contiguous. */
enum { CORR_TOP, CORR_WEIGHTS, CORR_BOTTOM };

static void say_shape(char *text, size_t size, int nd, const npy_intp *dims) {
    size_t used = 0;
    for (int i = 0; i < nd && used < size; ++i)
        used += PyOS_snprintf(text + used, size - used, i ? " x %ld" : "%ld", (long)dims[i]);
}

static int shape_error(const char *op, const char *what, int nd, const npy_intp *bottom,
                       const npy_intp *weights, const npy_intp *top) {
    char b[128], w[128], t[128];
    say_shape(b, sizeof b, nd, bottom);
    say_shape(w, sizeof w, nd, weights);
    say_shape(t, sizeof t, nd, top);
    PyErr_Format(PyExc_ValueError, "%s: %s\n  bottom shape: %s\n  weights shape: %s\n  top shape: %s",
                 op, what, b, w, t);
    return -1;
}

template <typename T>
static int correlate(const char *op, int result, int typenum, PyArrayObject *bottom_,
                     PyArrayObject *weights_, PyArrayObject *top_, PyArrayObject **z,
                     const npy_int64 *params, const npy_int64 *shape) {
    PyArrayObject *given = result == CORR_BOTTOM ? weights_ : bottom_;
    const int nd = PyArray_NDIM(given), n = nd - 2;
    npy_intp bottom[5], weights[5], top[5];
    if (bottom_) std::copy(PyArray_DIMS(bottom_), PyArray_DIMS(bottom_) + nd, bottom);
    if (weights_) std::copy(PyArray_DIMS(weights_), PyArray_DIMS(weights_) + nd, weights);
    if (top_) std::copy(PyArray_DIMS(top_), PyArray_DIMS(top_) + nd, top);

    Corr c;
    c.groups = params[4 * n];
    if (result == CORR_TOP) {
        top[0] = bottom[0];
        top[1] = weights[0];
    } else if (result == CORR_WEIGHTS) {
        weights[0] = top[1];
        weights[1] = bottom[1] / c.groups;
    } else {
        bottom[0] = top[0];
        bottom[1] = weights[1] * c.groups;
    }
    npy_intp expected[5] = {bottom[0], weights[0]};
    for (int axis = 0; axis < 3; ++axis) {
        const int i = axis - (3 - n);
        if (i < 0) {
            c.image[axis] = c.kernel[axis] = c.out[axis] = c.stride[axis] = c.dilation[axis] = 1;
            c.left[axis] = c.right[axis] = 0;
            continue;
        }
        npy_intp left = params[4 * i], right = params[4 * i + 1];
        c.stride[axis] = params[4 * i + 2];
        c.dilation[axis] = params[4 * i + 3];
        if (result == CORR_WEIGHTS) {
            const npy_intp span = (top[i + 2] - 1) * c.stride[axis];
            const npy_intp window = left == CORR_FULL ? span + 2 - bottom[i + 2]
                                                      : bottom[i + 2] + left + right - span;
            weights[i + 2] = shape ? shape[i] : (window - 1) / c.dilation[axis] + 1;
        }
        c.kernel[axis] = weights[i + 2];
        const npy_intp dilated = c.dilated(axis);
        if (left < 0) left = right = left == CORR_HALF ? dilated / 2 : dilated - 1;
        if (result == CORR_BOTTOM)
            bottom[i + 2] = shape ? shape[i]
                                  : (top[i + 2] - 1) * c.stride[axis] + dilated - left - right;
        c.left[axis] = left;
        c.right[axis] = right;
        c.image[axis] = bottom[i + 2];
        expected[i + 2] =
            floor_div(bottom[i + 2] + left + right - dilated, c.stride[axis]) + 1;
        if (result == CORR_TOP) top[i + 2] = expected[i + 2];
        c.out[axis] = top[i + 2];
    }
    c.batch = bottom[0];
    c.channels = bottom[1];
    c.filters = weights[0];

    const npy_intp *dims = result == CORR_TOP ? top : result == CORR_WEIGHTS ? weights : bottom;
    if (std::any_of(dims + 2, dims + nd, [](npy_intp size) { return size <= 0; }))
        return shape_error(op, "impossible output shape", nd, bottom, weights, top);
    if (c.channels != weights[1] * c.groups)
        return shape_error(op, "images and kernel must have the same stack size", nd, bottom,
                           weights, top);
    if (c.filters % c.groups)
        return shape_error(op, "the number of filters must be divisible by the number of groups",
                           nd, bottom, weights, top);
    if (!std::equal(expected, expected + nd, top))
        return shape_error(op, "shape inconsistency", nd, bottom, weights, top);

    flatten(c);
    if (prepare(z, nd, dims, typenum)) return -1;
    T *out = (T *)PyArray_DATA(*z);
    if (!c.batch || !c.filters || !c.channels) {
        std::fill(out, out + PyArray_SIZE(*z), T(0));
        return 0;
    }
    Contiguous<T> b(bottom_), w(weights_), t(top_);
    if ((bottom_ && !b.array) || (weights_ && !w.array) || (top_ && !t.array)) return -1;
#ifdef __EXCEPTIONS /* (importing PyMC switches them off for all that PyTensor compiles) */
    try
#endif
    {
        if (result == CORR_TOP)
            corr_forward<T>(b.data(), w.data(), out, c);
        else if (result == CORR_WEIGHTS)
            corr_weights<T>(b.data(), out, t.data(), c);
        else
            corr_inputs<T>(out, w.data(), t.data(), c);
    }
#ifdef __EXCEPTIONS
    catch (const std::bad_alloc &) {
        PyErr_NoMemory();
        return -1;
    }
#endif
    return 0;
}

#endif
