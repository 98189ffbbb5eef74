/* The module for Python: the class Guard, which guards one function or inner graph.
 *
 * Nothing here decides whether a value is an error.  A raised flag or a bad element is a suspicion;
 * runtime.py then runs the call a second time and looks at every node.
 */

static void free_cells(PyObject **cells, int n) {
  for (int i = 0; cells != NULL && i < n; i++) Py_XDECREF(cells[i]);
  free(cells);
}

static void free_saves(Save *saves, int n) {
  for (int i = 0; saves != NULL && i < n; i++) {
    Py_XDECREF(saves[i].root);
    Py_XDECREF(saves[i].input);
    Py_XDECREF(saves[i].output);
    Py_XDECREF(saves[i].spare);
    Py_XDECREF(saves[i].rows);
  }
  free(saves);
}

static void node_free(PyObject *capsule) {
  Node *n = (Node *)PyCapsule_GetContext(capsule);
  if (n == NULL) return;
  Py_XDECREF(n->error);
  Py_XDECREF(n->thunk);
  free_cells(n->checks, n->n_checks);
  free_cells(n->thin, n->n_thin);
  free(n->thin_axes);
  free_saves(n->saves, n->n_saves);
  free_cells(n->overwritten, n->n_overwritten);
  free_blocks(n->blocks);
  release_chunk(n->chunk);
}

/* Read a sequence of storage cells; -1 with a Python exception, and nothing kept. */
static int read_cells(PyObject *seq, PyObject ***out, int *n) {
  PyObject *items = PySequence_Fast(seq, "storage cells must be a sequence");
  if (items == NULL) return -1;
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(items);
  PyObject **cells = (PyObject **)calloc(size + 1, sizeof(PyObject *));
  if (cells == NULL) PyErr_NoMemory();
  for (Py_ssize_t i = 0; cells != NULL && i < size; i++) {
    PyObject *cell = PySequence_Fast_GET_ITEM(items, i);
    if (!PyList_Check(cell)) {
      PyErr_SetString(PyExc_TypeError, "a storage cell must be a list");
      free_cells(cells, (int)i);
      cells = NULL;
      break;
    }
    Py_INCREF(cell);
    cells[i] = cell;
  }
  Py_DECREF(items);
  if (cells == NULL) return -1;
  *out = cells;
  *n = (int)size;
  return 0;
}

static void free_inputs(Guard *g) {
  for (int i = 0; i < g->n_inputs; i++) {
    Py_XDECREF(g->inputs[i].cell);
    Py_XDECREF(g->inputs[i].array);
  }
  free(g->inputs);
  g->inputs = NULL;
  g->n_inputs = 0;
}

/* set_inputs(list of (cell, trusted)): what is scanned when a call begins */
static PyObject *guard_set_inputs(PyObject *self, PyObject *seq) {
  Guard *g = (Guard *)self;
  if (!PyList_Check(seq)) {
    PyErr_SetString(PyExc_TypeError, "set_inputs takes a list of (cell, trusted)");
    return NULL;
  }
  const Py_ssize_t size = PyList_GET_SIZE(seq);
  free_inputs(g);
  g->inputs = (Input *)calloc(size + 1, sizeof(Input));
  if (g->inputs == NULL) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < size; i++) {
    PyObject *cell;
    int trusted;
    if (!PyTuple_Check(PyList_GET_ITEM(seq, i)) ||
        !PyArg_ParseTuple(PyList_GET_ITEM(seq, i), "O!p", &PyList_Type, &cell, &trusted)) {
      if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "set_inputs takes a list of (cell, trusted)");
      return NULL;
    }
    Py_INCREF(cell);
    g->inputs[g->n_inputs].cell = cell;
    g->inputs[g->n_inputs++].trusted = trusted;
  }
  Py_RETURN_NONE;
}

static void forget_call(Guard *g) {
  undo_clear(&g->undo);
  for (int i = 0; i < g->n_updated; i++) Py_CLEAR(g->before[i]);
}

