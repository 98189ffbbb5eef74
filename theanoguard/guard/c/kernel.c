/* The compiled check of theanoguard.
 *
 * PyTensor's C virtual machine calls every node as `int run(void *context)`.  Here each
 * such pair is wrapped in a pair of our own, so the whole loop stays in C and no op is
 * recompiled.  After the node ran, its outputs are shown to be clean in one of two ways:
 *
 * - by proof: an interval known to hold every input is carried through the operation
 *   (a short program written at compile time, see plan.py and intervals.py); if the
 *   interval of the output stays below the limits, no element can be bad and nothing is
 *   read;
 * - by a scan: one pass over the bits of the array.  It also yields the interval from
 *   which later proofs start.
 *
 * What enters a call is scanned before it starts, with two exceptions.  A large array that an
 * elementwise node reads first waits for it: the node is run block by block, and each block is
 * scanned while the processor's cache still holds it; so memory is read once, not twice.  And
 * a shared variable that holds what the last call has left there is not scanned again in most
 * calls (see Kept).
 *
 * Nodes that overwrite a shared variable are run last (the tail).  If proofs cover the
 * whole tail, nothing after the first overwrite can trip; otherwise what is about to be
 * overwritten is copied first, and put back when the call fails.
 *
 * The file is C in the common subset with C++, since PyTensor's toolchain compiles C++.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <numpy/arrayobject.h>

/* ------------------------------------------------------------------ intervals */

typedef struct {
  double lo, hi;
  int exact; /* from a scan of this very value, not from a chain of proofs */
} Interval;

static const Interval UNKNOWN = {-INFINITY, INFINITY, 0};

/* Opcodes of interval programs; intervals.py has the same list and checks the count. */
enum {
  OP_CONST, OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_NEG, OP_ABS, OP_SQR, OP_SQRT, OP_EXP,
  OP_EXPM1, OP_LOG, OP_LOG1P, OP_MAX, OP_MIN, OP_UNION, OP_SOFTPLUS, OP_RANGE, OP_MULDIM,
  OP_MULSIZE, OP_COUNT
};

typedef struct {
  int32_t op, dst, a, b, c, pad;
  double k, k2;
} Instr;

#define MAX_REGISTERS 64

/* Rounding of the real computation is covered by widening each result. */
static inline Interval widen(double lo, double hi, double eps) {
  Interval r;
  r.lo = lo - fabs(lo) * eps;
  r.hi = hi + fabs(hi) * eps;
  r.exact = 0;
  return r;
}

static inline double min2(double a, double b) { return a < b ? a : b; }
static inline double max2(double a, double b) { return a > b ? a : b; }

/* ------------------------------------------------------------------ the scan */

typedef int32_t v8 __attribute__((vector_size(32)));

typedef struct {
  int32_t max; /* largest word with the sign bit cleared */
  int neg;     /* some sign bit was set */
} Words;

/* `stride64` says that a number is two words, of which only the high one is looked at. */
static void scan_words(const char *p, npy_intp nwords, int stride64, Words *w) {
  const int32_t keep = 0x7fffffff, low = stride64 ? 0 : keep;
  const int32_t sign = (int32_t)0x80000000u, lowsign = stride64 ? 0 : sign;
  npy_intp i = 0;
  int32_t max = w->max, bits = 0;
  if (nwords >= 16) { /* below that, setting up and folding the vectors costs more */
    const v8 mask = {low, keep, low, keep, low, keep, low, keep};
    v8 m0 = {0}, m1 = {0}, m2 = {0}, m3 = {0}, s0 = {0}, s1 = {0}, x0, x1, x2, x3;
    for (; i + 32 <= nwords; i += 32) {
      memcpy(&x0, p + 4 * i, 32);
      memcpy(&x1, p + 4 * i + 32, 32);
      memcpy(&x2, p + 4 * i + 64, 32);
      memcpy(&x3, p + 4 * i + 96, 32);
      s0 |= x0 | x1;
      s1 |= x2 | x3;
      x0 &= mask; x1 &= mask; x2 &= mask; x3 &= mask;
      m0 = x0 > m0 ? x0 : m0;
      m1 = x1 > m1 ? x1 : m1;
      m2 = x2 > m2 ? x2 : m2;
      m3 = x3 > m3 ? x3 : m3;
    }
    for (; i + 8 <= nwords; i += 8) {
      memcpy(&x0, p + 4 * i, 32);
      s0 |= x0;
      x0 &= mask;
      m0 = x0 > m0 ? x0 : m0;
    }
    m0 = m1 > m0 ? m1 : m0;
    m2 = m3 > m2 ? m3 : m2;
    m0 = m2 > m0 ? m2 : m0;
    s0 |= s1;
    for (int j = 0; j < 8; j++) {
      if (m0[j] > max) max = m0[j];
      bits |= s0[j] & ((j & 1) ? sign : lowsign); /* only the sign bit of `bits` counts */
    }
  }
  const npy_intp step = stride64 ? 2 : 1;
  for (i += stride64 ? 1 : 0; i < nwords; i += step) {
    int32_t x;
    memcpy(&x, p + 4 * i, 4);
    bits |= x;
    x &= keep;
    max = x > max ? x : max;
  }
  w->max = max;
  w->neg |= bits < 0;
}

/* Read as they were written, one by one: a vector would have to wait for the stores. */
static inline void scan_few(const char *p, npy_intp n, int is_double, Words *w) {
  const int32_t keep = 0x7fffffff;
  const int step = is_double ? 8 : 4;
  int32_t m0 = 0, m1 = 0, bits = 0, x, y, z, t;
  p += is_double ? 4 : 0;
  for (; n >= 4; n -= 4, p += 4 * step) {
    memcpy(&x, p, 4);
    memcpy(&y, p + step, 4);
    memcpy(&z, p + 2 * step, 4);
    memcpy(&t, p + 3 * step, 4);
    bits |= x | y | z | t;
    x &= keep;
    y &= keep;
    z &= keep;
    t &= keep;
    m0 = x > m0 ? x : m0;
    m1 = y > m1 ? y : m1;
    m0 = z > m0 ? z : m0;
    m1 = t > m1 ? t : m1;
  }
  for (; n > 0; n--, p += step) {
    memcpy(&x, p, 4);
    bits |= x;
    x &= keep;
    m0 = x > m0 ? x : m0;
  }
  w->max = m0 > m1 ? m0 : m1;
  w->neg = bits < 0;
}

static void scan_half(const char *p, npy_intp n, Words *w) {
  int16_t max = (int16_t)w->max, bits = 0;
  for (npy_intp i = 0; i < n; i++) {
    int16_t x, y;
    memcpy(&x, p + 2 * i, 2);
    bits |= x;
    y = (int16_t)(x & 0x7fff);
    max = y > max ? y : max;
  }
  w->max = max;
  w->neg |= bits < 0;
}

typedef struct {
  int width;   /* bytes of one real number: 2, 4 or 8 */
  int reals;   /* real numbers to an element: 2 for complex */
} Layout;

static void scan_run(const char *p, npy_intp n, Layout layout, Words *w) {
  npy_intp reals = n * layout.reals;
  if (layout.width == 2) scan_half(p, reals, w);
  else if (layout.width == 4) scan_words(p, reals, 0, w);
  else scan_words(p, 2 * reals, 1, w);
}

static void scan_strided(const char *p, int nd, const npy_intp *shape, const npy_intp *strides,
                         Layout layout, Words *w) {
  npy_intp item = (npy_intp)layout.width * layout.reals;
  if (nd == 0) {
    scan_run(p, 1, layout, w);
  } else if (nd == 1 && strides[0] == item) {
    scan_run(p, shape[0], layout, w);
  } else {
    for (npy_intp i = 0; i < shape[0]; i++)
      scan_strided(p + i * strides[0], nd - 1, shape + 1, strides + 1, layout, w);
  }
}

