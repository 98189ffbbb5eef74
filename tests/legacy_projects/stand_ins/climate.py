"""What theanets takes from the package climate, whose name on PyPI belongs to another one now."""

import logging

get_logger = logging.getLogger
