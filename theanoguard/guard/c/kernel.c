/* The guard of one function, and the nodes that it has wrapped.
 *
 * PyTensor's C virtual machine calls every node as `int run(void *context)`.  Here each such pair
 * is wrapped in a pair of our own, so that the loop stays in C and no operation is recompiled.  A
 * wrapped node does only what its mode says (enum below), which is most often nothing: the flags of
 * the processor are read once, when the call ends.
 *
 * Nothing here decides whether a value is an error.  A raised flag or a bad element is a suspicion;
 * linker.py then runs the call a second time and looks at every node.
 */

enum {
  WATCH = 1,   /* scan the outputs that are listed, or see whether they are empty */
  BRACKET = 2, /* take in the flags before the node runs, clear them after it: they mean nothing */
  CAREFUL = 4, /* bad outputs may be right: ask for the verdict on this node */
  SAVE = 8,    /* it overwrites what a failed call must leave as it was */
  COUNT = 16,  /* a node of an inner graph that counts the steps, and lets Ctrl-C end the loop */
  PYTHON = 32, /* it has no C function */
  KEEP = 64,   /* the flags that stand after it are taken in: Python code may run before the next */
  PART = 128,  /* of what it overwrites, scan these elements when it has run */
  PART_BEFORE = 256, /* ... and before it runs */
  IN_BLOCKS = 512,   /* run it on blocks of rows, and scan these */
  N_MODES = 1024
};

enum { BAD = 1, EMPTY = 2 }; /* what a node has been suspected of */

/* What the guards of a function and of its inner graphs share. */
typedef struct {
  int refs;
  unsigned raised; /* flags that were taken in */
  int suspect;     /* a scan has found something */
  int looking;
} State;

typedef struct {
  PyObject *cell;  /* the storage: a list of one */
  int trusted;     /* read again only when it holds another array, or once in RESCAN calls */
  int age;         /* calls since it was read */
  PyObject *array; /* a weak reference to what was read */
  int late;        /* a node that runs in blocks reads it first, and scans it then */
  int waits;       /* for that node, in this call */
} Input;

enum { RESCAN = 16 };

typedef struct {
  PyObject_HEAD
  Limits limits;
  State *state;
  long long step; /* of an inner graph: steps that have begun */
  int pause, steps_between; /* steps until other threads may run; and from one time to the next */
  double paused;            /* when they last could */
  int n_inputs;
  Input *inputs;
  int n_updated;
  PyObject **updated; /* storage of the inputs that the virtual machine replaces when it ends */
  PyObject **before;  /* what was in it when the call began */
  UndoLog undo;
  struct Chunk *chunk;               /* which the next node is taken from */
  unsigned long long scans, bytes, blocks; /* counters; blocks: nodes that ran in them */
  unsigned long long memory;         /* bytes allocated here */
  PyObject *is_bad, *save, *verdict, *enter; /* callables */
} Guard;

typedef struct Node {
  PyObject *error; /* must be first: the virtual machine reads the exception here */
  int (*run)(void *);
  void *context;
  Guard *guard; /* borrowed: the thunk object keeps it alive */
  int mode, n_checks, n_scans;
  PyObject **checks; /* storage of the outputs that are scanned, then of those that show nothing if
                        they are empty */
  int index, fired;  /* fired: BAD, EMPTY */
  PyObject *thunk; /* what `run` belongs to, or what to call when there is no `run` */
  int n_saves, n_overwritten;
  PyObject **saves;       /* storage of what the node overwrites and a failed call must put back */
  PyObject **buffers;     /* where the copies of these are kept */
  int *partly;            /* whether Python saves it, since it is overwritten in part */
  PyObject **rows;        /* storage of the numbers of the rows that are overwritten, or NULL */
  PyObject **overwritten; /* storage of the inputs that it overwrites, whatever they are */
  Blocks *blocks;         /* how it runs in blocks, or NULL */
  struct Chunk *chunk;    /* where it lies */
} Node;