/* Axes in order of decreasing stride, all strides positive, repeated elements left out. */
static void scan_array(PyArrayObject *a, Layout layout, Words *w) {
  if (PyArray_IS_C_CONTIGUOUS(a) || PyArray_IS_F_CONTIGUOUS(a)) {
    scan_run(PyArray_BYTES(a), PyArray_SIZE(a), layout, w);
    return;
  }
  npy_intp shape[NPY_MAXDIMS], strides[NPY_MAXDIMS];
  const char *p = PyArray_BYTES(a);
  int nd = 0;
  for (int d = 0; d < PyArray_NDIM(a); d++) {
    npy_intp n = PyArray_DIM(a, d), s = PyArray_STRIDE(a, d);
    if (n == 0) return;
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
  scan_strided(p, nd, shape, strides, layout, w);
}

/* ------------------------------------------------------------------ the guard of one function */

enum { TAIL_OPEN, TAIL_PROVED, TAIL_COPIED };

struct Node;

/* What is known of the value that a call has left in a shared variable.
 *
 * It is scanned again when the variable holds another array, when one of PROBES elements of
 * it has changed, and in every RESCAN-th call; so only a change of single elements, made
 * through a reference to the array (borrow=True), can go unseen, and for a few calls.
 */
typedef struct {
  int eligible;      /* a shared variable whose new value, if it gets one, has been checked */
  int becomes;       /* the slot of the new value; -1 if it has none, STAYS if there is no update */
  int age;           /* calls since the last scan */
  PyObject *array;   /* a weak reference, or NULL */
  uint64_t print;    /* of the elements that are probed */
  Interval interval; /* of the new value */
} Kept;

enum { STAYS = -2 };

#define KEPT_SIZE 4096 /* bytes: to scan less costs no more than to probe it */
#define PROBES 64
#define RESCAN 16

typedef struct {
  PyObject *cell; /* the storage: a list of one */
  int slot;       /* where the interval of its value is kept, or -1 */
  int output;     /* which output of the node */
} Check;

/* The check of an input of the function. */
typedef struct {
  PyObject *cell;
  int slot;
  int deferred; /* a node scans it block by block, if it is large */
  int pending;  /* one of the following */
  Kept kept;
} Input;

/* Of an input: has been scanned in this call; waits for its node, which must find it scanned;
 * holds what an earlier call has seen, and is scanned only to know whether it comes first. */
enum { SCANNED, WAITS, UNCHANGED };

typedef struct {
  PyObject *value;   /* the array that is about to be overwritten, or a Snapshot: it restores */
  PyObject *copy;    /* its old contents, or NULL */
} Undo;

typedef struct {
  PyObject_HEAD
  int nan, inf, big, ints, raising, looking;
  int step, start; /* of an inner graph: how often its nodes have run since the last start */
  double limit;
  int32_t stop16, stop32, stop64; /* words above this one deserve a closer look */
  int32_t cstop32, cstop64;       /* the same for the parts of complex numbers */
  int n_slots, n_inputs, n_tail, n_undo, undo_size, tail;
  Interval *slots;
  Input *inputs;
  struct Node **tail_nodes;
  Undo *undo;
  struct Chunk *chunk; /* which the next node is taken from */
  int node, output; /* the last trip */
  unsigned long long scans, proofs, bytes; /* counters since begin() was first called */
  unsigned long long memory, copied;       /* bytes: allocated here, copied in the last call */
  PyObject *report, *is_bad, *snapshot, *trip_type;
} Guard;

typedef struct Node {
  PyObject *error; /* must be first: the virtual machine reads the exception here */
  int (*run)(void *);
  void *context;
  Guard *guard;    /* borrowed: the thunk object keeps it alive */
  PyObject *cell;  /* of the first check, if any: up to here, all that most nodes need */
  int slot;
  int index, tail, counts;
  int runs, start; /* of an inner graph's node: how often it has run since that start */
  PyObject *thunk; /* what `run` belongs to, or what to call when there is no `run` */
  int n_checks, n_instr, n_inputs, n_outputs, n_cells, n_saves;
  double cap, eps; /* largest intermediate, and rounding, of the program */
  Check *checks;
  Instr *program;
  int *input_slots;
  int *output_slots, *output_registers;
  PyObject **cells; /* storage of the node's inputs, for sizes and closer looks */
  PyObject **saves; /* storage of the shared variables that the node overwrites */
  int n_sliced, n_made; /* nodes that may run in blocks: inputs that are cut, and outputs */
  PyObject **sliced, **made;
  int *entering;    /* to each cut input: which input of the function it is, or -1 */
  int *made_types;
  struct Chunk *chunk; /* where it lies */
} Node;

/* Nodes lie one after another, in the order in which they run, each on cache lines of its own: the
 * processor fetches them before they are asked for.  With memory of its own for each, thousands of
 * small nodes took several times as long for their checks.
 */
typedef struct Chunk {
  int live;  /* nodes in use, and one for the guard that takes nodes from here */
  int used, size;
} Chunk;

#define LINE 64
#define NODE_BYTES ((sizeof(Node) + LINE - 1) / LINE * LINE)

static void release_chunk(Chunk *chunk) {
  if (chunk != NULL && --chunk->live == 0) free(chunk);
}

static Node *new_node(Guard *g) {
  Chunk *chunk = g->chunk;
  if (chunk == NULL || chunk->used == chunk->size) {
    const int size = chunk == NULL ? 8 : chunk->size < 256 ? 2 * chunk->size : 256;
    chunk = (Chunk *)calloc(1, sizeof(Chunk) + LINE + size * NODE_BYTES);
    if (chunk == NULL) return NULL;
    release_chunk(g->chunk);
    g->chunk = chunk;
    chunk->live = 1;
    chunk->size = size;
    g->memory += sizeof(Chunk) + LINE + size * NODE_BYTES;
  }
  const uintptr_t first = ((uintptr_t)(chunk + 1) + LINE - 1) / LINE * LINE;
  Node *n = (Node *)(first + chunk->used++ * NODE_BYTES);
  n->chunk = chunk;
  chunk->live++;
  return n;
}

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

/* The exact answer, element by element; reached only when a scan found something. */
static int closer_look(Guard *g, PyArrayObject *a) {
  int is_complex = PyArray_ISCOMPLEX(a), bad = 0;
  PyArrayObject *d = (PyArrayObject *)PyArray_FROMANY(
      (PyObject *)a, is_complex ? NPY_CDOUBLE : NPY_DOUBLE, 0, 0,
      NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST);
  if (d == NULL) return -1;
  const double *p = (const double *)PyArray_DATA(d);
  npy_intp n = PyArray_SIZE(d);
  for (npy_intp i = 0; i < n && !bad; i++) {
    double x = is_complex ? p[2 * i] : p[i], y = is_complex ? p[2 * i + 1] : 0.0;
    if (isnan(x) || isnan(y)) bad = g->nan;
    else if (isinf(x) || isinf(y)) bad = g->inf || g->big;
    else bad = g->big && (is_complex ? hypot(x, y) : fabs(x)) > g->limit;
  }
  Py_DECREF(d);
  return bad;
}

#define SCAN_INTS(type)                                                        \
  for (npy_intp i = 0; i < n && !bad; i++) {                                   \
    type x;                                                                    \
    memcpy(&x, p + i * sizeof(type), sizeof(type));                            \
    bad = fabs((double)x) > g->limit;                                          \
  }

static int scan_ints(Guard *g, PyArrayObject *a) {
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

/* The interval of `size` floats or doubles, from their words. */
static inline void bound(const char *data, npy_intp size, int is_double, const Words *w,
                         Interval *interval) {
  double m;
  if (!is_double) {
    float f;
    memcpy(&f, &w->max, 4);
    m = f;
    if (!(m <= FLT_MAX)) m = INFINITY;
  } else if (w->max >= 0x7fefffff) {
    m = INFINITY;
  } else {
    uint64_t bits = ((uint64_t)(uint32_t)w->max + 1) << 32;
    memcpy(&m, &bits, 8);
  }
  interval->lo = w->neg ? -m : 0.0;
  interval->hi = m;
  interval->exact = 1;
  if (size == 1 && m < INFINITY) {
    double x;
    if (is_double) {
      memcpy(&x, data, 8);
    } else {
      float f;
      memcpy(&f, data, 4);
      x = f;
    }
    interval->lo = interval->hi = x;
  }
}

/* From the words of a whole array: 1 if it is bad, 0 if not, -1 with a Python exception. */
static int judge(Guard *g, PyArrayObject *a, Layout layout, const Words *w, Interval *interval) {
  int32_t stop = layout.width == 2 ? g->stop16
               : layout.width == 4 ? (layout.reals == 2 ? g->cstop32 : g->stop32)
                                   : (layout.reals == 2 ? g->cstop64 : g->stop64);
  if (w->max > stop) {
    int bad = closer_look(g, a);
    if (bad) return bad;
  }
  if (layout.reals == 1 && layout.width >= 4)
    bound(PyArray_BYTES(a), PyArray_SIZE(a), layout.width == 8, w, interval);
  return 0;
}

/* 1 if the value is bad, 0 if not, -1 with a Python exception. */
static int scan_value(Guard *g, PyObject *value, Interval *interval) {
  Interval ignored;
  if (interval == NULL) interval = &ignored;
  *interval = UNKNOWN;
  if (value == NULL || value == Py_None) return 0;
  if (!PyArray_Check(value)) { /* sparse, typed lists, scalars: decided in Python */
    PyObject *r = PyObject_CallOneArg(g->is_bad, value);
    if (r == NULL) return -1;
    int bad = PyObject_IsTrue(r);
    Py_DECREF(r);
    return bad;
  }
  PyArrayObject *a = (PyArrayObject *)value;
  int type_num = PyArray_TYPE(a);
  Layout layout = layout_of(type_num);
  g->scans++;
  if (layout.width == 0) {
    if (g->ints && g->big && PyTypeNum_ISINTEGER(type_num)) return scan_ints(g, a);
    return 0;
  }
  Words w = {0, 0};
  g->bytes += (unsigned long long)PyArray_NBYTES(a);
  scan_array(a, layout, &w);
  return judge(g, a, layout, &w, interval);
}

static inline PyObject *cell_value(PyObject *cell) { return PyList_GET_ITEM(cell, 0); }

/* ------------------------------------------------------------------ what enters a call */

static int scan_input(Guard *g, Input *c) {
  c->pending = SCANNED;
  c->kept.age = 0;
  return scan_value(g, cell_value(c->cell), c->slot >= 0 ? &g->slots[c->slot] : NULL);
}

/* The first of the inputs before `end` that wait and are bad; -1 if none, -2 with an exception.
 * With `all`, those are scanned too that have not changed. */
static int bad_pending(Guard *g, int end, int all) {
  for (int i = 0; i < end; i++) {
    if (g->inputs[i].pending == SCANNED || (g->inputs[i].pending == UNCHANGED && !all)) continue;
    int bad = scan_input(g, &g->inputs[i]);
    if (bad) return bad < 0 ? -2 : i;
  }
  return -1;
}

static uint64_t fingerprint(PyArrayObject *a) {
  const npy_intp words = PyArray_NBYTES(a) / 8, step = words / PROBES;
  const char *p = PyArray_BYTES(a);
  uint64_t print = 0, word;
  for (int i = 0; i < PROBES; i++) {
    memcpy(&word, p + 8 * (i * step + i % step), 8);
    print = (print << 7 | print >> 57) ^ word;
  }
  return print * 31 + (uint64_t)words;
}

static int is_kept(const Input *c, PyObject *value) {
  if (c->kept.array == NULL) return 0;
#if PY_VERSION_HEX >= 0x030D0000
  PyObject *array;
  if (PyWeakref_GetRef(c->kept.array, &array) < 0) PyErr_Clear();
  Py_XDECREF(array); /* the storage holds another reference, if it is the same */
  return array == value && value != NULL;
#else
  return PyWeakref_GetObject(c->kept.array) == value && value != NULL;
#endif
}

/* Whether the variable holds what the last call has left there, as far as is looked at. */
static int is_unchanged(Guard *g, Input *c) {
  PyObject *value = cell_value(c->cell);
  if (!is_kept(c, value) || c->kept.age + 1 >= RESCAN) return 0;
  if (c->slot >= 0 && !(g->slots[c->slot].hi < INFINITY)) return 0; /* proofs want its bounds */
  if (fingerprint((PyArrayObject *)value) != c->kept.print) return 0;
  c->kept.age++;
  return 1;
}

/* Remember what a call leaves in its shared variables. */
static int keep_values(Guard *g) {
  for (int i = 0; i < g->n_inputs; i++) { /* variables may exchange their values */
    Kept *k = &g->inputs[i].kept;
    if (k->eligible && k->becomes != STAYS)
      k->interval = k->becomes < 0 ? UNKNOWN : g->slots[k->becomes];
  }
  for (int i = 0; i < g->n_inputs; i++) {
    Input *c = &g->inputs[i];
    Kept *k = &c->kept;
    if (!k->eligible || (k->becomes == STAYS && c->pending == UNCHANGED)) continue;
    PyObject *value = cell_value(c->cell);
    PyArrayObject *a = (PyArrayObject *)value;
    if (value == NULL || !PyArray_CheckExact(value) || PyArray_NBYTES(a) < KEPT_SIZE ||
        !(PyArray_IS_C_CONTIGUOUS(a) || PyArray_IS_F_CONTIGUOUS(a))) {
      Py_CLEAR(k->array);
      continue;
    }
    if (k->becomes != STAYS && c->slot >= 0) g->slots[c->slot] = k->interval;
    if (!is_kept(c, value)) {
      Py_XSETREF(k->array, PyWeakref_NewRef(value, NULL));
      if (k->array == NULL) return -1;
    }
    k->print = fingerprint(a);
  }
  return 0;
}

static void forget_values(Guard *g) {
  for (int i = 0; i < g->n_inputs; i++) Py_CLEAR(g->inputs[i].kept.array);
}

/* ------------------------------------------------------------------ proofs */

static int eval_program(Guard *g, Node *n) {
  Interval r[MAX_REGISTERS];
  const double cap = n->cap, eps = n->eps;
  for (int i = 0; i < n->n_inputs; i++) {
    int slot = n->input_slots[i];
    if (slot < 0) { /* not used by the program */
      r[i].lo = r[i].hi = 0.0;
      continue;
    }
    r[i] = g->slots[slot];
    if (!(r[i].lo >= -cap && r[i].hi <= cap)) return 0;
  }
  for (int i = 0; i < n->n_instr; i++) {
    const Instr *q = &n->program[i];
    Interval a = {0, 0, 0}, b = {0, 0, 0}, d = {0, 0, 0};
    if (q->a >= 0) a = r[q->a];
    if (q->b >= 0 && q->op != OP_MULDIM && q->op != OP_MULSIZE) b = r[q->b];
    switch (q->op) {
      case OP_CONST: d.lo = q->k; d.hi = q->k2; break;
      case OP_ADD: d = widen(a.lo + b.lo, a.hi + b.hi, eps); break;
      case OP_SUB: d = widen(a.lo - b.hi, a.hi - b.lo, eps); break;
      case OP_MUL: {
        double p1 = a.lo * b.lo, p2 = a.lo * b.hi, p3 = a.hi * b.lo, p4 = a.hi * b.hi;
        d = widen(min2(min2(p1, p2), min2(p3, p4)), max2(max2(p1, p2), max2(p3, p4)), eps);
        break;
      }
      case OP_DIV: {
        if (b.lo <= 0.0 && b.hi >= 0.0) return 0;
        if (min2(fabs(b.lo), fabs(b.hi)) < 1.0 / cap) return 0; /* 1/b may overflow */
        double p1 = a.lo / b.lo, p2 = a.lo / b.hi, p3 = a.hi / b.lo, p4 = a.hi / b.hi;
        d = widen(min2(min2(p1, p2), min2(p3, p4)), max2(max2(p1, p2), max2(p3, p4)), eps);
        break;
      }
      case OP_NEG: d.lo = -a.hi; d.hi = -a.lo; break;
      case OP_ABS:
        d.hi = max2(fabs(a.lo), fabs(a.hi));
        d.lo = (a.lo <= 0.0 && a.hi >= 0.0) ? 0.0 : min2(fabs(a.lo), fabs(a.hi));
        break;
      case OP_SQR: {
        double h = max2(fabs(a.lo), fabs(a.hi));
        double l = (a.lo <= 0.0 && a.hi >= 0.0) ? 0.0 : min2(fabs(a.lo), fabs(a.hi));
        d = widen(l * l, h * h, eps);
        break;
      }
      case OP_SQRT:
        if (a.lo < 0.0) return 0;
        d = widen(sqrt(a.lo), sqrt(a.hi), eps);
        break;
      case OP_EXP:
        if (a.hi > 700.0) return 0;
        d = widen(0.0, exp(a.hi), eps + 1e-6);
        if (a.lo > -80.0) d.lo = exp(a.lo) * (1.0 - 1e-4);
        break;
      case OP_EXPM1:
        if (a.hi > 700.0) return 0;
        d = widen(-1.0, max2(expm1(a.hi), 0.0), eps + 1e-6);
        break;
      case OP_LOG:
        if (!(a.lo > 1.0 / cap)) return 0;
        d = widen(log(a.lo), log(a.hi), eps + 1e-6);
        d.lo -= 1e-6;
        d.hi += 1e-6;
        break;
      case OP_LOG1P:
        if (!(a.lo > -0.999)) return 0;
        d = widen(log1p(a.lo), log1p(a.hi), eps + 1e-6);
        break;
      case OP_MAX: d.lo = max2(a.lo, b.lo); d.hi = max2(a.hi, b.hi); break;
      case OP_MIN: d.lo = min2(a.lo, b.lo); d.hi = min2(a.hi, b.hi); break;
      case OP_UNION: d.lo = min2(a.lo, b.lo); d.hi = max2(a.hi, b.hi); break;
      case OP_SOFTPLUS: d = widen(0.0, max2(a.hi, 0.0) + 0.7, eps); break;
      case OP_RANGE: d.lo = q->k; d.hi = q->k2; break; /* whatever (known) a is */
      case OP_MULDIM:
      case OP_MULSIZE: {
        PyObject *value = cell_value(n->cells[q->b]);
        if (!PyArray_Check(value)) return 0;
        PyArrayObject *arr = (PyArrayObject *)value;
        double size;
        if (q->op == OP_MULSIZE) {
          size = (double)PyArray_SIZE(arr);
        } else {
          if (q->c >= PyArray_NDIM(arr)) return 0;
          size = (double)PyArray_DIM(arr, q->c);
        }
        if (size * eps > 0.25) return 0;
        d = widen(min2(0.0, size * a.lo), max2(0.0, size * a.hi), 2.0 * size * eps + eps);
        break;
      }
      default: return 0;
    }
    if (!(d.lo >= -cap && d.hi <= cap)) return 0; /* also when a bound is NaN */
    r[q->dst] = d;
  }
  const double limit = g->big ? min2(g->limit, cap) : cap;
  for (int i = 0; i < n->n_outputs; i++) {
    Interval d = r[n->output_registers[i]];
    if (!(d.lo >= -limit && d.hi <= limit)) return 0;
  }
  for (int i = 0; i < n->n_outputs; i++) {
    int slot = n->output_slots[i];
    if (slot >= 0) {
      g->slots[slot] = r[n->output_registers[i]];
      g->slots[slot].exact = 0;
    }
  }
  return 1;
}

/* Can anything after the first overwrite of a shared variable trip? */
static int prove_tail(Guard *g) {
  for (int i = 0; i < g->n_tail; i++)
    if (g->tail_nodes[i]->n_instr < 0) return TAIL_COPIED;
  for (int attempt = 0; attempt < 2; attempt++) {
    int ok = 1;
    for (int i = 0; i < g->n_tail && ok; i++) ok = eval_program(g, g->tail_nodes[i]);
    if (ok) {
      g->proofs += g->n_tail;
      return TAIL_PROVED;
    }
    if (attempt) break;
    /* Bounds that came through many operations are loose: look at the operands. */
    for (int i = 0; i < g->n_tail; i++) {
      Node *n = g->tail_nodes[i];
      for (int j = 0; j < n->n_inputs; j++) {
        int slot = n->input_slots[j];
        if (slot < 0 || g->slots[slot].exact) continue;
        PyObject *value = cell_value(n->cells[j]);
        Interval seen;
        if (!PyArray_Check(value)) continue;
        if (scan_value(g, value, &seen) == 0 && seen.exact) g->slots[slot] = seen;
        PyErr_Clear(); /* no proof is no error: the operand is scanned again after its node */
      }
    }
  }
  return TAIL_COPIED;
}

/* ------------------------------------------------------------------ the undo log */

static int push_undo(Guard *g, PyObject *cell) {
  PyObject *value = cell_value(cell), *copy = NULL;
  for (int i = 0; i < g->n_undo; i++)
    if (g->undo[i].value == value) return 0;
  if (g->n_undo == g->undo_size) {
    int size = g->undo_size ? 2 * g->undo_size : 8;
    Undo *bigger = (Undo *)realloc(g->undo, size * sizeof(Undo));
    if (bigger == NULL) {
      PyErr_NoMemory();
      return -1;
    }
    g->undo = bigger;
    g->undo_size = size;
  }
  if (PyArray_Check(value)) {
    copy = PyArray_NewCopy((PyArrayObject *)value, NPY_KEEPORDER);
    if (copy == NULL) return -1;
    g->copied += (unsigned long long)PyArray_NBYTES((PyArrayObject *)copy);
    Py_INCREF(value);
  } else {
    value = PyObject_CallFunctionObjArgs(g->snapshot, cell, NULL);
    if (value == NULL) return -1;
  }
  g->undo[g->n_undo].value = value;
  g->undo[g->n_undo].copy = copy;
  g->n_undo++;
  return 0;
}

static void clear_undo(Guard *g) {
  while (g->n_undo > 0) {
    g->n_undo--;
    Py_CLEAR(g->undo[g->n_undo].value);
    Py_CLEAR(g->undo[g->n_undo].copy);
  }
}

/* ------------------------------------------------------------------ running a node */

static void set_error(Node *n, PyObject *type, PyObject *value, PyObject *tb) {
  PyObject *parts[3] = {type, value, tb};
  for (int i = 0; i < 3; i++) {
    if (parts[i] == NULL) {
      parts[i] = Py_None;
      Py_INCREF(Py_None);
    }
    PyList_SetItem(n->error, i, parts[i]);
  }
}

static int pending_error(Node *n) {
  PyObject *type, *value, *tb;
  PyErr_Fetch(&type, &value, &tb);
  PyErr_NormalizeException(&type, &value, &tb);
  set_error(n, type, value, tb);
  return -1;
}

/* `node` is the index of a node, or BAD_INPUT less that of an input. */
enum { BAD_INPUT = -2 };

static int report(Node *n, int node, int output) {
  Guard *g = n->guard;
  g->node = node;
  g->output = output;
  if (g->raising) {
    Py_INCREF(g->trip_type);
    set_error(n, g->trip_type, NULL, NULL);
    return -1;
  }
  PyObject *r = PyObject_CallFunction(g->report, "ii", node, output);
  if (r == NULL) return pending_error(n);
  Py_DECREF(r);
  return 0;
}

/* Scan what still waits, or `all` that has not been: inputs are reported before any node. */
static int settle(Node *n, int all) {
  Guard *g = n->guard;
  for (;;) {
    int i = bad_pending(g, g->n_inputs, all);
    if (i == -1) return 0;
    if (i < 0) return pending_error(n);
    if (report(n, BAD_INPUT - i, 0)) return -1;
  }
}

static int found_bad(Node *n, int output) {
  if (settle(n, 1)) return -1;
  return report(n, n->index, output);
}

/* ------------------------------------------------------------------ block by block */

#define LARGE 16384        /* elements: below that, all is in the cache anyway */
#define BLOCK_BYTES 196608 /* of all operands of a block: measured, 96 to 256 KiB do about as well */

/* A view that can be moved over the elements of `a`, which is contiguous: one row of them. */
static PyArrayObject *window_of(PyArrayObject *a) {
  npy_intp shape[NPY_MAXDIMS], strides[NPY_MAXDIMS];
  PyArray_Descr *descr = PyArray_DESCR(a);
  int nd = PyArray_NDIM(a);
  for (int d = 0; d < nd; d++) {
    shape[d] = 1;
    strides[d] = PyArray_ITEMSIZE(a);
  }
  Py_INCREF(descr);
  return (PyArrayObject *)PyArray_NewFromDescr(&PyArray_Type, descr, nd, shape, strides,
                                               PyArray_DATA(a),
                                               PyArray_FLAGS(a) & ~NPY_ARRAY_OWNDATA, NULL);
}

static void move_window(PyArrayObject *window, PyArrayObject *whole, npy_intp at, npy_intp size) {
  PyArrayObject_fields *w = (PyArrayObject_fields *)window;
  w->data = PyArray_BYTES(whole) + at * PyArray_ITEMSIZE(whole);
  w->dimensions[w->nd - 1] = size;
}

static int is_plain(PyObject *value, PyArrayObject *like) {
  PyArrayObject *a = (PyArrayObject *)value;
  return value != NULL && PyArray_CheckExact(value) && PyArray_IS_C_CONTIGUOUS(a) &&
         PyArray_ISALIGNED(a) && PyArray_NDIM(a) > 0 && (like == NULL || PyArray_SAMESHAPE(a, like));
}

/* The array that output `i` of the node is written into: the old one where it fits. */
static PyArrayObject *made_array(Node *n, int i, PyArrayObject *like) {
  PyObject *old = cell_value(n->made[i]);
  if (is_plain(old, like) && PyArray_TYPE((PyArrayObject *)old) == n->made_types[i] &&
      PyArray_ISWRITEABLE((PyArrayObject *)old)) {
    Py_INCREF(old);
    return (PyArrayObject *)old;
  }
  return (PyArrayObject *)PyArray_EMPTY(PyArray_NDIM(like), PyArray_DIMS(like), n->made_types[i], 0);
}

static void put(PyObject *cell, PyArrayObject *value) {
  Py_INCREF(value);
  PyList_SetItem(cell, 0, (PyObject *)value);
}

#define MAX_OPERANDS 32

/* The cell of one of the operands that are cut: the inputs, then the outputs. */
static PyObject *cut_cell(const Node *n, int i) {
  return i < n->n_sliced ? n->sliced[i] : n->made[i - n->n_sliced];
}

/* A cut input if it waits for this node, or NULL. */
static Input *waiting_input(const Node *n, int i) {
  Input *c = n->entering[i] < 0 ? NULL : &n->guard->inputs[n->entering[i]];
  return c != NULL && c->pending == WAITS ? c : NULL;
}

/* Run an elementwise node block by block, and scan the inputs that wait for it.
 *
 * Returns 0 when it has run, another number when it failed, and NOT_RUN when it has to be
 * run in the ordinary way.
 */
enum { NOT_RUN = -1000 };

static int run_blocks(Node *n) {
  Guard *g = n->guard;
  const int n_all = n->n_sliced + n->n_made;
  PyArrayObject *whole[MAX_OPERANDS] = {NULL}, *window[MAX_OPERANDS] = {NULL};
  Words words[MAX_OPERANDS];
  PyArrayObject *first = NULL;
  npy_intp item_bytes = 0;
  int waiting = 0, status = NOT_RUN;
  for (int i = 0; i < n->n_sliced; i++)
    waiting |= waiting_input(n, i) != NULL;
  if (!waiting) return NOT_RUN;
  for (int i = 0; i < n_all; i++) {
    if (i < n->n_sliced) {
      PyObject *value = cell_value(n->sliced[i]);
      if (!is_plain(value, first)) goto done;
      Py_INCREF(value);
      whole[i] = (PyArrayObject *)value;
    } else {
      whole[i] = made_array(n, i - n->n_sliced, first);
    }
    if (whole[i] == NULL || (window[i] = window_of(whole[i])) == NULL) {
      PyErr_Clear(); /* out of memory: the node itself says so */
      goto done;
    }
    first = whole[0];
    words[i].max = words[i].neg = 0;
    item_bytes += PyArray_ITEMSIZE(whole[i]);
  }
  {
    const npy_intp total = PyArray_SIZE(first), size = BLOCK_BYTES / item_bytes;
    for (int i = 0; i < n_all; i++) put(cut_cell(n, i), window[i]);
    status = 0;
    for (npy_intp at = 0; at < total && status == 0; at += size) {
      npy_intp here = at + size <= total ? size : total - at;
      for (int i = 0; i < n_all; i++) move_window(window[i], whole[i], at, here);
      status = n->run(n->context);
      for (int i = 0; i < n->n_made; i++) /* the op must have written where it was told to */
        if (status == 0 && cell_value(n->made[i]) != (PyObject *)window[n->n_sliced + i])
          status = NOT_RUN;
      for (int i = 0; i < n->n_sliced && status == 0; i++)
        if (waiting_input(n, i) != NULL)
          scan_run(PyArray_BYTES(window[i]), PyArray_SIZE(window[i]),
                   layout_of(PyArray_TYPE(window[i])), &words[i]);
    }
    for (int i = 0; i < n_all; i++) put(cut_cell(n, i), whole[i]);
  }
  for (int i = 0; i < n->n_sliced && status == 0; i++) {
    Input *c = waiting_input(n, i);
    Interval seen = UNKNOWN;
    if (c == NULL) continue;
    g->scans++;
    g->bytes += (unsigned long long)PyArray_NBYTES(whole[i]);
    int bad = judge(g, whole[i], layout_of(PyArray_TYPE(whole[i])), &words[i], &seen);
    if (bad) {
      status = bad < 0 ? pending_error(n) : settle(n, 1); /* which goes in the order of the inputs */
    } else {
      c->pending = SCANNED;
      c->kept.age = 0;
      if (c->slot >= 0) g->slots[c->slot] = seen;
    }
  }
done:
  for (int i = 0; i < n_all; i++) {
    Py_XDECREF(window[i]);
    Py_XDECREF(whole[i]);
  }
  return status;
}

/* ------------------------------------------------------------------ running a node */

#define SMALL 48 /* elements: scanning this many costs about as much as a proof */

/* The general way to look at what a node has made. */
static int check_outputs(Node *n) {
  Guard *g = n->guard;
  if (n->n_instr >= 0) {
    PyObject *value = n->n_checks ? cell_value(n->checks[0].cell) : NULL;
    int small = value != NULL && PyArray_Check(value) && PyArray_SIZE((PyArrayObject *)value) <= SMALL;
    if (!small && eval_program(g, n)) {
      g->proofs++;
      return 0;
    }
    /* outputs without a check must not keep the interval of another call */
    for (int i = 0; i < n->n_outputs; i++)
      if (n->output_slots[i] >= 0) g->slots[n->output_slots[i]] = UNKNOWN;
  }
  for (int i = 0; i < n->n_checks; i++) {
    Check *c = &n->checks[i];
    int bad = scan_value(g, cell_value(c->cell), c->slot >= 0 ? &g->slots[c->slot] : NULL);
    if (bad < 0) return pending_error(n);
    if (bad && found_bad(n, c->output)) return -1;
  }
  return 0;
}

/* In each step a node of an inner graph runs once, in whatever order. */
static inline void count_run(Node *n) {
  Guard *g = n->guard;
  if (n->start != g->start) {
    n->start = g->start;
    n->runs = 0;
  }
  if (++n->runs > g->step) g->step = n->runs;
}

/* A node with one output and nothing else to watch: most nodes of most graphs.
 * A small vector of doubles or floats, the commonest value of all, is scanned on the spot.
 */
static int simple_run(void *p) {
  Node *n = (Node *)p;
  Guard *g = n->guard;
  int failed = n->run(n->context);
  if (failed || !g->looking) return failed;
  PyObject *value = cell_value(n->cell);
  if (value != NULL && PyArray_CheckExact(value)) {
    PyArrayObject *a = (PyArrayObject *)value;
    int nd = PyArray_NDIM(a), type_num = PyArray_TYPE(a), slot = n->slot;
    npy_intp size = nd == 0 ? 1 : PyArray_DIM(a, 0);
    if (nd <= 1 && size <= SMALL && (type_num == NPY_DOUBLE || type_num == NPY_FLOAT) &&
        PyArray_IS_C_CONTIGUOUS(a)) {
      const int is_double = type_num == NPY_DOUBLE;
      Words w = {0, 0};
      scan_few(PyArray_BYTES(a), size, is_double, &w);
      if (w.max <= (is_double ? g->stop64 : g->stop32)) {
        g->scans++;
        g->bytes += (unsigned long long)(is_double ? 8 * size : 4 * size);
        if (slot >= 0) bound(PyArray_BYTES(a), size, is_double, &w, &g->slots[slot]);
        return 0;
      }
    }
  }
  return check_outputs(n);
}

static int simple_run_of_step(void *p) {
  count_run((Node *)p);
  return simple_run(p);
}

static int run_unguarded(Node *n) {
  if (n->run) return n->run(n->context);
  PyObject *r = PyObject_CallNoArgs(n->thunk);
  if (r == NULL) return pending_error(n);
  Py_DECREF(r);
  return 0;
}

static int guarded_run(void *p) {
  Node *n = (Node *)p;
  Guard *g = n->guard;
  if (n->counts) count_run(n);
  if (!g->looking) return run_unguarded(n);
  if (n->n_saves) {
    if (settle(n, 0)) return -1;
    if (n->tail && g->tail == TAIL_OPEN) g->tail = prove_tail(g);
    if (!(n->tail && g->tail == TAIL_PROVED)) {
      if (settle(n, 1)) return -1; /* later it would show what has been written into it */
      for (int i = 0; i < n->n_saves; i++)
        if (push_undo(g, n->saves[i])) return pending_error(n);
    }
  }
  int failed = NOT_RUN;
  if (n->n_sliced) {
    failed = run_blocks(n);
    if (failed == NOT_RUN && settle(n, 0)) return -1;
  }
  if (failed == NOT_RUN) failed = run_unguarded(n);
  if (failed) return failed;
  if (n->tail && g->tail == TAIL_PROVED) return 0;
  return check_outputs(n);
}

static void node_free(PyObject *capsule) {
  Node *n = (Node *)PyCapsule_GetContext(capsule);
  if (n == NULL) return;
  Py_XDECREF(n->error);
  Py_XDECREF(n->thunk);
  for (int i = 0; i < n->n_checks; i++) Py_XDECREF(n->checks[i].cell);
  for (int i = 0; i < n->n_cells; i++) Py_XDECREF(n->cells[i]);
  for (int i = 0; i < n->n_saves; i++) Py_XDECREF(n->saves[i]);
  free(n->checks);
  free(n->program);
  free(n->input_slots);
  free(n->output_slots);
  free(n->output_registers);
  free(n->cells);
  for (int i = 0; i < n->n_sliced; i++) Py_XDECREF(n->sliced[i]);
  for (int i = 0; i < n->n_made; i++) Py_XDECREF(n->made[i]);
  free(n->saves);
  free(n->sliced);
  free(n->made);
  free(n->entering);
  free(n->made_types);
  release_chunk(n->chunk);
}

/* ------------------------------------------------------------------ Python's side */

static int read_ints(PyObject *seq, int **out, int *n) {
  *n = (int)PySequence_Size(seq);
  if (*n < 0) return -1;
  *out = (int *)calloc(*n + 1, sizeof(int));
  for (int i = 0; i < *n; i++) {
    PyObject *item = PySequence_GetItem(seq, i);
    (*out)[i] = item ? (int)PyLong_AsLong(item) : -1;
    Py_XDECREF(item);
  }
  return PyErr_Occurred() ? -1 : 0;
}

static int read_cells(PyObject *seq, PyObject ***out, int *n) {
  *n = (int)PySequence_Size(seq);
  if (*n < 0) return -1;
  *out = (PyObject **)calloc(*n + 1, sizeof(PyObject *));
  for (int i = 0; i < *n; i++) {
    (*out)[i] = PySequence_GetItem(seq, i);
    if ((*out)[i] == NULL || !PyList_Check((*out)[i])) {
      PyErr_SetString(PyExc_TypeError, "a storage cell must be a list");
      return -1;
    }
  }
  return 0;
}

static int read_checks(PyObject *seq, Check **out, int *n) {
  Py_ssize_t size = PySequence_Size(seq);
  *n = 0;
  if (size < 0) return -1;
  *out = (Check *)calloc(size + 1, sizeof(Check));
  for (Py_ssize_t i = 0; i < size; i++) {
    PyObject *item = PySequence_GetItem(seq, i);
    Check *c = &(*out)[i];
    int ok = item && PyArg_ParseTuple(item, "O!ii", &PyList_Type, &c->cell, &c->output, &c->slot);
    if (ok) {
      Py_INCREF(c->cell);
      ++*n;
    }
    Py_XDECREF(item);
    if (!ok) return -1;
  }
  return 0;
}

/* add_inputs(list of (cell, slot, eligible, becomes)): see Kept for the last two */
static PyObject *guard_add_inputs(PyObject *self, PyObject *seq) {
  Guard *g = (Guard *)self;
  Py_ssize_t size = PyList_Check(seq) ? PyList_GET_SIZE(seq) : -1;
  if (size < 0 || g->inputs != NULL) {
    PyErr_SetString(PyExc_TypeError, "add_inputs takes a list, and is called once");
    return NULL;
  }
  g->inputs = (Input *)calloc(size + 1, sizeof(Input));
  if (g->inputs == NULL) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < size; i++) {
    Input *c = &g->inputs[i];
    if (!PyArg_ParseTuple(PyList_GET_ITEM(seq, i), "O!ipi", &PyList_Type, &c->cell, &c->slot,
                          &c->kept.eligible, &c->kept.becomes))
      return NULL;
    Py_INCREF(c->cell);
    g->n_inputs++;
  }
  g->memory += g->n_inputs * sizeof(Input);
  Py_RETURN_NONE;
}

static int read_blocks(Guard *g, Node *n, PyObject *blocks) {
  PyObject *sliced, *entering, *made, *types;
  int n_entering, n_types;
  if (!PyArg_ParseTuple(blocks, "OOOO", &sliced, &entering, &made, &types) ||
      read_cells(sliced, &n->sliced, &n->n_sliced) || read_cells(made, &n->made, &n->n_made) ||
      read_ints(entering, &n->entering, &n_entering) || read_ints(types, &n->made_types, &n_types))
    return -1;
  int sound = n_entering == n->n_sliced && n_types == n->n_made && n->run != NULL &&
              n->n_sliced > 0 && n->n_sliced + n->n_made <= MAX_OPERANDS;
  for (int i = 0; sound && i < n_entering; i++) {
    sound = n->entering[i] < g->n_inputs;
    if (sound && n->entering[i] >= 0) g->inputs[n->entering[i]].deferred = 1;
  }
  if (!sound) PyErr_SetString(PyExc_ValueError, "malformed blocks");
  return sound ? 0 : -1;
}

/* add_node(index, cthunk, thunk, checks, saves, tail, cells, program, blocks, counts) -> capsule
 * program: None or (instructions, input_slots, output_slots, output_registers, cap, eps)
 * blocks: None or (cells that are cut, indices of inputs or -1, output cells, type numbers) */
static PyObject *guard_add_node(PyObject *self, PyObject *args) {
  Guard *g = (Guard *)self;
  PyObject *cthunk, *thunk, *checks, *saves, *cells, *program, *blocks;
  int index, tail, counts;
  if (!PyArg_ParseTuple(args, "iOOOOiOOOp", &index, &cthunk, &thunk, &checks, &saves, &tail,
                        &cells, &program, &blocks, &counts))
    return NULL;
  Node *n = new_node(g);
  /* (outputs without a check have intervals, too, which must not be those of another call) */
  int one_interval = program == Py_None || (PyTuple_Check(program) && PyTuple_Size(program) == 6 &&
                                            PySequence_Size(PyTuple_GET_ITEM(program, 2)) == 1);
  int simple = cthunk != Py_None && !tail && blocks == Py_None && PySequence_Size(checks) == 1 &&
               PySequence_Size(saves) == 0 && one_interval;
  PyObject *capsule = PyCapsule_New(
      (void *)(!simple ? guarded_run : counts ? simple_run_of_step : simple_run), NULL, node_free);
  if (n == NULL || capsule == NULL || PyCapsule_SetContext(capsule, n)) {
    if (n != NULL) release_chunk(n->chunk);
    Py_XDECREF(capsule);
    return PyErr_NoMemory();
  }
  n->guard = g;
  n->index = index;
  n->tail = tail;
  n->counts = counts;
  n->n_instr = -1;
  Py_INCREF(thunk);
  n->thunk = thunk;
  if (cthunk != Py_None) {
    n->run = (int (*)(void *))PyCapsule_GetPointer(cthunk, NULL);
    n->context = PyCapsule_GetContext(cthunk);
    if (n->run == NULL || n->context == NULL) goto fail;
    n->error = ((PyObject **)n->context)[0];
    Py_INCREF(n->error);
  } else {
    n->error = Py_BuildValue("[OOO]", Py_None, Py_None, Py_None);
    if (n->error == NULL) goto fail;
  }
  if (read_checks(checks, &n->checks, &n->n_checks)) goto fail;
  if (n->n_checks > 0) {
    n->cell = n->checks[0].cell;
    n->slot = n->checks[0].slot;
  }
  if (read_cells(saves, &n->saves, &n->n_saves)) goto fail;
  if (read_cells(cells, &n->cells, &n->n_cells)) goto fail;
  if (program != Py_None) {
    const char *code;
    Py_ssize_t size;
    PyObject *in, *out, *regs;
    int n_regs;
    if (!PyArg_ParseTuple(program, "y#OOOdd", &code, &size, &in, &out, &regs, &n->cap, &n->eps))
      goto fail;
    if (read_ints(in, &n->input_slots, &n->n_inputs)) goto fail;
    if (read_ints(out, &n->output_slots, &n->n_outputs)) goto fail;
    if (read_ints(regs, &n->output_registers, &n_regs)) goto fail;
    n->program = (Instr *)malloc(size + 1);
    memcpy(n->program, code, size);
    n->n_instr = (int)(size / sizeof(Instr));
    int sound = n_regs == n->n_outputs && size % sizeof(Instr) == 0 &&
                n->n_inputs + n->n_instr <= MAX_REGISTERS && n->n_inputs <= n->n_cells;
    for (int i = 0; sound && i < n->n_inputs; i++) sound = n->input_slots[i] < g->n_slots;
    for (int i = 0; sound && i < n->n_instr; i++) {
      Instr *q = &n->program[i];
      int by_size = q->op == OP_MULDIM || q->op == OP_MULSIZE;
      sound = q->dst == n->n_inputs + i && q->a < q->dst && q->b < (by_size ? n->n_cells : q->dst);
    }
    for (int i = 0; sound && i < n->n_outputs; i++)
      sound = n->output_slots[i] < g->n_slots && n->output_registers[i] >= 0 &&
              n->output_registers[i] < n->n_inputs + n->n_instr;
    if (!sound) {
      PyErr_SetString(PyExc_ValueError, "malformed interval program");
      goto fail;
    }
  }
  if (blocks != Py_None && read_blocks(g, n, blocks)) goto fail;
  g->memory += n->n_checks * sizeof(Check) +
               (n->n_cells + n->n_saves + n->n_sliced + n->n_made) * sizeof(PyObject *) +
               (n->n_inputs + 2 * n->n_outputs + n->n_sliced + n->n_made) * sizeof(int) +
               (n->n_instr > 0 ? n->n_instr * sizeof(Instr) : 0);
  if (tail) {
    struct Node **more =
        (struct Node **)realloc(g->tail_nodes, (g->n_tail + 1) * sizeof(struct Node *));
    if (more == NULL) {
      PyErr_NoMemory();
      goto fail;
    }
    g->tail_nodes = more;
    g->tail_nodes[g->n_tail++] = n;
  }
  return capsule;
fail:
  Py_DECREF(capsule);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "not the capsule of a C thunk");
  return NULL;
}

