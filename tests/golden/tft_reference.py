# SPDX-License-Identifier: Apache-2.0
"""The Temporal Fusion Transformer (Lim et al. 2021) in NumPy float64: slow, plain, and independent of the C++ code.

Written from the paper's equations, variable by variable and step by step; equation numbers are the paper's.
Letters: B batch, E encoder length, H horizon, V variables, D hidden width, W width of real embeddings, A heads, Q quantiles.

Usage: tft_reference.py --check    compares gradients with finite differences and the parameter count with a published one
"""
import argparse
import math

import numpy as np

from autodiff import (Var, add, backward, concat, elu, layer_norm, matmul, mean, relu, reshape, sigmoid, softmax, stack,
                      tanh, transpose)
from tft_cases import CASES, data_of
from tft_shapes import Options, count_parameters, parameter_shapes


def at_every_step(context):
    """[B, D] -> [B, 1, D]; None stays None."""
    return context and reshape(context, (context.shape[0], 1, context.shape[1]))


class Model:
    """The model with `parameters`: a dict of arrays whose names and shapes are those of `parameter_shapes`."""

    def __init__(self, options, parameters):
        self.o = options
        self.p = {name: Var(value) for name, value in parameters.items()}
        assert {name: var.shape for name, var in self.p.items()} == parameter_shapes(options)

    def linear(self, name, x):
        y = matmul(x, transpose(self.p[f"{name}.weight"]))
        return y + self.p[f"{name}.bias"] if f"{name}.bias" in self.p else y

    def norm(self, name, x):
        return layer_norm(x, self.p[f"{name}.weight"], self.p[f"{name}.bias"], self.o.layer_norm_epsilon)

    def glu(self, name, x):
        """Eq. 5. The first half of the gate's output is the value, the second opens it."""
        y = self.linear(f"{name}.gate", x)
        half = y.shape[-1] // 2
        return y[..., :half] * sigmoid(y[..., half:])

    def gated_skip(self, name, skip, x):
        total = skip + self.glu(name, x)
        return self.norm(f"{name}.norm", total) if f"{name}.norm.weight" in self.p else total

    def grn(self, name, a, context=None):
        """Eq. 2 to 4."""
        eta2 = self.linear(f"{name}.input", a)
        if context is not None:
            eta2 = eta2 + self.linear(f"{name}.context", context)
        eta1 = self.linear(f"{name}.hidden", elu(eta2))
        skip = self.linear(f"{name}.skip", a) if f"{name}.skip.weight" in self.p else a
        return self.gated_skip(name, skip, eta1)

    def variable_grn(self, name, j, a):
        """Eq. 2 to 4 for variable `j` of a stacked network."""

        def linear(part, x):
            return matmul(x, self.p[f"{name}.{part}_weight"][j]) + self.p[f"{name}.{part}_bias"][j]

        d = self.o.hidden_size
        gate = linear("gate", linear("hidden", elu(linear("input", a))))
        skip = linear("skip", a) if f"{name}.skip_weight" in self.p else a
        total = skip + gate[..., :d] * sigmoid(gate[..., d:])
        weight, bias = self.p[f"{name}.norm_weight"][j], self.p[f"{name}.norm_bias"][j]
        return layer_norm(total, weight, bias, self.o.layer_norm_epsilon)

    def embed(self, name, reals, categoricals):
        """Lists of the embeddings [..., W] of `reals` [..., V] and [..., D] of `categoricals` [..., V]."""
        real, categorical = [], []
        for j in range(0 if reals is None else reals.shape[-1]):
            real.append(self.p[f"{name}.real_weight"][j] * reals[..., j : j + 1] + self.p[f"{name}.real_bias"][j])
        for j in range(0 if categoricals is None else categoricals.shape[-1]):
            categorical.append(self.p[f"{name}.categorical.{j}.weight"][categoricals[..., j]])
        return real, categorical

    def select(self, name, reals, categoricals, context=None):
        """Eq. 6 to 8: the selected [..., D] and the weights [..., V]."""
        parts = [self.variable_grn(f"{name}.real_grn", j, x) for j, x in enumerate(reals)]
        parts += [self.variable_grn(f"{name}.categorical_grn", j, x) for j, x in enumerate(categoricals)]
        weights = softmax(self.grn(f"{name}.weight_grn", concat(reals + categoricals, -1), context))
        total = parts[0] * weights[..., 0:1]
        for j in range(1, len(parts)):
            total = total + parts[j] * weights[..., j : j + 1]
        return total, weights.value

    def lstm(self, name, x, states):
        """`x` [B, T, D] and one (h, c) per layer give the outputs [B, T, D] and the last states."""
        d, states, outputs = self.o.hidden_size, list(states), []
        for t in range(x.shape[1]):
            row = x[:, t]
            for i, (h, c) in enumerate(list(states)):
                gates = matmul(row, transpose(self.p[f"{name}.weight_ih_l{i}"])) + self.p[f"{name}.bias_ih_l{i}"]
                gates = gates + matmul(h, transpose(self.p[f"{name}.weight_hh_l{i}"])) + self.p[f"{name}.bias_hh_l{i}"]
                input_gate, forget_gate, candidate, output_gate = (gates[:, k * d : (k + 1) * d] for k in range(4))
                c = sigmoid(forget_gate) * c + sigmoid(input_gate) * tanh(candidate)
                h = sigmoid(output_gate) * tanh(c)
                states[i], row = (h, c), h
            outputs.append(row)
        return stack(outputs, 1), states

    def attention(self, theta):
        """Eq. 13 to 16 and 19 for the decoder's rows: [B, H, D] and the weights [B, A, H, N]."""
        e, d = self.o.encoder_length, self.o.hidden_size
        head = d // self.o.attention_heads
        query = self.linear("attention.query", theta[:, e:])
        key, value = self.linear("attention.key", theta), self.linear("attention.value", theta)
        length = theta.shape[1]
        mask = np.where(np.arange(length) <= np.arange(e, length)[:, None], 0, -np.inf)
        heads, weights = [], []
        for i in range(self.o.attention_heads):
            columns = slice(i * head, (i + 1) * head)
            scores = matmul(query[..., columns], transpose(key[..., columns])) * (1 / math.sqrt(head))
            weights.append(softmax(add(scores, mask)))
            heads.append(matmul(weights[-1], value))
        averaged = mean(stack(heads, 0), 0)
        return self.linear("attention.output", averaged), np.stack([w.value for w in weights], 1)

    def static_contexts(self, inputs, output):
        """c_s, c_e and the initial (h, c) of the LSTM; without static variables none, none and zeros."""
        if "static_vsn" not in self.o.selections():
            zeros = Var(np.zeros((len(inputs["observed_real"]), self.o.hidden_size)))
            return None, None, (zeros, zeros)
        embedded = self.embed("static_embedding", inputs.get("static_real"), inputs.get("static_categorical"))
        selected, output["static_weights"] = self.select("static_vsn", *embedded)
        names = ("selection", "enrichment", "hidden_state", "cell_state")
        selection, enrichment, *state = [self.grn(f"static_encoder.{name}", selected) for name in names]
        return at_every_step(selection), at_every_step(enrichment), tuple(state)

    def temporal_inputs(self, inputs, context, output):
        """The selected history [B, E, D] and future [B, H, D]."""
        e, o = self.o.encoder_length, self.o
        observed = self.embed("observed_embedding", inputs["observed_real"], inputs.get("observed_categorical"))
        known = self.embed("known_embedding", inputs.get("known_real"), inputs.get("known_categorical"))
        reals = observed[0] + [x[:, :e] for x in known[0]]
        categoricals = observed[1] + [x[:, :e] for x in known[1]]
        history, output["historical_weights"] = self.select("historical_vsn", reals, categoricals, context)
        future = Var(np.zeros((history.shape[0], o.horizon, o.hidden_size)))
        has_known = "future_vsn" in o.selections()
        if has_known:
            reals, categoricals = ([x[:, e:] for x in kind] for kind in known)
            future, output["future_weights"] = self.select("future_vsn", reals, categoricals, context)
        if o.encoder_grn:
            history = self.grn("historical_encoder", history)
            future = self.grn("future_encoder", future) if has_known else future
        return history, future

    def forward(self, inputs):
        """`inputs` are named as in reprise::TftInput. Returns the quantiles [B, H, Q] and a dict of what they came from."""
        e, output = self.o.encoder_length, {}
        selection, enrichment, state = self.static_contexts(inputs, output)
        history, future = self.temporal_inputs(inputs, selection, output)
        encoded, states = self.lstm("lstm_encoder", history, [state] * self.o.lstm_layers)
        decoded, _ = self.lstm("lstm_decoder", future, states)
        # Eq. 17
        phi = self.gated_skip("lstm_gate", concat([history, future], 1), concat([encoded, decoded], 1))
        theta = self.grn("enrichment", phi, enrichment)  # eq. 18
        beta, output["attention"] = self.attention(theta)
        delta = self.gated_skip("attention_gate", theta[:, e:], beta)  # eq. 20
        psi = self.grn("positionwise", delta)  # eq. 21
        quantiles = self.linear("quantile", self.gated_skip("output_gate", phi[:, e:], psi))  # eq. 22, 23
        output["quantiles"] = quantiles.value
        return quantiles, output