/* set_updated(cells, spares): what the virtual machine puts new values into when it ends, and where the
 * second buffer of each is kept */
static PyObject *guard_set_updated(PyObject *self, PyObject *args) {
  Guard *g = (Guard *)self;
  PyObject *seq, *others, **cells, **spares;
  int n, n_spares;
  if (!PyArg_ParseTuple(args, "OO", &seq, &others) || read_cells(seq, &cells, &n)) return NULL;
  if (read_cells(others, &spares, &n_spares)) {
    free_cells(cells, n);
    return NULL;
  }
  PyObject **before = n == n_spares ? (PyObject **)calloc(n + 1, sizeof(PyObject *)) : NULL;
  if (before == NULL) {
    free_cells(cells, n);
    free_cells(spares, n_spares);
    if (n == n_spares) return PyErr_NoMemory();
    PyErr_SetString(PyExc_ValueError, "each storage needs another one for its second buffer");
    return NULL;
  }
  forget_call(g);
  free_cells(g->updated, g->n_updated);
  free_cells(g->spares, g->n_updated);
  free(g->before);
  g->updated = cells;
  g->spares = spares;
  g->n_updated = n;
  g->before = before;
  Py_RETURN_NONE;
}

/* Exchange what is in the updated storage with what was there when the call began. */
static void swap_updated(Guard *g) {
  for (int i = 0; i < g->n_updated; i++) {
    PyObject *now = cell_value(g->updated[i]);
    if (g->before[i] == NULL || now == NULL) continue;
    Py_INCREF(now);
    PyList_SetItem(g->updated[i], 0, g->before[i]);
    g->before[i] = now;
  }
}

/* undo(): put back what the call has overwritten; once */
static PyObject *guard_undo(PyObject *self, PyObject *unused) {
  Guard *g = (Guard *)self;
  if (g->undo.undone) Py_RETURN_NONE;
  swap_updated(g);
  if (undo_swap(&g->undo, 1)) return NULL;
  Py_RETURN_NONE;
}

/* redo(): take that back */
static PyObject *guard_redo(PyObject *self, PyObject *unused) {
  Guard *g = (Guard *)self;
  if (!g->undo.undone) Py_RETURN_NONE;
  const int failed = undo_swap(&g->undo, 0);
  swap_updated(g);
  if (failed) return NULL;
  Py_RETURN_NONE;
}

static PyObject *guard_undone(PyObject *self, PyObject *unused) {
  return PyBool_FromLong(((Guard *)self)->undo.undone);
}

static Node *node_of(PyObject *capsule) {
  if (!PyCapsule_CheckExact(capsule) ||
      PyCapsule_GetPointer(capsule, NULL) != (void *)guarded_run) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "not a wrapped node");
    return NULL;
  }
  return (Node *)PyCapsule_GetContext(capsule);
}

static int modes_of_saves(const Node *n) {
  int mode = n->n_saves ? SAVE | BESIDE : 0;
  for (int i = 0; i < n->n_saves; i++)
    if (!n->saves[i].beside) mode = SAVE;
  return mode;
}

/* A reference to a storage cell of an argument, or NULL for None; -1 with a Python exception. */
static int read_cell(PyObject *item, PyObject **out) {
  if (item == Py_None) return 0;
  if (!PyList_Check(item)) {
    PyErr_SetString(PyExc_TypeError, "a storage cell must be a list");
    return -1;
  }
  *out = Py_NewRef(item);
  return 0;
}

/* Read what a node overwrites, a list of (root, input, output, spare, beside, partly); `partly` may be
 * the storage of the rows that are overwritten. */
