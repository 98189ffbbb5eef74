/* Does an array hold a bad element?  One pass over its bits as integers.
 *
 * Without its sign bit a number is an integer that grows with its magnitude, and the exponents of
 * NaN and Inf are larger than all others.  So the largest word of an array, compared with a limit,
 * says whether it deserves a closer look, element by element.
 */
#define LANES 16
typedef int32_t lanes __attribute__((vector_size(4 * LANES)));

/* The largest of `max` and the words at `p`.  `wide` says that a number is two words, of which only
 * the high one counts. */
static int32_t scan_words(const char *p, npy_intp nwords, int wide, int32_t max) {
  const int32_t keep = 0x7fffffff, low = wide ? 0 : keep;
  npy_intp i = 0;
  if (nwords >= LANES) { /* below that, setting up and folding the vectors costs more */
    const lanes mask = {low, keep, low, keep, low, keep, low, keep,
                        low, keep, low, keep, low, keep, low, keep};
    lanes m0 = {0}, m1 = {0}, m2 = {0}, m3 = {0}, x0, x1, x2, x3;
    for (; i + 4 * LANES <= nwords; i += 4 * LANES) {
      memcpy(&x0, p + 4 * i, sizeof(lanes));
      memcpy(&x1, p + 4 * i + sizeof(lanes), sizeof(lanes));
      memcpy(&x2, p + 4 * i + 2 * sizeof(lanes), sizeof(lanes));
      memcpy(&x3, p + 4 * i + 3 * sizeof(lanes), sizeof(lanes));
      x0 &= mask; x1 &= mask; x2 &= mask; x3 &= mask;
      m0 = x0 > m0 ? x0 : m0;
      m1 = x1 > m1 ? x1 : m1;
      m2 = x2 > m2 ? x2 : m2;
      m3 = x3 > m3 ? x3 : m3;
    }
    for (; i + LANES <= nwords; i += LANES) {
      memcpy(&x0, p + 4 * i, sizeof(lanes));
      x0 &= mask;
      m0 = x0 > m0 ? x0 : m0;
    }
    m0 = m1 > m0 ? m1 : m0;
    m2 = m3 > m2 ? m3 : m2;
    m0 = m2 > m0 ? m2 : m0;
    for (int j = 0; j < LANES; j++)
      if (m0[j] > max) max = m0[j];
  }
  for (i += wide ? 1 : 0; i < nwords; i += wide ? 2 : 1) {
    int32_t x;
    memcpy(&x, p + 4 * i, 4);
    x &= keep;
    max = x > max ? x : max;
  }
  return max;
}

/* Read as they were written, one by one: a vector would have to wait for the stores. */
static inline int32_t scan_few(const char *p, npy_intp n, int is_double) {
  const int32_t keep = 0x7fffffff;
  const int step = is_double ? 8 : 4;
  int32_t m0 = 0, m1 = 0, x, y;
  p += is_double ? 4 : 0;
  for (; n >= 2; n -= 2, p += 2 * step) {
    memcpy(&x, p, 4);
    memcpy(&y, p + step, 4);
    x &= keep;
    y &= keep;
    m0 = x > m0 ? x : m0;
    m1 = y > m1 ? y : m1;
  }
  if (n > 0) {
    memcpy(&x, p, 4);
    x &= keep;
    m0 = x > m0 ? x : m0;
  }
  return m0 > m1 ? m0 : m1;
}

static int32_t scan_half(const char *p, npy_intp n, int32_t so_far) {
  int16_t max = (int16_t)so_far;
  for (npy_intp i = 0; i < n; i++) {
    int16_t x;
    memcpy(&x, p + 2 * i, 2);
    x = (int16_t)(x & 0x7fff);
    max = x > max ? x : max;
  }
  return max;
}

typedef struct {
  int width; /* bytes of one real number: 2, 4 or 8; 0 for other types */
  int reals; /* real numbers to an element: 2 for complex */
} Layout;

static Layout layout_of(int type_num) {
  Layout l = {0, 1};
  switch (type_num) {
    case NPY_HALF: l.width = 2; break;
    case NPY_FLOAT: l.width = 4; break;
    case NPY_DOUBLE: l.width = 8; break;
    case NPY_CFLOAT: l.width = 4; l.reals = 2; break;
    case NPY_CDOUBLE: l.width = 8; l.reals = 2; break;
  }
  return l;
}

static int32_t scan_run(const char *p, npy_intp n, Layout layout, int32_t max) {
  const npy_intp reals = n * layout.reals;
  if (layout.width == 2) return scan_half(p, reals, max);
  if (layout.width == 4) return scan_words(p, reals, 0, max);
  return scan_words(p, 2 * reals, 1, max);
}

static int32_t scan_strided(const char *p, int nd, const npy_intp *shape, const npy_intp *strides,
                            Layout layout, int32_t max) {
  const npy_intp item = (npy_intp)layout.width * layout.reals;
  if (nd == 0) return scan_run(p, 1, layout, max);
  if (nd == 1 && strides[0] == item) return scan_run(p, shape[0], layout, max);
  for (npy_intp i = 0; i < shape[0]; i++)
    max = scan_strided(p + i * strides[0], nd - 1, shape + 1, strides + 1, layout, max);
  return max;
}

