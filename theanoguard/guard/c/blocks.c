/* A node that computes element by element runs on one block of rows after the other, so that what is
 * scanned is still in the processor's cache.  The node's own code does so: it finds views of the
 * blocks in its storage.  Each element comes from the same arithmetic as in one run.
 */

enum { BLOCK = 1 << 16, MAX_CUT = 16 }; /* bytes of the largest operand's block; arrays */

typedef struct {
  int n_in, n; /* operands that are cut, and outputs after them */
  PyObject *cells[MAX_CUT];
  int types[MAX_CUT];  /* type numbers of the outputs */
  int scanned[MAX_CUT];
  int entering[MAX_CUT]; /* which input of the graph an operand is that nobody reads before; or -1 */
  int of[MAX_CUT];           /* of an output: the operand that it overwrites, or -1 */
  PyObject *spares[MAX_CUT]; /* where the second buffer of that operand is, which is written instead */
  int overwritten[MAX_CUT];  /* of an operand that is overwritten all the same */
} Blocks;

static void free_blocks(Blocks *b) {
  for (int i = 0; b != NULL && i < b->n; i++) {
    Py_XDECREF(b->cells[i]);
    Py_XDECREF(b->spares[i]);
  }
  free(b);
}

/* What is known when all blocks have run. */
typedef struct {
  int cut;     /* whether it could be done at all */
  int failed;  /* what the node returned; or 1: it can neither go on nor start again */
  int bad_in, bad_out;
  unsigned long long scans, bytes;
} BlocksResult;

static void scan_block(const Blocks *b, int i, PyArrayObject *view, const Limits *limits,
                       BlocksResult *result) {
  const int bad = is_bad_array(limits, view);
  if (bad < 0) PyErr_Clear(); /* (no memory to put integers in a row) */
  if (bad && i < b->n_in) result->bad_in = 1;
  else if (bad) result->bad_out = 1;
}

static int is_plain(PyObject *value) {
  return value != NULL && PyArray_CheckExact(value) &&
         PyArray_IS_C_CONTIGUOUS((PyArrayObject *)value) &&
         PyArray_ISBEHAVED_RO((PyArrayObject *)value);
}

/* The array that the node would give: an operand or its second buffer, or the one that is in the
 * storage, or a new one. */
static PyArrayObject *output_array(const Blocks *b, int i, PyArrayObject **whole) {
  PyObject *old = cell_value(b->cells[i]);
  PyArrayObject *like = whole[b->of[i] < 0 ? 0 : b->of[i]];
  const int type = b->types[i];
  if (b->of[i] >= 0) {
    if (b->spares[i] != NULL) like = spare_for(like, b->spares[i], b->cells[i]);
    Py_XINCREF(like);
    return like;
  }
  if (is_plain(old)) {
    PyArrayObject *a = (PyArrayObject *)old;
    if (PyArray_TYPE(a) == type && PyArray_SAMESHAPE(a, like) && PyArray_ISWRITEABLE(a) &&
        PyArray_CHKFLAGS(a, NPY_ARRAY_OWNDATA)) {
      Py_INCREF(a);
      return a;
    }
  }
  return (PyArrayObject *)PyArray_EMPTY(PyArray_NDIM(like), PyArray_DIMS(like), type, 0);
}

/* The first rows of an array. */
static PyArrayObject *rows_of(PyArrayObject *a, npy_intp rows) {
  npy_intp dims[NPY_MAXDIMS];
  memcpy(dims, PyArray_DIMS(a), PyArray_NDIM(a) * sizeof(npy_intp));
  dims[0] = rows;
  PyArray_Descr *descr = PyArray_DESCR(a);
  Py_INCREF(descr);
  PyArrayObject *view = (PyArrayObject *)PyArray_NewFromDescr(
      &PyArray_Type, descr, PyArray_NDIM(a), dims, NULL, PyArray_DATA(a),
      PyArray_ISWRITEABLE(a) ? NPY_ARRAY_CARRAY : NPY_ARRAY_CARRAY_RO, NULL);
  if (view == NULL) return NULL;
  Py_INCREF(a);
  if (PyArray_SetBaseObject(view, (PyObject *)a)) Py_CLEAR(view);
  return view;
}