static int read_saves(PyObject *list, Node *n) {
  if (!PyList_Check(list)) {
    PyErr_SetString(PyExc_TypeError, "what a node overwrites must be a list");
    return -1;
  }
  n->saves = (Save *)calloc(PyList_GET_SIZE(list) + 1, sizeof(Save));
  if (n->saves == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (; n->n_saves < PyList_GET_SIZE(list); n->n_saves++) {
    Save *s = &n->saves[n->n_saves];
    PyObject *item = PyList_GET_ITEM(list, n->n_saves), *root, *input, *output, *spare, *partly;
    if (!PyTuple_Check(item) ||
        !PyArg_ParseTuple(item, "O!O!OOpO", &PyList_Type, &root, &PyList_Type, &input, &output,
                          &spare, &s->beside, &partly)) {
      if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "not (root, input, output, spare, beside, partly)");
      return -1;
    }
    s->partly = PyList_Check(partly) ? 1 : PyObject_IsTrue(partly);
    if (s->partly < 0 || read_cell(output, &s->output) || read_cell(spare, &s->spare) ||
        (PyList_Check(partly) && read_cell(partly, &s->rows)))
      return -1;
    s->root = Py_NewRef(root);
    s->input = Py_NewRef(input);
  }
  return 0;
}

/* add_node(index, cthunk, thunk, saves, overwritten) -> capsule */
static PyObject *guard_add_node(PyObject *self, PyObject *args) {
  Guard *g = (Guard *)self;
  PyObject *cthunk, *thunk, *saves, *overwritten;
  int index;
  if (!PyArg_ParseTuple(args, "iOOOO", &index, &cthunk, &thunk, &saves, &overwritten)) return NULL;
  Node *n = new_node(g);
  PyObject *capsule = n == NULL ? NULL : PyCapsule_New((void *)guarded_run, NULL, node_free);
  if (capsule == NULL || PyCapsule_SetContext(capsule, n)) {
    if (n != NULL) release_chunk(n->chunk);
    Py_XDECREF(capsule);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
  }
  n->guard = g;
  n->index = index;
  Py_INCREF(thunk);
  n->thunk = thunk;
  if (cthunk != Py_None) {
    n->run = (int (*)(void *))PyCapsule_GetPointer(cthunk, NULL);
    n->context = n->run == NULL ? NULL : PyCapsule_GetContext(cthunk);
    if (n->context == NULL) goto fail;
    n->error = ((PyObject **)n->context)[0];
    Py_INCREF(n->error);
  } else {
    n->mode = PYTHON;
    n->error = Py_BuildValue("[OOO]", Py_None, Py_None, Py_None);
    if (n->error == NULL) goto fail;
  }
  if (read_saves(saves, n)) goto fail;
  if (read_cells(overwritten, &n->overwritten, &n->n_overwritten)) goto fail;
  n->mode |= modes_of_saves(n);
  g->memory += n->n_saves * sizeof(Save) + n->n_overwritten * sizeof(PyObject *);
  return capsule;
fail:
  Py_DECREF(capsule);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "not the capsule of a C thunk");
  return NULL;
}

/* Read a list of (storage cell, number); -1 with a Python exception, and nothing kept. */
static int read_numbered(PyObject *list, PyObject ***cells, int **numbers, int *n) {
  const Py_ssize_t size = PyList_GET_SIZE(list);
  *n = 0;
  *cells = (PyObject **)calloc(size + 1, sizeof(PyObject *));
  *numbers = (int *)calloc(size + 1, sizeof(int));
  if (*cells == NULL || *numbers == NULL) PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < size && !PyErr_Occurred(); i++) {
    PyObject *pair = PyList_GET_ITEM(list, i), *cell;
    if (!PyTuple_Check(pair)) {
      PyErr_SetString(PyExc_TypeError, "not a pair of a storage cell and a number");
    } else if (PyArg_ParseTuple(pair, "O!i", &PyList_Type, &cell, &(*numbers)[i])) {
      Py_INCREF(cell);
      (*cells)[(*n)++] = cell;
    }
  }
  if (!PyErr_Occurred()) return 0;
  free_cells(*cells, *n);
  free(*numbers);
  return -1;
}

