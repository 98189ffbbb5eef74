/* The nodes of a function that the guard has wrapped, and how they run.
 *
 * PyTensor's C virtual machine calls every node as `int run(void *context)`.  Each such pair is
 * wrapped in a pair of our own, so that the loop stays in C and no operation is recompiled.  A
 * wrapped node does only what its mode says (enum below), which is most often nothing: the flags of
 * the processor are read once, when the call ends.
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
  BESIDE = 1024,     /* of SAVE: its code leaves all of that as it is */
  OVERWRITES = 2048, /* it overwrites an input of the graph that a failed call does not put back */
  N_MODES = 4096
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

/* What a call can put back, while another call of the same function runs in it. */
typedef struct Aside {
  UndoLog undo;
  PyObject **before;
  int suspect, overwrote;
  unsigned raised;
  struct Aside *outer;
} Aside;

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
  PyObject **spares;  /* where their second buffers are kept */
  PyObject **before;  /* what was in it when the call began */
  UndoLog undo;
  int overwrote; /* whether something has been overwritten in this call that is not put back */
  Aside *aside;
  struct Chunk *chunk;               /* which the next node is taken from */
  unsigned long long scans, bytes, blocks; /* counters; blocks: nodes that ran in them */
  unsigned long long memory;         /* bytes allocated here */
  PyObject *is_bad, *save, *verdict, *enter, *before_loss; /* callables */
} Guard;

/* An input of the graph that a node overwrites. */
typedef struct {
  PyObject *root;   /* its storage */
  PyObject *input;  /* storage of the node's operand: the same, or of a view of it or a result in it */
  PyObject *output; /* storage of the node's output */
  PyObject *spare;  /* where its second buffer is kept, or NULL for none */
  int beside;       /* whether the node's code writes beside it, and overwrites nothing */
  int partly;       /* whether Python saves it, since it is overwritten in part */
  PyObject *rows;   /* storage of the numbers of the rows that are overwritten, or NULL */
  PyObject *held;   /* what `input` holds otherwise, while the node works in the second buffer */
} Save;

