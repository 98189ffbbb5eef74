/* What a call is about to overwrite stays as it is, or can be put back, until the call has ended.
 *
 * A node that overwrites a whole array works in a second buffer, into which the array is copied first.
 * When the call has ended the buffer is the new value, and the array that it replaces is the buffer of
 * the next call.  Elements of an array, and what is no array, are copied and put back when the call
 * fails.
 */

typedef struct {
  PyObject *value; /* the array that is overwritten, or an object with `undo` and `redo` */
  PyObject *index; /* which of its elements, or NULL for all */
  PyObject *copy;  /* their old contents, or NULL */
} Undo;

typedef struct {
  Undo *entries;
  int n, size;
  int undone; /* whether the old contents are back in their place */
  unsigned long long copied; /* bytes, in this call */
} UndoLog;

static void undo_clear(UndoLog *log) {
  while (log->n > 0) {
    log->n--;
    Py_CLEAR(log->entries[log->n].value);
    Py_CLEAR(log->entries[log->n].index);
    Py_CLEAR(log->entries[log->n].copy);
  }
  log->undone = 0;
}

static void undo_free(UndoLog *log) {
  undo_clear(log);
  free(log->entries);
  log->entries = NULL;
  log->size = 0;
}

/* Add an entry; steals the references.  -1 with a Python exception. */
static int undo_push(UndoLog *log, PyObject *value, PyObject *index, PyObject *copy) {
  if (log->n == log->size) {
    const int size = log->size ? 2 * log->size : 8;
    Undo *bigger = (Undo *)realloc(log->entries, size * sizeof(Undo));
    if (bigger == NULL) {
      Py_XDECREF(value);
      Py_XDECREF(index);
      Py_XDECREF(copy);
      PyErr_NoMemory();
      return -1;
    }
    log->entries = bigger;
    log->size = size;
  }
  log->entries[log->n].value = value;
  log->entries[log->n].index = index;
  log->entries[log->n].copy = copy;
  log->n++;
  return 0;
}

static int undo_holds(const UndoLog *log, PyObject *value) {
  for (int i = 0; i < log->n; i++)
    if (log->entries[i].value == value && log->entries[i].index == NULL) return 1;
  return 0;
}

static int same_layout(PyArrayObject *a, PyArrayObject *b) {
  return PyArray_CheckExact((PyObject *)b) && PyArray_TYPE(a) == PyArray_TYPE(b) &&
         PyArray_SAMESHAPE(a, b) &&
         ((PyArray_IS_C_CONTIGUOUS(a) && PyArray_IS_C_CONTIGUOUS(b)) ||
          (PyArray_IS_F_CONTIGUOUS(a) && PyArray_IS_F_CONTIGUOUS(b)));
}

/* Copy an array into the log. */
static int undo_save(UndoLog *log, PyArrayObject *a) {
  if (undo_holds(log, (PyObject *)a)) return 0;
  PyObject *copy = PyArray_NewCopy(a, NPY_KEEPORDER);
  if (copy == NULL) return -1;
  log->copied += (unsigned long long)PyArray_NBYTES(a);
  Py_INCREF(a);
  return undo_push(log, (PyObject *)a, NULL, copy);
}

static inline PyObject *cell_value(PyObject *cell) {
  return PyList_GET_SIZE(cell) > 0 ? PyList_GET_ITEM(cell, 0) : NULL;
}

/* Whether `n` references to an array are all that leads to its memory, which is its own. */
static int is_ours(PyObject *value, int n) {
  PyArrayObject *a = (PyArrayObject *)value;
  return PyArray_CheckExact(value) && Py_REFCNT(value) == n && PyArray_BASE(a) == NULL &&
         PyArray_CHKFLAGS(a, NPY_ARRAY_OWNDATA) && PyArray_ISBEHAVED(a) &&
         !PyDataType_REFCHK(PyArray_DESCR(a)) && ((PyArrayObject_fields *)a)->weakreflist == NULL;
}

