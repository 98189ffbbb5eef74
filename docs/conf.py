import doctest
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import theanoguard

project = "theanoguard"
author = "the theanoguard developers"
copyright = author
release = theanoguard.__version__
version = ".".join(release.split(".")[:2])

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "numpydoc",
    "sphinx_copybutton",
    "from_code",
]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"theanoguard {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_copyright = False

# Every colour of these two has a contrast of at least 6 on its background.
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
# The style's own background is almost the page's.
html_theme_options = {"light_css_variables": {"color-code-background": "#f3f4f6"}}
# A block after "::" is a command to type.  Every other language is named by its block.
highlight_language = "shell"

# The button copies what the reader types, without prompts and output.
copybutton_exclude = ".linenos, .gp, .go, .gt"

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
numpydoc_show_class_members = False

# What stands under ".. doctest::" is run; the examples in docstrings are run by pytest.
doctest_test_doctest_blocks = ""
doctest_default_flags = doctest.ELLIPSIS | doctest.DONT_ACCEPT_TRUE_FOR_1
# Nothing but the directory is set up: the reader sees every name that an example uses.
doctest_global_setup = """
import os as _os, tempfile as _tempfile
_before, _folder = _os.getcwd(), _tempfile.TemporaryDirectory()
_os.chdir(_folder.name)
"""
doctest_global_cleanup = """
_os.chdir(_before)
_folder.cleanup()
"""
