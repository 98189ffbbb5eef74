/* Does an array hold a bad element?  One pass over its bits as integers.
 *
 * Without its sign bit a number is an integer that grows with its magnitude, and the exponents of
 * NaN and Inf are larger than all others.  So the largest magnitude, compared with a limit, says
 * whether an array deserves a closer look, element by element.  The top 16 bits of each number are
 * enough for that, since they hold its exponent, and all processors have an instruction for the
 * larger of two vectors of 16-bit integers (that for 32 bits is not in plain x86-64).
 */
#if defined(__AVX512BW__)
#define VECTOR 64
#elif defined(__AVX2__)
#define VECTOR 32
#else
#define VECTOR 16
#endif
/* A wider vector than the processor's registers would be taken apart into single elements. */
typedef int16_t words __attribute__((vector_size(VECTOR)));
typedef uint64_t quads __attribute__((vector_size(VECTOR)));
typedef int16_t few_words __attribute__((vector_size(16)));

static inline words larger(words a, words b) { return a > b ? a : b; }

static inline words load_words(const char *p, words mask) {
  words x;
  memcpy(&x, p, VECTOR);
  return x & mask;
}

static inline int largest_of(words all) {
  few_words parts[VECTOR / 16], few;
  memcpy(parts, &all, VECTOR);
  few = parts[0];
  for (int i = 1; i < VECTOR / 16; i++) few = parts[i] > few ? parts[i] : few;
  int max = 0;
  for (int i = 0; i < 8; i++) max = few[i] > max ? few[i] : max;
  return max;
}

/* The largest top word, without its sign, of `n` numbers of `width` bytes, `step` bytes apart.  They
 * are read as they were written, one by one: a vector would have to wait for the stores. */
static inline int scan_few(const char *p, npy_intp n, npy_intp step, int width) {
  int max0 = 0, max1 = 0;
  int16_t x, y;
  for (p += width - 2; n >= 2; n -= 2, p += 2 * step) {
    memcpy(&x, p, 2);
    memcpy(&y, p + step, 2);
    x &= 0x7fff;
    y &= 0x7fff;
    max0 = x > max0 ? x : max0;
    max1 = y > max1 ? y : max1;
  }
  if (n > 0) {
    memcpy(&x, p, 2);
    x &= 0x7fff;
    max0 = x > max0 ? x : max0;
  }
  return max0 > max1 ? max0 : max1;
}