static int may_wait(const Input *c) {
  PyObject *value = cell_value(c->cell);
  return c->deferred && value != NULL && PyArray_Check(value) &&
         PyArray_SIZE((PyArrayObject *)value) >= LARGE &&
         layout_of(PyArray_TYPE((PyArrayObject *)value)).width != 0;
}

/* begin(start) -> index of the first bad input from `start` on, or -1 */
static PyObject *guard_begin(PyObject *self, PyObject *arg) {
  Guard *g = (Guard *)self;
  long i = PyLong_AsLong(arg);
  if (i == -1 && PyErr_Occurred()) return NULL;
  if (i == 0) {
    clear_undo(g);
    g->tail = TAIL_OPEN;
    g->node = -1;
    g->copied = 0;
    for (int j = 0; j < g->n_inputs; j++) g->inputs[j].pending = SCANNED;
  }
  for (; g->looking && i < g->n_inputs; i++) {
    Input *c = &g->inputs[i];
    if (is_unchanged(g, c)) {
      c->pending = UNCHANGED;
      continue;
    }
    if (may_wait(c)) {
      c->pending = WAITS;
      if (c->slot >= 0) g->slots[c->slot] = UNKNOWN;
      continue;
    }
    int bad = scan_input(g, c);
    if (bad > 0) {
      int before = bad_pending(g, (int)i, 1);
      if (before == -2) bad = -1;
      else if (before >= 0) i = before;
    }
    if (bad < 0) return NULL;
    if (bad) return PyLong_FromLong(i);
  }
  return PyLong_FromLong(-1);
}