/* set_mode(capsule, mode, scans, sizes, thin): how a node is treated from now on */
static PyObject *guard_set_mode(PyObject *self, PyObject *args) {
  PyObject *capsule, *scans, *sizes, *thin, **cells, **thin_cells;
  int mode, n_cells, n_thin, *axes;
  if (!PyArg_ParseTuple(args, "OiO!O!O!", &capsule, &mode, &PyList_Type, &scans, &PyList_Type,
                        &sizes, &PyList_Type, &thin))
    return NULL;
  Node *n = node_of(capsule);
  if (n == NULL) return NULL;
  if (mode < 0 || mode >= N_MODES || n->guard != (Guard *)self) {
    PyErr_SetString(PyExc_ValueError, "no such mode, or a node of another guard");
    return NULL;
  }
  const int n_scans = (int)PyList_GET_SIZE(scans);
  PyObject *both = PySequence_Concat(scans, sizes);
  const int failed = both == NULL || read_cells(both, &cells, &n_cells);
  Py_XDECREF(both);
  if (failed) return NULL;
  if (read_numbered(thin, &thin_cells, &axes, &n_thin)) {
    free_cells(cells, n_cells);
    return NULL;
  }
  free_cells(n->checks, n->n_checks);
  free_cells(n->thin, n->n_thin);
  free(n->thin_axes);
  n->checks = cells;
  n->n_checks = n_cells;
  n->n_scans = n_scans;
  n->thin = thin_cells;
  n->thin_axes = axes;
  n->n_thin = n_thin;
  n->mode = (mode & ~(SAVE | BESIDE | PYTHON | IN_BLOCKS)) | modes_of_saves(n) | (n->run ? 0 : PYTHON);
  Py_RETURN_NONE;
}

/* set_blocks(capsule, operands, outputs): run the node in blocks.  `operands`: for each that is cut,
 * its storage and whether the node scans it, since it enters and nobody has read it before;
 * `outputs`: storage, type number, and which operand it overwrites, or -1. */
static PyObject *guard_set_blocks(PyObject *self, PyObject *args) {
  Guard *g = (Guard *)self;
  PyObject *capsule, *operands, *outputs;
  if (!PyArg_ParseTuple(args, "OO!O!", &capsule, &PyList_Type, &operands, &PyList_Type, &outputs))
    return NULL;
  Node *n = node_of(capsule);
  if (n == NULL) return NULL;
  const Py_ssize_t n_in = PyList_GET_SIZE(operands), n_out = PyList_GET_SIZE(outputs);
  if (n->guard != g || n->run == NULL || n_in < 1 || n_out < 1 || n_in + n_out > MAX_CUT) {
    PyErr_SetString(PyExc_ValueError, "a node that cannot run in blocks");
    return NULL;
  }
  Blocks *b = (Blocks *)calloc(1, sizeof(Blocks));
  if (b == NULL) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < n_in + n_out; i++) {
    PyObject *pair = i < n_in ? PyList_GET_ITEM(operands, i) : PyList_GET_ITEM(outputs, i - n_in);
    PyObject *cell;
    int number, of = -1; /* number: whether it is scanned, or the type */
    if (!PyTuple_Check(pair) ||
        !PyArg_ParseTuple(pair, "O!i|i", &PyList_Type, &cell, &number, &of)) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "set_blocks takes lists of tuples");
      free_blocks(b);
      return NULL;
    }
    b->types[i] = number;
    b->entering[i] = -1;
    b->of[i] = i < n_in || of >= n_in ? -1 : of;
    Py_INCREF(cell);
    b->cells[b->n++] = cell;
    for (int k = 0; k < n->n_scans && i >= n_in; k++) b->scanned[i] |= n->checks[k] == cell;
    for (int k = 0; k < g->n_inputs && i < n_in && number; k++) {
      Input *c = &g->inputs[k];
      if (c->cell != cell || c->trusted) continue;
      c->late = 1;
      b->entering[i] = k;
      b->scanned[i] = 1;
    }
  }
  b->n_in = (int)n_in;
  for (int i = b->n_in; i < b->n; i++) {
    if (b->of[i] < 0) continue;
    for (int k = 0; k < n->n_saves; k++)
      if (n->saves[k].output == b->cells[i]) b->spares[i] = Py_XNewRef(n->saves[k].spare);
    b->overwritten[b->of[i]] |= b->spares[i] == NULL;
  }
  free_blocks(n->blocks);
  n->blocks = b;
  n->mode |= IN_BLOCKS;
  Py_RETURN_NONE;
}