def quantile_loss(prediction, target, quantiles, mask=None):
    """Eq. 24 and 25: sum over quantiles of the mean over samples and steps where `mask` is 1."""
    mask = np.ones(target.shape) if mask is None else mask
    total = Var(0.0)
    for i, q in enumerate(quantiles):
        error = add(target, prediction[..., i] * -1.0)  # y - yhat
        loss = relu(error) * q + relu(error * -1.0) * (1 - q)
        total = total + mean(loss * mask) * (mask.size / mask.sum())
    return total


def loss_and_gradients(options, parameters, inputs, target, mask=None):
    """Loss, outputs, and the gradient of every parameter: zeros where the loss does not depend on it."""
    model = Model(options, parameters)
    prediction, output = model.forward(inputs)
    loss = quantile_loss(prediction, target, options.quantiles, mask)
    backward(loss)
    gradients = {name: np.zeros(var.shape) if var.grad is None else var.grad for name, var in model.p.items()}
    return float(loss.value), output, gradients


def largest_gradient_error(options, parameters, inputs, target, entries=4, step=1e-6):
    """Largest difference from central differences on a few entries of each parameter, and the parameter's name."""
    rng = np.random.default_rng(0)
    _, _, gradients = loss_and_gradients(options, parameters, inputs, target)

    def loss_at(name, index, value):
        changed = parameters[name].copy()
        changed[index] = value
        prediction, _ = Model(options, parameters | {name: changed}).forward(inputs)
        return float(quantile_loss(prediction, target, options.quantiles).value)

    worst = (0.0, "")
    for name, value in parameters.items():
        for flat in rng.choice(value.size, min(entries, value.size), replace=False):
            index = np.unravel_index(flat, value.shape)
            higher, lower = (loss_at(name, index, value[index] + sign * step) for sign in (1, -1))
            error = abs((higher - lower) / (2 * step) - gradients[name][index])
            worst = max(worst, (error, name))
    return worst


def check():
    for case, options in CASES.items():
        error, name = largest_gradient_error(options, *data_of(case))
        print(f"{case:>30}: {count_parameters(options):6} parameters, largest gradient error {error:.1e} ({name})")
        assert error < 1e-8, "the gradient differs from central differences"
    # 1,633,833 parameters of a published implementation less 16,384 weights it never uses.
    published = Options(hidden_size=128, attention_heads=4, observed_reals=1, known_reals=3, static_cardinalities=(369,))
    assert count_parameters(published) == 1_617_449, count_parameters(published)
    print(f"published shape: {count_parameters(published)} parameters, as expected")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", required=True)
    parser.parse_args()
    check()
