"""``theano.tensor.nnet.neighbours`` under its former name."""

from ..tensor.nnet.neighbours import Images2Neibs as Images2Neibs
from ..tensor.nnet.neighbours import images2neibs as images2neibs
from ..tensor.nnet.neighbours import neibs2images as neibs2images
