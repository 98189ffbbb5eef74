"""Make PyTensor's C modules cheaper to compile: ``python tests/precompile.py FOLDER``.

The command writes to ``FOLDER`` what ``tox.ini`` has g++ find there:

``precompiled.h`` and ``precompiled.h.gch``
    The headers of the modules, and the same precompiled.  g++ reads the second where all flags are
    the same.
``libstdc++.so``
    A library that stands for the real one while g++ links, on Linux.  To read the thousands of
    names of the real one takes most of the time of linking.  Python loads the real one.
``ld``
    A link to gold, if there is one, which links a module in a fifth of the time of ld.
"""

import shutil
import subprocess
import sys
from pathlib import Path

# An elementwise operation or a reduction sorts its loops by their strides.  The library's templates
# for that take half of the time of compiling it.
HEADER = """\
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>
#include <numpy/npy_math.h>
#include <vector>
#include <algorithm>

#ifdef __GLIBCXX__
namespace std {
template <>
class vector<pair<int, npy_intp> > {
  public:
    struct loop {
        int first;
        npy_intp second;
        bool operator<(const loop &other) const {
            return first < other.first || (first == other.first && second < other.second);
        }
    };
    typedef loop *iterator;
    struct reverse_iterator {
        loop *place;
        loop *operator->() const { return place; }
        void operator++() { place--; }
    };

    explicit vector(int n) : loops((loop *)calloc(n, sizeof(loop))), length(n) {}
    ~vector() { free(loops); }
    iterator begin() { return loops; }
    reverse_iterator rbegin() { return reverse(length - 1); }
    reverse_iterator rend() { return reverse(-1); }

  private:
    loop *loops;
    int length;
    reverse_iterator reverse(int index) {
        reverse_iterator found = {loops + index};
        return found;
    }
};

typedef vector<pair<int, npy_intp> > loops_of_strides;
inline void sort(loops_of_strides::reverse_iterator last, loops_of_strides::reverse_iterator end) {
    loops_of_strides::loop *start = end.place + 1;
    for (loops_of_strides::loop *at = start + 1; at <= last.place; at++) {
        loops_of_strides::loop moved = *at, *free = at;
        for (; free > start && free[-1] < moved; free--) *free = free[-1];
        *free = moved;
    }
}
}
#endif
"""

# Operator new, operator delete, and what handles exceptions.  Every module needs them, so that the
# linker records the library.  Python finds the other names when it loads the module.
STAND_IN = "void _Znwm(void) {} void _ZdlPv(void) {} void __gxx_personality_v0(void) {}"


def flags_of_a_module():
    """Return the compiler, and the flags that PyTensor gives it for an elementwise operation."""
    import pytensor
    import pytensor.tensor as pt
    from pytensor.graph.fg import FunctionGraph
    from pytensor.link.c.basic import CLinker
    from pytensor.link.c.cmodule import std_include_dirs

    x = pt.dvector("x")
    linker = CLinker().accept(FunctionGraph([x], [pt.exp(x)]))
    directories = [*linker.header_dirs(), *std_include_dirs()]
    includes = [f"-I{directory}" for directory in directories if directory]
    shared = ["-shared", "-g", "-fvisibility=hidden"]
    return pytensor.config.cxx, [*shared, *linker.compile_args(), *includes]


def precompile(folder):
    """Write the header, the same precompiled, and the library to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    header = folder / "precompiled.h"
    header.write_text(HEADER, encoding="utf-8")  # before PyTensor tries its flags
    cxx, flags = flags_of_a_module()
    if "-include" in flags:  # the header does not include itself
        at = flags.index("-include")
        del flags[at : at + 2]
    if not cxx:
        return
    compiled = header.with_name(f"{header.name}.gch")
    subprocess.run([cxx, *flags, "-x", "c++-header", header, "-o", compiled], check=True)
    if sys.platform == "linux":
        link(cxx, folder / "libstdc++.so")
        gold, ld = shutil.which("ld.gold"), folder / "ld"
        if gold and not ld.exists():
            ld.symlink_to(gold)


def link(cxx, library):
    """Write the library that stands for the real one; g++ takes the real one if that fails."""
    flags = ["-shared", "-nostdlib", "-fPIC", "-Wl,-soname,libstdc++.so.6", "-x", "c", "-"]
    subprocess.run([cxx, *flags, "-o", library], input=STAND_IN, text=True, check=False)


if __name__ == "__main__":
    precompile(Path(sys.argv[1]))
