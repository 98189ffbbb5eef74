"""A function's execution watched node by node, or stepped through by hand."""

from theanoguard.monitor.mode import DetectNan, MonitorMode, detect_nan
from theanoguard.monitor.prompt import step_in_terminal
from theanoguard.monitor.stepper import Stepper, step_through

__all__ = ["DetectNan", "MonitorMode", "Stepper", "detect_nan", "step_in_terminal", "step_through"]
