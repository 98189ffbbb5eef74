"""The log of events, names for the tasks that write to it, and trackers of experiments."""

from theanoguard.log.event_log import EventLog, Log, LogEntry, read_log, read_logs
from theanoguard.log.trackers import MLflow, TensorBoard
from theanoguard.log.worker import task

__all__ = [
    "EventLog",
    "Log",
    "LogEntry",
    "MLflow",
    "TensorBoard",
    "read_log",
    "read_logs",
    "task",
]
