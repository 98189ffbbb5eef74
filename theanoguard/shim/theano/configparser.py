"""Theano's configuration: dotted names, ``THEANO_FLAGS`` and ``~/.theanorc``.

The variables themselves are declared in `theano.configdefaults`; those that PyTensor has are kept
there, and read and set through.
"""

import os
import sys
from configparser import (
    ConfigParser,
    InterpolationError,
    NoOptionError,
    NoSectionError,
    RawConfigParser,
)
from functools import wraps
from io import StringIO

from pytensor.configparser import PyTensorConfigWarning as TheanoConfigWarning
from pytensor.configparser import parse_config_string as parse_config_string
from pytensor.utils import hash_from_code

from ._words import in_theanos_names

THEANO_FLAGS = os.getenv("THEANO_FLAGS", "")
THEANO_FLAGS_DICT = parse_config_string(THEANO_FLAGS, issue_warnings=True)


def config_files_from_theanorc():
    """The files that ``THEANORC`` names, or the one in the home directory."""
    files = os.getenv("THEANORC", "~/.theanorc").split(os.pathsep)
    if os.getenv("THEANORC") is None and sys.platform == "win32":
        files.append("~/.theanorc.txt")
    return [os.path.expanduser(file) for file in files]


config_files = config_files_from_theanorc()
theano_cfg = ConfigParser(
    {
        "USER": os.getenv("USER", os.path.basename(os.path.expanduser("~"))),
        "PID": str(os.getpid()),
        **{name: os.getenv(name, "") for name in ["LSCRATCH", "TMPDIR", "TEMP", "TMP"]},
    }
)
theano_cfg.read(config_files)
# Values with a "%" that is no interpolation are read from here.
theano_raw_cfg = RawConfigParser()
theano_raw_cfg.read(config_files)

_config_var_list = []


class change_flags:
    """Set configuration variables inside a ``with`` block or a decorated function.

    They are given as in 1.0.5: by keyword, or, for names with a dot, in a dict or a list of pairs.
    """

    def __init__(self, args=(), **kwargs):
        # Theano-PyMC writes "__" in the place of a dot.
        given = {**dict(args), **kwargs}
        self.new_vals = {name.replace("__", "."): value for name, value in given.items()}
        unknown = self.new_vals.keys() - self.confs.keys()
        assert not unknown, f"Theano has no configuration variable {', '.join(sorted(unknown))}."

    @property
    def confs(self):
        """The variables by name.  (An attribute would be pickled with PyMC3's models.)"""
        return {var.fullname: var for var in _config_var_list if var.fullname in self.new_vals}

    def __call__(self, f):
        @wraps(f)
        def res(*args, **kwargs):
            with self:
                return f(*args, **kwargs)

        return res

    def __enter__(self):
        self.old_vals = {name: var.__get__(True, None) for name, var in self.confs.items()}
        try:
            for name, var in self.confs.items():
                var.__set__(None, self.new_vals[name])
        except Exception:
            self.__exit__()
            raise

    def __exit__(self, *args):
        for name, var in self.confs.items():
            var.__set__(None, self.old_vals[name])


def fetch_val_for_key(key, delete_key=False):
    """Return what the user says about a variable, in the flags or else in a file, as a string.

    Raises
    ------
    KeyError
        When the user says nothing.
    """
    if key in THEANO_FLAGS_DICT:
        return THEANO_FLAGS_DICT.pop(key) if delete_key else THEANO_FLAGS_DICT[key]
    section, _, option = key.rpartition(".")
    try:
        try:
            return theano_cfg.get(section or "global", option)
        except InterpolationError:
            return theano_raw_cfg.get(section or "global", option)
    except (NoOptionError, NoSectionError):
        raise KeyError(key) from None


def _config_print(thing, buf, print_doc=True):
    for var in _config_var_list:
        print(in_theanos_names(str(var)), file=buf)
        if print_doc:
            print("    Doc: ", in_theanos_names(str(var.doc)), file=buf)
        print("    Value: ", var.__get__(True, None), file=buf)
        print("", file=buf)


def get_config_hash():
    """Return a hash of the values that compiled code depends on."""
    in_key = sorted((var for var in _config_var_list if var.in_c_key), key=lambda v: v.fullname)
    lines = [f"{var.fullname} = {var.__get__(True, None)}" for var in in_key]
    return hash_from_code("\n".join(lines))


class TheanoConfigParser:
    """The configuration; `AddConfigVar` puts the variables into the class."""

    _i_am_a_config_class = True
    change_flags = change_flags

    def __str__(self, print_doc=True):
        text = StringIO()
        _config_print(self.__class__, text, print_doc=print_doc)
        return text.getvalue()


config = TheanoConfigParser()