/* The second buffer of an array, with memory of its own and the array's layout; borrowed from `spare`,
 * a storage that keeps it from one call to the next.  `output`: where the last call may have left it. */
static PyArrayObject *spare_for(PyArrayObject *a, PyObject *spare, PyObject *output) {
  PyObject *kept = cell_value(spare);
  const int n = output != NULL && cell_value(output) == kept ? 2 : 1;
  if (kept == NULL || !is_ours(kept, n) || !same_layout(a, (PyArrayObject *)kept)) {
    kept = PyArray_NewLikeArray(a, NPY_KEEPORDER, NULL, 0);
    if (kept == NULL || PyList_SetItem(spare, 0, kept)) return NULL;
  }
  return (PyArrayObject *)kept;
}

/* Whether memory of one array may belong to the other. */
static int may_overlap(PyArrayObject *a, PyArrayObject *b) {
  const char *low[2], *high[2];
  PyArrayObject *both[2] = {a, b};
  for (int k = 0; k < 2; k++) {
    low[k] = high[k] = PyArray_BYTES(both[k]);
    for (int d = 0; d < PyArray_NDIM(both[k]); d++) {
      const npy_intp reach = (PyArray_DIM(both[k], d) - 1) * PyArray_STRIDE(both[k], d);
      if (reach > 0) high[k] += reach;
      else low[k] += reach;
    }
    high[k] += PyArray_ITEMSIZE(both[k]);
  }
  return low[0] < high[1] && low[1] < high[0];
}

/* The call has ended, and `cell` holds a second buffer as its new value.  The array from before becomes
 * the buffer of the next call if nothing else leads to it.  Where something does, it gets the new
 * contents, as it would without a guard.  `before`: the only reference of the guard's. */
static int take_turns(PyObject *cell, PyObject *spare, PyObject *before) {
  PyObject *now = cell_value(cell);
  if (now == NULL || before == NULL || now == before || now != cell_value(spare)) return 0;
  PyArrayObject *old = (PyArrayObject *)before;
  if (is_ours(before, 1) && same_layout((PyArrayObject *)now, old)) {
    Py_INCREF(before);
    return PyList_SetItem(spare, 0, before);
  }
  if (Py_REFCNT(before) == 1 && PyArray_CheckExact(before) && PyArray_BASE(old) != NULL &&
      PyBytes_CheckExact(PyArray_BASE(old))) {
    Py_INCREF(Py_None); /* (unpickled) */
    return PyList_SetItem(spare, 0, Py_None);
  }
  if (!PyArray_ISWRITEABLE(old) || PyArray_CopyInto(old, (PyArrayObject *)now)) {
    PyErr_Clear();
    Py_INCREF(Py_None);
    return PyList_SetItem(spare, 0, Py_None);
  }
  Py_INCREF(before);
  return PyList_SetItem(cell, 0, before);
}

/* The elements at `index`, copied; arrays of indices have made a copy already.  An array as the index
 * chooses rows. */
static PyObject *elements_at(PyObject *array, PyObject *index) {
  if (PyArray_Check(index) && PyArray_Check(array))
    return PyArray_TakeFrom((PyArrayObject *)array, index, 0, NULL, NPY_RAISE);
  PyObject *elements = PyObject_GetItem(array, index);
  if (elements != NULL && PyArray_Check(elements) && PyArray_BASE((PyArrayObject *)elements) != NULL)
    Py_SETREF(elements, PyArray_NewCopy((PyArrayObject *)elements, NPY_KEEPORDER));
  return elements;
}

/* Add the elements of an array at `index`; -1 with a Python exception. */
static int undo_save_at(UndoLog *log, PyObject *array, PyObject *index) {
  PyObject *copy = elements_at(array, index);
  if (copy == NULL) return -1;
  if (PyArray_Check(copy))
    log->copied += (unsigned long long)PyArray_NBYTES((PyArrayObject *)copy);
  Py_INCREF(array);
  Py_INCREF(index);
  return undo_push(log, array, index, copy);
}

