"""Watches the execution of a function node by node, or steps through it."""

from theanoguard.monitor.mode import DetectNan, MonitorMode, detect_nan
from theanoguard.monitor.prompt import step_in_terminal
from theanoguard.monitor.stepper import Stepper, step_through

__all__ = ["DetectNan", "MonitorMode", "Stepper", "detect_nan", "step_in_terminal", "step_through"]
