"""Does my old Theano program still run?

Run it with ``theanoguard run theano_script.py``.  It runs on PyTensor without a change.  This
example is a logistic regression.  With ``--guard nan,inf`` the guard checks it.
"""

import numpy as np
import theano
import theano.tensor as T

rng = np.random.RandomState(0)
data = rng.randn(200, 5)
labels = (data.sum(axis=1) > 0).astype("int64")

x = T.dmatrix("x")
y = T.lvector("y")
w = theano.shared(np.zeros(5), name="w")
p = T.nnet.sigmoid(T.dot(x, w))
cost = T.nnet.binary_crossentropy(p, y).mean()
train = theano.function([x, y], cost, updates=[(w, w - 0.5 * T.grad(cost, w))])
predict = theano.function([x], p > 0.5)

for step in range(50):
    loss = train(data, labels)
    if step % 10 == 0:
        print("step", step, "loss", round(float(loss), 4))
print("right:", (predict(data) == labels).sum(), "of", len(labels))
