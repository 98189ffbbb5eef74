"""The log of events, and names for the tasks that write to it."""

from theanoguard.log.event_log import EventLog, Log, LogEntry, read_log, read_logs
from theanoguard.log.worker import task

__all__ = ["EventLog", "Log", "LogEntry", "read_log", "read_logs", "task"]
