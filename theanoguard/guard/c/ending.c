/* What a call changes that ends well: all of it in one step, or nothing if it is interrupted.
 *
 * The class Ending of spares.py, which has the documentation, and does the same without a compiler.
 * Nothing here runs Python code before everything has been stored.
 */

#include <stddef.h>

typedef struct {
  Py_ssize_t output; /* which result is the new value */
  PyObject *cell;    /* the storage of the variable */
  Py_ssize_t place;  /* which input it is */
  int overwrites;    /* whether the update overwrites the array without the guard */
  PyObject *spare;   /* where the second buffer is kept, or NULL */
} Turn;

typedef struct {
  PyObject_HEAD
  vectorcallfunc call;
  Py_ssize_t n_outputs, n_turns;
  Py_ssize_t *outputs; /* which results are stored ... */
  PyObject **cells;    /* ... where */
  Turn *turns;
  PyObject *stored; /* the storage of whether that has been done */
} Ending;

/* Whether memory of Numba's has one owner, and is not that of another array. */
static int has_one_owner(PyObject *memory) {
  PyObject *count = PyObject_GetAttrString(memory, "refcount");
  PyObject *parent = PyObject_GetAttrString(memory, "parent");
  const int found = count != NULL && PyLong_Check(count) && PyLong_AsLong(count) == 1 && parent == Py_None;
  Py_XDECREF(count);
  Py_XDECREF(parent);
  PyErr_Clear();
  return found;
}

/* Whether `n` references to an array are all that leads to its memory. */
static int is_alone(PyObject *array, int n) {
  PyObject *base = PyArray_BASE((PyArrayObject *)array);
  if (Py_REFCNT(array) != n || ((PyArrayObject_fields *)array)->weakreflist != NULL) return 0;
  if (base == NULL) return PyArray_CHKFLAGS((PyArrayObject *)array, NPY_ARRAY_OWNDATA) != 0;
  if (PyBytes_CheckExact(base)) return 1; /* (unpickled) */
  return Py_REFCNT(base) == 1 && strcmp(Py_TYPE(base)->tp_name, "_nrt_python._MemInfo") == 0 &&
         has_one_owner(base);
}

/* Whether other code holds an array that the call replaces, or its memory.  The storage and the list of
 * the values before the call have the references that are known. */
static int is_held(PyObject *before, PyObject *now) {
  PyArrayObject *old = (PyArrayObject *)before, *new_ = (PyArrayObject *)now;
  return before != now && PyArray_CheckExact(before) && PyArray_CheckExact(now) &&
         !is_alone(before, 2) && PyArray_ISWRITEABLE(old) && PyArray_TYPE(old) == PyArray_TYPE(new_) &&
         PyArray_SAMESHAPE(old, new_);
}

static PyObject *put(PyObject *cell, PyObject *value) {
  PyObject *old = PyList_GET_ITEM(cell, 0);
  PyList_SET_ITEM(cell, 0, Py_NewRef(value));
  return old;
}

static int are_enough(const Ending *e, PyObject *values, PyObject *results) {
  for (Py_ssize_t i = 0; i < e->n_outputs; i++)
    if (e->outputs[i] >= PyList_GET_SIZE(results)) return 0;
  for (Py_ssize_t i = 0; i < e->n_turns; i++)
    if (e->turns[i].output >= PyList_GET_SIZE(results) ||
        e->turns[i].place >= PyList_GET_SIZE(values))
      return 0;
  return 1;
}

static PyObject *ending_call(PyObject *self, PyObject *const *args, size_t nargs, PyObject *names) {
  Ending *e = (Ending *)self;
  if (PyVectorcall_NARGS(nargs) != 2 || names != NULL || !PyList_CheckExact(args[0])) {
    PyErr_SetString(PyExc_TypeError, "an Ending takes a list of values, and the results");
    return NULL;
  }
  PyObject *values = args[0], *results = PySequence_List(args[1]), *few[16];
  if (results == NULL) return NULL;
  const Py_ssize_t first = e->n_outputs, n = first + e->n_turns;
  /* What is to be stored, and then what was in the storage. */
  PyObject **held = n <= 16 ? few : (PyObject **)PyMem_Malloc(n * sizeof(PyObject *));
  if (held == NULL || !are_enough(e, values, results)) {
    if (held == NULL) PyErr_NoMemory();
    else PyErr_SetString(PyExc_ValueError, "too few values or results");
    if (held != few) PyMem_Free(held);
    Py_DECREF(results);
    return NULL;
  }
  for (Py_ssize_t i = 0; i < e->n_turns; i++) {
    PyObject *now = PyList_GET_ITEM(results, e->turns[i].output);
    PyObject *before = PyList_GET_ITEM(values, e->turns[i].place);
    if (e->turns[i].overwrites && is_held(before, now)) {
      if (PyArray_CopyInto((PyArrayObject *)before, (PyArrayObject *)now)) PyErr_Clear();
      else now = before;
    }
    held[first + i] = now;
  }
  for (Py_ssize_t i = 0; i < e->n_outputs; i++)
    held[i] = put(e->cells[i], PyList_GET_ITEM(results, e->outputs[i]));
  for (Py_ssize_t i = 0; i < e->n_turns; i++)
    held[first + i] = put(e->turns[i].cell, held[first + i]);
  PyObject *flag = put(e->stored, Py_True);
  for (Py_ssize_t i = 0; i < e->n_turns; i++) {
    const Turn *t = &e->turns[i];
    PyObject *now = PyList_GET_ITEM(t->cell, 0), *before = PyList_GET_ITEM(values, t->place);
    if (t->spare == NULL || now != PyList_GET_ITEM(t->spare, 0)) continue;
    PyObject *next = is_ours(before, 2) && before == held[first + i] ? before : Py_None;
    Py_DECREF(put(t->spare, next)); /* (the variable holds it) */
  }
  Py_DECREF(flag);
  /* To free an object may run its finalizer, and that may call the function. */
  for (Py_ssize_t i = 0; i < n; i++) Py_DECREF(held[i]);
  if (held != few) PyMem_Free(held);
  return results;
}

