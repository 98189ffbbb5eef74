/* A few elements of each of many arrays, evenly spread, and what they say of the array.
 *
 * One pass over `count` elements of each array.  Their positions depend on the shape alone, so that
 * two samples of one variable can be compared.
 */
/* smallest, largest, norm, share of zeros and of bad ones, distance, magnitude, size, mean */
#define N_FIGURES 9

/* The kind of an element and its bytes.  (C has several types of one size, and others on each platform.) */
#define SORT(kind, bytes) ((kind) << 5 | (bytes))

static inline double number_at(const char *p, int sort) {
  switch (sort) {
    case SORT('f', 8): { double x; memcpy(&x, p, 8); return x; }
    case SORT('f', 4): { float x; memcpy(&x, p, 4); return x; }
    case SORT('b', 1): case SORT('u', 1): return *(const uint8_t *)p;
    case SORT('u', 2): { uint16_t x; memcpy(&x, p, 2); return x; }
    case SORT('u', 4): { uint32_t x; memcpy(&x, p, 4); return x; }
    case SORT('u', 8): { uint64_t x; memcpy(&x, p, 8); return (double)x; }
    case SORT('i', 1): return *(const int8_t *)p;
    case SORT('i', 2): { int16_t x; memcpy(&x, p, 2); return x; }
    case SORT('i', 4): { int32_t x; memcpy(&x, p, 4); return x; }
    default: { int64_t x; memcpy(&x, p, 8); return (double)x; }
  }
}

/* The sort of the elements of an array, or 0 if `number_at` does not read them. */
static inline int sort_of(PyObject *value) {
  if (!PyArray_Check(value) || PyArray_ISBYTESWAPPED((PyArrayObject *)value)) return 0;
  const char kind = PyArray_DESCR((PyArrayObject *)value)->kind;
  const int bytes = (int)PyArray_ITEMSIZE((PyArrayObject *)value);
  const int is_read = kind == 'f' ? bytes == 4 || bytes == 8 : kind == 'b' || kind == 'i' || kind == 'u';
  return is_read ? SORT(kind, bytes) : 0;
}

static inline const char *element(PyArrayObject *a, npy_intp at) {
  if (PyArray_IS_C_CONTIGUOUS(a)) return PyArray_BYTES(a) + at * PyArray_ITEMSIZE(a);
  const char *p = PyArray_BYTES(a);
  for (int d = PyArray_NDIM(a) - 1; d >= 0; d--) {
    p += at % PyArray_DIM(a, d) * PyArray_STRIDE(a, d);
    at /= PyArray_DIM(a, d);
  }
  return p;
}

/* The largest magnitude in an array, to the precision of its top 16 bits; 0 if that is not known. */
static inline double magnitude_of(PyArrayObject *a, npy_intp size) {
  const int sort = sort_of((PyObject *)a), width = (int)PyArray_ITEMSIZE(a);
  if (!PyArray_IS_C_CONTIGUOUS(a) || sort != SORT('f', width)) return 0;
  const uint64_t top = (uint64_t)scan_numbers(PyArray_BYTES(a), size, width);
  char number[8];
  if (width == 8) {
    const uint64_t bits = top << 48;
    memcpy(number, &bits, 8);
  } else {
    const uint32_t bits = (uint32_t)top << 16;
    memcpy(number, &bits, 4);
  }
  return number_at(number, sort);
}

/* sample(values, first, out, figures, before, n_whole): elements of values[i] go to out from first[i] on, up
 * to the last place before first[i + 1], which holds the size of the array.  What they say goes to row i of
 * figures.  `before` is None or another `out`, from which the distance is taken where the sizes agree.  All
 * elements of the first n_whole arrays of floats are read for their largest magnitude, those of the others
 * only where they are few.  What is not known is NaN: of what is no array, all. */
static PyObject *py_sample(PyObject *self, PyObject *args) {
  PyObject *values, *first_o, *out_o, *figures_o, *before_o;
  Py_ssize_t n_whole;
  if (!PyArg_ParseTuple(args, "O!OOOOn", &PyList_Type, &values, &first_o, &out_o, &figures_o,
                        &before_o, &n_whole))
    return NULL;
  const npy_int64 *first = (npy_int64 *)PyArray_DATA((PyArrayObject *)first_o);
  double *out = (double *)PyArray_DATA((PyArrayObject *)out_o);
  double *figures = (double *)PyArray_DATA((PyArrayObject *)figures_o);
  const double *before =
      before_o == Py_None ? NULL : (double *)PyArray_DATA((PyArrayObject *)before_o);
  const Py_ssize_t n_values = PyList_GET_SIZE(values);
  if (n_values >= PyArray_SIZE((PyArrayObject *)first_o) ||
      n_values * N_FIGURES > PyArray_SIZE((PyArrayObject *)figures_o)) {
    PyErr_SetString(PyExc_ValueError, "there is no room for so many arrays");
    return NULL;
  }
  for (Py_ssize_t i = 0; i < n_values; i++, figures += N_FIGURES) {
    PyObject *value = PyList_GET_ITEM(values, i);
    double *to = out + first[i];
    const npy_intp room = first[i + 1] - first[i] - 1;
    memset(to, 0, (room + 1) * sizeof(double));
    for (int k = 0; k < N_FIGURES; k++) figures[k] = NAN;
    const int sort = sort_of(value);
    if (sort == 0) continue;
    PyArrayObject *a = (PyArrayObject *)value;
    const npy_intp size = PyArray_SIZE(a), n = size < room ? size : room;
    double least = INFINITY, most = -INFINITY, sum = 0, squares = 0, moved = 0;
    npy_intp zeros = 0, bad = 0;
    for (npy_intp j = 0; j < n; j++) {
      /* (the last element of each part, so that the very last one is among them) */
      const double x = number_at(element(a, (npy_int64)(j + 1) * size / n - 1), sort);
      const double d = before == NULL ? 0 : x - before[first[i] + j];
      to[j] = x;
      moved += d * d;
      zeros += x == 0;
      if (!isfinite(x)) { bad++; continue; }
      least = x < least ? x : least;
      most = x > most ? x : most;
      sum += x;
      squares += x * x;
    }
    figures[7] = to[room] = size;
    if (n == 0) continue;
    const double share = (double)size / n, sampled = bad == n ? 0 : fmax(-least, most),
                 all = i < n_whole && n < size ? magnitude_of(a, size) : 0;
    if (bad < n) {
      figures[0] = least;
      figures[1] = most;
      figures[8] = sum / (n - bad);
    }
    figures[2] = sqrt(squares * share);
    figures[3] = (double)zeros / n;
    figures[4] = bad == 0 && !isfinite(all) ? 1.0 / size : (double)bad / n;
    if (before != NULL && before[first[i] + room] == size) figures[5] = sqrt(moved * share);
    figures[6] = all > sampled ? all : sampled;
  }
  Py_RETURN_NONE;
}

