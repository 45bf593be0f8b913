# SPDX-License-Identifier: Apache-2.0
"""Writes python_safetensors.safetensors: every element type that Reprise reads, by the Python package itself.

The values are those that tests/store_test.cpp builds with LibTorch, so that both files must be equal byte for byte.
"""
import pathlib

import numpy as np
from safetensors import TensorSpec, serialize

TENSORS = {
    "f64": ("float64", np.array([[0.5, -1.25, 3e300], [np.inf, -0.0, 2.0**-1074]])),
    "f32": ("float32", np.arange(6, dtype=np.float32).reshape(1, 2, 3) / 4),
    "f16": ("float16", np.array([1.5, -2.0, 65504.0], dtype=np.float16)),
    "bf16": ("bfloat16", np.array([0x3F80, 0xC000, 0x4049], dtype=np.uint16)),  # 1, -2, 3.140625
    "i64": ("int64", np.array([-(2**63), 2**63 - 1])),
    "i32": ("int32", np.array([-(2**31), 2**31 - 1], dtype=np.int32)),
    "i16": ("int16", np.array([-32768, 32767], dtype=np.int16)),
    "i8": ("int8", np.array([-128, 127], dtype=np.int8)),
    "u8": ("uint8", np.array([0, 255], dtype=np.uint8)),
    "bool": ("bool", np.array([True, False, True])),
    "scalar": ("float32", np.array(7.0, dtype=np.float32)),
    "empty": ("float32", np.zeros((0, 3), dtype=np.float32)),
    'späte "Werte"\n': ("int64", np.array([1])),
}

# One key only: the package writes several in no fixed order.
METADATA = {"made by": "Größe, \\ and \t"}


def main():
    specs = {
        name: TensorSpec(dtype=dtype, shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes)
        for name, (dtype, array) in TENSORS.items()
    }
    file = pathlib.Path(__file__).with_name("python_safetensors.safetensors")
    file.write_bytes(bytes(serialize(specs, metadata=METADATA)))
    print(f"{file.name}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