/* The same of numbers in a row. */
static int scan_numbers(const char *p, npy_intp n, int width) {
  const npy_intp size = n * width;
  if (size < VECTOR) return scan_few(p, n, width, width);
  const uint64_t top = 0x7fff, keep = width == 2   ? top | top << 16 | top << 32 | top << 48
                                     : width == 4 ? top << 16 | top << 48
                                                  : top << 48;
  const words mask = (words)((quads){0} + keep);
  words m0 = {0}, m1 = {0}, m2 = {0}, m3 = {0};
  npy_intp at = 0;
  for (; at + 4 * VECTOR <= size; at += 4 * VECTOR) {
    m0 = larger(m0, load_words(p + at, mask));
    m1 = larger(m1, load_words(p + at + VECTOR, mask));
    m2 = larger(m2, load_words(p + at + 2 * VECTOR, mask));
    m3 = larger(m3, load_words(p + at + 3 * VECTOR, mask));
  }
  for (; at + VECTOR <= size; at += VECTOR) m0 = larger(m0, load_words(p + at, mask));
  m1 = larger(m1, load_words(p + size - VECTOR, mask)); /* (the last overlaps the one before) */
  return largest_of(larger(larger(m0, m1), larger(m2, m3)));
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

/* Which numbers of one width are bad, by their bits without the sign. */
typedef struct {
  uint64_t good, top;  /* bad are those above `good`, up to `top` */
  uint64_t infinity;
  int stop, part_stop; /* the largest top word that needs no closer look; of a part of a complex */
} Range;

/* What is bad. */
typedef struct {
  int nan, inf, big, ints;
  double limit;
  Range ranges[9]; /* by width */
} Limits;

/* The bits of the largest finite number that is not above `limit`.  From bits alone: a process may
 * take subnormal numbers for zero. */
static uint64_t bits_up_to(double limit, int exponent_bits, int fraction_bits) {
  uint64_t bits;
  memcpy(&bits, &limit, 8);
  const int last = (1 << exponent_bits) - 1;
  const int exponent = (int)(bits >> 52) - 1023 + last / 2, lost = 52 - fraction_bits;
  const uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
  if (exponent >= last) return ((uint64_t)last << fraction_bits) - 1;
  if (exponent > 0) return ((uint64_t)exponent << fraction_bits) | (fraction >> lost);
  if (exponent_bits == 11) return fraction;
  return lost + 1 - exponent < 64 ? (fraction | (uint64_t)1 << 52) >> (lost + 1 - exponent) : 0;
}

static void set_ranges(Limits *l) {
  static const struct {
    int width, exponent_bits, fraction_bits;
  } formats[] = {{2, 5, 10}, {4, 8, 23}, {8, 11, 52}};
  for (int i = 0; i < 3; i++) {
    const int width = formats[i].width, shift = 8 * width - 16;
    const int exponent_bits = formats[i].exponent_bits, fraction_bits = formats[i].fraction_bits;
    Range *r = &l->ranges[width];
    r->infinity = (((uint64_t)1 << exponent_bits) - 1) << fraction_bits;
    r->top = l->nan ? UINT64_MAX : r->infinity;
    uint64_t part = r->good = l->inf ? r->infinity - 1 : r->infinity;
    if (l->big) {
      r->good = bits_up_to(l->limit, exponent_bits, fraction_bits);
      part = bits_up_to(l->limit / 1.5, exponent_bits, fraction_bits); /* |z| <= sqrt(2) parts */
    }
    r->stop = (int)((r->good + 1) >> shift) - 1;
    r->part_stop = (int)((part + 1) >> shift) - 1;
  }
}

static inline uint64_t magnitude(const char *p, int width) {
  uint64_t bits;
  uint32_t bits32;
  uint16_t bits16;
  if (width == 8) {
    memcpy(&bits, p, 8);
  } else if (width == 4) {
    memcpy(&bits32, p, 4);
    bits = bits32;
  } else {
    memcpy(&bits16, p, 2);
    bits = bits16;
  }
  return bits & (((uint64_t)1 << (8 * width - 1)) - 1);
}

static double part_of(const char *p, int width) {
  double x = 0.0;
  float f;
  if (width == 8) {
    memcpy(&x, p, 8);
  } else {
    memcpy(&f, p, 4);
    x = f;
  }
  return x;
}

static int is_bad_complex(const Limits *l, const char *p, int width) {
  const uint64_t infinity = l->ranges[width].infinity;
  const uint64_t x = magnitude(p, width), y = magnitude(p + width, width);
  const int is_nan = x > infinity || y > infinity;
  if (is_nan && l->nan) return 1;
  if (x == infinity || y == infinity) return l->big || (l->inf && !is_nan);
  return l->big && !is_nan && hypot(part_of(p, width), part_of(p + width, width)) > l->limit;
}

/* The exact answer, element by element. */
static int look_at_row(const Limits *l, const char *p, npy_intp n, npy_intp step, Layout layout) {
  const Range *r = &l->ranges[layout.width];
  int bad = 0;
  for (npy_intp i = 0; i < n && !bad; i++, p += step) {
    if (layout.reals == 2) {
      bad = is_bad_complex(l, p, layout.width);
    } else {
      const uint64_t bits = magnitude(p, layout.width);
      bad = bits > r->good && bits <= r->top;
    }
  }
  return bad;
}

static int scan_row(const char *p, npy_intp n, npy_intp step, Layout layout) {
  if (step == layout.width * layout.reals) return scan_numbers(p, n * layout.reals, layout.width);
  int max = 0;
  for (int i = 0; i < layout.reals; i++) {
    const int found = scan_few(p + i * layout.width, n, step, layout.width);
    max = found > max ? found : max;
  }
  return max;
}

/* The largest top word; with limits, whether an element is bad. */
static int scan_axes(const char *p, int nd, const npy_intp *shape, const npy_intp *strides,
                     Layout layout, const Limits *exact) {
  if (nd == 1)
    return exact ? look_at_row(exact, p, shape[0], strides[0], layout)
                 : scan_row(p, shape[0], strides[0], layout);
  int max = 0;
  for (npy_intp i = 0; i < shape[0] && !(exact && max); i++) {
    const int found = scan_axes(p + i * strides[0], nd - 1, shape + 1, strides + 1, layout, exact);
    max = found > max ? found : max;
  }
  return max;
}

/* Axes in order of decreasing stride, all strides positive, repeated elements left out. */
static int scan_array(PyArrayObject *a, Layout layout, const Limits *exact) {
  npy_intp shape[NPY_MAXDIMS + 1], strides[NPY_MAXDIMS + 1];
  const char *p = PyArray_BYTES(a);
  int nd = 0;
  if (PyArray_IS_C_CONTIGUOUS(a) || PyArray_IS_F_CONTIGUOUS(a)) {
    shape[0] = PyArray_SIZE(a);
    strides[0] = layout.width * layout.reals;
    return scan_axes(p, 1, shape, strides, layout, exact);
  }
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
  if (nd == 0) shape[nd++] = 1;
  return scan_axes(p, nd, shape, strides, layout, exact);
}

/* Reached only when a scan found something.  The flags stay as they are: those of nodes that ran
 * before are read later. */
static int closer_look(const Limits *l, PyArrayObject *a, Layout layout) {
  const unsigned flags = read_flags();
  const int bad = scan_array(a, layout, l);
  clear_flags();
  raise_flags(flags);
  return bad;
}

/* Compared as integers, which makes the faster vectors, unless the conversion to double rounds.  (No
 * early exit: it would keep the compiler from making any.) */
#define SCAN_INTS(type, max)                                                   \
  if (limit < (double)(max) + 1.0) {                                           \
    const int rounds = sizeof(type) == 8 && limit >= 9007199254740992.0;       \
    const type high = limit < (double)(max) ? (type)limit : (max);             \
    const type low = (type)-1 < 0 ? (type)-high : 0;                           \
    type x;                                                                    \
    type found = 0; /* (as wide as the numbers) */                             \
    for (npy_intp i = 0; i < n && !rounds; i++) {                              \
      memcpy(&x, p + i * sizeof(type), sizeof(type));                          \
      found |= (type)((x > high) | (x < low));                                 \
    }                                                                          \
    bad = found != 0;                                                          \
    for (npy_intp i = 0; i < n && rounds; i++) {                               \
      memcpy(&x, p + i * sizeof(type), sizeof(type));                          \
      bad |= fabs((double)x) > limit;                                          \
    }                                                                          \
  }                                                                            \
  break;

static int scan_ints(const Limits *l, PyArrayObject *a) {
  PyArrayObject *c = (PyArrayObject *)PyArray_GETCONTIGUOUS(a);
  if (c == NULL) return -1;
  const char *p = PyArray_BYTES(c);
  const npy_intp n = PyArray_SIZE(c);
  const double limit = l->limit;
  int bad = 0;
  switch (PyArray_TYPE(c)) {
    case NPY_BYTE: SCAN_INTS(npy_byte, NPY_MAX_BYTE)
    case NPY_UBYTE: SCAN_INTS(npy_ubyte, NPY_MAX_UBYTE)
    case NPY_SHORT: SCAN_INTS(npy_short, NPY_MAX_SHORT)
    case NPY_USHORT: SCAN_INTS(npy_ushort, NPY_MAX_USHORT)
    case NPY_INT: SCAN_INTS(npy_int, NPY_MAX_INT)
    case NPY_UINT: SCAN_INTS(npy_uint, NPY_MAX_UINT)
    case NPY_LONG: SCAN_INTS(npy_long, NPY_MAX_LONG)
    case NPY_ULONG: SCAN_INTS(npy_ulong, NPY_MAX_ULONG)
    case NPY_LONGLONG: SCAN_INTS(npy_longlong, NPY_MAX_LONGLONG)
    case NPY_ULONGLONG: SCAN_INTS(npy_ulonglong, NPY_MAX_ULONGLONG)
  }
  Py_DECREF(c);
  return bad;
}

/* 1 if the array is bad, 0 if not, -1 with a Python exception. */
static int is_bad_array(const Limits *l, PyArrayObject *a) {
  const Layout layout = layout_of(PyArray_TYPE(a));
  if (layout.width == 0)
    return l->ints && l->big && PyTypeNum_ISINTEGER(PyArray_TYPE(a)) ? scan_ints(l, a) : 0;
  const Range *r = &l->ranges[layout.width];
  const int stop = layout.reals == 2 ? r->part_stop : r->stop;
  return scan_array(a, layout, NULL) > stop ? closer_look(l, a, layout) : 0;
}
