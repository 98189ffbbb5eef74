from importlib import metadata

project = "theanoguard"
author = "the theanoguard developers"
copyright = author
release = metadata.version("theanoguard")
version = ".".join(release.split(".")[:2])

extensions = ["sphinx.ext.autodoc", "sphinx.ext.doctest", "numpydoc"]
exclude_patterns = ["_build"]
html_theme = "alabaster"

autodoc_member_order = "bysource"
numpydoc_show_class_members = False

doctest_global_setup = """
import numpy as np
import pytensor
import pytensor.tensor as pt
"""
