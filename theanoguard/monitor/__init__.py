"""A function's execution watched node by node, or stepped through by hand."""

from theanoguard.monitor.mode import DetectNan, MonitorMode, detect_nan

__all__ = ["DetectNan", "MonitorMode", "detect_nan"]
