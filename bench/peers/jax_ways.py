# SPDX-License-Identifier: Apache-2.0
"""JAX's ways to train in fewer bytes, beside JAX's plain step in the same process.

    jax_ways.py --model mlp|transformer

The models of remat_bench.cpp, jitted with value_and_grad: plain, and with jax.checkpoint on each
layer, each once with the layers one after the other and once as a lax.scan over stacked parameters.
Prints a line of JSON for each. Peaks are those of XLA's buffer assignment: temporary buffers, in
which activations lie, without parameters and the gradients that are returned. `plain` are the
layers one after the other. `prepare_s` is the time to compile.
"""
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import measuring

HEADS = 8
Parameters = dict[str, jax.Array]
Layer = Callable[[Parameters, jax.Array], jax.Array]


def layer_norm(x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift


def mlp_layer(p: Parameters, x: jax.Array) -> jax.Array:
    return layer_norm(jax.nn.gelu(x @ p["w"] + p["b"], approximate=False), p["scale"], p["shift"])


def attention(p: Parameters, x: jax.Array) -> jax.Array:
    batch, steps, width = x.shape
    parts = (x @ p["w_qkv"] + p["b_qkv"]).reshape(batch, steps, 3, HEADS, width // HEADS)
    q, k, v = parts.transpose(2, 0, 3, 1, 4)
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * (width // HEADS) ** -0.5
    attended = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)
    return attended.transpose(0, 2, 1, 3).reshape(batch, steps, width) @ p["w_out"] + p["b_out"]


def block(p: Parameters, x: jax.Array) -> jax.Array:
    y = x + attention(p, layer_norm(x, p["scale1"], p["shift1"]))
    hidden = layer_norm(y, p["scale2"], p["shift2"]) @ p["w_up"] + p["b_up"]
    return y + jax.nn.gelu(hidden, approximate=False) @ p["w_down"] + p["b_down"]


def shapes_of(model: str, width: int) -> dict[str, tuple[int, ...]]:
    if model == "mlp":
        return {"w": (width, width), **dict.fromkeys(("b", "scale", "shift"), (width,))}
    return {"w_qkv": (width, 3 * width), "b_qkv": (3 * width,), "w_out": (width, width),
            "w_up": (width, 4 * width), "b_up": (4 * width,), "w_down": (4 * width, width),
            **dict.fromkeys(("b_out", "b_down", "scale1", "shift1", "scale2", "shift2"), (width,))}


def make(model: str, small: bool) -> tuple[Layer, list[Parameters], jax.Array]:
    """The layer, its parameters for each layer, and a batch."""
    if model == "mlp":
        layers, width, batch = (8, 256, (512,)) if small else (32, 1024, (2048,))
    else:
        layers, width, batch = (8, 128, (4, 64)) if small else (12, 512, (16, 256))
    keys = iter(jax.random.split(jax.random.key(1), 1000))

    def values(name: str, shape: tuple[int, ...]) -> jax.Array:
        if name.startswith("w"):
            return jax.random.uniform(next(keys), shape, minval=-1, maxval=1) * shape[0] ** -0.5
        return jnp.ones(shape) if name.startswith("scale") else jnp.zeros(shape)

    parameters = [{name: values(name, shape) for name, shape in shapes_of(model, width).items()}
                  for _ in range(layers)]
    x = jax.random.normal(next(keys), (*batch, width))
    return mlp_layer if model == "mlp" else block, parameters, x


def loss_in_turn(layer: Layer) -> Callable[[list[Parameters], jax.Array], jax.Array]:
    def loss(parameters: list[Parameters], x: jax.Array) -> jax.Array:
        for p in parameters:
            x = layer(p, x)
        return (x * x).mean()

    return loss


def loss_by_scan(layer: Layer) -> Callable[[Parameters, jax.Array], jax.Array]:
    def loss(stacked: Parameters, x: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(lambda carried, p: (layer(p, carried), None), x, stacked)
        return (x * x).mean()

    return loss


def stack(parameters: list[Parameters]) -> Parameters:
    return {name: jnp.stack([p[name] for p in parameters]) for name in parameters[0]}


def are_equal(some: Parameters, others: Parameters) -> bool:
    return all(bool(jnp.array_equal(some[name], others[name])) for name in some)


class Way:
    """A compiled step."""

    def __init__(self, loss: Callable, parameters: list[Parameters] | Parameters,
                 x: jax.Array) -> None:
        lowered = jax.jit(jax.value_and_grad(loss)).lower(parameters, x)
        begin = time.perf_counter()
        self.compiled = lowered.compile()
        self.prepare_s = time.perf_counter() - begin
        self.arguments = parameters, x
        self.peak_bytes = self.compiled.memory_analysis().temp_size_in_bytes

    def step(self) -> tuple[jax.Array, list[Parameters] | Parameters]:
        return jax.block_until_ready(self.compiled(*self.arguments))

    def stacked_gradients(self) -> Parameters:
        _, gradients = self.step()
        return stack(gradients) if isinstance(gradients, list) else gradients


def main() -> None:
    parser = measuring.parser_of(__doc__)
    options = parser.parse_args()
    layer, parameters, x = make(options.model, options.small)
    stacked = stack(parameters)
    checkpointed = jax.checkpoint(layer)
    ways = {
        "plain": Way(loss_in_turn(layer), parameters, x),
        "per-layer": Way(loss_in_turn(checkpointed), parameters, x),
        "plain-scan": Way(loss_by_scan(layer), stacked, x),
        "per-layer-scan": Way(loss_by_scan(checkpointed), stacked, x),
    }
    plain = ways["plain"]
    expected = plain.stacked_gradients()
    equal = {name: are_equal(expected, way.stacked_gradients()) for name, way in ways.items()}
    steps = {name: way.step for name, way in ways.items()}
    fastest = measuring.interleaved(steps, options.repetitions)
    for name, way in ways.items():
        if way is not plain:
            measuring.print_point(
                name, plain_s=fastest["plain"], step_s=fastest[name],
                plain_peak_bytes=plain.peak_bytes, peak_bytes=way.peak_bytes,
                gradients_equal=equal[name], prepare_s=way.prepare_s)


if __name__ == "__main__":
    main()
