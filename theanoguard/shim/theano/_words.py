"""Messages of PyTensor in the words of Theano, which users know and programs look for."""

import re
from contextlib import contextmanager
from functools import reduce

# A character, or parentheses of up to eight levels, as the text of a fused operation has them.
NESTED = reduce(lambda inner, _: rf"(?:[^()]|\({inner}*\))", range(8), "[^()]")

# What PyTensor writes, as regular expressions, and what Theano wrote.
WORDS = [
    (r"PyTensor flag `exception_verbosity=high`", "Theano flag 'exception_verbosity=high'"),
    (r"use PyTensor flag traceback__limit", "use Theano flag traceback.limit"),
    (r"\bPyTensor flags?\b", "Theano flag"),
    (r"Input dimension mismatch: \(", "Input dimension mis-match. ("),
    (r"\bpytensor\.function\b", "theano.function"),
    (r"\bpytensor\.clone_replace\b", "theano.clone"),
    (r"\bpytensor\.(scan|grad|shared|config|gradient|tensor|printing)\b", r"theano.\1"),
    (r"\bpt\.(\w+)", r"theano.tensor.\1"),
    (r"\b(tensor\.)?specify_broadcastable\b", "theano.tensor.addbroadcast"),
    (r"\bPyTensor is not able\b", "Theano is not able"),
    (r"\bpytensor (function|Variable)\b", r"theano \1"),
    (
        r"\bmost PyTensor optimizations disabled could provide a back-trace showing when\b",
        "most Theano optimization disabled could give you a back-trace of when",
    ),
    (r"\bPyTensor optimizations\b", "Theano optimizations"),
    (r"\bPYTENSOR_FLAGS\b", "THEANO_FLAGS"),
    (r"\.pytensorrc\b", ".theanorc"),
    (r"\bScalarType\(", "Scalar("),
    (r"is created \(use Theano flag", "is created(use Theano flag"),
    (
        r"for a debug print-out and storage map footprint of this Apply node",
        "for a debugprint and storage map footprint of this apply node",
    ),
    (rf"(?<=[\[ ])output\[\d+\]\({NESTED}*\)(?=[\],])", "'output'"),  # among the clients
    (r"\A`grad` encountered a NaN\.", "tensor.grad encountered a NaN."),
    (r"(?<= op is )undefined\.", "mathematically undefined."),
    (
        # (PyTensor 3.3 and 3.0)
        r"\A(?:Inner graph implicitly depends on shared variable |Scan is missing inputs: \[)"
        r"(.*?)(?:\. Provide .*|\])\Z",
        r"ScanOp is missing an input: \1",
    ),
    (r"\ACost must be a scalar\.", "cost must be a scalar."),
    (r"\AMissing input: ", "Missing required input: "),
    (r"\AUnknown input: ", "Unknown input or state: "),
    (
        r"\AThe tag '.*' is already present in the database\.",
        "The name of the object cannot be an existing tag or the name of another existing object.",
    ),
    (
        r"\AThe tag '.*' for the .* collides with an existing name\.",
        "The tag of the object collides with a name.",
    ),
    (
        r"\AOnly tensors with the same number of dimensions can be joined\.",
        "Join() can only join tensors with the same number of dimensions.",
    ),
    (
        r"\AThe 'tensors' argument must be either a tuple or a list\.",
        "The 'tensors' argument must be either a tuple or a list, make sure you did not forget () "
        "or [] around arguments of concatenate.",
    ),
    (
        r"\AThe condition argument must be a truthy scalar value",
        "Condition given to the op has to be a scalar with 0 standing for False, anything else "
        "for True",
    ),
    (
        r"\AIfElse requires compatible \w+ values for both branches:",
        "The two branches should have identical types, but",
    ),
]


# What a profile, a text about settings or the representation of an object says.
NAMES = [
    (r"PyTensor rewrite time:", "Theano Optimizer time:"),
    (r"(\d)%%", r"\1%"),
    (r"\ban PyTensor\b", "a Theano"),
    (r"\bPyTensor\b", "Theano"),
    (r"\bpytensorrc\b", "theanorc"),
    (r"\bpytensor\.compile\.debug\b", "theano.compile"),
    (r"\bpytensor\.link\b", "theano.gof"),
    (r"\bpytensor\b(?!/)", "theano"),
    (r"\bpytensor_version\b", "theano_version"),
    (r"\bPYTENSOR_FLAGS\b", "THEANO_FLAGS"),
]


def in_theanos_names(text):
    """Return a text that says Theano wherever PyTensor says its own name.

    Parameters
    ----------
    text : str
    """
    for pattern, replacement in NAMES:
        text = re.sub(pattern, replacement, text)
    return text


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
