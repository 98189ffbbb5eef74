"""A training step of LeNet on images of MNIST's size: the shim against Theano 1.0.5 itself.

Both run the same script, in processes of their own that take turns, on one thread; what is
compared is CPU time.  Theano computes convolutions by gemm or by direct loops in C, and is timed
doing either.  A ratio above 1 says how many times slower the shim is.

    python benchmarks/convolution.py --python37 python3.7 [--rounds 5] [--batch 500]

The interpreter of ``--python37`` has Theano 1.0.5; without it the shim alone is timed.
"""

# Theano's Python 3.7 runs this file, too.

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

PARTS = ("forward", "step")


def lenet(theano, batch, dtype, mode):
    """Return functions for the loss and for a step of training, both without arguments."""
    import numpy as np

    T = theano.tensor
    from theano.tensor.nnet import conv2d
    from theano.tensor.signal.pool import pool_2d

    rng = np.random.RandomState(1)

    def weights(*shape):
        fan_in = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        return theano.shared((rng.randn(*shape) / np.sqrt(fan_in)).astype(dtype))

    images = theano.shared(rng.rand(batch, 1, 28, 28).astype(dtype))
    labels = theano.shared(rng.randint(10, size=batch).astype("int64"))
    params = []
    layer, shape = images, (batch, 1, 28, 28)
    for filters in (20, 50):
        kernel = (filters, shape[1], 5, 5)
        w, b = weights(*kernel), theano.shared(np.zeros(filters, dtype=dtype))
        out = conv2d(layer, w, input_shape=shape, filter_shape=kernel)
        layer = T.tanh(pool_2d(out, (2, 2), ignore_border=True) + b.dimshuffle("x", 0, "x", "x"))
        shape = (batch, filters, (shape[2] - 4) // 2, (shape[3] - 4) // 2)
        params += [w, b]
    layer = layer.flatten(2)
    for rows, columns in ((800, 500), (500, 10)):
        w, b = weights(rows, columns), theano.shared(np.zeros(columns, dtype=dtype))
        layer = T.dot(layer, w) + b
        if columns != 10:
            layer = T.tanh(layer)
        params += [w, b]
    p = T.nnet.softmax(layer)
    loss = -T.mean(T.log(p)[T.arange(batch), labels])
    rate = np.asarray(0.01, dtype=dtype)
    pairs = zip(params, T.grad(loss, params))  # noqa: B905  (Python 3.7)
    updates = [(q, q - rate * g) for q, g in pairs]
    return {
        "forward": theano.function([], loss, mode=mode),
        "step": theano.function([], loss, updates=updates, mode=mode),
    }


def work(arguments):
    """Time the functions in this process and print CPU seconds per call and the last loss."""
    if arguments.work == "shim":
        import theanoguard

        theanoguard.shim.install_theano()
    import theano

    mode = theano.compile.mode.get_mode("FAST_RUN")
    if arguments.work == "loops":
        mode = mode.excluding("conv_gemm")
    functions = lenet(theano, arguments.batch, arguments.dtype, mode)
    result = {}
    for part in PARTS:
        function = functions[part]
        function()
        times = []
        for _ in range(arguments.calls):
            start = time.process_time()
            loss = function()
            times.append(time.process_time() - start)
        result[part] = statistics.median(times)
    result["loss"] = float(loss)
    print(json.dumps(result))


def run(python, kind, arguments):
    """Let another process do the work and return what it printed."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    command = [python, "-W", "ignore", __file__, "--work", kind]
    for name in ("batch", "dtype", "calls"):
        command += ["--" + name, str(getattr(arguments, name))]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.decode().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python37", help="a Python 3.7 that has Theano 1.0.5")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=8, help="of each function in a round")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        return work(arguments)
    kinds = {"shim": sys.executable}
    if arguments.python37:
        kinds["gemm"] = kinds["loops"] = arguments.python37
    results = {kind: [] for kind in kinds}
    for _ in range(arguments.rounds):
        for kind, python in kinds.items():
            results[kind].append(run(python, kind, arguments))
    print(
        "batch of {}, {}, loss {:.6f}".format(
            arguments.batch, arguments.dtype, results["shim"][0]["loss"]
        )
    )
    for part in PARTS:
        times = {kind: [r[part] for r in found] for kind, found in results.items()}
        line = "{:8} shim {:7.1f} ms".format(part, 1e3 * statistics.median(times["shim"]))
        for kind in ("gemm", "loops"):
            if kind in times:
                pairs = zip(times["shim"], times[kind])  # noqa: B905  (Python 3.7)
                ratios = [a / b for a, b in pairs]
                line += f"   Theano by {kind} {1e3 * statistics.median(times[kind]):7.1f} ms, "
                line += f"ratio {statistics.median(ratios):.2f} "
                line += f"({min(ratios):.2f} to {max(ratios):.2f})"
        print(line)
    for kind, found in results.items():
        if abs(found[0]["loss"] - results["shim"][0]["loss"]) > 1e-3:
            sys.exit("Theano by {} has the loss {}".format(kind, found[0]["loss"]))


if __name__ == "__main__":
    main()