/* Nodes lie one after another, in the order in which they run, each on cache lines of its own: the
 * processor fetches them before they are asked for.  With memory of its own for each, thousands of
 * small nodes took several times as long for their checks.
 */
typedef struct Chunk {
  int live; /* nodes in use, and one for the guard that takes nodes from here */
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

/* 1 if the value is bad, 0 if not, -1 with a Python exception. */
static int scan_value(Guard *g, PyObject *value) {
  if (value == NULL || value == Py_None) return 0;
  g->scans++;
  if (PyArray_Check(value)) {
    g->bytes += (unsigned long long)PyArray_NBYTES((PyArrayObject *)value);
    return is_bad_array(&g->limits, (PyArrayObject *)value);
  }
  g->state->raised |= read_flags(); /* (what NumPy computes clears them) */
  PyObject *r = PyObject_CallOneArg(g->is_bad, value); /* sparse, typed lists, scalars */
  clear_flags();
  if (r == NULL) return -1;
  int bad = PyObject_IsTrue(r);
  Py_DECREF(r);
  return bad;
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

static int run_unguarded(Node *n) {
  if (n->run) return n->run(n->context);
  PyObject *r = PyObject_CallNoArgs(n->thunk);
  if (r == NULL) return pending_error(n);
  Py_DECREF(r);
  return 0;
}

/* Save what the node is about to overwrite.  Of what is no array, or overwritten in part only, Python
 * knows how: `save(index, i)` returns an object whose `swap` undoes it, or (array, index). */
static int save_all(Node *n) {
  Guard *g = n->guard;
  for (int i = 0; i < n->n_saves; i++) {
    PyObject *value = cell_value(n->saves[i]);
    if (value == NULL) continue;
    PyObject *rows = n->rows[i] == NULL ? NULL : cell_value(n->rows[i]);
    if (rows != NULL && PyArray_Check(rows) && PyArray_Check(value)) {
      if (undo_save_rows(&g->undo, (PyArrayObject *)value, (PyArrayObject *)rows)) return -1;
    } else if (PyArray_Check(value) && !n->partly[i]) {
      if (undo_save(&g->undo, (PyArrayObject *)value, &n->buffers[i])) return -1;
    } else if (!undo_holds(&g->undo, value)) {
      if (undo_save_part(&g->undo, PyObject_CallFunction(g->save, "ii", n->index, i))) return -1;
    }
  }
  return 0;
}

/* Scan the elements that the node overwrites: what was saved of them, or what is there now.
 * `first`: the first entry of the undo log that is the node's.  -1 with a Python exception. */
static int check_part(Node *n, int first, int now) {
  Guard *g = n->guard;
  g->state->raised |= read_flags();
  for (int i = first; i < g->undo.n; i++) {
    const Undo *u = &g->undo.entries[i];
    if (u->index == NULL) continue;
    PyObject *elements = u->copy;
    if (now) elements = elements_at(u->value, u->index);
    else Py_INCREF(elements);
    const int bad = elements == NULL ? -1 : scan_value(g, elements);
    Py_XDECREF(elements);
    if (bad < 0) return -1;
    if (bad) g->state->suspect = 1;
  }
  clear_flags();
  return 0;
}

/* The values of the inputs that the node overwrites, copied; in a new list. */
static PyObject *copies_of_overwritten(Node *n) {
  PyObject *list = PyList_New(n->n_overwritten);
  for (int i = 0; list != NULL && i < n->n_overwritten; i++) {
    PyObject *value = cell_value(n->overwritten[i]), *copy;
    if (value != NULL && PyArray_Check(value)) {
      copy = PyArray_NewCopy((PyArrayObject *)value, NPY_KEEPORDER);
    } else {
      copy = value == NULL ? Py_None : value;
      Py_INCREF(copy);
    }
    if (copy == NULL) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, copy);
  }
  return list;
}

#define SMALL 48 /* elements */

/* Where no element reads an operand, a bad one in it shows nowhere further down. */
static int has_empty_output(Node *n) {
  for (int i = n->n_scans; i < n->n_checks; i++) {
    PyObject *value = cell_value(n->checks[i]);
    if (value != NULL && PyArray_Check(value) && PyArray_SIZE((PyArrayObject *)value) == 0) return 1;
  }
  return 0;
}

/* Scan the outputs of a node that has just run; -1 with the exception where PyTensor reads it. */
static int check_outputs(Node *n) {
  Guard *g = n->guard;
  for (int i = 0; i < n->n_scans; i++) {
    PyObject *value = cell_value(n->checks[i]);
    if (value != NULL && PyArray_CheckExact(value)) {
      PyArrayObject *a = (PyArrayObject *)value;
      const int type_num = PyArray_TYPE(a), nd = PyArray_NDIM(a);
      const npy_intp size = nd == 0 ? 1 : nd == 1 ? PyArray_DIM(a, 0) : SMALL + 1;
      if (size <= SMALL && (type_num == NPY_DOUBLE || type_num == NPY_FLOAT) &&
          PyArray_IS_C_CONTIGUOUS(a)) {
        const int is_double = type_num == NPY_DOUBLE;
        if (scan_few(PyArray_BYTES(a), size, is_double) <=
            (is_double ? g->limits.stop64 : g->limits.stop32)) {
          g->scans++;
          g->bytes += (unsigned long long)((is_double ? 8 : 4) * size);
          continue;
        }
      }
    }
    int bad = scan_value(g, value);
    if (bad < 0) return pending_error(n);
    if (bad) return 1;
  }
  return 0;
}

/* Scan an input that still waits for its node.  -1 with a Python exception. */
static int scan_waiting(Guard *g, Input *c) {
  if (!c->waits) return 0;
  c->waits = 0;
  return scan_value(g, cell_value(c->cell));
}

/* Something that enters is bad: may the call go on?  -1 with the exception where PyTensor reads it. */
static int enter_late(Node *n) {
  PyObject *r = PyObject_CallNoArgs(n->guard->enter);
  if (r == NULL) return pending_error(n);
  Py_DECREF(r);
  clear_flags();
  return 0;
}

/* Run a node in blocks; -1 if it fails, 1 if it has to run as always. */
static int run_cut(Node *n) {
  Guard *g = n->guard;
  const Blocks *b = n->blocks;
  const BlocksResult r = run_in_blocks(b, n->run, n->context, &g->limits);
  int found = 0;
  for (int i = 0; i < b->n_in && !r.failed; i++) {
    if (b->entering[i] < 0 || b->entering[i] >= g->n_inputs) continue;
    Input *c = &g->inputs[b->entering[i]];
    const int bad = r.cut ? 0 : scan_waiting(g, c);
    if (bad < 0) return pending_error(n);
    found |= bad;
    c->waits = 0;
  }
  if (!r.cut) return found && enter_late(n) ? -1 : 1;
  g->blocks++;
  g->scans += r.scans;
  g->bytes += r.bytes;
  if (n->mode & KEEP) g->state->raised |= read_flags();
  if (r.bad_out) {
    n->fired |= BAD;
    g->state->suspect = 1;
  }
  return r.failed || (r.bad_in && enter_late(n)) ? -1 : 0;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* A step of a loop begins.  The loop runs in C, where Python neither sees Ctrl-C nor lets its other
 * threads run: let them, every few milliseconds.  -1 with a Python exception. */
static int begin_step(Guard *g) {
  g->step++;
  if (g->state->looking) g->state->raised |= read_flags();
  if (PyErr_CheckSignals()) return -1;
  if (--g->pause <= 0) {
    const double before = seconds(), since = before - g->paused;
    Py_BEGIN_ALLOW_THREADS;
    Py_END_ALLOW_THREADS;
    g->paused = seconds();
    if (since < 1e-3 && g->steps_between < (1 << 20)) g->steps_between *= 2;
    else if (since > 4e-3 && g->steps_between > 1) g->steps_between /= 2;
    g->pause = g->steps_between;
  }
  if (g->state->looking) clear_flags(); /* (of a signal handler) */
  return 0;
}

static int run_watched(Node *n) {
  Guard *g = n->guard;
  State *state = g->state;
  const int mode = n->mode, saved = g->undo.n;
  PyObject *before = NULL;
  if ((mode & COUNT) && begin_step(g)) return pending_error(n);
  if (!state->looking) return run_unguarded(n);
  if (mode & IN_BLOCKS) {
    const int done = run_cut(n);
    if (done <= 0) return done;
  }
  if (mode & (BRACKET | SAVE | PYTHON)) state->raised |= read_flags();
  if ((mode & SAVE) && save_all(n)) return pending_error(n);
  if ((mode & PART_BEFORE) && check_part(n, saved, 0)) return pending_error(n);
  if ((mode & CAREFUL) && n->n_overwritten && (before = copies_of_overwritten(n)) == NULL)
    return pending_error(n);
  if (mode & (BRACKET | SAVE)) clear_flags(); /* (what copied may have raised some) */
  int failed = run_unguarded(n);
  if (mode & KEEP) state->raised |= read_flags();
  else if (mode & (BRACKET | PYTHON)) clear_flags();
  else if (mode & CAREFUL) state->raised |= read_flags(); /* (the verdict clears them) */
  if (!failed && (mode & PART) && check_part(n, saved, 1)) failed = pending_error(n);
  if (!failed && n->n_checks) {
    int bad = check_outputs(n);
    if (bad > 0 && (mode & CAREFUL)) {
      PyObject *r = PyObject_CallFunction(g->verdict, "iO", n->index, before ? before : Py_None);
      if (r == NULL) {
        Py_XDECREF(before);
        return pending_error(n);
      }
      bad = PyObject_IsTrue(r);
      Py_DECREF(r);
      clear_flags();
    }
    const int found = (bad > 0 ? BAD : 0) | (has_empty_output(n) ? EMPTY : 0);
    if (found) {
      n->fired |= found;
      state->suspect = 1;
    }
    failed = bad < 0 ? -1 : 0;
  }
  Py_XDECREF(before);
  return failed;
}

static int guarded_run(void *p) {
  Node *n = (Node *)p;
  return n->mode == 0 ? n->run(n->context) : run_watched(n);
}

/* ------------------------------------------------------------------ Python's side */

static void free_cells(PyObject **cells, int n) {
  for (int i = 0; cells != NULL && i < n; i++) Py_XDECREF(cells[i]);
  free(cells);
}

static void node_free(PyObject *capsule) {
  Node *n = (Node *)PyCapsule_GetContext(capsule);
  if (n == NULL) return;
  Py_XDECREF(n->error);
  Py_XDECREF(n->thunk);
  free_cells(n->checks, n->n_checks);
  free_cells(n->saves, n->n_saves);
  free_cells(n->buffers, n->n_saves);
  free_cells(n->overwritten, n->n_overwritten);
  free_cells(n->rows, n->n_saves);
  free(n->partly);
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

/* set_updated(list of cells): what the virtual machine puts new values into when it ends */
static PyObject *guard_set_updated(PyObject *self, PyObject *seq) {
  Guard *g = (Guard *)self;
  PyObject **cells;
  int n;
  if (read_cells(seq, &cells, &n)) return NULL;
  forget_call(g);
  free_cells(g->updated, g->n_updated);
  free(g->before);
  g->updated = cells;
  g->n_updated = n;
  g->before = (PyObject **)calloc(n + 1, sizeof(PyObject *));
  if (g->before == NULL) {
    free_cells(g->updated, g->n_updated);
    g->updated = NULL;
    g->n_updated = 0;
    return PyErr_NoMemory();
  }
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

/* add_node(index, cthunk, thunk, saves, partly, overwritten) -> capsule
 * `partly`: for each of `saves`, whether only a part of it is overwritten; for rows, their storage. */
static PyObject *guard_add_node(PyObject *self, PyObject *args) {
  Guard *g = (Guard *)self;
  PyObject *cthunk, *thunk, *saves, *partly, *overwritten;
  int index;
  if (!PyArg_ParseTuple(args, "iOOOOO", &index, &cthunk, &thunk, &saves, &partly, &overwritten))
    return NULL;
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
  if (read_cells(saves, &n->saves, &n->n_saves)) goto fail;
  if (read_cells(overwritten, &n->overwritten, &n->n_overwritten)) goto fail;
  n->buffers = (PyObject **)calloc(n->n_saves + 1, sizeof(PyObject *));
  n->partly = (int *)calloc(n->n_saves + 1, sizeof(int));
  n->rows = (PyObject **)calloc(n->n_saves + 1, sizeof(PyObject *));
  if (n->buffers == NULL || n->partly == NULL || n->rows == NULL) {
    PyErr_NoMemory();
    goto fail;
  }
  if (PySequence_Size(partly) != n->n_saves) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "`partly` must be as long as `saves`");
    goto fail;
  }
  for (int i = 0; i < n->n_saves; i++) {
    PyObject *item = PySequence_GetItem(partly, i);
    if (item == NULL) goto fail;
    n->partly[i] = PyList_Check(item) || PyObject_IsTrue(item);
    if (PyList_Check(item)) n->rows[i] = item;
    else Py_DECREF(item);
  }
  if (n->n_saves) n->mode |= SAVE;
  g->memory += (3 * n->n_saves + n->n_overwritten) * sizeof(PyObject *);
  return capsule;
fail:
  Py_DECREF(capsule);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "not the capsule of a C thunk");
  return NULL;
}

/* set_mode(capsule, mode, scans, sizes): how a node is treated from now on */
static PyObject *guard_set_mode(PyObject *self, PyObject *args) {
  PyObject *capsule, *scans, *sizes, **cells;
  int mode, n_cells;
  if (!PyArg_ParseTuple(args, "OiO!O!", &capsule, &mode, &PyList_Type, &scans, &PyList_Type,
                        &sizes))
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
  free_cells(n->checks, n->n_checks);
  n->checks = cells;
  n->n_checks = n_cells;
  n->n_scans = n_scans;
  n->mode = (mode & ~(SAVE | PYTHON | IN_BLOCKS)) | (n->n_saves ? SAVE : 0) | (n->run ? 0 : PYTHON);
  Py_RETURN_NONE;
}

/* set_blocks(capsule, operands, outputs): run the node in blocks.  `operands`: for each that is cut,
 * its storage and whether the node scans it, since it enters and nobody has read it before;
 * `outputs`: storage and type number. */
static PyObject *guard_set_blocks(PyObject *self, PyObject *args) {
  Guard *g = (Guard *)self;
  PyObject *capsule, *operands, *outputs;
  if (!PyArg_ParseTuple(args, "OO!O!", &capsule, &PyList_Type, &operands, &PyList_Type, &outputs))
    return NULL;
  Node *n = node_of(capsule);
  if (n == NULL) return NULL;
  const Py_ssize_t n_in = PyList_GET_SIZE(operands), n_out = PyList_GET_SIZE(outputs);
  if (n->guard != g || n->run == NULL || n->n_saves || n_in < 1 || n_out < 1 ||
      n_in + n_out > MAX_CUT) {
    PyErr_SetString(PyExc_ValueError, "a node that cannot run in blocks");
    return NULL;
  }
  Blocks *b = (Blocks *)calloc(1, sizeof(Blocks));
  if (b == NULL) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < n_in + n_out; i++) {
    PyObject *pair = i < n_in ? PyList_GET_ITEM(operands, i) : PyList_GET_ITEM(outputs, i - n_in);
    PyObject *cell;
    int number; /* whether it is scanned, or the type */
    if (!PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "O!i", &PyList_Type, &cell, &number)) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "set_blocks takes lists of pairs");
      free_blocks(b);
      return NULL;
    }
    b->types[i] = number;
    b->entering[i] = -1;
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

