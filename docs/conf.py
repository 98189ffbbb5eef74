import doctest
import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "theanoguard"
author = "the theanoguard developers"
copyright = author
release = metadata.version("theanoguard")
version = ".".join(release.split(".")[:2])

extensions = ["sphinx.ext.autodoc", "sphinx.ext.doctest", "numpydoc", "from_code"]
exclude_patterns = ["_build"]
html_theme = "alabaster"

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
numpydoc_show_class_members = False

# What stands under ".. doctest::" is run; the examples in docstrings are run by pytest.
doctest_test_doctest_blocks = ""
doctest_default_flags = doctest.ELLIPSIS | doctest.DONT_ACCEPT_TRUE_FOR_1
doctest_global_setup = """
import numpy as np
import pytensor
import pytensor.tensor as pt
"""