static void ending_dealloc(PyObject *self) {
  Ending *e = (Ending *)self;
  for (Py_ssize_t i = 0; i < e->n_outputs; i++) Py_XDECREF(e->cells[i]);
  for (Py_ssize_t i = 0; i < e->n_turns; i++) {
    Py_XDECREF(e->turns[i].cell);
    Py_XDECREF(e->turns[i].spare);
  }
  PyMem_Free(e->outputs);
  PyMem_Free(e->cells);
  PyMem_Free(e->turns);
  Py_XDECREF(e->stored);
  Py_TYPE(self)->tp_free(self);
}

static int is_cell(PyObject *list) {
  if (PyList_Check(list) && PyList_GET_SIZE(list) == 1) return 1;
  PyErr_SetString(PyExc_TypeError, "a storage cell must be a list of one");
  return 0;
}

/* Read (output, cell, place, overwrites, spare); -1 with a Python exception. */
static int read_turn(PyObject *item, Turn *t) {
  PyObject *spare;
  if (!PyArg_ParseTuple(item, "nO!npO", &t->output, &PyList_Type, &t->cell, &t->place, &t->overwrites,
                        &spare)) {
    t->cell = NULL; /* (borrowed) */
    return -1;
  }
  Py_INCREF(t->cell);
  if (!is_cell(t->cell) || (spare != Py_None && !is_cell(spare))) return -1;
  if (spare != Py_None) t->spare = Py_NewRef(spare);
  return 0;
}

/* Ending(list of (output, cell), list of turns, stored) */
static PyObject *ending_new(PyTypeObject *type, PyObject *args, PyObject *names) {
  PyObject *outputs, *turns, *stored;
  if (!PyArg_ParseTuple(args, "O!O!O!", &PyList_Type, &outputs, &PyList_Type, &turns, &PyList_Type,
                        &stored))
    return NULL;
  Ending *e = is_cell(stored) ? (Ending *)type->tp_alloc(type, 0) : NULL;
  if (e == NULL) return NULL;
  e->call = ending_call;
  e->stored = Py_NewRef(stored);
  e->outputs = (Py_ssize_t *)PyMem_Calloc(PyList_GET_SIZE(outputs) + 1, sizeof(Py_ssize_t));
  e->cells = (PyObject **)PyMem_Calloc(PyList_GET_SIZE(outputs) + 1, sizeof(PyObject *));
  e->turns = (Turn *)PyMem_Calloc(PyList_GET_SIZE(turns) + 1, sizeof(Turn));
  int failed = e->outputs == NULL || e->cells == NULL || e->turns == NULL;
  if (failed) PyErr_NoMemory();
  for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(outputs); i++) {
    PyObject *cell;
    failed = !PyArg_ParseTuple(PyList_GET_ITEM(outputs, i), "nO!", &e->outputs[i], &PyList_Type, &cell);
    failed = failed || !is_cell(cell);
    if (failed) break;
    e->cells[i] = Py_NewRef(cell);
    e->n_outputs++;
  }
  for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(turns); i++) {
    e->n_turns++;
    failed = read_turn(PyList_GET_ITEM(turns, i), &e->turns[i]);
  }
  if (!failed) return (PyObject *)e;
  Py_DECREF(e);
  return NULL;
}

static PyTypeObject EndingType = {PyVarObject_HEAD_INIT(NULL, 0) "theanoguard_ending.Ending",
                                  sizeof(Ending)};

static struct PyModuleDef ending_module = {PyModuleDef_HEAD_INIT, "theanoguard_ending", NULL, -1};

PyMODINIT_FUNC PyInit_theanoguard_ending(void) {
  import_array();
  EndingType.tp_new = ending_new;
  EndingType.tp_dealloc = ending_dealloc;
  EndingType.tp_call = PyVectorcall_Call;
  EndingType.tp_vectorcall_offset = offsetof(Ending, call);
  EndingType.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  EndingType.tp_doc = "What a call changes that ends well.";
  if (PyType_Ready(&EndingType) < 0) return NULL;
  PyObject *m = PyModule_Create(&ending_module);
  if (m != NULL && PyModule_AddObjectRef(m, "Ending", (PyObject *)&EndingType)) Py_CLEAR(m);
  return m;
}