/* Axes in order of decreasing stride, all strides positive, repeated elements left out. */
static int32_t scan_array(PyArrayObject *a, Layout layout) {
  if (PyArray_IS_C_CONTIGUOUS(a) || PyArray_IS_F_CONTIGUOUS(a))
    return scan_run(PyArray_BYTES(a), PyArray_SIZE(a), layout, 0);
  npy_intp shape[NPY_MAXDIMS], strides[NPY_MAXDIMS];
  const char *p = PyArray_BYTES(a);
  int nd = 0;
  for (int d = 0; d < PyArray_NDIM(a); d++) {
    npy_intp n = PyArray_DIM(a, d), s = PyArray_STRIDE(a, d);
    if (n == 0) return 0;
    if (n == 1 || s == 0) continue;
    if (s < 0) {
      p += (n - 1) * s;
      s = -s;
    }
    int at = nd++;
    for (; at > 0 && strides[at - 1] < s; at--) {
      strides[at] = strides[at - 1];
      shape[at] = shape[at - 1];
    }
    strides[at] = s;
    shape[at] = n;
  }
  return scan_strided(p, nd, shape, strides, layout, 0);
}

/* What is bad, and the words above which an array deserves a closer look. */
typedef struct {
  int nan, inf, big, ints;
  double limit;
  int32_t stop16, stop32, stop64, cstop32, cstop64; /* c: of the parts of complex numbers */
} Limits;

static int32_t word_below(double limit, int width) {
  /* the largest word that needs no closer look, when finite values up to `limit` are good */
  if (width == 8) {
    uint64_t bits;
    memcpy(&bits, &limit, 8);
    return (int32_t)(bits >> 32) - 1;
  }
  float f = limit >= FLT_MAX ? FLT_MAX : (float)limit;
  if ((double)f > limit) f = nextafterf(f, 0.0f);
  int32_t bits;
  memcpy(&bits, &f, 4);
  return bits;
}

static void set_stops(Limits *l) {
  l->stop16 = 0x7bff; /* float16 ends at 65504 */
  l->stop32 = l->cstop32 = 0x7f7fffff;
  l->stop64 = l->cstop64 = 0x7fefffff;
  if (l->big) {
    if (l->limit < 65504.0) l->stop16 = -1;
    l->stop32 = word_below(l->limit, 4);
    l->stop64 = word_below(l->limit, 8);
    l->cstop32 = word_below(l->limit / 1.5, 4); /* the modulus is at most sqrt(2) parts */
    l->cstop64 = word_below(l->limit / 1.5, 8);
  }
}

/* The exact answer, element by element; reached only when a scan found something.  The flags stay as
 * they are: those of nodes that ran before are read later, and NumPy clears them when it casts. */
static int closer_look(const Limits *l, PyArrayObject *a) {
  const unsigned flags = read_flags();
  int is_complex = PyArray_ISCOMPLEX(a), bad = 0;
  PyArrayObject *d = (PyArrayObject *)PyArray_FROMANY(
      (PyObject *)a, is_complex ? NPY_CDOUBLE : NPY_DOUBLE, 0, 0,
      NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST);
  if (d == NULL) return -1;
  const double *p = (const double *)PyArray_DATA(d);
  npy_intp n = PyArray_SIZE(d);
  for (npy_intp i = 0; i < n && !bad; i++) {
    double x = is_complex ? p[2 * i] : p[i], y = is_complex ? p[2 * i + 1] : 0.0;
    if (isnan(x) || isnan(y)) bad = l->nan;
    else if (isinf(x) || isinf(y)) bad = l->inf || l->big;
    else bad = l->big && (is_complex ? hypot(x, y) : fabs(x)) > l->limit;
  }
  Py_DECREF(d);
  clear_flags();
  raise_flags(flags);
  return bad;
}

#define SCAN_INTS(type)                                                        \
  for (npy_intp i = 0; i < n && !bad; i++) {                                   \
    type x;                                                                    \
    memcpy(&x, p + i * sizeof(type), sizeof(type));                            \
    bad = fabs((double)x) > l->limit;                                          \
  }

static int scan_ints(const Limits *l, PyArrayObject *a) {
  PyArrayObject *c = (PyArrayObject *)PyArray_GETCONTIGUOUS(a);
  if (c == NULL) return -1;
  const char *p = PyArray_BYTES(c);
  npy_intp n = PyArray_SIZE(c);
  int bad = 0;
  switch (PyArray_TYPE(c)) {
    case NPY_BYTE: SCAN_INTS(npy_byte) break;
    case NPY_UBYTE: SCAN_INTS(npy_ubyte) break;
    case NPY_SHORT: SCAN_INTS(npy_short) break;
    case NPY_USHORT: SCAN_INTS(npy_ushort) break;
    case NPY_INT: SCAN_INTS(npy_int) break;
    case NPY_UINT: SCAN_INTS(npy_uint) break;
    case NPY_LONG: SCAN_INTS(npy_long) break;
    case NPY_ULONG: SCAN_INTS(npy_ulong) break;
    case NPY_LONGLONG: SCAN_INTS(npy_longlong) break;
    case NPY_ULONGLONG: SCAN_INTS(npy_ulonglong) break;
  }
  Py_DECREF(c);
  return bad;
}

/* 1 if the array is bad, 0 if not, -1 with a Python exception. */
static int is_bad_array(const Limits *l, PyArrayObject *a) {
  const Layout layout = layout_of(PyArray_TYPE(a));
  if (layout.width == 0)
    return l->ints && l->big && PyTypeNum_ISINTEGER(PyArray_TYPE(a)) ? scan_ints(l, a) : 0;
  const int32_t stop = layout.width == 2   ? l->stop16
                       : layout.width == 4 ? (layout.reals == 2 ? l->cstop32 : l->stop32)
                                           : (layout.reals == 2 ? l->cstop64 : l->stop64);
  return scan_array(a, layout) > stop ? closer_look(l, a) : 0;
}
