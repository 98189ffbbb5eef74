"""Advice for old programs that fail on today's Python, NumPy, SciPy or h5py."""

import re
from dataclasses import dataclass

from . import numpy_compat, python_compat, removed

PYTHON_2 = (
    "This is Python 2.  Convert a copy of the program first: pip install 2to3, then "
    "2to3 -w -n FILES."
)
INTEGERS = (
    "In Python 3, / gives a float: write // where a whole number is meant, or int(...) around it.  "
    "Around a list of slices, as in x[[slice(2), slice(3)]], write tuple(...), or run it with "
    "--numpy-compat: NumPy takes no list since 1.23."
)
NUMPY_COMPAT = "Run it with --numpy-compat, which gives NumPy and SciPy their old names."
PYTHON_COMPAT = "Run it with --python-compat, which gives Python's library its old names."

OLD_MODULES = "|".join(re.escape(module.__name__) for module in python_compat.NAMES)


@dataclass(frozen=True)
class Rule:
    """Advice for one kind of error.

    Parameters
    ----------
    kinds : tuple of type
        The classes of the error.
    pattern : str
        A regular expression that matches a part of its text.
    advice : str
        A sentence or two for the user.
    """

    kinds: tuple
    pattern: str
    advice: str


RULES = [
    Rule(
        (SyntaxError,),
        r"Missing parentheses in call to '(print|exec)'|multiple exception types must be|"
        r"leading zeros in decimal|invalid decimal literal|inconsistent use of tabs|"
        r"invalid syntax.*(<>|`)|did you mean print\(",
        PYTHON_2,
    ),
    Rule(
        (ImportError,),
        r"No module named '(cPickle|Queue|ConfigParser|StringIO|cStringIO|urllib2|urlparse|"
        r"__builtin__|commands|copy_reg|Tkinter|itertools\.i.*|BaseHTTPServer|SimpleHTTPServer|"
        r"SocketServer|HTMLParser|httplib|thread|cookielib|Cookie|xmlrpclib|UserDict|sets|md5)'|"
        r"cannot import name '(izip|imap|ifilter|izip_longest|maketrans)'",
        PYTHON_2,
    ),
    Rule(
        (NameError,),
        r"name '(xrange|unicode|raw_input|basestring|long|reload|unichr|file|execfile|reduce|"
        r"cmp|izip)' is not defined",
        PYTHON_2,
    ),
    Rule((AttributeError,), r"'dict' object has no attribute '(has_key|iter\w+)'", PYTHON_2),
    Rule(
        (TypeError,),
        r"'(dict_\w+|map|filter|zip)' object is not subscriptable|"
        r"for \+: '(range|dict_\w+|map|zip)' and|'range' object does not support item assignment|"
        r"object of type '(map|filter|zip)' has no len",
        "In Python 3, range, map, zip and a dict's keys are no lists: write list(...) around it.",
    ),
    Rule((ImportError,), rf"No module named '({'|'.join(python_compat.MODULES)})'", PYTHON_COMPAT),
    Rule(
        (ImportError, AttributeError),
        rf"from '({OLD_MODULES})'|module '({OLD_MODULES})' has no attribute|"
        r"has no attribute '(assert\w+|fail\w+|isAlive|readfp)'",
        PYTHON_COMPAT,
    ),
    Rule(
        (TypeError, IndexError),
        r"slice indices must be integers|indices must be integers.*, not (numpy\.)?float|"
        r"'(numpy\.)?float(64)?' object cannot be interpreted as an integer|only integers, slices|"
        r"expected a sequence of integers.*got '[\d.]+'",
        INTEGERS,
    ),
    Rule(
        (TypeError, ValueError),
        r"only 0-dimensional arrays can be converted|setting an array element with a sequence\.$",
        "NumPy takes no array of one element for a number since 2.5: write x.item(), or run it "
        "with --numpy-compat.",
    ),
    Rule(
        (AttributeError,),
        r"'(cs[rc]|coo|bsr|dia|dok|lil)_matrix' object has no attribute '[AH]'",
        NUMPY_COMPAT,
    ),
    Rule((ValueError,), r"binary mode of fromstring is removed", NUMPY_COMPAT),
    Rule(
        (AttributeError,),
        r"'list' object has no attribute 'dtype'",
        "Write np.asarray(...) around the list: NumPy took lists here once.  For the indices of "
        "take_along_axis, --numpy-compat does it.",
    ),
    Rule(
        (ImportError,),
        r"No module named 'pkg_resources'",
        'Install a setuptools that has it: pip install "setuptools<81".',
    ),
    Rule(
        (ImportError, AttributeError),
        r"No module named 'nose'|'nose'",
        "Install nose (pip install nose==1.3.7) and run it with --python-compat.",
    ),
    Rule(
        (ImportError,),
        r"No module named 'six(\.moves)?'",
        "Install six (pip install six), which old packages took from elsewhere.",
    ),
    Rule(
        (AttributeError,),
        r"'str' object has no attribute 'decode'",
        'Where h5py reads the text, h5py before 3 gives bytes: pip install "h5py<3" with an older '
        "Python, or take .decode(...) away.",
    ),
    Rule(
        (OSError,),
        r"^Unable to (synchronously )?open file \(unable to open file\)",
        'h5py only reads files since 3.0, unless a mode is given: write h5py.File(name, "a").',
    ),
    Rule(
        (ValueError,),
        r"inhomogeneous shape",
        "Write dtype=object where the parts of an array differ in length, as NumPy assumed before "
        "1.24.",
    ),
    Rule(
        (ValueError,),
        r"allow_pickle=False",
        "Write numpy.load(..., allow_pickle=True) if you trust the file, as NumPy assumed before "
        "1.16.3.",
    ),
    Rule(
        (UnicodeDecodeError,),
        r"'ascii' codec can't decode byte",
        'A pickle of Python 2 is read with pickle.load(file, encoding="latin1").',
    ),
    Rule(
        (TypeError, UnicodeDecodeError),
        r"a bytes-like object is required, not 'str'|write\(\) argument must be str, not bytes|"
        r"'utf-8' codec can't decode byte 0x80",
        'A pickle is read and written as bytes: open(..., "rb") and open(..., "wb").',
    ),
    Rule(
        (Exception,),
        r"cannot find -l\w+|library \S+ (is )?not found",
        "Install the library that the linker does not find (on Debian, openblas is in "
        "libopenblas-dev), or take it out of blas.ldflags in THEANO_FLAGS and .theanorc: without "
        "the flag, PyTensor looks for a BLAS itself.",
    ),
    Rule(
        (ImportError,),
        r"sklearn\.(cross_validation|grid_search|externals)",
        "Use sklearn.model_selection for cross_validation and grid_search, and joblib for "
        "externals.joblib.",
    ),
]


