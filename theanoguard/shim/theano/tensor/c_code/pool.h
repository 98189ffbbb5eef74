/* Pooling of the last one, two or three axes, and its gradients.
 *
 * Fewer axes than three are three whose first ones have length one.
 */
#ifndef THEANOGUARD_POOL_H
#define THEANOGUARD_POOL_H

#include <vector>

enum { POOL_MAX, POOL_SUM, POOL_AVERAGE_INC_PAD, POOL_AVERAGE_EXC_PAD };

struct Axis {
    npy_intp image, out, window, stride, pad;
};

struct Pooling {
    int nd, outer_nd;
    bool ignore_border;
    npy_intp outer, dims[NPY_MAXDIMS];  /* dims: the shape of the output */
    Axis axis[3];
    std::vector<npy_intp> first[3], last[3];  /* of the image, for each output */

    npy_intp image_size() const { return axis[0].image * axis[1].image * axis[2].image; }
    npy_intp out_size() const { return axis[0].out * axis[1].out * axis[2].out; }

    int read(PyArrayObject *sizes, const char *name, npy_intp Axis::*member) {
        if (PyArray_NDIM(sizes) != 1 || PyArray_DIMS(sizes)[0] != nd) {
            PyErr_Format(PyExc_ValueError, "%s must be a vector of size %d", name, nd);
            return -1;
        }
        PyArrayObject *as_intp = (PyArrayObject *)PyArray_FROM_OTF(
            (PyObject *)sizes, NPY_INTP, NPY_ARRAY_IN_ARRAY | NPY_ARRAY_FORCECAST);
        if (!as_intp) return -1;
        for (int i = 0; i < nd; ++i)
            axis[3 - nd + i].*member = ((npy_intp *)PyArray_DATA(as_intp))[i];
        Py_DECREF(as_intp);
        return 0;
    }

    int lay(PyArrayObject *x, int nd_, bool ignore_border_, PyArrayObject *ws,
            PyArrayObject *stride, PyArrayObject *pad) {
        const Axis one = {1, 1, 1, 1, 0};
        std::fill(axis, axis + 3, one);
        nd = nd_;
        ignore_border = ignore_border_;
        outer_nd = PyArray_NDIM(x) - nd;
        if (read(ws, "ws", &Axis::window) || read(stride, "stride", &Axis::stride) ||
            read(pad, "pad", &Axis::pad))
            return -1;
        outer = 1;
        for (int i = 0; i < outer_nd; ++i) outer *= dims[i] = PyArray_DIMS(x)[i];
        for (int i = 0; i < 3; ++i) {
            Axis &a = axis[i];
            if (i >= 3 - nd) a.image = PyArray_DIMS(x)[outer_nd + i - (3 - nd)];
            if (a.stride <= 0 || a.window <= 0 || a.pad < 0)
                return value_error("ws and stride must be positive, pad must not be negative");
            if (a.pad && !ignore_border)
                return value_error("padding must be zero when ignore border is False");
            const npy_intp size = a.image + 2 * a.pad;
            if (ignore_border)
                a.out = size < a.window ? 0 : (size - a.window) / a.stride + 1;
            else if (a.stride >= a.window)
                a.out = size ? (size - 1) / a.stride + 1 : 0;
            else
                a.out = std::max((npy_intp)0, (size - 1 - a.window + a.stride) / a.stride) + 1;
            if (i >= 3 - nd) dims[outer_nd + i - (3 - nd)] = a.out;
            first[i].resize(a.out);
            last[i].resize(a.out);
            for (npy_intp j = 0; j < a.out; ++j) {
                const npy_intp start = j * a.stride - a.pad;
                first[i][j] = std::max(start, (npy_intp)0);
                last[i][j] = std::min(start + a.window, a.image);
            }
        }
        return 0;
    }

    /* Whether an array has the shape of the output. */
    bool fits(PyArrayObject *z) const {
        return PyArray_NDIM(z) == outer_nd + nd &&
               std::equal(dims, dims + outer_nd + nd, PyArray_DIMS(z));
    }

