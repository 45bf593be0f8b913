# SPDX-License-Identifier: Apache-2.0
"""Reverse-mode differentiation of NumPy float64 arrays: just what the reference model needs.

Every operation returns a `Var` that knows its inputs and, for each, how to turn the gradient of the result into the
gradient of that input. `backward` walks them in reverse order.
"""
import numpy as np


class Var:
    """An array, its gradient, and where it came from."""

    def __init__(self, value, inputs=()):
        self.value = np.asarray(value, dtype=np.float64)
        self.inputs = inputs  # pairs of a Var and a function: gradient of this -> gradient of that
        self.grad = None

    @property
    def shape(self):
        return self.value.shape

    def __add__(self, other):
        return add(self, other)

    def __mul__(self, other):
        return multiply(self, other)

    def __matmul__(self, other):
        return matmul(self, other)

    def __getitem__(self, index):
        return take(self, index)


def as_var(x):
    return x if isinstance(x, Var) else Var(x)


def _sum_to(grad, shape):
    """Undoes broadcasting: sums over the axes along which an operand was repeated."""
    grad = grad.sum(axis=tuple(range(grad.ndim - len(shape))))
    repeated = tuple(i for i, size in enumerate(shape) if size == 1 and grad.shape[i] != 1)
    return grad.sum(axis=repeated, keepdims=True)


def add(a, b):
    a, b = as_var(a), as_var(b)
    return Var(a.value + b.value, [(a, lambda g: _sum_to(g, a.shape)), (b, lambda g: _sum_to(g, b.shape))])


def multiply(a, b):
    a, b = as_var(a), as_var(b)
    return Var(
        a.value * b.value,
        [(a, lambda g: _sum_to(g * b.value, a.shape)), (b, lambda g: _sum_to(g * a.value, b.shape))],
    )


def matmul(a, b):
    """[..., I, K] @ [..., K, J]; leading axes broadcast."""
    return Var(
        a.value @ b.value,
        [
            (a, lambda g: _sum_to(g @ b.value.swapaxes(-1, -2), a.shape)),
            (b, lambda g: _sum_to(a.value.swapaxes(-1, -2) @ g, b.shape)),
        ],
    )


def transpose(a):
    """Swaps the last two axes."""
    return Var(a.value.swapaxes(-1, -2), [(a, lambda g: g.swapaxes(-1, -2))])


def reshape(a, shape):
    return Var(a.value.reshape(shape), [(a, lambda g: g.reshape(a.shape))])


def take(a, index):
    """`a[index]`, also with an array of row numbers: rows taken several times add their gradients up."""

    def scatter(grad):
        result = np.zeros(a.shape)
        np.add.at(result, index, grad)
        return result

    return Var(a.value[index], [(a, scatter)])


def concat(parts, axis):
    ends = np.cumsum([part.shape[axis] for part in parts])[:-1]
    inputs = [(part, lambda g, i=i: np.split(g, ends, axis)[i]) for i, part in enumerate(parts)]
    return Var(np.concatenate([part.value for part in parts], axis), inputs)


def stack(parts, axis):
    inputs = [(part, lambda g, i=i: np.take(g, i, axis)) for i, part in enumerate(parts)]
    return Var(np.stack([part.value for part in parts], axis), inputs)


def mean(a, axis=None):
    count = a.value.size if axis is None else a.shape[axis]

    def spread(grad):
        grad = grad if axis is None else np.expand_dims(grad, axis)
        return np.broadcast_to(grad, a.shape) / count

    return Var(a.value.mean(axis), [(a, spread)])


def elu(a):
    low = np.exp(np.minimum(a.value, 0))
    return Var(np.where(a.value > 0, a.value, low - 1), [(a, lambda g: g * np.where(a.value > 0, 1, low))])


def relu(a):
    return Var(np.maximum(a.value, 0), [(a, lambda g: g * (a.value > 0))])


def sigmoid(a):
    y = 1 / (1 + np.exp(-a.value))
    return Var(y, [(a, lambda g: g * y * (1 - y))])


def tanh(a):
    y = np.tanh(a.value)
    return Var(y, [(a, lambda g: g * (1 - y * y))])


def softmax(a):
    """Over the last axis; entries of -inf get weight 0."""
    y = np.exp(a.value - a.value.max(-1, keepdims=True))
    y = y / y.sum(-1, keepdims=True)
    return Var(y, [(a, lambda g: y * (g - (g * y).sum(-1, keepdims=True)))])


def layer_norm(a, weight, bias, epsilon):
    """Over the last axis, with the biased variance."""
    centered = a.value - a.value.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt((centered**2).mean(-1, keepdims=True) + epsilon)
    normed = centered * inverse

    def to_input(grad):
        grad = grad * weight.value
        along = (grad * normed).mean(-1, keepdims=True)
        return inverse * (grad - grad.mean(-1, keepdims=True) - normed * along)

    return Var(
        normed * weight.value + bias.value,
        [
            (a, to_input),
            (weight, lambda g: _sum_to(g * normed, weight.shape)),
            (bias, lambda g: _sum_to(g, bias.shape)),
        ],
    )


def backward(result):
    """Sets `grad` of everything that the scalar `result` depends on."""
    order, seen, pending = [], set(), [(result, False)]
    while pending:
        var, is_done = pending.pop()
        if is_done:
            order.append(var)
        elif id(var) not in seen:
            seen.add(id(var))
            pending.append((var, True))
            pending.extend((source, False) for source, _ in var.inputs)
    for var in order:
        var.grad = np.zeros(var.shape)
    result.grad = np.ones(())
    for var in reversed(order):
        for source, gradient in var.inputs:
            source.grad = source.grad + gradient(var.grad)
