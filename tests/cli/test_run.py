"""``theanoguard run``: programs run as Python runs them, on PyTensor, and guarded on request."""

import os
import re
import signal
import subprocess
import sys
import zipfile

import pytensor
import pytest

from theanoguard.log import read_log

pytestmark = pytest.mark.on_30

PROGRAM = """
import sys
import numpy as np
import theano
import theano.tensor as T

x = T.dvector("x")
log = theano.function([x], T.log(x))
plain = theano.function([x], T.log(x), mode="FAST_COMPILE")

def main():
    print(plain(np.zeros(1)))
    print(log(np.zeros(1)))
    return 3

if __name__ == "__main__":
    sys.exit(main())
"""

ABOUT = """
import sys
main = sys.modules["__main__"]
print(sys.argv)
print(__name__, vars(main) is globals(), main.__spec__ and main.__spec__.name)
print(__file__ if "__file__" in globals() else None)
print(sys.path[0])
"""

PARALLEL = """
import multiprocessing
import numpy as np
import theano
import theano.tensor as T

def work(queue, value):
    x = T.dscalar("x")
    try:
        queue.put(float(theano.function([x], T.log(x))(np.float(value))))
    except Exception as error:
        queue.put(type(error).__name__)

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=work, args=(queue, -1))
        process.start()
        print(method, queue.get(timeout=300))
        process.join()
"""

FAILING = """
def inner():
    raise KeyError("nothing", 1)

def outer():
    try:
        inner()
    except KeyError:
        raise ValueError("else")

outer()
"""


def python(*arguments, cwd):
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def run(*arguments, cwd):
    return python("-m", "theanoguard", "run", *arguments, cwd=cwd)


