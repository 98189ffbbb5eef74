"""Where experiments are tracked: the record of a function's calls in TensorBoard and MLflow."""

import os
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Tracker(Protocol):
    """What ``Recording.send_to`` takes."""

    def log(self, call: int, values: Mapping[str, float]) -> None:
        """Take numbers of a call, by names such as ``norm/W``."""

    def tell(self, call: int, text: str) -> None:
        """Take a sentence that says since when the numbers are unlike those before."""


class TensorBoard:
    """Sends the record of a function's calls to TensorBoard.

    Parameters
    ----------
    folder : str, path-like or SummaryWriter
        A folder for the events of a run, which needs the package ``tensorboardX``; or a writer with
        ``add_scalar``, ``add_text`` and ``flush``, such as that of ``torch.utils.tensorboard``.

    Raises
    ------
    ImportError
        If ``tensorboardX`` is needed and is not installed.

    Examples
    --------
    ``recording_of(f).send_to(TensorBoard("runs/1"), every=10)``
    """

    def __init__(self, folder: str | os.PathLike[str] | Any) -> None:
        self.writer: Any = folder
        if isinstance(folder, str | os.PathLike):
            try:
                from tensorboardX import SummaryWriter
            except ImportError as error:
                raise ImportError(
                    "TensorBoard(folder) needs tensorboardX, which is not installed.\n"
                    "Install it with: pip install tensorboardX"
                ) from error
            self.writer = SummaryWriter(str(Path(folder)))

    def log(self, call: int, values: Mapping[str, float]) -> None:
        """Write numbers of a call as scalars."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, call)

    def tell(self, call: int, text: str) -> None:
        """Write a sentence as text."""
        self.writer.add_text("theanoguard/since", text, call)
        self.writer.flush()


class MLflow:
    """Sends the record of a function's calls to the active run of MLflow, or to a new one.

    Raises
    ------
    ImportError
        If ``mlflow`` is not installed.

    Examples
    --------
    ``recording_of(f).send_to(MLflow(), every=10)``
    """

    def __init__(self) -> None:
        try:
            import mlflow
        except ImportError as error:
            raise ImportError(
                "MLflow() needs mlflow, which is not installed.\n"
                "Install it with: pip install mlflow"
            ) from error
        self.mlflow: Any = mlflow

    def log(self, call: int, values: Mapping[str, float]) -> None:
        """Write numbers of a call as metrics.  In MLflow, names are paths of few characters."""
        names = (posixpath.normpath(re.sub(r"[^\w\-. /]", "_", name)) for name in values)
        self.mlflow.log_metrics(dict(zip(names, values.values(), strict=True)), step=call)

    def tell(self, call: int, text: str) -> None:
        """Write a sentence as the tag ``theanoguard.since`` of the run."""
        self.mlflow.set_tag("theanoguard.since", text)