def AddConfigVar(name, doc, configparam, root=config, in_c_key=True):
    """Add a variable to ``theano.config``; its name may have sections, divided by dots.

    Parameters
    ----------
    name : str
        Its whole name.
    doc : str
        What it is for.
    configparam : ConfigParam
        Its default and what it may be.
    root : object
        The section that the name is relative to.
    in_c_key : bool
        Whether compiled code depends on it.
    """
    if root is config:
        configparam.fullname = name
        if "." in name:
            setattr(type(root), name.replace(".", "__"), configparam)
    section, _, rest = name.partition(".")
    if rest:
        if not hasattr(root, section):
            # Each section is the one instance of a class of its own: variables are descriptors.
            sub_class = type("SubObj", (), {"_i_am_a_config_class": True})
            setattr(type(root), section, sub_class())
        new_root = getattr(root, section)
        if not getattr(new_root, "_i_am_a_config_class", False) or isinstance(new_root, type):
            raise TypeError("Internal config nodes must be config class instances", new_root)
        AddConfigVar(rest, doc, configparam, root=new_root, in_c_key=in_c_key)
        return
    if hasattr(type(root), name):
        raise AttributeError("This name is already taken", configparam.fullname)
    configparam.doc = doc
    configparam.in_c_key = in_c_key
    # A value of the user's is checked now; a default that is computed waits until it is asked for.
    try:
        fetch_val_for_key(configparam.fullname)
        given = True
    except KeyError:
        given = False
    if given or not callable(configparam.default):
        configparam.__get__(root, type(root), delete_key=True)
    setattr(type(root), name, configparam)
    _config_var_list.append(configparam)


class ConfigParam:
    """A variable of the configuration.

    Parameters
    ----------
    default : object or callable
        What it is where the user says nothing, or a function that computes it.
    filter : callable, optional
        Returns the value that is kept, or raises a ``ValueError``.
    allow_override : bool
        Whether the program may change it.
    """

    def __init__(self, default, filter=None, allow_override=True):
        self.default = default
        self.filter = filter
        self.allow_override = allow_override
        self.is_default = True

    def __get__(self, cls, type_, delete_key=False):
        if cls is None:
            return self
        if not hasattr(self, "val"):
            try:
                value = fetch_val_for_key(self.fullname, delete_key=delete_key)
                self.is_default = False
            except KeyError:
                value = self.default() if callable(self.default) else self.default
            self.__set__(cls, value)
        return self.val

    def __set__(self, cls, val):
        if not self.allow_override and hasattr(self, "val"):
            raise Exception("Can't change the value of this config parameter after initialization!")
        self.val = self.filter(val) if self.filter else val


class EnumStr(ConfigParam):
    """A variable that is one of some strings."""

    def __init__(self, default, *options, **kwargs):
        self.all = (default, *options)
        for val in self.all:
            if not isinstance(val, str):
                raise ValueError(
                    "Valid values for an EnumStr parameter should be strings", val, type(val)
                )
        convert = kwargs.get("convert")

        def filter(val):
            if convert:
                val = convert(val)
            if val not in self.all:
                raise ValueError(
                    f'Invalid value ("{val}") for configuration variable "{self.fullname}". '
                    f"Valid options are {self.all}"
                )
            return val

        super().__init__(default, filter, kwargs.get("allow_override", True))

    def __str__(self):
        return f"{self.fullname} ({self.all}) "


class TypedParam(ConfigParam):
    """A variable of a type."""

    def __init__(self, default, mytype, is_valid=None, allow_override=True):
        self.mytype = mytype

        def filter(val):
            cast = mytype(val)
            if callable(is_valid) and not is_valid(cast):
                raise ValueError(
                    f'Invalid value ({cast}) for configuration variable "{self.fullname}".',
                    val,
                )
            return cast

        super().__init__(default, filter, allow_override=allow_override)

    def __str__(self):
        return f"{self.fullname} ({self.mytype}) "


def StrParam(default, is_valid=None, allow_override=True):
    """Return a variable that is a string."""
    return TypedParam(default, str, is_valid, allow_override=allow_override)


def IntParam(default, is_valid=None, allow_override=True):
    """Return a variable that is an integer."""
    return TypedParam(default, int, is_valid, allow_override=allow_override)


def FloatParam(default, is_valid=None, allow_override=True):
    """Return a variable that is a float."""
    return TypedParam(default, float, is_valid, allow_override=allow_override)


def BoolParam(default, is_valid=None, allow_override=True):
    """Return a variable that is true or false, which may be written in words or as 0 and 1."""
    words = {"False": False, "false": False, "0": False, "True": True, "true": True, "1": True}

    def booltype(value):
        return value if isinstance(value, bool) else words.get(str(value))

    def is_valid_bool(value):
        return value is not None

    return TypedParam(default, booltype, is_valid or is_valid_bool, allow_override=allow_override)


__all__ = [
    "THEANO_FLAGS",
    "THEANO_FLAGS_DICT",
    "AddConfigVar",
    "BoolParam",
    "ConfigParam",
    "EnumStr",
    "FloatParam",
    "IntParam",
    "StrParam",
    "TheanoConfigParser",
    "TheanoConfigWarning",
    "TypedParam",
    "change_flags",
    "config",
    "config_files_from_theanorc",
    "fetch_val_for_key",
    "get_config_hash",
    "parse_config_string",
]