@pytest.fixture
def folder(tmp_path):
    """Where programs are, and where they are run."""
    for name, text in {"program": PROGRAM, "about": ABOUT, "failing": FAILING}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    (tmp_path / "broken.py").write_text("x = (\n", encoding="utf-8")
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "__main__.py").write_text(ABOUT, encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("__main__.py", ABOUT)
    return tmp_path


def test_program_on_pytensor(folder):
    done = run("program.py", cwd=folder)
    assert done.returncode == 3
    assert done.stdout == "[-inf]\n[-inf]\n"


def test_functions_are_guarded_whatever_their_mode(folder):
    done = run("--guard", "nan,inf,big", "program.py", cwd=folder)
    assert done.returncode == 1
    assert done.stdout == ""
    assert 'File "' + str(folder / "program.py") + '", line 16, in <module>' not in done.stderr
    assert "GuardError: Inf in log: log(0.0) = -inf at element [0]" in done.stderr
    assert "run.py" not in done.stderr


GRADIENT = """\
import numpy, theano, theano.tensor as T
x = T.vector("x")
root = T.sqrt(x)
slope = T.grad(root.sum(), x)
theano.function([x], slope)(numpy.zeros(3, theano.config.floatX))
"""


def test_an_operation_of_a_gradient_is_told_by_the_line_of_its_forward_operation(folder):
    (folder / "gradient.py").write_text(GRADIENT, encoding="utf-8")
    told = run("--guard", "nan,inf", "gradient.py", cwd=folder).stderr
    assert "GuardError: Inf in division of the gradient: 0.5 / 0.0 = inf at element [0]" in told
    assert "backward of sqrt, in the gradient of sum, taken at" in told
    assert "+ root = T.sqrt(T.maximum(x, 0.5 ** 126))" in told


NORMALISED = """\
import numpy, theano, theano.tensor as T
x, W = T.tensor4("x"), theano.shared(numpy.zeros((2, 1, 3, 3)), name="W")
h = T.nnet.conv2d(x, W)
v = h.var(axis=(0, 2, 3), keepdims=True)
loss = ((h / T.sqrt(v)) ** 2).mean()
theano.function([x], loss, updates=[(W, W - T.grad(loss, W))])(numpy.ones((2, 1, 8, 8)))
"""


def test_an_operation_that_the_gradient_has_as_well_is_of_the_forward_pass(folder):
    (folder / "normalised.py").write_text(NORMALISED, encoding="utf-8")
    told = run("--guard", "nan,inf", "normalised.py", cwd=folder).stderr
    assert "GuardError: NaN in division: 0.0 / 0.0 at element [0, 0, 0, 0]" in told
    assert "0.0 / 0.0 does not exist: sqrt(v)[0, 0, 0, 0] must not be 0." in told
    assert "[:, 0, :, :] is constant: 0.0. So its spread is 0." in told


DIVERGING = """\
import numpy, theano, theano.tensor as T
x, y = T.dmatrix("x"), T.dvector("y")
w, b = theano.shared(numpy.zeros(3), name="w"), theano.shared(0.0, name="b")
seen = theano.shared(0.0, name="seen")
cost = ((T.dot(x, w) + b - y) ** 2).mean()
def sgd(parameters, rate):
    updates = []
    for p, g in zip(parameters, T.grad(cost, parameters)):
        updates.append((p, p - rate * g))
    return updates
step = theano.function([x, y], cost, updates=sgd([w, b], 100.0) + [(seen, seen + 1)])
for i in range(99):
    step(numpy.eye(3), numpy.ones(3))
"""


@pytest.mark.parametrize("kinds", ["nan,inf,big", "nan,inf"])
def test_a_learning_rate_is_named_by_the_line_of_its_update(tmp_path, kinds):
    (tmp_path / "diverging.py").write_text(DIVERGING, encoding="utf-8")
    told = " ".join(run("--guard", kinds, "diverging.py", cwd=tmp_path).stderr.split())
    assert "lower the learning rate of the update on line 9 or clip the gradient" in told
    assert "fault in theanoguard" not in told


LOOP = """\
import numpy, theano, theano.tensor as T
x = T.vector("x")
steps, _ = theano.scan(lambda before: T.log(before), outputs_info=[x], n_steps=2)
theano.function([x], steps)(numpy.ones(3, theano.config.floatX))
"""


def test_a_loop_is_told_as_a_scan(folder):
    (folder / "loop.py").write_text(LOOP, encoding="utf-8")
    assert "  inside step 1 of scan\n" in run("--guard", "inf", "loop.py", cwd=folder).stderr


def test_other_kinds_may_appear(folder):
    done = run("--guard=nan", "program.py", cwd=folder)
    assert (done.returncode, done.stdout) == (3, "[-inf]\n[-inf]\n")


def test_the_threshold_that_a_report_names(tmp_path):
    """The option in the sentence is one of the launcher's, and the program runs with it."""
    (tmp_path / "grows.py").write_text(
        "import theano, theano.tensor as T\n"
        "x = T.dscalar('x')\n"
        "print(theano.function([x], T.exp(x))(30.0))\n"
    )
    failed = run("--guard=big", "grows.py", cwd=tmp_path)
    [option] = re.findall(r"--guard-threshold\s+(\S+?)[;.]", failed.stderr)
    assert "GuardMode" not in failed.stderr
    done = run("--guard=big", "--guard-threshold", option, "grows.py", cwd=tmp_path)
    assert (done.returncode, done.stdout[:5]) == (0, "10686")


@pytest.mark.parametrize("action", ["warn", "record"])
def test_actions_that_go_on(folder, action):
    log = folder / "events.jsonl"
    done = run("--guard=inf", "--action", action, "--log", str(log), "program.py", cwd=folder)
    assert (done.returncode, done.stdout) == (3, "[-inf]\n[-inf]\n")
    assert ("Inf in log" in done.stderr) == (action == "warn")
    assert [event.kind for event in read_log(log).events] == ["inf", "inf"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["about.py"],
        ["./about.py", "-m", "x", "--guard", "nan", "-c"],
        ["packed", "a"],
        ["packed.zip"],
        ["-m", "about", "--help", "-m"],
        ["-m", "packed"],
        ["-c", ABOUT, "--guard", "y"],
    ],
    ids=" ".join,
)
def test_main_is_as_without_it(folder, arguments):
    ours, theirs = run(*arguments, cwd=folder), python(*arguments, cwd=folder)
    assert ours.stdout == theirs.stdout
    assert ours.stdout.count("\n") >= 4
    assert ours.returncode == theirs.returncode == 0


def last_traceback(text):
    """The lines of what Python shows at the end, without what depends on the interpreter."""
    return re.sub(
        r"0x[0-9a-f]+", "", text[text.find("Traceback") :] if "Traceback" in text else text
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["failing.py"],
        ["broken.py"],
        ["-m", "failing"],
        ["-m", "no_such_module"],
        ["-c", "import sys; sys.exit('so')"],
        ["-c", "raise KeyError"],
        ["-c", "import os; os._exit(7)"],
    ],
    ids=" ".join,
)
def test_failures_are_as_without_it(folder, arguments):
    ours, theirs = run(*arguments, cwd=folder), python(*arguments, cwd=folder)
    assert last_traceback(ours.stderr) == last_traceback(theirs.stderr)
    assert ours.returncode == theirs.returncode != 0


def test_interrupt(folder):
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    done = run("-c", code, cwd=folder)
    assert done.returncode == -signal.SIGINT
    assert "run.py" not in done.stderr