typedef struct Node {
  PyObject *error; /* must be first: the virtual machine reads the exception here */
  int (*run)(void *);
  void *context;
  Guard *guard; /* borrowed: the thunk object keeps it alive */
  int mode, n_checks, n_scans;
  PyObject **checks; /* storage of the outputs that are scanned, then of those that show nothing if
                        they are empty */
  int n_thin;        /* operands of a product ... */
  PyObject **thin;   /* (their storage) */
  int *thin_axes;    /* ... and their axes that show nothing if they have length 1 */
  int index, fired;  /* fired: BAD, EMPTY */
  PyObject *thunk; /* what `run` belongs to, or what to call when there is no `run` */
  int n_saves, n_overwritten;
  Save *saves;            /* what a failed call must leave as it was */
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

/* Have the node work in the second buffer of what it is about to overwrite. */
static int turn_aside(Guard *g, Save *s, PyArrayObject *a) {
  PyArrayObject *spare = spare_for(a, s->spare, s->output);
  if (spare == NULL) return -1;
  if (s->beside) {
    Py_INCREF(spare);
    return PyList_SetItem(s->output, 0, (PyObject *)spare);
  }
  if (same_layout(a, spare)) memcpy(PyArray_DATA(spare), PyArray_DATA(a), PyArray_NBYTES(a));
  else if (PyArray_CopyInto(spare, a)) return -1;
  g->undo.copied += (unsigned long long)PyArray_NBYTES(a);
  Py_INCREF(a);
  s->held = (PyObject *)a;
  Py_INCREF(spare);
  return PyList_SetItem(s->input, 0, (PyObject *)spare);
}

/* The node has run: its operands are what they were. */
static void turn_back(Node *n) {
  for (int i = 0; i < n->n_saves; i++) {
    if (n->saves[i].held == NULL) continue;
    PyList_SetItem(n->saves[i].input, 0, n->saves[i].held);
    n->saves[i].held = NULL;
  }
}

/* Save what the node is about to overwrite.  Of what is no array, or overwritten in part only, Python
 * knows how: `save(index, i)` returns an object that undoes it, or (array, index). */
static int save_all(Node *n) {
  Guard *g = n->guard;
  for (int i = 0; i < n->n_saves; i++) {
    Save *s = &n->saves[i];
    PyObject *value = cell_value(s->root), *operand = cell_value(s->input);
    if (value == NULL) continue;
    const int whole = PyArray_Check(value) && !s->partly;
    PyObject *rows = s->rows == NULL ? NULL : cell_value(s->rows);
    if (rows != NULL && PyArray_Check(rows) && PyArray_Check(value)) {
      if (undo_save_rows(&g->undo, (PyArrayObject *)value, (PyArrayObject *)rows)) return -1;
    } else if (whole && s->spare != NULL && operand == value && PyArray_CheckExact(value)) {
      if (turn_aside(g, s, (PyArrayObject *)value)) return -1;
    } else if (whole && operand != NULL && PyArray_Check(operand) &&
               !may_overlap((PyArrayObject *)value, (PyArrayObject *)operand)) {
      continue; /* (it is in the second buffer already) */
    } else if (whole) {
      if (undo_save(&g->undo, (PyArrayObject *)value)) return -1;
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

/* Where no element reads an operand, a bad one in it shows nowhere further down; nor where a product
 * leaves out what it multiplies by zero. */
static int may_hide(Node *n) {
  for (int i = n->n_scans; i < n->n_checks; i++) {
    PyObject *value = cell_value(n->checks[i]);
    if (value != NULL && PyArray_Check(value) && PyArray_SIZE((PyArrayObject *)value) == 0) return 1;
  }
  for (int i = 0; i < n->n_thin; i++) {
    PyObject *value = cell_value(n->thin[i]);
    const int axis = n->thin_axes[i];
    if (value != NULL && PyArray_Check(value) && axis < PyArray_NDIM((PyArrayObject *)value) &&
        PyArray_DIM((PyArrayObject *)value, axis) == 1)
      return 1;
  }
  return 0;
}

#define SMALL 48 /* elements */

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
        const int width = type_num == NPY_DOUBLE ? 8 : 4;
        if (scan_few(PyArray_BYTES(a), size, width, width) <= g->limits.ranges[width].stop) {
          g->scans++;
          g->bytes += (unsigned long long)(width * size);
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

/* Ask whether the call may go on.  -1 with the exception where PyTensor reads it. */
static int may_go_on(Node *n, PyObject *ask) {
  PyObject *r = PyObject_CallNoArgs(ask);
  if (r == NULL) return pending_error(n);
  Py_DECREF(r);
  clear_flags();
  return 0;
}

/* Something that enters is bad. */
static int enter_late(Node *n) { return may_go_on(n, n->guard->enter); }

/* The first node is about to overwrite what is not put back: has anything bad shown until now? */
static int before_loss(Node *n) {
  Guard *g = n->guard;
  if (g->overwrote) return 0;
  g->state->raised |= read_flags();
  if ((g->state->raised || g->state->suspect) && may_go_on(n, g->before_loss)) return -1;
  g->overwrote = 1;
  return 0;
}

/* Run a node in blocks; -1 if it fails, 1 if it has to run as always. */
static int run_cut(Node *n) {
  Guard *g = n->guard;
  const Blocks *b = n->blocks;
  const BlocksResult r = run_in_blocks(b, n->run, n->context, &g->limits);
  int found = 0;
  if (r.failed > 0) {
    PyErr_SetString(PyExc_RuntimeError, "a node did not work in place, as its `destroy_map` says");
    return pending_error(n);
  }
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
  if (!state->looking) return (mode & BESIDE) && save_all(n) ? pending_error(n) : run_unguarded(n);
  if ((mode & OVERWRITES) && before_loss(n)) return -1;
  if (mode & IN_BLOCKS) {
    const int done = run_cut(n);
    if (done <= 0) return done;
  }
  if (mode & (BRACKET | SAVE | PYTHON)) state->raised |= read_flags();
  if (((mode & SAVE) && save_all(n)) || ((mode & PART_BEFORE) && check_part(n, saved, 0)) ||
      ((mode & CAREFUL) && n->n_overwritten && (before = copies_of_overwritten(n)) == NULL)) {
    turn_back(n);
    return pending_error(n);
  }
  if (mode & (BRACKET | SAVE)) clear_flags(); /* (what copied may have raised some) */
  int failed = run_unguarded(n);
  if (mode & SAVE) turn_back(n);
  if (mode & KEEP) state->raised |= read_flags();
  else if (mode & (BRACKET | PYTHON)) clear_flags();
  else if (mode & CAREFUL) state->raised |= read_flags(); /* (the verdict clears them) */
  if (!failed && (mode & PART) && check_part(n, saved, 1)) failed = pending_error(n);
  if (!failed && (n->n_checks || n->n_thin)) {
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
    const int found = (bad > 0 ? BAD : 0) | (may_hide(n) ? EMPTY : 0);
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