/* fired(capsule) -> what the node was suspected of since the last question: BAD, EMPTY */
static PyObject *guard_fired(PyObject *self, PyObject *capsule) {
  Node *n = node_of(capsule);
  if (n == NULL) return NULL;
  PyObject *r = PyLong_FromLong(n->fired);
  n->fired = 0;
  return r;
}

static int is_referent(PyObject *reference, PyObject *value) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject *array;
  if (PyWeakref_GetRef(reference, &array) < 0) PyErr_Clear();
  Py_XDECREF(array); /* another one is held, if it is the same */
  return array == value;
#else
  return PyWeakref_GetObject(reference) == value;
#endif
}

static int is_known(Input *c, PyObject *value) {
  if (!c->trusted || c->array == NULL || ++c->age >= RESCAN) return 0;
  return is_referent(c->array, value);
}

/* What a trusted input held was good, and so is what the call has made of it. */
static int trust_again(Guard *g, PyObject *cell, PyObject *before) {
  PyObject *now = cell_value(cell);
  for (int i = 0; i < g->n_inputs; i++) {
    Input *c = &g->inputs[i];
    if (c->cell != cell || c->array == NULL || now == NULL) continue;
    const int known = is_referent(c->array, before);
    if (known) Py_SETREF(c->array, PyWeakref_NewRef(now, NULL));
    if (known && c->array == NULL) return -1;
  }
  return 0;
}

/* begin() -> whether something that enters is bad */
static PyObject *guard_begin(PyObject *self, PyObject *unused) {
  Guard *g = (Guard *)self;
  forget_call(g);
  g->undo.copied = 0;
  g->overwrote = 0;
  g->state->suspect = 0;
  g->state->raised = 0;
  for (int i = 0; i < g->n_updated; i++) g->before[i] = Py_XNewRef(cell_value(g->updated[i]));
  if (!g->state->looking) Py_RETURN_FALSE;
  for (int i = 0; i < g->n_inputs; i++) {
    Input *c = &g->inputs[i];
    PyObject *value = cell_value(c->cell);
    c->waits = c->late;
    if (value == NULL || c->waits || is_known(c, value)) continue;
    int bad = scan_value(g, value);
    if (bad < 0) return NULL;
    if (bad) {
      g->state->suspect = 1;
      Py_CLEAR(c->array);
    } else if (c->trusted && PyArray_CheckExact(value)) {
      Py_XSETREF(c->array, PyWeakref_NewRef(value, NULL));
      if (c->array == NULL) return NULL;
      c->age = 0;
    }
  }
  g->state->raised = 0;
  clear_flags();
  return PyBool_FromLong(g->state->suspect);
}

/* end() -> 0 if nothing is suspicious, else 1 for a raised flag and 2 for a scan that found something */
static PyObject *guard_end(PyObject *self, PyObject *unused) {
  Guard *g = (Guard *)self;
  State *state = g->state;
  if (!state->looking) return PyLong_FromLong(0);
  state->raised |= read_flags();
  for (int i = 0; i < g->n_inputs; i++) { /* (of a call that has failed before) */
    const int bad = scan_waiting(g, &g->inputs[i]);
    if (bad < 0) return NULL;
    if (bad) state->suspect = 1;
  }
  const int suspicion = (state->raised ? 1 : 0) | (state->suspect ? 2 : 0);
  return PyLong_FromLong(suspicion);
}

