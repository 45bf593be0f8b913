# SPDX-License-Identifier: Apache-2.0
"""Reads .safetensors files with the Python package and prints what is in them; fails on the first that it refuses.

Usage: check_safetensors.py FILE... [--equal-to FILE]
With --equal-to, each file must hold the same tensors, bit for bit, and the same metadata as that one.
"""
import argparse
import sys

from safetensors import SafetensorError, deserialize, safe_open


def read(path):
    """Returns ({name: (dtype, shape, bytes)}, metadata)."""
    with open(path, "rb") as file:
        tensors = {name: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in deserialize(file.read())}
    with safe_open(path, framework="numpy") as file:
        return tensors, file.metadata() or {}


def differences(one, other):
    for name in sorted(one[0].keys() | other[0].keys()):
        if one[0].get(name) != other[0].get(name):
            yield f"tensor {name!r}"
    for key in sorted(one[1].keys() | other[1].keys()):
        if one[1].get(key) != other[1].get(key):
            yield f"metadata {key!r}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--equal-to", metavar="FILE")
    arguments = parser.parse_args()
    expected = read(arguments.equal_to) if arguments.equal_to else None
    for path in arguments.files:
        try:
            content = read(path)
        except SafetensorError as error:
            sys.exit(f"{path}: refused: {error}")
        different = list(differences(content, expected)) if expected else []
        if different:
            sys.exit(f"{path}: differs from {arguments.equal_to} in {', '.join(different)}")
        size = sum(len(data) for _, _, data in content[0].values())
        print(f"{path}: {len(content[0])} tensors, {size} bytes, {len(content[1])} metadata entries")


if __name__ == "__main__":
    main()