    /* Calls `body(offset of the image, index of the output, region)` for each region. */
    template <typename Body>
    void each_region(Body body) const {
        npy_intp out = 0, image = 0;
        for (npy_intp n = 0; n < outer; ++n, image += image_size())
            for (npy_intp i = 0; i < axis[0].out; ++i)
                for (npy_intp j = 0; j < axis[1].out; ++j)
                    for (npy_intp k = 0; k < axis[2].out; ++k, ++out) {
                        const npy_intp region[6] = {first[0][i], last[0][i], first[1][j],
                                                    last[1][j], first[2][k], last[2][k]};
                        body(image, out, region);
                    }
    }

    /* Calls `body(index)` for each element of a region. */
    template <typename Body>
    void each_element(npy_intp image, const npy_intp *region, Body body) const {
        for (npy_intp i = region[0]; i < region[1]; ++i)
            for (npy_intp j = region[2]; j < region[3]; ++j) {
                const npy_intp line = image + (i * axis[1].image + j) * axis[2].image;
                for (npy_intp k = region[4]; k < region[5]; ++k) body(line + k);
            }
    }

    /* What the sum over a region is divided by. */
    npy_intp divisor(int mode, const npy_intp *region) const {
        if (mode == POOL_SUM) return 1;
        if (mode == POOL_AVERAGE_INC_PAD && ignore_border)
            return axis[0].window * axis[1].window * axis[2].window;
        return (region[1] - region[0]) * (region[3] - region[2]) * (region[5] - region[4]);
    }
};

/* The index of the greatest element of a region, the first of equals; a NaN is the greatest. */
template <typename T>
static npy_intp argmax(const Pooling &p, const T *x, npy_intp image, const npy_intp *region) {
    npy_intp best = -1;
    p.each_element(image, region, [&](npy_intp i) {
        if (best < 0 || x[i] > x[best] || (x[i] != x[i] && x[best] == x[best])) best = i;
    });
    return best;
}

template <typename T>
static int pool(int mode, int nd, bool ignore_border, PyArrayObject *x_, PyArrayObject *ws,
                PyArrayObject *stride, PyArrayObject *pad, PyArrayObject **z) {
    Pooling p;
    if (p.lay(x_, nd, ignore_border, ws, stride, pad)) return -1;
    Contiguous<T> x(x_);
    if (!x.array || prepare(z, PyArray_NDIM(x_), p.dims, PyArray_TYPE(x_))) return -1;
    const T *in = x.data();
    T *out = (T *)PyArray_DATA(*z);
    if (mode == POOL_MAX)
        p.each_region([&](npy_intp image, npy_intp o, const npy_intp *region) {
            const npy_intp best = argmax(p, in, image, region);
            out[o] = best < 0 ? T(0) : in[best];
        });
    else
        p.each_region([&](npy_intp image, npy_intp o, const npy_intp *region) {
            T sum = 0;
            p.each_element(image, region, [&](npy_intp i) { sum += in[i]; });
            out[o] = mode == POOL_SUM ? sum : sum / (T)p.divisor(mode, region);
        });
    return 0;
}

template <typename T>
static int max_pool_grad(int nd, bool ignore_border, PyArrayObject *x_, PyArrayObject *max_,
                         PyArrayObject *gz_, PyArrayObject *ws, PyArrayObject *stride,
                         PyArrayObject *pad, PyArrayObject **z) {
    Pooling p;
    if (p.lay(x_, nd, ignore_border, ws, stride, pad)) return -1;
    if (!p.fits(max_) || !p.fits(gz_))
        return value_error("the maximum or its gradient has not the shape of the output");
    Contiguous<T> x(x_), max(max_), gz(gz_);
    if (!x.array || !max.array || !gz.array ||
        prepare(z, PyArray_NDIM(x_), PyArray_DIMS(x_), PyArray_TYPE(x_)))
        return -1;
    const T *in = x.data(), *most = max.data(), *g = gz.data();
    T *out = (T *)PyArray_DATA(*z);
    std::fill(out, out + PyArray_SIZE(*z), T(0));
    p.each_region([&](npy_intp image, npy_intp o, const npy_intp *region) {
        const T value = most[o], by = g[o];
        p.each_element(image, region, [&](npy_intp i) {
            if (in[i] == value) out[i] += by;
        });
    });
    return 0;
}

