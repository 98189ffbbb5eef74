"""Train a small network on handwritten digits under the guard.

A network with one hidden layer (64-64-10, rectifier) is trained by minibatch gradient
descent on 1,797 images of 8 by 8 pixels.  ``GuardMode`` checks every operation of the
compiled training step.  If a step makes a NaN, an Inf or a value above 1e10, it raises an
error that names the operation, and the weights keep their values from before that step.

The data, ``digits.csv``, is the test part of "Optical Recognition of Handwritten
Digits" by E. Alpaydin and C. Kaynak (UCI Machine Learning Repository, 1998,
https://doi.org/10.24432/C50P49, CC BY 4.0).
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.special import softmax

from theanoguard import GuardError, GuardMode

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None

DATA = Path(__file__).with_name("digits.csv")
N_PIXELS, N_HIDDEN, N_CLASSES = 64, 64, 10
N_VALIDATION, N_TEST = 297, 300


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Train a network on the UCI handwritten digits under theanoguard's GuardMode.",
        epilog="A learning rate of 100 diverges within the first epoch: the guard stops the "
        "training, and the program ends with status 1.",
    )
    parser.add_argument("--learning-rate", type=float, default=0.5, help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=32, help="default: %(default)s")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the split, the weights and the order"
    )
    parser.add_argument("--progress", action="store_true", help="show a bar (needs tqdm)")
    arguments = parser.parse_args()
    if arguments.progress and tqdm is None:
        parser.error("--progress needs tqdm; install it with: pip install tqdm")
    for name in ("learning_rate", "epochs", "batch_size"):
        if not getattr(arguments, name) > 0:
            parser.error(f"--{name.replace('_', '-')} must be positive")
    return arguments


def load_digits(rng):
    """Images scaled to [0, 1] with their labels, shuffled: training, validation and test part."""
    table = rng.permutation(np.loadtxt(DATA, delimiter=",", dtype="int64"))
    images = (table[:, :-1] / 16).astype(pytensor.config.floatX)
    labels = table[:, -1]
    bounds = [len(table) - N_VALIDATION - N_TEST, len(table) - N_TEST]
    return list(zip(np.split(images, bounds), np.split(labels, bounds), strict=True))


def build(rng, learning_rate):
    """The weights, and two compiled functions: one step of training, and the accuracy."""

    def weights(n_in, n_out, name):
        scale = np.sqrt(2 / n_in)
        start = rng.normal(0, scale, (n_in, n_out)).astype(pytensor.config.floatX)
        return pytensor.shared(start, name=name)

    def bias(n_out, name):
        return pytensor.shared(np.zeros(n_out, pytensor.config.floatX), name=name)

    parameters = [
        weights(N_PIXELS, N_HIDDEN, "hidden_weights"),
        bias(N_HIDDEN, "hidden_bias"),
        weights(N_HIDDEN, N_CLASSES, "output_weights"),
        bias(N_CLASSES, "output_bias"),
    ]
    hidden_weights, hidden_bias, output_weights, output_bias = parameters

    images = pt.matrix("images")
    labels = pt.lvector("labels")
    hidden = pt.maximum(images @ hidden_weights + hidden_bias, 0)
    probability = softmax(hidden @ output_weights + output_bias, axis=1)
    loss = -pt.log(probability[pt.arange(labels.shape[0]), labels]).mean()
    loss.name = "loss"
    accuracy = pt.eq(pt.argmax(probability, axis=1), labels).mean()

    gradients = pytensor.grad(loss, parameters)
    step_size = np.asarray(learning_rate, pytensor.config.floatX)
    updates = [(p, p - step_size * g) for p, g in zip(parameters, gradients, strict=True)]

    mode = GuardMode()
    step = pytensor.function([images, labels], loss, updates=updates, mode=mode)
    score = pytensor.function([images, labels], accuracy, mode=mode)
    return parameters, step, score


def train(step, score, training, validation, arguments, rng):
    """Minibatch gradient descent; prints the mean loss and the accuracy of every epoch."""
    images, labels = training
    epochs = range(1, arguments.epochs + 1)
    tell = print
    if arguments.progress:
        epochs = tqdm(epochs, unit="epoch")  # on standard error, below what is printed
        tell = tqdm.write
    for epoch in epochs:
        order = rng.permutation(len(labels))
        batches = [
            order[start : start + arguments.batch_size]
            for start in range(0, len(order), arguments.batch_size)
        ]
        loss = np.mean([step(images[batch], labels[batch]) for batch in batches])
        tell(f"epoch {epoch:3d}  loss {loss:.4f}  validation accuracy {score(*validation):.4f}")


def report_weights(parameters):
    for parameter in parameters:
        bad = np.count_nonzero(~np.isfinite(parameter.get_value(borrow=True)))
        if bad:
            print(f"{parameter.name} holds {bad} values that are not finite.")
            return
    print("Every weight is still finite.")


def main():
    arguments = parse_arguments()
    rng = np.random.default_rng(arguments.seed)
    training, validation, test = load_digits(rng)
    parameters, step, score = build(rng, arguments.learning_rate)
    try:
        train(step, score, training, validation, arguments, rng)
        print(f"test accuracy {score(*test):.4f}")
    except GuardError as error:
        print(error)
        report_weights(parameters)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
