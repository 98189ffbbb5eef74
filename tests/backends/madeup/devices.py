"""The devices of the made-up backend."""

import contextlib


def on_device(kind):
    if kind != "cpu":
        raise RuntimeError("there is only one")
    return contextlib.nullcontext()


def default_device():
    return "cpu"


def described():
    return "backend='madeup' guards this machine"
