"""How many GPU kernels the guard adds to a call, counted without a GPU.

XLA can compile a program for a GPU that the machine does not have.  For each workload of ``gpu.py``
the table has the kernels of one call, those of loops times their steps: unguarded, with NaN and
Inf checked, and with big values as well.  It says nothing about time.

It needs JAX with its CUDA plugin (``pip install "jax[cuda13]"``) and no GPU.

    JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 python benchmarks/gpu_kernels.py [--only "mlp 512"]
"""

import argparse
import re
from unittest.mock import patch

import numpy as np
import pytensor
from gpu import GUARDED, WORKLOADS, build, guard_mode
from pytensor.compile.mode import Mode

VARIANTS = {
    "unguarded": Mode("jax", "fast_run"),
    "NaN and Inf": guard_mode(**GUARDED["later"]),
    "all checks": guard_mode(**GUARDED["later, big"]),
}

# The properties of an NVIDIA H100 that XLA asks for.
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84942979072
  device_address_bits: 64
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  device_vendor: "NVIDIA Corporation"
  name: "NVIDIA H100 80GB HBM3"
  driver_version: "13.0.0"
  runtime_version: "13.0.0"
  compile_time_toolkit_version: "13.0.0"
  dnn_version: "9.10.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""

COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\) -> .* \{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%[\w.-]+ = (?:\(.*?\)|\S+) ([a-z][\w-]*)\(")
STEPS = re.compile(r'known_trip_count":\{"n":"(\d+)')
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}


def h100():
    """Return the sharding that compiles a program for one H100."""
    import jax
    from jax.experimental import topologies

    found = topologies.get_topology_desc("h100", "cuda", target_config=H100, topology="1x1x1")
    mesh = jax.sharding.Mesh(np.array(found.devices[:1]), ("device",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def compiled(title, mode, sharding):
    """Return the text of the optimised program of a workload."""
    import jax

    with patch("jax.default_backend", lambda: "gpu"):  # what the guard's code is written for
        fn, values, _ = build(title, mode)
        guard = getattr(fn.vm, "guard", None)
        program = fn.vm.jit_fn if guard is None else guard.run
        given = [*values, *(c.storage[0] for c in fn.input_storage[len(values) :])]
        if guard is not None:
            given.append(np.zeros((), "int32"))  # the history of flags
        shapes = [jax.ShapeDtypeStruct(np.shape(v), v.dtype) for v in given]
        jitted = jax.jit(
            lambda *values: program(*values), in_shardings=sharding, out_shardings=sharding
        )
        lowered = jitted.trace(*shapes).lower(lowering_platforms=("cuda",))
        # The choice among kernels for the same product is made by running them.
        return lowered.compile({"xla_gpu_autotune_level": 0}).as_text()


def kernels(text):
    """Return the number of kernels that a program runs."""
    bodies, entry, name = {}, None, None
    for line in text.splitlines():
        if found := COMPUTATION.match(line):
            name = found[2]
            bodies[name] = []
            entry = name if found[1] else entry
        elif name is not None:
            bodies[name].append(re.sub(r"/\*.*?\*/", "", line))

    def count(name):
        total = 0
        for line in bodies[name]:
            found = INSTRUCTION.match(line)
            operation = found and found[1]
            if operation == "while":
                body = re.search(r"body=%?([\w.-]+)", line)[1]
                total += int(STEPS.search(line)[1]) * count(body)
            elif operation and operation not in FREE:
                total += 1
        return total

    return count(entry)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(WORKLOADS))
    args = parser.parse_args()
    sharding = h100()
    print(f"{'workload':<26}" + "".join(f"{name:>14}" for name in VARIANTS))
    with pytensor.config.change_flags(floatX="float32"):
        for title in args.only or WORKLOADS:
            row = [kernels(compiled(title, mode, sharding)) for mode in VARIANTS.values()]
            print(f"{title:<26}" + "".join(f"{n:>14}" for n in row), flush=True)


if __name__ == "__main__":
    main()