/* bad_input(all) -> index of the first bad input that waits, or has not been scanned; or -1 */
static PyObject *guard_bad_input(PyObject *self, PyObject *all) {
  Guard *g = (Guard *)self;
  int i = bad_pending(g, g->n_inputs, PyObject_IsTrue(all));
  return i == -2 ? NULL : PyLong_FromLong(i);
}

/* commit(clean): the call has ended; `clean` says that nothing has been reported */
static PyObject *guard_commit(PyObject *self, PyObject *clean) {
  Guard *g = (Guard *)self;
  clear_undo(g);
  if (!PyObject_IsTrue(clean)) forget_values(g);
  else if (keep_values(g)) return NULL;
  Py_RETURN_NONE;
}

/* saved() -> list of (array, its old contents) and of (snapshot, None) */
static PyObject *guard_saved(PyObject *self, PyObject *unused) {
  Guard *g = (Guard *)self;
  PyObject *list = PyList_New(g->n_undo);
  for (int i = 0; list != NULL && i < g->n_undo; i++) {
    Undo *u = &g->undo[i];
    PyObject *pair = Py_BuildValue("OO", u->value, u->copy ? u->copy : Py_None);
    if (pair == NULL) {
      Py_CLEAR(list);
      break;
    }
    PyList_SET_ITEM(list, i, pair);
  }
  return list;
}

