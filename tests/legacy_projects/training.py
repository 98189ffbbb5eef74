"""Legacy projects, as they are on PyPI, train under the shim.

``tox -e legacy-projects`` installs them and runs this file with
``-p theanoguard.shim.pytest_plugin --numpy-compat --python-compat``; nothing in them is changed.
"""

import downhill
import lasagne
import numpy as np
import pyfms
import pymc3
import pytest
import theanets
import theano
import theano.tensor as T
from neupy import algorithms
from neupy import layers as neupy_layers
from scipy import sparse

floatX = theano.config.floatX


@pytest.fixture
def points():
    """Two clouds of points, and which is which."""
    rng = np.random.RandomState(0)
    labels = rng.randint(0, 2, 200)
    values = rng.normal(0, 0.5, (200, 2)) + np.where(labels[:, None], 1.0, -1.0)
    return values.astype(floatX), labels.astype("int32")


@pytest.mark.parametrize("algorithm", ["sgd", "nag", "rmsprop", "rprop", "adam", "esgd"])
def test_downhill_factorizes_a_matrix(algorithm):
    rng = np.random.RandomState(1)
    wanted = (rng.randn(20, 3) @ rng.randn(3, 10)).astype(floatX)
    u = theano.shared(rng.randn(20, 3).astype(floatX), name="u")
    v = theano.shared(rng.randn(3, 10).astype(floatX), name="v")
    x = T.matrix("x")
    loss = T.mean((x - T.dot(u, v)) ** 2)
    rate = {"rprop": 0.01, "rmsprop": 0.01, "adam": 0.01}.get(algorithm, 0.05)
    optimizer = downhill.build(algorithm, loss=loss, params=[u, v], inputs=[x])
    batches = downhill.Dataset([wanted], batch_size=20, name="train")
    steps = optimizer.iterate(
        batches, learning_rate=rate, max_gradient_norm=10, patience=0, max_updates=200
    )
    losses = [float(train["loss"]) for train, valid in steps]
    assert min(losses) < 0.5 * losses[0]


def test_theanets_classifies(points):
    values, labels = points
    network = theanets.Classifier([2, (8, "relu"), 2], rng=1)
    steps = network.itertrain([values, labels], algo="rmsprop", learning_rate=0.02, max_updates=10)
    accuracies = [float(train["acc"]) for train, valid in steps]
    assert accuracies[-1] > 0.95


def test_theanets_remembers():
    rng = np.random.RandomState(2)
    inputs = rng.randn(16, 6, 1).astype(floatX)
    outputs = np.cumsum(inputs, axis=1).astype(floatX)
    network = theanets.recurrent.Regressor([1, ("rnn", 8), 1])
    losses = [
        float(train["loss"])
        for train, _ in network.itertrain(
            [inputs, outputs], algo="adam", learning_rate=0.02, max_updates=60
        )
    ]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_pyfms_classifies(points, form):
    values, labels = points
    np.random.seed(3)
    machine = pyfms.Classifier(2, k=2, X_format=form)
    given = sparse.csr_matrix(values) if form == "csr" else values
    machine.fit(given, labels, nb_epoch=200)
    assert np.mean(machine.predict(given) == labels) > 0.95


def test_pyfms_regresses():
    rng = np.random.RandomState(4)
    x = rng.randn(300, 3)
    y = 1 + x @ [1.0, -2.0, 0.5] + 0.5 * x[:, 0] * x[:, 1]
    machine = pyfms.Regressor(3, k=2)
    machine.fit(x, y, nb_epoch=1500)
    assert np.mean((machine.predict(x) - y) ** 2) < 0.1 * np.var(y)


def test_lasagne_trains_a_convolutional_network():
    rng = np.random.RandomState(5)
    lasagne.random.set_rng(rng)
    labels = rng.randint(0, 2, 64).astype("int32")
    images = rng.normal(0, 0.3, (64, 1, 8, 8)).astype(floatX)
    images[labels == 1, :, 2:6, 2:6] += 1  # a square in the middle
    x, y = T.tensor4("x"), T.ivector("y")
    layers = lasagne.layers
    network = layers.InputLayer((None, 1, 8, 8), x)
    network = layers.Conv2DLayer(network, 4, (3, 3))
    network = layers.MaxPool2DLayer(network, (2, 2))
    network = layers.DropoutLayer(network, 0.2)
    network = layers.DenseLayer(network, 2, nonlinearity=lasagne.nonlinearities.softmax)
    loss = lasagne.objectives.categorical_crossentropy(layers.get_output(network), y).mean()
    parameters = layers.get_all_params(network, trainable=True)
    updates = lasagne.updates.nesterov_momentum(loss, parameters, learning_rate=0.1)
    train = theano.function([x, y], loss, updates=updates)
    predict = theano.function([x], layers.get_output(network, deterministic=True).argmax(axis=1))
    losses = [float(train(images, labels)) for _ in range(30)]
    assert losses[-1] < 0.3 * losses[0]
    assert np.mean(predict(images) == labels) > 0.95


@pytest.fixture
def line():
    """Points on the line ``1 + 2 x``, with noise."""
    rng = np.random.RandomState(6)
    x = rng.randn(100)
    return x, 1 + 2 * x + rng.normal(0, 0.3, 100)


@pytest.fixture
def regression(line):
    """A linear regression in PyMC3."""
    x, y = line
    # A model that is entered twice, as when it samples, leaves its flag behind.
    with theano.change_flags(compute_test_value="off"), pymc3.Model() as model:
        intercept = pymc3.Normal("intercept", 0, 10)
        slope = pymc3.Normal("slope", 0, 10)
        noise = pymc3.HalfNormal("noise", 1)
        pymc3.Normal("y", intercept + slope * x, noise, observed=y)
        yield model


def test_pymc3_finds_the_mode(regression):
    mode = pymc3.find_MAP(progressbar=False)
    assert mode["intercept"] == pytest.approx(1, abs=0.15)
    assert mode["slope"] == pytest.approx(2, abs=0.15)
    assert mode["noise"] == pytest.approx(0.3, abs=0.1)


@pytest.mark.parametrize("step", [pymc3.NUTS, pymc3.Metropolis, pymc3.Slice])
def test_pymc3_samples(regression, step):
    trace = pymc3.sample(
        300,
        tune=300,
        start={"intercept": 0.9, "slope": 1.9},
        step=step(),
        chains=1,
        cores=1,
        random_seed=7,
        progressbar=False,
        compute_convergence_checks=False,
    )
    assert trace["slope"].mean() == pytest.approx(2, abs=0.15)


def test_pymc3_approximates(regression):
    adam = pymc3.adam(learning_rate=0.05)
    fit = pymc3.fit(1000, method="advi", obj_optimizer=adam, random_seed=8, progressbar=False)
    assert fit.sample(200)["slope"].mean() == pytest.approx(2, abs=0.3)


@pytest.mark.parametrize("algorithm", ["Momentum", "QuasiNewton"])
def test_neupy_classifies(points, algorithm):
    values, labels = points
    network = getattr(algorithms, algorithm)(
        [neupy_layers.Input(2), neupy_layers.Tanh(4), neupy_layers.Sigmoid(1)],
        shuffle_data=True,
        verbose=False,
    )
    network.train(values, labels[:, None].astype(floatX), epochs=30)
    assert np.mean(network.predict(values).ravel().round() == labels) > 0.9
