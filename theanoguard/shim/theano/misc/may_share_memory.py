"""Whether two values may share memory."""

from pytensor.misc.may_share_memory import may_share_memory as may_share_memory
