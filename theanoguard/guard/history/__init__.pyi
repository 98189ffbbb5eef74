from .bisecting import bisect
from .recording import Recording
from .signs import Sign

__all__ = ["Recording", "Sign", "bisect"]
