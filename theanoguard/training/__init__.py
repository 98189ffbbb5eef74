"""Training that notices trouble before the NaN and keeps the weights sound."""

from theanoguard.training.clipping import clip_grad_norm, clip_grad_value
from theanoguard.training.updates import GuardedUpdates, UpdateError, guarded_updates

__all__ = [
    "GuardedUpdates",
    "UpdateError",
    "clip_grad_norm",
    "clip_grad_value",
    "guarded_updates",
]
