"""Correlation of 3-d images with filters, and its gradients, by im2col and gemm."""

from .corr import _OPS, BaseCorrMM, CorrMM, CorrMM_gradInputs, CorrMM_gradWeights, _pairs


class BaseCorr3dMM(BaseCorrMM):
    """What `Corr3dMM` and its gradients have in common.

    Parameters
    ----------
    border_mode : {"valid", "full", "half"}, int, or tuple of 3 int
        Zeros put around the images.
    subsample : tuple of 3 int
        The steps of the filters.
    filter_dilation : tuple of 3 int
        The distance between the elements of a filter on the image.
    openmp : object
        Not used.
    num_groups : int
        Groups of channels that do not see each other.
    """

    convdim = 3
    __props__ = ("border_mode", "subsample", "filter_dilation", "num_groups")

    def __init__(
        self,
        border_mode="valid",
        subsample=(1, 1, 1),
        filter_dilation=(1, 1, 1),
        openmp=None,
        num_groups=1,
    ):
        super().__init__(border_mode, subsample, filter_dilation, num_groups)

    def _normal_border_mode(self, border_mode):
        pairs = _pairs(border_mode, self.convdim, allows_asymmetric=False)
        return pairs if isinstance(pairs, str) else tuple(pad for pad, _ in pairs)

    @property
    def pad(self):
        """A pair of paddings for each axis; -1 stands for "half", -2 for "full"."""
        if isinstance(self.border_mode, tuple):
            return tuple((pad, pad) for pad in self.border_mode)
        return super().pad


class Corr3dMM(BaseCorr3dMM, CorrMM):
    """Correlate images with filters (which are not flipped)."""


class Corr3dMM_gradWeights(BaseCorr3dMM, CorrMM_gradWeights):
    """The gradient of `Corr3dMM` with respect to the filters."""


class Corr3dMM_gradInputs(BaseCorr3dMM, CorrMM_gradInputs):
    """The gradient of `Corr3dMM` with respect to the images."""


_OPS.update(
    ((op.direction, op.convdim), op) for op in (Corr3dMM, Corr3dMM_gradWeights, Corr3dMM_gradInputs)
)
