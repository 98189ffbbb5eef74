/* The guard's kernel: one C program, whose files build.py joins in the order of its FILES.
 *
 * They are C in the common subset with C++, since PyTensor's toolchain compiles C++.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <numpy/arrayobject.h>