static int is_known(Input *c, PyObject *value) {
  if (!c->trusted || c->array == NULL || ++c->age >= RESCAN) return 0;
#if PY_VERSION_HEX >= 0x030D0000
  PyObject *array;
  if (PyWeakref_GetRef(c->array, &array) < 0) PyErr_Clear();
  Py_XDECREF(array); /* the storage holds another reference, if it is the same */
  return array == value;
#else
  return PyWeakref_GetObject(c->array) == value;
#endif
}

/* begin() -> whether something that enters is bad */
static PyObject *guard_begin(PyObject *self, PyObject *unused) {
  Guard *g = (Guard *)self;
  forget_call(g);
  g->undo.copied = 0;
  g->state->suspect = 0;
  g->state->raised = 0;
  if (!g->state->looking) Py_RETURN_FALSE;
  for (int i = 0; i < g->n_updated; i++) {
    g->before[i] = cell_value(g->updated[i]);
    Py_XINCREF(g->before[i]);
  }
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

/* commit(): what was overwritten shall stay */
static PyObject *guard_commit(PyObject *self, PyObject *unused) {
  forget_call((Guard *)self);
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

static int guard_init(PyObject *self, PyObject *args, PyObject *kwds) {
  static const char *names[] = {"nan",    "inf",  "big",     "ints",  "limit",
                                "is_bad", "save", "verdict", "enter", NULL};
  Guard *g = (Guard *)self;
  Limits *l = &g->limits;
  if (g->state != NULL) {
    PyErr_SetString(PyExc_RuntimeError, "a guard is made once");
    return -1;
  }
  if (!PyArg_ParseTupleAndKeywords(args, kwds, "ppppdOOOO", (char **)names, &l->nan, &l->inf,
                                   &l->big, &l->ints, &l->limit, &g->is_bad, &g->save,
                                   &g->verdict, &g->enter)) {
    g->is_bad = g->save = g->verdict = g->enter = NULL; /* borrowed so far */
    return -1;
  }
  Py_INCREF(g->is_bad);
  Py_INCREF(g->save);
  Py_INCREF(g->verdict);
  Py_INCREF(g->enter);
  set_stops(l);
  g->state = (State *)calloc(1, sizeof(State));
  if (g->state == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  g->state->refs = 1;
  g->steps_between = 1;
  g->state->looking = 1;
  g->memory = sizeof(Guard) + sizeof(State);
  return 0;
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
  forget_call(g);
  undo_free(&g->undo);
  free_cells(g->updated, g->n_updated);
  free(g->before);
  free_inputs(g);
  release_chunk(g->chunk);
  release_state(g->state);
  Py_XDECREF(g->is_bad);
  Py_XDECREF(g->save);
  Py_XDECREF(g->verdict);
  Py_XDECREF(g->enter);
  Py_TYPE(self)->tp_free(self);
}

static PyObject *guard_look(PyObject *self, PyObject *looking) {
  ((Guard *)self)->state->looking = PyObject_IsTrue(looking);
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
    {"set_updated", guard_set_updated, METH_O, "What the virtual machine replaces."},
    {"undo", guard_undo, METH_NOARGS, "Put back what the call has overwritten."},
    {"redo", guard_redo, METH_NOARGS, "Take that back."},
    {"undone", guard_undone, METH_NOARGS, "Whether it was put back."},
    {"commit", guard_commit, METH_NOARGS, "Forget what was saved."},
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
    {NULL, NULL, 0, NULL}};

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
  PyModule_AddIntConstant(m, "flags_work", flags_work());
  PyModule_AddIntConstant(m, "WATCH", WATCH);
  PyModule_AddIntConstant(m, "BRACKET", BRACKET);
  PyModule_AddIntConstant(m, "CAREFUL", CAREFUL);
  PyModule_AddIntConstant(m, "COUNT", COUNT);
  PyModule_AddIntConstant(m, "KEEP", KEEP);
  PyModule_AddIntConstant(m, "PART", PART);
  PyModule_AddIntConstant(m, "PART_BEFORE", PART_BEFORE);
  PyModule_AddIntConstant(m, "MAX_CUT", MAX_CUT);
  PyModule_AddIntConstant(m, "BAD", BAD);
  PyModule_AddIntConstant(m, "EMPTY", EMPTY);
  PyModule_AddIntConstant(m, "SMALL", SMALL);
  return m;
}
