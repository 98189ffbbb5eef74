#!/usr/bin/env bash
# Run the tests of the kernel and of the values on arm64, which qemu emulates, as root:
#
#     tests/emulated.sh FOLDER [ARGUMENT OF PYTEST ...]
#
# FOLDER gets a Debian of 2 GB the first time.  It needs debootstrap, and qemu-user-static with its
# entry in binfmt_misc, which Debian's package makes.  All of it takes about an hour.
set -euo pipefail
root=$(realpath -m "$1")
shift
source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
inside() { chroot "$root" /usr/bin/env PATH=/venv/bin:/usr/bin:/bin HOME=/root "$@"; }

if [ ! -e "$root/venv/ready" ]; then
    debootstrap --arch=arm64 --variant=minbase \
        --include=g++,python3-dev,python3-venv,ca-certificates bookworm "$root"
    cp /etc/resolv.conf "$root/etc/"
    inside python3 -m venv /venv
    inside pip install "pytensor>=3.3,<3.4" executing lazy_loader python-flint pytest hypothesis
    touch "$root/venv/ready"
fi

rm -rf "$root/theanoguard"
mkdir "$root/theanoguard"
git -C "$source" archive HEAD | tar -x -C "$root/theanoguard"
inside pip install --no-deps /theanoguard
inside env OMP_NUM_THREADS=1 PYTENSOR_FLAGS="gcc__cxxflags=-O0" sh -c 'uname -m; cd /theanoguard; "$@"' sh \
    python -m pytest -q tests/guard/test_kernel.py tests/guard/test_values.py "$@"