# How errors say that a module or a class does not have a name, in which order.
NO_NAME = [
    (r"[Mm]odule '([\w.]+)' has no attribute '(\w+)'", "{0}.{1}"),
    (r"^`([\w.]+)` has no attribute `(\w+)`", "{0}.{1}"),
    (r"^`np\.(\w+)` was removed", "numpy.{0}"),
    (r"'(numpy\.ndarray)' object has no attribute '(\w+)'", "{0}.{1}"),
    (r"`(\w+)` was removed from the (ndarray) class", "numpy.ndarray.{0}"),
    (r"cannot import name '(\w+)' from '([\w.]+)'", "{1}.{0}"),
    (r"No module named '([\w.]+)'", "{0}"),
]


def removed_name(text):
    """Return the dotted name that NumPy or SciPy has removed and that an error misses, or None."""
    for pattern, path in NO_NAME:
        if found := re.search(pattern, text):
            name = path.format(*found.groups())
            return name if removed.entry(name) else None
    return None


def advice_on_name(path):
    """Return what to do about a name that NumPy or SciPy has removed.

    Examples
    --------
    >>> from theanoguard.shim.advice import advice_on_name
    >>> advice_on_name("numpy.asscalar")
    'Write x.item(), or run it with --numpy-compat, which gives NumPy and SciPy their old names.'
    >>> advice_on_name("numpy.npv")
    'Take it from numpy_financial (pip install numpy-financial).'
    """
    text = removed.instead(path)
    text = text[0].upper() + text[1:]
    if numpy_compat.restores(path):
        return f"{text}, or r{NUMPY_COMPAT[1:]}"
    return f"{text}."


def advice_on_parameter(function, name):
    """Return what to do about a parameter that a function of NumPy or SciPy has lost, or None."""
    text = removed.instead_of_parameter(function, name)
    return text and f"{text}, or r{NUMPY_COMPAT[1:]}"


def lost_parameter(text):
    """Return the function and the lost parameter that an error is about, or None."""
    if found := re.search(
        r"_?(\w+?)(?:_dispatcher)?\(\) got an unexpected keyword argument '(\w+)'", text
    ):
        name, parameter = found.groups()
        for path, lost in removed.PARAMETERS.items():
            if path.rpartition(".")[2] == name and parameter in lost:
                return path, parameter
    return None


def advice(error):
    """Return what the user can do about an error, or None.

    Parameters
    ----------
    error : BaseException

    Examples
    --------
    >>> from theanoguard.shim.advice import advice
    >>> print(advice(NameError("name 'xrange' is not defined")))
    This is Python 2.  Convert a copy ...
    """
    text = str(error)
    if isinstance(error, SyntaxError):
        text = f"{text} {error.text or ''}"
    if isinstance(error, (AttributeError, ImportError)) and (path := removed_name(text)):
        return advice_on_name(path)
    if isinstance(error, TypeError) and (lost := lost_parameter(text)):
        return advice_on_parameter(*lost)
    for rule in RULES:
        if isinstance(error, rule.kinds) and re.search(rule.pattern, text):
            return rule.advice
    return None


def add_advice(error):
    """Add the advice for an error to its notes, which tracebacks show."""
    text = advice(error)
    if text is not None and text not in getattr(error, "__notes__", ()):
        error.add_note(text)
