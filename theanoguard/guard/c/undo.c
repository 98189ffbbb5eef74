/* What a call is about to overwrite is copied first, and put back when the call fails. */

typedef struct {
  PyObject *value; /* the array that is overwritten, or what undoes (an object with `swap`) */
  PyObject *copy;  /* its old contents, or NULL */
} Undo;

typedef struct {
  Undo *entries;
  int n, size;
  unsigned long long copied; /* bytes, in this call */
} UndoLog;

static void undo_clear(UndoLog *log) {
  while (log->n > 0) {
    log->n--;
    Py_CLEAR(log->entries[log->n].value);
    Py_CLEAR(log->entries[log->n].copy);
  }
}

static void undo_free(UndoLog *log) {
  undo_clear(log);
  free(log->entries);
  log->entries = NULL;
  log->size = 0;
}

/* Add an entry; steals both references.  -1 with a Python exception. */
static int undo_push(UndoLog *log, PyObject *value, PyObject *copy) {
  if (log->n == log->size) {
    const int size = log->size ? 2 * log->size : 8;
    Undo *bigger = (Undo *)realloc(log->entries, size * sizeof(Undo));
    if (bigger == NULL) {
      Py_XDECREF(value);
      Py_XDECREF(copy);
      PyErr_NoMemory();
      return -1;
    }
    log->entries = bigger;
    log->size = size;
  }
  log->entries[log->n].value = value;
  log->entries[log->n].copy = copy;
  log->n++;
  return 0;
}

static int undo_holds(const UndoLog *log, PyObject *value) {
  for (int i = 0; i < log->n; i++)
    if (log->entries[i].value == value && log->entries[i].copy != NULL) return 1;
  return 0;
}

static int same_layout(PyArrayObject *a, PyArrayObject *b) {
  return PyArray_CheckExact((PyObject *)b) && PyArray_TYPE(a) == PyArray_TYPE(b) &&
         PyArray_SAMESHAPE(a, b) &&
         ((PyArray_IS_C_CONTIGUOUS(a) && PyArray_IS_C_CONTIGUOUS(b)) ||
          (PyArray_IS_F_CONTIGUOUS(a) && PyArray_IS_F_CONTIGUOUS(b)));
}

/* Copy an array into the log.  `buffer` keeps the memory from one call to the next. */
static int undo_save(UndoLog *log, PyArrayObject *a, PyObject **buffer) {
  if (undo_holds(log, (PyObject *)a)) return 0;
  if (*buffer != NULL && Py_REFCNT(*buffer) == 1 && !PyDataType_REFCHK(PyArray_DESCR(a)) &&
      same_layout(a, (PyArrayObject *)*buffer)) {
    memcpy(PyArray_DATA((PyArrayObject *)*buffer), PyArray_DATA(a), PyArray_NBYTES(a));
  } else {
    PyObject *copy = PyArray_NewCopy(a, NPY_KEEPORDER);
    if (copy == NULL) return -1;
    Py_XSETREF(*buffer, copy);
  }
  log->copied += (unsigned long long)PyArray_NBYTES(a);
  Py_INCREF(a);
  Py_INCREF(*buffer);
  return undo_push(log, (PyObject *)a, *buffer);
}
