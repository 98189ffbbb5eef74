"""Tox reads this file first.  It lets tox find every interpreter that pyenv has installed."""

import os
from pathlib import Path

root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
found = sorted(root.glob("versions/3.*/bin"), reverse=True)
os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *map(str, found)])