/* overwrote(): whether the call has overwritten something that is not put back */
static PyObject *guard_overwrote(PyObject *self, PyObject *unused) {
  return PyBool_FromLong(((Guard *)self)->overwrote);
}

/* commit(): what was overwritten shall stay */
static PyObject *guard_commit(PyObject *self, PyObject *unused) {
  Guard *g = (Guard *)self;
  int failed = 0;
  for (int i = 0; i < g->n_updated && !g->undo.undone; i++) {
    if (g->before[i] == NULL) continue;
    failed |= trust_again(g, g->updated[i], g->before[i]);
    failed |= take_turns(g->updated[i], g->spares[i], g->before[i]);
  }
  forget_call(g);
  if (failed) return NULL;
  Py_RETURN_NONE;
}

/* set_aside(): the call waits for a user's action, in which the function may be called */
static PyObject *guard_set_aside(PyObject *self, PyObject *unused) {
  Guard *g = (Guard *)self;
  Aside *a = (Aside *)calloc(1, sizeof(Aside));
  PyObject **before = (PyObject **)calloc(g->n_updated + 1, sizeof(PyObject *));
  if (a == NULL || before == NULL) {
    free(a);
    free(before);
    return PyErr_NoMemory();
  }
  a->undo = g->undo;
  a->before = g->before;
  a->suspect = g->state->suspect;
  a->overwrote = g->overwrote;
  a->raised = g->state->raised;
  a->outer = g->aside;
  memset(&g->undo, 0, sizeof g->undo);
  g->before = before;
  g->aside = a;
  Py_RETURN_NONE;
}

/* Let the call that was set aside last be the one in progress again. */
static void take_up(Guard *g) {
  Aside *a = g->aside;
  forget_call(g);
  undo_free(&g->undo);
  free(g->before);
  g->undo = a->undo;
  g->before = a->before;
  g->state->suspect = a->suspect;
  g->overwrote = a->overwrote;
  g->state->raised = a->raised;
  g->aside = a->outer;
  free(a);
}

/* take_up(goes_on): the action has ended; unless the call goes on, it will put back nothing */
static PyObject *guard_take_up(PyObject *self, PyObject *goes_on) {
  Guard *g = (Guard *)self;
  if (g->aside == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "no call was set aside");
    return NULL;
  }
  take_up(g);
  if (goes_on != Py_True) forget_call(g);
  clear_flags();
  Py_RETURN_NONE;
}

/* suspect(): the call is to be looked at */
static PyObject *guard_suspect(PyObject *self, PyObject *unused) {
  ((Guard *)self)->state->suspect = 1;
  Py_RETURN_NONE;
}

static PyObject *guard_scan(PyObject *self, PyObject *value) {
  int bad = scan_value((Guard *)self, value);
  return bad < 0 ? NULL : PyBool_FromLong(bad);
}

/* clock(value, n) -> seconds that one scan of it takes, over n of them */
static PyObject *guard_clock(PyObject *self, PyObject *args) {
  PyObject *value;
  int n;
  if (!PyArg_ParseTuple(args, "Oi", &value, &n)) return NULL;
  const double before = seconds();
  for (int i = 0; i < n; i++)
    if (scan_value((Guard *)self, value) < 0) return NULL;
  return PyFloat_FromDouble((seconds() - before) / n);
}

static void release_state(State *state) {
  if (state != NULL && --state->refs == 0) free(state);
}

