"""Run the code blocks of a page of Theano's documentation, and print what each of them gives.

``documentation.py`` starts it, with Python 3.7 and Theano 1.0.5 or under the shim::

    python blocks.py PAGE LINE ...

A page's blocks are those of ``sphinx.ext.doctest``: paragraphs that begin with ``>>>``, and
``testsetup`` and ``testcode``.  Those on a LINE are left out.  The last line printed is JSON,
a list of the blocks' lines, what each printed, and the class and text of its exception.
"""

import ast
import contextlib
import doctest
import io
import json
import re
import sys
import warnings

import numpy as np

DIRECTIVE = re.compile(r"^( *)\.\. (testsetup|testcode|testcleanup)::\s*(.*)$")


def indented(lines, first, indent):
    """The lines of a directive's content that begins at `first`, and the number after them."""
    end = first
    while end < len(lines) and (
        not lines[end].strip() or lines[end].startswith(" " * (indent + 1))
    ):
        end += 1
    content = [line for line in lines[first:end]]
    while content and (re.match(r"\s*:\w+:", content[0]) or not content[0].strip()):
        content.pop(0)
        first += 1
    margin = min((len(line) - len(line.lstrip()) for line in content if line.strip()), default=0)
    return first, [line[margin:] for line in content], end


def blocks(text):
    """The blocks of a page: number of the line, groups, and source."""
    lines, number = text.splitlines(), 0
    groups = ["default"]
    while number < len(lines):
        line = lines[number]
        directive = DIRECTIVE.match(line)
        named = re.match(r"^( *)\.\. doctest::\s*(.*)$", line)
        if directive:
            indent, kind, names = directive.groups()
            first, content, number = indented(lines, number + 1, len(indent))
            wanted = [name.strip() for name in names.split(",")] if names.strip() else ["default"]
            yield first + 1, wanted, "\n".join(content) + "\n"
        elif named:
            groups = [named.group(2).strip() or "default"]
            number += 1
        elif line.lstrip().startswith(">>> "):
            end = number
            while end < len(lines) and lines[end].strip():
                end += 1
            margin = len(line) - len(line.lstrip())
            part = "\n".join(each[margin:] for each in lines[number:end]) + "\n"
            try:
                examples = doctest.DocTestParser().get_examples(part)
            except ValueError:
                examples = []
            for example in examples:
                if doctest.SKIP not in example.options:
                    yield number + example.lineno + 1, groups, example.source
            number = end
        else:
            groups = ["default"] if line.strip() and not line.startswith(" ") else groups
            number += 1


def run(source, namespace):
    """Run a block as the interactive interpreter does; what it prints and raises."""
    printed, raised = io.StringIO(), None
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None  # Python 2, or a part of a program
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            for statement in tree.body:
                single = ast.Interactive([statement])
                exec(compile(single, "<page>", "single"), namespace)
        except (Exception, SystemExit) as error:
            raised = [type(error).__name__, str(error)]
    return printed.getvalue(), raised


def main():
    """Run the blocks of the page on the command line."""
    page, left_out = sys.argv[1], {int(line) for line in sys.argv[2:]}
    warnings.simplefilter("ignore")
    if int(np.__version__.split(".")[0]) > 1:
        np.set_printoptions(legacy="1.21")
    spaces, found = {}, []
    with open(page, encoding="utf-8") as file:
        text = file.read()
    everywhere = "import numpy, theano\nimport numpy as np\nimport theano.tensor as T\n"
    for line, groups, source in blocks(text):
        names = [*spaces, "default"] if groups == ["*"] else groups
        for name in names[:1] if line in left_out else names:
            if name not in spaces:
                spaces[name] = {"__name__": "__main__"}
                exec(everywhere, spaces[name])
            if line in left_out:
                continue
            np.random.seed(0)
            result = run(source, spaces[name])
            if result is not None:
                found.append([line, *result])
    sys.stdout.flush()
    print("\nblocks:", json.dumps(found))


if __name__ == "__main__":
    main()