static PyObject *guard_rollback(PyObject *self, PyObject *unused) {
  Guard *g = (Guard *)self;
  int failed = 0;
  for (int i = g->n_undo - 1; i >= 0; i--) {
    Undo *u = &g->undo[i];
    if (u->copy) {
      failed |= PyArray_CopyInto((PyArrayObject *)u->value, (PyArrayObject *)u->copy) < 0;
    } else {
      PyObject *r = PyObject_CallNoArgs(u->value);
      failed |= r == NULL;
      Py_XDECREF(r);
    }
  }
  clear_undo(g);
  forget_values(g);
  if (failed) return NULL;
  Py_RETURN_NONE;
}

static PyObject *guard_scan(PyObject *self, PyObject *value) {
  Guard *g = (Guard *)self;
  Interval seen;
  int bad = scan_value(g, value, &seen);
  if (bad < 0) return NULL;
  return Py_BuildValue("Odd", bad ? Py_True : Py_False, seen.lo, seen.hi);
}

/* clock(value, n) -> seconds that one scan of it takes, over n of them */
static PyObject *guard_clock(PyObject *self, PyObject *args) {
  PyObject *value;
  int n;
  if (!PyArg_ParseTuple(args, "Oi", &value, &n)) return NULL;
  struct timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  for (int i = 0; i < n; i++)
    if (scan_value((Guard *)self, value, NULL) < 0) return NULL;
  clock_gettime(CLOCK_MONOTONIC, &after);
  double seconds = (after.tv_sec - before.tv_sec) + 1e-9 * (after.tv_nsec - before.tv_nsec);
  return PyFloat_FromDouble(seconds / n);
}