/* Run the node in blocks, if its operands are as they must be: arrays of one shape, in C order. */
static BlocksResult run_in_blocks(const Blocks *b, int (*run)(void *), void *context,
                                  const Limits *limits) {
  BlocksResult result = {0, 0, 0, 0, 0, 0};
  PyArrayObject *whole[MAX_CUT] = {0}, *view[MAX_CUT] = {0};
  PyObject *before[MAX_CUT];
  npy_intp itemsize = 1;
  for (int i = 0; i < b->n_in; i++) {
    PyObject *value = cell_value(b->cells[i]);
    if (!is_plain(value) || PyArray_NDIM((PyArrayObject *)value) == 0) return result;
    PyArrayObject *a = (PyArrayObject *)value, *first = i ? whole[0] : a;
    if (PyArray_NDIM(a) != PyArray_NDIM(first) || !PyArray_SAMESHAPE(a, first)) return result;
    if (b->overwritten[i] && !PyArray_ISWRITEABLE(a)) return result;
    if (PyArray_ITEMSIZE(a) > itemsize) itemsize = PyArray_ITEMSIZE(a);
    whole[i] = a; /* (borrowed until it is known that it can be done) */
  }
  const npy_intp n = PyArray_DIM(whole[0], 0), size = PyArray_SIZE(whole[0]);
  if (size * itemsize < 4 * BLOCK) return result;
  npy_intp rows = BLOCK / (size / n * itemsize);
  if (rows < 1) rows = 1;
  if (4 * rows > n) return result;

  for (int i = 0; i < b->n_in; i++) Py_INCREF(whole[i]);
  int ready = 1;
  for (int i = b->n_in; i < b->n && ready; i++) {
    whole[i] = output_array(b, i, whole);
    ready = whole[i] != NULL;
  }
  for (int i = 0; i < b->n && ready; i++) {
    const int in_place = i >= b->n_in && b->of[i] >= 0 && b->spares[i] == NULL;
    if (!in_place) view[i] = rows_of(whole[i], rows);
    else view[i] = (PyArrayObject *)Py_NewRef((PyObject *)view[b->of[i]]);
    ready = view[i] != NULL;
  }
  if (!ready) { /* no memory: the node itself will say so */
    PyErr_Clear();
    for (int i = 0; i < b->n; i++) {
      Py_XDECREF(view[i]);
      Py_XDECREF(whole[i]);
    }
    return result;
  }
  for (int i = 0; i < b->n; i++) {
    before[i] = cell_value(b->cells[i]);
    Py_XINCREF(before[i]);
    Py_INCREF(view[i]);
    PyList_SetItem(b->cells[i], 0, (PyObject *)view[i]);
  }
  result.cut = 1;
  for (npy_intp start = 0; start < n && result.cut && !result.failed; start += rows) {
    for (int i = 0; i < b->n; i++) {
      PyArrayObject_fields *fields = (PyArrayObject_fields *)view[i];
      fields->data = PyArray_BYTES(whole[i]) + start * PyArray_STRIDE(whole[i], 0);
      if (n - start < rows) fields->dimensions[0] = n - start;
      if (b->overwritten[i] && b->scanned[i]) scan_block(b, i, view[i], limits, &result);
    }
    result.failed = run(context);
    for (int i = 0; i < b->n && result.cut && !result.failed; i++) {
      if (cell_value(b->cells[i]) != (PyObject *)view[i]) {
        result.cut = 0; /* it puts another array there: it has to run as always */
        for (int k = 0; k < b->n_in; k++)
          if (b->overwritten[k]) result.failed = 1;
      } else if (b->scanned[i] && !b->overwritten[i]) {
        scan_block(b, i, view[i], limits, &result);
      }
    }
  }
  for (int i = 0; i < b->n; i++) {
    if (b->scanned[i]) {
      result.scans++;
      result.bytes += (unsigned long long)PyArray_NBYTES(whole[i]);
    }
  }
  for (int i = 0; i < b->n; i++) {
    if (i >= b->n_in && result.cut && !result.failed) {
      Py_XDECREF(before[i]);
      before[i] = (PyObject *)whole[i];
      Py_INCREF(whole[i]);
    }
    if (before[i] == NULL) {
      before[i] = Py_None;
      Py_INCREF(Py_None);
    }
    PyList_SetItem(b->cells[i], 0, before[i]);
    Py_DECREF(view[i]);
    Py_DECREF(whole[i]);
  }
  return result;
}
