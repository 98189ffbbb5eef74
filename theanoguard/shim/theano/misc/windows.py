"""Subprocesses that open no window."""

from pytensor.utils import call_subprocess_Popen as call_subprocess_Popen
from pytensor.utils import output_subprocess_Popen as output_subprocess_Popen
from pytensor.utils import subprocess_Popen as subprocess_Popen