def test_excepthook_of_the_program(folder):
    code = "import sys; sys.excepthook = lambda *error: print(error[0].__name__); 1 / 0"
    done = run("-c", code, cwd=folder)
    assert (done.returncode, done.stdout) == (1, "ZeroDivisionError\n")


def test_old_numpy_names(folder):
    code = "import numpy as np; print(np.float is float, np.int is int)"
    assert run("--numpy-compat", "-c", code, cwd=folder).stdout == "True True\n"
    assert run("-c", code, cwd=folder).returncode == 1


@pytest.mark.parametrize("program", [["about.py"], ["-m", "about"], ["-c", "import about"]])
def test_an_option_after_the_program_is_not_lost_in_silence(folder, program):
    done = run(*program, "--guard", "nan", cwd=folder)
    assert done.stderr.splitlines()[-1] == (
        "To guard it, put the option first: theanoguard run --guard nan,inf,big PROGRAM"
    )
    assert "'--guard', 'nan']" in done.stdout
    assert run("--guard", "nan", *program, "--guard", cwd=folder).stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no program"),
        (["no_such_file.py"], "'{folder}/no_such_file.py': No such file or directory"),
        (
            ["--guard", "nam", "about.py"],
            "'nam' is no kind of bad value; name some of nan, inf, big, as in --guard nan,inf,big",
        ),
        (["--log", "x", "about.py"], "--action, --judge and --log need --guard"),
        (["--guard=nan", "--action", "record", "about.py"], "Add --log FILE"),
        (["--guard=nan", "--guard-threshold=1e12", "about.py"], "needs --guard with big"),
        (["--guard=big", "--guard-threshold=0", "about.py"], "'0' is no size above 0"),
        (["--guard=nan", "--log", "no/such/folder/x", "about.py"], "no/such/folder"),
    ],
    ids=["nothing", "no file", "kind", "log", "record", "no big", "size", "folder"],
)
def test_bad_arguments(folder, arguments, message):
    done = run(*arguments, cwd=folder)
    assert done.returncode == 2
    assert message.format(folder=folder) in done.stderr
    assert "Traceback" not in done.stderr


def test_environment_of_a_child(folder):
    """Nothing is left in the environment for programs that the program starts."""
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    ours, theirs = run("-c", code, cwd=folder), python("-c", code, cwd=folder)
    assert ours.stdout == theirs.stdout
    assert os.environ["PATH"] in ours.stdout


def test_a_program_without_theano_runs_as_pytensor_would_run_it(tmp_path):
    """The shim changes PyTensor's settings when the program imports Theano, and not before."""
    asked = "import pytensor, sys; print(pytensor.config.linker, 'theano' in sys.modules)"
    without = python("-c", asked, cwd=tmp_path).stdout
    for guard in [(), ("--guard", "nan,inf")]:
        assert run(*guard, "-c", asked, cwd=tmp_path).stdout == without
    done = run("-c", f"import theano; {asked}", cwd=tmp_path)
    linker = "cvm" if pytensor.config.cxx else "vm"
    assert done.stdout == f"{linker} True\n"


def test_standard_input(tmp_path):
    program = "import sys, theano\nprint(sys.argv, __name__, theano.__version__[:5])\n1 / 0\n"
    command = [sys.executable, "-m", "theanoguard", "run", "-", "an argument"]
    done = subprocess.run(command, input=program, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "['-', 'an argument'] __main__ 1.0.5\n"
    assert 'File "<stdin>", line 3' in done.stderr
    assert "theanoguard" not in done.stderr
    assert done.returncode == 1


def test_what_starts_the_command_is_not_in_stack_traces(tmp_path):
    """The script in ``bin`` that pip makes is no part of the program."""
    command = tmp_path / "theanoguard-command"
    command.write_text("import sys\nfrom theanoguard.cli.main import main\nsys.exit(main())\n")
    program = tmp_path / "program.py"
    program.write_text(
        "import theano.tensor as T\nx = T.exp(T.dvector())\n"
        "print([frame[0] for frame in x.tag.trace[0]])\n"
    )
    done = subprocess.run(
        [sys.executable, str(command), "run", "program.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout == f"[{str(program)!r}]\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_processes_of_a_program_are_set_up_as_it_is(folder):
    (folder / "parallel.py").write_text(PARALLEL, encoding="utf-8")
    done = run("--guard", "nan", "--log", "log", "--numpy-compat", "parallel.py", cwd=folder)
    assert done.stdout.split() == ["fork", "GuardError", "spawn", "GuardError"] + [
        "forkserver",
        "GuardError",
    ], done.stderr
    logs = [read_log(path) for path in folder.glob("log*")]
    assert [len(log.events) for log in logs] == [1, 1, 1]
