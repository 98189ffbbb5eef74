"""What a type checker says of programs that use the package; PyTensor's own types are left out."""

import json
import shutil
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.on_33

ROOT = Path(__file__).parents[1]
WRONG = """
from theanoguard import GuardMode, MeasuredCalls, compare, guarding, lint
from theanoguard.log import EventLog
from theanoguard.training import GradientGuard, Watch, clip_grad_norm, guarded_updates, watching
GuardMode(backend="numbaa")
GuardMode(action="rais")
GuardMode(nan_is_error="yes")
GuardMode(exemptt="w")
GuardMode(restore="no")
guarding(restore="no")
guarding(exemptt="w")
guarded_updates({}, action="skp")
clip_grad_norm([], 1.0, nonfinite_action="stop")
GradientGuard(1.0, action="stop")
Watch([], every="batch")
compare([], reference="as writen")
lint([], secnds=1)
EventLog(3)
MeasuredCalls(every="1")
watching(None, updatess=True)
"""


@pytest.mark.skipif(not find_spec("pyright"), reason="pyright is not installed")
def test_the_examples_are_accepted_and_wrong_arguments_refused(tmp_path):
    venv.create(tmp_path / "bare", with_pip=False)
    for example in (ROOT / "examples").glob("*.py"):
        if example.name not in ("theano_script.py", "pymc3_sample.py"):  # (which import Theano)
            shutil.copy(example, tmp_path)
    (tmp_path / "wrong.py").write_text(WRONG)
    settings = {
        "include": ["*.py"],
        "extraPaths": [str(ROOT)],
        "venvPath": ".",
        "venv": "bare",
        "reportMissingImports": False,
        "reportMissingModuleSource": False,
        # The examples know what their programs hold.
        "reportOptionalMemberAccess": False,
        "reportOptionalCall": False,
        "reportPossiblyUnboundVariable": False,
        "reportUnusedExpression": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] > 15
    errors = [
        (Path(e["file"]).name, e["range"]["start"]["line"]) for e in found["generalDiagnostics"]
    ]
    assert {name for name, _ in errors} == {"wrong.py"}, found["generalDiagnostics"]
    assert {line for _, line in errors} == set(range(3, 19))
