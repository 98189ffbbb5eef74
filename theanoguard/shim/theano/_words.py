"""Messages of PyTensor in the words of Theano, which users know and programs look for."""

import re
from contextlib import contextmanager

# What PyTensor writes, as regular expressions, and what Theano wrote.
WORDS = [
    (r"PyTensor flag `exception_verbosity=high`", "Theano flag 'exception_verbosity=high'"),
    (r"use PyTensor flag traceback__limit", "use Theano flag traceback.limit"),
    (r"\bPyTensor flags?\b", "Theano flag"),
    (r"Input dimension mismatch: \(", "Input dimension mis-match. ("),
    (r"\bpytensor\.function\b", "theano.function"),
    (r"\bpytensor\.(scan|grad|shared|config|gradient|tensor|printing)\b", r"theano.\1"),
    (r"\bpt\.(\w+)", r"theano.tensor.\1"),
    (r"\b(tensor\.)?specify_broadcastable\b", "theano.tensor.addbroadcast"),
    (r"\bPyTensor is not able\b", "Theano is not able"),
    (r"\bPYTENSOR_FLAGS\b", "THEANO_FLAGS"),
    (r"\.pytensorrc\b", ".theanorc"),
]


def in_theanos_words(text):
    """Return a message in Theano's words.

    Parameters
    ----------
    text : str
    """
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    return text


@contextmanager
def theanos_words():
    """Give the messages of what is raised inside in Theano's words."""
    try:
        yield
    except Exception as error:
        translate(error)
        raise


def translate(error):
    """Put the message of an exception in Theano's words, and those of its notes."""
    error.args = tuple(in_theanos_words(a) if isinstance(a, str) else a for a in error.args)
    for i, note in enumerate(getattr(error, "__notes__", ())):
        error.__notes__[i] = in_theanos_words(note)