static PyObject *guard_set_interval(PyObject *self, PyObject *args) {
  Guard *g = (Guard *)self;
  int i;
  double lo, hi;
  if (!PyArg_ParseTuple(args, "idd", &i, &lo, &hi)) return NULL;
  if (i < 0 || i >= g->n_slots) {
    PyErr_SetString(PyExc_IndexError, "no such slot");
    return NULL;
  }
  g->slots[i].lo = lo;
  g->slots[i].hi = hi;
  g->slots[i].exact = 1;
  Py_RETURN_NONE;
}

static PyObject *guard_interval(PyObject *self, PyObject *arg) {
  Guard *g = (Guard *)self;
  long i = PyLong_AsLong(arg);
  if (i < 0 || i >= g->n_slots) {
    PyErr_SetString(PyExc_IndexError, "no such slot");
    return NULL;
  }
  return Py_BuildValue("dd", g->slots[i].lo, g->slots[i].hi);
}

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

static int guard_init(PyObject *self, PyObject *args, PyObject *kwds) {
  static const char *names[] = {"nan", "inf", "big", "ints", "limit", "raising", "n_slots",
                                "report", "is_bad", "snapshot", "trip_type", NULL};
  Guard *g = (Guard *)self;
  if (!PyArg_ParseTupleAndKeywords(args, kwds, "ppppdpiOOOO", (char **)names, &g->nan, &g->inf,
                                   &g->big, &g->ints, &g->limit, &g->raising, &g->n_slots,
                                   &g->report, &g->is_bad, &g->snapshot, &g->trip_type))
    return -1;
  Py_INCREF(g->report);
  Py_INCREF(g->is_bad);
  Py_INCREF(g->snapshot);
  Py_INCREF(g->trip_type);
  g->slots = (Interval *)malloc((g->n_slots + 1) * sizeof(Interval));
  for (int i = 0; i < g->n_slots; i++) g->slots[i] = UNKNOWN;
  g->memory = sizeof(Guard) + g->n_slots * sizeof(Interval);
  if (g->big) {
    g->stop16 = 0x7bff; /* float16 ends at 65504 */
    if (g->limit < 65504.0) g->stop16 = -1;
    g->stop32 = word_below(g->limit, 4);
    g->stop64 = word_below(g->limit, 8);
    g->cstop32 = word_below(g->limit / 1.5, 4); /* the modulus is at most sqrt(2) parts */
    g->cstop64 = word_below(g->limit / 1.5, 8);
  } else if (g->inf) {
    g->stop16 = 0x7bff;
    g->stop32 = g->cstop32 = 0x7f7fffff;
    g->stop64 = g->cstop64 = 0x7fefffff;
  } else {
    g->stop16 = 0x7c00;
    g->stop32 = g->cstop32 = 0x7f800000;
    g->stop64 = g->cstop64 = 0x7fefffff;
  }
  g->node = -1;
  g->looking = 1;
  return 0;
}

