"""A function's execution watched node by node, or stepped through by hand."""

from theanoguard.monitor.mode import DetectNan, MonitorMode, detect_nan
from theanoguard.monitor.prompt import stepping
from theanoguard.monitor.stepper import Stepper, step

__all__ = ["DetectNan", "MonitorMode", "Stepper", "detect_nan", "step", "stepping"]
