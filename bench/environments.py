# SPDX-License-Identifier: Apache-2.0
"""Environments of Python in the cache folder, one for each file of pinned requirements."""
import hashlib
import os
import pathlib
import subprocess
import sys
import venv

BENCH_DIR = pathlib.Path(__file__).resolve().parent
CACHE_HOME = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")

# The wheel is linked with CUDA's libraries (2 GB more) though it calls none without a GPU. Empty
# ones serve, because functions are looked up lazily, at their first call.
EMPTY_LIBRARIES = [
    "libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libcufft.so.12", "libcufile.so.0",
    "libcusparse.so.12", "libcusparseLt.so.0", "libnccl.so.2", "libnvrtc.so.13",
]
LOOK_UP_LAZILY = "import os, sys; sys.setdlopenflags(os.RTLD_LAZY)\n"


def folder_of(name: str) -> pathlib.Path:
    return CACHE_HOME / "reprise" / f"bench-{name}"


def python_of(environment: pathlib.Path) -> pathlib.Path:
    return environment / "bin/python"


def add_empty_libraries(environment: pathlib.Path) -> None:
    """libtorch_global_deps.so, which has no code, stands in for each library that is not there."""
    site_packages = next(environment.glob("lib/python*/site-packages"))
    if not (site_packages / "torch").exists():
        return
    for name in EMPTY_LIBRARIES:
        link = site_packages / "nvidia/cu13/lib" / name
        link.symlink_to("../../../torch/lib/libtorch_global_deps.so")
    (site_packages / "look_up_lazily.pth").write_text(LOOK_UP_LAZILY)


def hash_of(requirements: pathlib.Path) -> str:
    texts = [path.read_text() for path in (requirements, BENCH_DIR / "requirements-torch.txt")]
    content = [*texts, LOOK_UP_LAZILY, *EMPTY_LIBRARIES, sys.version]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()


def set_up(name: str) -> pathlib.Path:
    """Makes the environment unless there is one with the same content; returns its Python."""
    requirements = BENCH_DIR / f"requirements-{name}.txt"
    environment = folder_of(name)
    hash_file = environment / "content-hash"
    if not hash_file.exists() or hash_file.read_text() != hash_of(requirements):
        print(f"compare.py: installing {requirements.name} into {environment}", file=sys.stderr)
        venv.create(environment, clear=True, with_pip=True)
        install = [python_of(environment), "-m", "pip", "--disable-pip-version-check", "install"]
        what = ["--quiet", "--no-deps", "--only-binary=:all:", "-r", requirements]
        subprocess.run(install + what, check=True, stdout=sys.stderr)
        add_empty_libraries(environment)
        hash_file.write_text(hash_of(requirements))
    return python_of(environment)


def versions(name: str, packages: list[str]) -> str:
    """The pinned versions of some of the packages, as `torch 2.15.0, numpy 2.4.6`."""
    lines = (BENCH_DIR / f"requirements-{name}.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    return ", ".join(f"{package} {pinned[package]}" for package in packages)