static PyObject *guard_new(PyTypeObject *type, PyObject *args, PyObject *kwds) {
  static const char *names[] = {"nan",    "inf",  "big",     "ints",  "limit",
                                "is_bad", "save", "verdict", "enter", "before_loss", NULL};
  Limits l;
  PyObject *is_bad, *save, *verdict, *enter, *before_loss;
  if (!PyArg_ParseTupleAndKeywords(args, kwds, "ppppdOOOOO", (char **)names, &l.nan, &l.inf, &l.big,
                                   &l.ints, &l.limit, &is_bad, &save, &verdict, &enter, &before_loss))
    return NULL;
  Guard *g = (Guard *)type->tp_alloc(type, 0); /* (filled with zeros) */
  if (g == NULL) return NULL;
  g->state = (State *)calloc(1, sizeof(State));
  if (g->state == NULL) {
    Py_DECREF(g);
    return PyErr_NoMemory();
  }
  g->is_bad = Py_NewRef(is_bad);
  g->save = Py_NewRef(save);
  g->verdict = Py_NewRef(verdict);
  g->enter = Py_NewRef(enter);
  g->before_loss = Py_NewRef(before_loss);
  set_ranges(&l);
  g->limits = l;
  g->state->refs = 1;
  g->state->looking = 1;
  g->steps_between = 1;
  g->memory = sizeof(Guard) + sizeof(State);
  return (PyObject *)g;
}

static PyTypeObject GuardType = {PyVarObject_HEAD_INIT(NULL, 0) "theanoguard_kernel.Guard",
                                 sizeof(Guard)};

/* join(guard): share the suspicions of the guard outside */
static PyObject *guard_join(PyObject *self, PyObject *other) {
  if (!PyObject_TypeCheck(other, &GuardType)) {
    PyErr_SetString(PyExc_TypeError, "join takes a Guard");
    return NULL;
  }
  State *state = ((Guard *)other)->state;
  state->refs++;
  release_state(((Guard *)self)->state);
  ((Guard *)self)->state = state;
  Py_RETURN_NONE;
}

static void guard_dealloc(PyObject *self) {
  Guard *g = (Guard *)self;
  while (g->aside != NULL) take_up(g);
  forget_call(g);
  undo_free(&g->undo);
  free_cells(g->updated, g->n_updated);
  free_cells(g->spares, g->n_updated);
  free(g->before);
  free_inputs(g);
  release_chunk(g->chunk);
  release_state(g->state);
  Py_XDECREF(g->is_bad);
  Py_XDECREF(g->save);
  Py_XDECREF(g->verdict);
  Py_XDECREF(g->enter);
  Py_XDECREF(g->before_loss);
  Py_TYPE(self)->tp_free(self);
}

static PyObject *guard_look(PyObject *self, PyObject *looking) {
  const int truth = PyObject_IsTrue(looking);
  if (truth < 0) return NULL;
  ((Guard *)self)->state->looking = truth;
  Py_RETURN_NONE;
}

static PyObject *guard_step(PyObject *self, PyObject *unused) {
  return PyLong_FromLongLong(((Guard *)self)->step);
}

static PyObject *guard_set_step(PyObject *self, PyObject *step) {
  const long long now = PyLong_AsLongLong(step);
  if (PyErr_Occurred()) return NULL;
  ((Guard *)self)->step = now;
  Py_RETURN_NONE;
}

static PyObject *guard_counters(PyObject *self, PyObject *unused) {
  Guard *g = (Guard *)self;
  return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K}", "scans", g->scans, "bytes", g->bytes, "blocks",
                       g->blocks, "memory", g->memory, "copied", g->undo.copied);
}