template <typename T>
static int average_pool_grad(int mode, int nd, bool ignore_border, PyArrayObject *x_,
                             PyArrayObject *gz_, PyArrayObject *ws, PyArrayObject *stride,
                             PyArrayObject *pad, PyArrayObject **z) {
    Pooling p;
    if (p.lay(x_, nd, ignore_border, ws, stride, pad)) return -1;
    if (!p.fits(gz_)) return value_error("the gradient has not the shape of the output");
    Contiguous<T> gz(gz_);
    if (!gz.array || prepare(z, PyArray_NDIM(x_), PyArray_DIMS(x_), PyArray_TYPE(x_))) return -1;
    const T *g = gz.data();
    T *out = (T *)PyArray_DATA(*z);
    std::fill(out, out + PyArray_SIZE(*z), T(0));
    p.each_region([&](npy_intp image, npy_intp o, const npy_intp *region) {
        const T by = mode == POOL_SUM ? g[o] : g[o] / (T)p.divisor(mode, region);
        p.each_element(image, region, [&](npy_intp i) { out[i] += by; });
    });
    return 0;
}

template <typename T>
static int max_pool_grad_grad(int nd, bool ignore_border, PyArrayObject *x_, PyArrayObject *max_,
                              PyArrayObject *ggx_, PyArrayObject *ws, PyArrayObject *stride,
                              PyArrayObject *pad, PyArrayObject **z) {
    Pooling p;
    if (p.lay(x_, nd, ignore_border, ws, stride, pad)) return -1;
    if (!p.fits(max_)) return value_error("the maximum has not the shape of the output");
    if (!PyArray_SAMESHAPE(x_, ggx_)) return value_error("the tangent has not the shape of x");
    Contiguous<T> x(x_), max(max_), ggx(ggx_);
    if (!x.array || !max.array || !ggx.array ||
        prepare(z, PyArray_NDIM(x_), p.dims, PyArray_TYPE(x_)))
        return -1;
    const T *in = x.data(), *most = max.data(), *g = ggx.data();
    T *out = (T *)PyArray_DATA(*z);
    p.each_region([&](npy_intp image, npy_intp o, const npy_intp *region) {
        const T value = most[o];
        T sum = 0;
        p.each_element(image, region, [&](npy_intp i) {
            if (in[i] == value) sum += g[i];
        });
        out[o] = sum;
    });
    return 0;
}

template <typename T>
static int max_pool_rop(int nd, bool ignore_border, PyArrayObject *x_, PyArrayObject *ex_,
                        PyArrayObject *ws, PyArrayObject *stride, PyArrayObject *pad,
                        PyArrayObject **z) {
    Pooling p;
    if (p.lay(x_, nd, ignore_border, ws, stride, pad)) return -1;
    if (!PyArray_SAMESHAPE(x_, ex_)) return value_error("the tangent has not the shape of x");
    Contiguous<T> x(x_), ex(ex_);
    if (!x.array || !ex.array || prepare(z, PyArray_NDIM(x_), p.dims, PyArray_TYPE(x_))) return -1;
    const T *in = x.data(), *at = ex.data();
    T *out = (T *)PyArray_DATA(*z);
    p.each_region([&](npy_intp image, npy_intp o, const npy_intp *region) {
        const npy_intp best = argmax(p, in, image, region);
        out[o] = best < 0 ? T(0) : at[best];
    });
    return 0;
}

#endif