/* Add the rows of an array that are about to be overwritten. */
static int undo_save_rows(UndoLog *log, PyArrayObject *array, PyArrayObject *rows) {
  PyObject *index = PyArray_NewCopy(rows, NPY_CORDER); /* the call may change them */
  if (index == NULL) return -1;
  const int failed = undo_save_at(log, (PyObject *)array, index);
  Py_DECREF(index);
  return failed;
}

/* Add what Python says: an array and the index of its elements, or an object that undoes. */
static int undo_save_part(UndoLog *log, PyObject *saved) {
  PyObject *array, *index;
  if (saved == NULL) return -1;
  if (!PyTuple_Check(saved)) return undo_push(log, saved, NULL, NULL);
  int failed = !PyArg_ParseTuple(saved, "O!O", &PyArray_Type, &array, &index);
  if (!failed) failed = undo_save_at(log, array, index);
  Py_DECREF(saved);
  return failed ? -1 : 0;
}

static int swap_bytes(char *a, char *b, npy_intp n) {
  char held[1024];
  while (n > 0) {
    const npy_intp part = n < (npy_intp)sizeof held ? n : (npy_intp)sizeof held;
    memcpy(held, a, part);
    memcpy(a, b, part);
    memcpy(b, held, part);
    a += part;
    b += part;
    n -= part;
  }
  return 0;
}

/* Have an object undo or redo what it stands for.  If Ctrl-C interrupts that, it is done again. */
static int swap_object(PyObject *object, const char *how) {
  PyObject *type, *value, *tb, *r = PyObject_CallMethod(object, how, NULL);
  Py_XDECREF(r);
  if (r != NULL) return 0;
  PyErr_Fetch(&type, &value, &tb);
  Py_XDECREF(PyObject_CallMethod(object, how, NULL));
  PyErr_Restore(type, value, tb);
  return -1;
}

static int swap_entry(Undo *u, int undo) {
  if (u->copy == NULL) return swap_object(u->value, undo ? "undo" : "redo");
  if (u->index != NULL) {
    PyObject *now = elements_at(u->value, u->index);
    if (now == NULL || PyObject_SetItem(u->value, u->index, u->copy)) {
      Py_XDECREF(now);
      return -1;
    }
    Py_SETREF(u->copy, now);
    return 0;
  }
  PyArrayObject *value = (PyArrayObject *)u->value, *copy = (PyArrayObject *)u->copy;
  if (same_layout(value, copy)) /* (needs no memory, of which there may be none left) */
    return swap_bytes(PyArray_BYTES(value), PyArray_BYTES(copy), PyArray_NBYTES(value));
  PyObject *now = PyArray_NewCopy(value, NPY_KEEPORDER);
  if (now == NULL) return -1;
  const int failed = PyArray_CopyInto(value, copy) || PyArray_CopyInto(copy, (PyArrayObject *)now);
  Py_DECREF(now);
  return failed ? -1 : 0;
}

/* Exchange what is there with what was, the last first; or take that back.  No signal handler of
 * Python's runs in between, but in an object's own methods.  An entry that fails does not keep the
 * others from being put back; -1 with its exception. */
static int undo_swap(UndoLog *log, int undo) {
  PyObject *type = NULL, *value = NULL, *tb = NULL;
  if (log->undone == undo) return 0;
  log->undone = undo;
  for (int i = 0; i < log->n; i++) {
    if (swap_entry(&log->entries[undo ? log->n - 1 - i : i], undo) == 0) continue;
    if (type == NULL) PyErr_Fetch(&type, &value, &tb);
    else PyErr_Clear();
  }
  if (type == NULL) return 0;
  PyErr_Restore(type, value, tb);
  return -1;
}
