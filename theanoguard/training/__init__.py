"""Guards, clipping and statistics for training."""

from theanoguard.guard.mode import recording_of
from theanoguard.training import holding, inplace  # noqa: F401  (they register rewrites)
from theanoguard.training.clipping import clip_grad_norm, clip_grad_value
from theanoguard.training.gradients import GradientError, GradientEvent, GradientGuard
from theanoguard.training.updates import GuardedUpdates, UpdateError, guarded_updates
from theanoguard.training.watch import Watch, watching

__all__ = [
    "GradientError",
    "GradientEvent",
    "GradientGuard",
    "GuardedUpdates",
    "UpdateError",
    "Watch",
    "clip_grad_norm",
    "clip_grad_value",
    "guarded_updates",
    "recording_of",
    "watching",
]
