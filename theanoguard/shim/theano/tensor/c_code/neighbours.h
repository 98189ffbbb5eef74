/* Patches of images as rows of a matrix. */
#ifndef THEANOGUARD_NEIGHBOURS_H
#define THEANOGUARD_NEIGHBOURS_H

/* In the order of MODES in neighbours.py. */
enum Neighbours { NEIBS_VALID, NEIBS_HALF, NEIBS_FULL, NEIBS_WRAP_CENTERED, NEIBS_IGNORE_BORDERS };

/* The number of patches along one axis and the elements before the first one that lie outside
 * of the image; -1 with an exception set where the sizes do not agree. */
static int lay_patches(int mode, int axis, npy_intp size, npy_intp patch, npy_intp step,
                       npy_intp *grid, npy_intp *before) {
    if (step <= 0 || patch <= 0)
        return value_error("neib_shape or neib_step has values <= 0");
    npy_intp span = size - patch;
    *before = 0;
    if (mode == NEIBS_HALF) {
        *before = patch / 2;
        span = size - patch % 2;
    } else if (mode == NEIBS_FULL) {
        *before = patch - 1;
        span = size + patch - 2;
    } else if (mode == NEIBS_WRAP_CENTERED) {
        *before = patch / 2;
        span = size - 1;
    }
    if (mode == NEIBS_WRAP_CENTERED) {
        if (patch % 2 != 1 || size < patch) {
            PyErr_Format(PyExc_TypeError,
                         "Images2Neibs: mode wrap_centered needs patches of odd shape that fit "
                         "into the image; got %ld for an image of %ld",
                         (long)patch, (long)size);
            return -1;
        }
    } else if (mode != NEIBS_IGNORE_BORDERS && (size < patch || span % step)) {
        PyErr_Format(PyExc_TypeError,
                     "neib_shape[%d]=%ld, neib_step[%d]=%ld and ten4.shape[%d]=%ld not consistent",
                     axis, (long)patch, axis, (long)step, axis + 2, (long)size);
        return -1;
    }
    *grid = span < 0 ? 0 : 1 + span / step;
    return 0;
}

template <typename T>
static int images2neibs(int mode, PyArrayObject *images, const npy_intp *patch,
                        const npy_intp *step, PyArrayObject **z) {
    const npy_intp *dims = PyArray_DIMS(images);
    npy_intp grid[2], before[2];
    for (int i = 0; i < 2; ++i)
        if (lay_patches(mode, i, dims[i + 2], patch[i], step[i], grid + i, before + i)) return -1;
    npy_intp shape[2] = {dims[0] * dims[1] * grid[0] * grid[1], patch[0] * patch[1]};
    if (prepare(z, 2, shape, PyArray_TYPE(images))) return -1;
    T *out = (T *)PyArray_DATA(*z);
    const bool wraps = mode == NEIBS_WRAP_CENTERED;
    for (npy_intp n = 0; n < dims[0]; ++n)
        for (npy_intp s = 0; s < dims[1]; ++s)
            for (npy_intp a = 0; a < grid[0]; ++a)
                for (npy_intp b = 0; b < grid[1]; ++b)
                    for (npy_intp i = 0; i < patch[0]; ++i) {
                        npy_intp row = a * step[0] + i - before[0];
                        if (wraps) row = (row + dims[2]) % dims[2];
                        for (npy_intp j = 0; j < patch[1]; ++j) {
                            npy_intp col = b * step[1] + j - before[1];
                            if (wraps) col = (col + dims[3]) % dims[3];
                            const bool in = row >= 0 && row < dims[2] && col >= 0 && col < dims[3];
                            *out++ = in ? *(T *)PyArray_GETPTR4(images, n, s, row, col) : T(0);
                        }
                    }
    return 0;
}

#endif