static PyMethodDef guard_methods[] = {
    {"set_inputs", guard_set_inputs, METH_O, "What is scanned when a call begins."},
    {"add_node", guard_add_node, METH_VARARGS, "Wrap one node; returns its capsule."},
    {"set_mode", guard_set_mode, METH_VARARGS, "How a wrapped node is treated from now on."},
    {"set_blocks", guard_set_blocks, METH_VARARGS, "Run a wrapped node on blocks of rows."},
    {"fired", guard_fired, METH_O, "What the node was suspected of: BAD, EMPTY."},
    {"join", guard_join, METH_O, "Share the suspicions of the guard outside."},
    {"begin", guard_begin, METH_NOARGS, "Start a call; says whether something bad enters."},
    {"end", guard_end, METH_NOARGS, "What is suspicious: 1 for flags, 2 for scans."},
    {"suspect", guard_suspect, METH_NOARGS, "The call is to be looked at."},
    {"set_updated", guard_set_updated, METH_VARARGS, "What the virtual machine replaces."},
    {"undo", guard_undo, METH_NOARGS, "Put back what the call has overwritten."},
    {"redo", guard_redo, METH_NOARGS, "Take that back."},
    {"undone", guard_undone, METH_NOARGS, "Whether it was put back."},
    {"overwrote", guard_overwrote, METH_NOARGS, "Whether something is lost that was there before."},
    {"commit", guard_commit, METH_NOARGS, "Forget what was saved."},
    {"set_aside", guard_set_aside, METH_NOARGS, "Another call of the function may come."},
    {"take_up", guard_take_up, METH_O, "Go on with the call that was set aside."},
    {"step", guard_step, METH_NOARGS, "Steps of the loop that have begun."},
    {"set_step", guard_set_step, METH_O, "Set their number."},
    {"look", guard_look, METH_O, "Whether to look at what follows."},
    {"scan", guard_scan, METH_O, "Whether a value is bad."},
    {"clock", guard_clock, METH_VARARGS, "Seconds that a scan of one value takes."},
    {"counters", guard_counters, METH_NOARGS, "What has been done so far."},
    {NULL, NULL, 0, NULL}};

static PyObject *call_capsule(PyObject *self, PyObject *capsule) {
  /* For the virtual machines that loop in Python. */
  Node *n = node_of(capsule);
  if (n == NULL) return NULL;
  if (guarded_run(n) == 0) Py_RETURN_NONE;
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

static PyObject *py_read_flags(PyObject *self, PyObject *unused) {
  return PyLong_FromUnsignedLong(read_flags());
}

static PyObject *py_clear_flags(PyObject *self, PyObject *unused) {
  clear_flags();
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"call", call_capsule, METH_O, "Run a wrapped node from Python."},
    {"read_flags", py_read_flags, METH_NOARGS, "The exception flags that are raised, as a number."},
    {"clear_flags", py_clear_flags, METH_NOARGS, "Clear the exception flags."},
    {"sample", py_sample, METH_VARARGS, "Elements of arrays, and what they say of them."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef moduledef = {PyModuleDef_HEAD_INIT, "theanoguard_kernel", NULL, -1,
                                       methods};

/* What Python needs to know of the numbers here, so that it repeats none. */
static const struct {
  const char *name;
  long value;
} constants[] = {{"WATCH", WATCH}, {"BRACKET", BRACKET}, {"CAREFUL", CAREFUL},
                 {"COUNT", COUNT}, {"KEEP", KEEP},       {"PART", PART},
                 {"BAD", BAD},     {"EMPTY", EMPTY},     {"PART_BEFORE", PART_BEFORE},
                 {"MAX_CUT", MAX_CUT}, {"OVERWRITES", OVERWRITES}};

PyMODINIT_FUNC PyInit_theanoguard_kernel(void) {
  import_array();
  GuardType.tp_new = guard_new;
  GuardType.tp_dealloc = guard_dealloc;
  GuardType.tp_flags = Py_TPFLAGS_DEFAULT;
  GuardType.tp_methods = guard_methods;
  GuardType.tp_doc = "State and checks of one guarded function.";
  if (PyType_Ready(&GuardType) < 0) return NULL;
  PyObject *m = PyModule_Create(&moduledef);
  if (m == NULL) return NULL;
  int failed = PyModule_AddObjectRef(m, "Guard", (PyObject *)&GuardType) ||
               PyModule_AddIntConstant(m, "flags_work", flags_work());
  for (size_t i = 0; i < sizeof constants / sizeof *constants && !failed; i++)
    failed = PyModule_AddIntConstant(m, constants[i].name, constants[i].value);
  if (failed) Py_CLEAR(m);
  return m;
}