static void guard_dealloc(PyObject *self) {
  Guard *g = (Guard *)self;
  clear_undo(g);
  forget_values(g);
  for (int i = 0; i < g->n_inputs; i++) Py_XDECREF(g->inputs[i].cell);
  free(g->inputs);
  free(g->slots);
  free(g->tail_nodes);
  free(g->undo);
  release_chunk(g->chunk);
  Py_XDECREF(g->report);
  Py_XDECREF(g->is_bad);
  Py_XDECREF(g->snapshot);
  Py_XDECREF(g->trip_type);
  Py_TYPE(self)->tp_free(self);
}

static PyObject *guard_look(PyObject *self, PyObject *looking) {
  ((Guard *)self)->looking = PyObject_IsTrue(looking);
  Py_RETURN_NONE;
}

static PyObject *guard_step(PyObject *self, PyObject *unused) {
  return PyLong_FromLong(((Guard *)self)->step);
}

static PyObject *guard_set_step(PyObject *self, PyObject *step) {
  ((Guard *)self)->step = (int)PyLong_AsLong(step);
  ((Guard *)self)->start++;
  return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *guard_counters(PyObject *self, PyObject *unused) {
  Guard *g = (Guard *)self;
  return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:i,s:i}", "scans", g->scans, "bytes", g->bytes,
                       "proofs", g->proofs, "memory", g->memory, "copied", g->copied, "tail",
                       g->tail, "copies", g->n_undo);
}

