"""The log of events, and the names by which it tells processes apart."""

from theanoguard.log.event_log import EventLog, LogEntry, read_log, read_logs
from theanoguard.log.worker import task

__all__ = ["EventLog", "LogEntry", "read_log", "read_logs", "task"]