static PyObject *guard_trip(PyObject *self, PyObject *unused) {
  Guard *g = (Guard *)self;
  return Py_BuildValue("ii", g->node, g->output);
}

static PyMethodDef guard_methods[] = {
    {"add_inputs", guard_add_inputs, METH_O, "Checks of the function's inputs."},
    {"add_node", guard_add_node, METH_VARARGS, "Wrap one node; returns its capsule."},
    {"begin", guard_begin, METH_O, "Start a call: check the inputs."},
    {"step", guard_step, METH_NOARGS, "Steps of the loop that have begun."},
    {"set_step", guard_set_step, METH_O, "Set their number."},
    {"look", guard_look, METH_O, "Whether to look at what follows."},
    {"bad_input", guard_bad_input, METH_O, "Check the inputs that have not been checked."},
    {"commit", guard_commit, METH_O, "Forget what rollback would restore."},
    {"rollback", guard_rollback, METH_NOARGS, "Restore overwritten shared variables."},
    {"saved", guard_saved, METH_NOARGS, "What rollback would restore."},
    {"scan", guard_scan, METH_O, "(bad, lo, hi) of one value."},
    {"clock", guard_clock, METH_VARARGS, "Seconds that a scan of one value takes."},
    {"set_interval", guard_set_interval, METH_VARARGS, "Set the interval of a constant."},
    {"interval", guard_interval, METH_O, "(lo, hi) held in one slot."},
    {"counters", guard_counters, METH_NOARGS, "What has been done so far."},
    {"trip", guard_trip, METH_NOARGS, "(node, output) of the last trip."},
    {NULL, NULL, 0, NULL}};

static PyTypeObject GuardType = {PyVarObject_HEAD_INIT(NULL, 0) "theanoguard_kernel.Guard",
                                 sizeof(Guard)};

static PyObject *call_capsule(PyObject *self, PyObject *capsule) {
  /* For the virtual machines that loop in Python. */
  int (*run)(void *) = (int (*)(void *))PyCapsule_GetPointer(capsule, NULL);
  Node *n = run ? (Node *)PyCapsule_GetContext(capsule) : NULL;
  if (n == NULL) return NULL;
  if (run(n) == 0) Py_RETURN_NONE;
  PyObject *type = PyList_GetItem(n->error, 0), *value = PyList_GetItem(n->error, 1),
           *tb = PyList_GetItem(n->error, 2);
  Py_XINCREF(type);
  value = value == Py_None ? NULL : value;
  tb = tb == Py_None ? NULL : tb;
  Py_XINCREF(value);
  Py_XINCREF(tb);
  PyErr_Restore(type, value, tb);
  set_error(n, NULL, NULL, NULL);
  return NULL;
}

static PyMethodDef methods[] = {
    {"call", call_capsule, METH_O, "Run a wrapped node from Python."}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef moduledef = {PyModuleDef_HEAD_INIT, "theanoguard_kernel", NULL, -1,
                                       methods};

PyMODINIT_FUNC PyInit_theanoguard_kernel(void) {
  import_array();
  GuardType.tp_new = PyType_GenericNew;
  GuardType.tp_init = guard_init;
  GuardType.tp_dealloc = guard_dealloc;
  GuardType.tp_flags = Py_TPFLAGS_DEFAULT;
  GuardType.tp_methods = guard_methods;
  GuardType.tp_doc = "State and checks of one guarded function.";
  if (PyType_Ready(&GuardType) < 0) return NULL;
  PyObject *m = PyModule_Create(&moduledef);
  if (m == NULL) return NULL;
  Py_INCREF(&GuardType);
  PyModule_AddObject(m, "Guard", (PyObject *)&GuardType);
  PyModule_AddIntConstant(m, "n_opcodes", OP_COUNT);
  PyModule_AddIntConstant(m, "max_registers", MAX_REGISTERS);
  return m;
}
