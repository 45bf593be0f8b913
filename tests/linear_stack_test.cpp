// SPDX-License-Identifier: Apache-2.0
#include "reprise/linear_stack.h"

#include "tests/testing.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>
#include <torch/torch.h>

#include <string>

#include "tests/allocation_recorder.h"

namespace reprise::linear_stack {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return testing::is_same_bytes(a, b);
}

bool same_bytes(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_bytes(a[i], b[i])) return false;
  }
  return true;
}

bool same_bytes(const StackGradients& a, const StackGradients& b) {
  return same_bytes(a.grad_input, b.grad_input) && same_bytes(a.grad_weights, b.grad_weights) &&
         same_bytes(a.grad_biases, b.grad_biases);
}

/// Layers between `widths`, scaled so that a hundred of them neither vanish nor overflow.
std::vector<Layer> random_layers(const std::vector<std::int64_t>& widths, at::ScalarType type) {
  std::vector<Layer> layers;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const double scale = std::sqrt(2.0 / static_cast<double>(widths[i]));
    layers.push_back({torch::randn({widths[i + 1], widths[i]}, type) * scale,
                      torch::randn({widths[i + 1]}, type) * 0.1});
  }
  return layers;
}

std::vector<Layer> random_layers(std::size_t count, std::int64_t width, at::ScalarType type) {
  return random_layers(std::vector<std::int64_t>(count + 1, width), type);
}

struct AutogradResult {
  at::Tensor output;
  StackGradients gradients;
};

/// The independent reference: LibTorch's own layers and its autograd.
AutogradResult with_autograd(const at::Tensor& grad_output, const at::Tensor& x,
                             const std::vector<Layer>& layers) {
  const auto input = x.detach().clone().requires_grad_();
  std::vector<Layer> leaves;
  for (const auto& layer : layers) {
    leaves.push_back({layer.weight.detach().clone().requires_grad_(),
                      layer.bias.detach().clone().requires_grad_()});
  }
  auto value = input;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    value = torch::nn::functional::linear(value, leaves[i].weight, leaves[i].bias);
    if (i + 1 < leaves.size()) value = torch::relu(value);
  }
  value.backward(grad_output);
  AutogradResult result{value.detach(), {input.grad(), {}, {}}};
  for (const auto& leaf : leaves) {
    result.gradients.grad_weights.push_back(leaf.weight.grad());
    result.gradients.grad_biases.push_back(leaf.bias.grad());
  }
  return result;
}

void expect_close(const StackGradients& actual, const StackGradients& expected, double relative) {
  const auto close = [&](const at::Tensor& a, const at::Tensor& b) {
    const double largest = b.abs().max().item<double>();
    return torch::allclose(a, b, relative, relative * largest);
  };
  EXPECT_TRUE(close(actual.grad_input, expected.grad_input));
  ASSERT_EQ(actual.grad_weights.size(), expected.grad_weights.size());
  ASSERT_EQ(actual.grad_biases.size(), expected.grad_biases.size());
  for (std::size_t i = 0; i < expected.grad_weights.size(); ++i) {
    EXPECT_TRUE(close(actual.grad_weights[i], expected.grad_weights[i])) << "weight of layer " << i;
    EXPECT_TRUE(close(actual.grad_biases[i], expected.grad_biases[i])) << "bias of layer " << i;
  }
}

StackGradients full_gradients(const at::Tensor& grad_output, const at::Tensor& x,
                              const std::vector<Layer>& layers) {
  const auto full = forward_full(x, layers);
  return backward_full(grad_output, layers, full.activations, full.pre_activations);
}

/// Two layers whose numbers can be followed by hand.
struct SmallStack {
  at::Tensor x = torch::tensor({{1.0, -2.0}});
  std::vector<Layer> layers = {
      {torch::tensor({{2.0, 1.0}, {1.0, 3.0}}), torch::tensor({0.5, 1.0})},
      {torch::tensor({{-1.0, 4.0}}), torch::tensor({0.25})},
  };
};

TEST(LinearBackward, ReturnsTheThreeProducts) {
  const auto grad_output = torch::tensor({{1.0, 2.0}, {3.0, -1.0}});
  const auto input = torch::tensor({{1.0, 0.0, 2.0}, {-1.0, 4.0, 1.0}});
  const auto weight = torch::tensor({{1.0, 2.0, 3.0}, {0.0, -1.0, 5.0}});
  const auto result = linear_backward(grad_output, input, weight);
  // Row 0: 1*[1, 2, 3] + 2*[0, -1, 5]; row 1: 3*[1, 2, 3] - 1*[0, -1, 5].
  EXPECT_TRUE(torch::equal(result.grad_input, torch::tensor({{1.0, 0.0, 13.0}, {3.0, 7.0, 4.0}})));
  // Row 0: 1*[1, 0, 2] + 3*[-1, 4, 1]; row 1: 2*[1, 0, 2] - 1*[-1, 4, 1].
  EXPECT_TRUE(
      torch::equal(result.grad_weight, torch::tensor({{-2.0, 12.0, 5.0}, {3.0, -4.0, 3.0}})));
  EXPECT_TRUE(torch::equal(result.grad_bias, torch::tensor({4.0, 1.0})));  // 1 + 3, 2 - 1
}

TEST(LinearBackward, AgreesWithAutograd) {
  torch::manual_seed(1);
  const auto x = torch::randn({5, 7}, torch::kDouble);
  const auto layers = random_layers({7, 3}, torch::kDouble);
  const auto grad_output = torch::randn({5, 3}, torch::kDouble);
  const auto result = linear_backward(grad_output, x, layers[0].weight);
  expect_close({result.grad_input, {result.grad_weight}, {result.grad_bias}},
               with_autograd(grad_output, x, layers).gradients, 1e-12);
}

TEST(LinearBackward, NamesShapesThatDoNotFit) {
  const auto grad_output = torch::ones({5, 3});
  EXPECT_THAT([&] { linear_backward(grad_output, torch::ones({4, 7}), torch::ones({3, 7})); },
              ::testing::Throws<c10::ValueError>(::testing::Property(
                  &c10::Error::msg,
                  AllOf(HasSubstr("linear_backward"), HasSubstr("[5, 3], [4, 7], [3, 7]")))));
  EXPECT_THROW(linear_backward(grad_output, torch::ones({5, 7}), torch::ones({2, 7})),
               c10::ValueError);
  EXPECT_THROW(linear_backward(grad_output, torch::ones({5, 6}), torch::ones({3, 7})),
               c10::ValueError);
  EXPECT_THROW(linear_backward(torch::ones({5}), torch::ones({5, 7}), torch::ones({1, 7})),
               c10::ValueError);
}

TEST(ForwardFull, ReturnsEveryIntermediateValue) {
  const SmallStack stack;
  const auto result = forward_full(stack.x, stack.layers);
  ASSERT_EQ(result.activations.size(), 3U);  // 2 layers + the input
  ASSERT_EQ(result.pre_activations.size(), 2U);
  EXPECT_TRUE(result.activations[0].is_same(stack.x));
  // [2*1 + 1*-2 + 0.5, 1*1 + 3*-2 + 1]
  EXPECT_TRUE(torch::equal(result.pre_activations[0], torch::tensor({{0.5, -4.0}})));
  EXPECT_TRUE(torch::equal(result.activations[1], torch::tensor({{0.5, 0.0}})));
  // -1*0.5 + 4*0 + 0.25: negative, and no activation function after the last layer.
  EXPECT_TRUE(torch::equal(result.pre_activations[1], torch::tensor({{-0.25}})));
  EXPECT_TRUE(torch::equal(result.activations[2], torch::tensor({{-0.25}})));
  EXPECT_TRUE(torch::equal(result.final_output, torch::tensor({{-0.25}})));
}

TEST(BackwardFull, ReturnsTheGradientsWorkedOutByHand) {
  const SmallStack stack;
  const auto gradients = full_gradients(torch::tensor({{2.0}}), stack.x, stack.layers);
  EXPECT_TRUE(torch::equal(gradients.grad_weights[1], torch::tensor({{1.0, 0.0}})));  // 2*[0.5, 0]
  EXPECT_TRUE(torch::equal(gradients.grad_biases[1], torch::tensor({2.0})));
  // 2*[-1, 4] = [-2, 8]; the second unit is off (-4), so [-2, 0] arrives at the first layer.
  EXPECT_TRUE(torch::equal(gradients.grad_weights[0], torch::tensor({{-2.0, 4.0}, {0.0, 0.0}})));
  EXPECT_TRUE(torch::equal(gradients.grad_biases[0], torch::tensor({-2.0, 0.0})));
  EXPECT_TRUE(torch::equal(gradients.grad_input, torch::tensor({{-4.0, -2.0}})));  // -2*[2, 1]
}

TEST(BackwardFull, PassesNoGradientThroughAUnitThatIsOff) {
  // Pre-activations -1, 0 and 1, and an infinite gradient: off means 0, not 0 * infinity.
  const std::vector<Layer> layers = {{torch::tensor({{-1.0}, {0.0}, {1.0}}), torch::zeros({3})},
                                     {torch::eye(3), torch::zeros({3})}};
  const auto grad_output = torch::tensor({{HUGE_VALF, HUGE_VALF, 5.0F}});
  const auto gradients = full_gradients(grad_output, torch::ones({1, 1}), layers);
  // The product with the identity turns infinity into NaN (infinity * 0), which the mask must drop.
  EXPECT_EQ(gradients.grad_biases[0][0].item<float>(), 0.0F);
  EXPECT_EQ(gradients.grad_biases[0][1].item<float>(), 0.0F);
}

class LinearStackOfDepth : public ::testing::TestWithParam<std::size_t> {};

TEST_P(LinearStackOfDepth, GivesBitwiseTheSameGradientsWithCheckpointing) {
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    torch::manual_seed(2);
    const auto layers = random_layers(GetParam(), 24, type);
    const auto x = torch::randn({9, 24}, type);
    const auto grad_output = torch::randn({9, 24}, type);
    const auto full = full_gradients(grad_output, x, layers);
    EXPECT_GT(full.grad_input.abs().max().item<double>(), 0.0);
    EXPECT_TRUE(same_bytes(backward_checkpointed(grad_output, x, layers), full)) << type;
    EXPECT_TRUE(same_bytes(forward_checkpointed(x, layers), forward_full(x, layers).final_output))
        << type;
  }
}

TEST_P(LinearStackOfDepth, AgreesWithAutograd) {
  torch::manual_seed(3);
  const auto layers = random_layers(GetParam(), 24, torch::kDouble);
  const auto x = torch::randn({9, 24}, torch::kDouble);
  const auto grad_output = torch::randn({9, 24}, torch::kDouble);
  const auto expected = with_autograd(grad_output, x, layers);
  // Both call the same kernels in forward; in backward autograd transposes one product.
  EXPECT_TRUE(same_bytes(forward_checkpointed(x, layers), expected.output));
  expect_close(full_gradients(grad_output, x, layers), expected.gradients, 1e-10);
}

TEST_P(LinearStackOfDepth, KeepsOneActivationPerLayerAndTheInput) {
  torch::manual_seed(4);
  const auto depth = static_cast<std::int64_t>(GetParam());
  const auto layers = random_layers(GetParam(), 64, torch::kFloat);
  const auto x = torch::randn({32, 64});
  const std::int64_t bytes = 32 * 64 * 4;  // rows * width * sizeof(float)

  const testing::AllocationRecorder recorder;
  const auto output = forward_checkpointed(x, layers);
  EXPECT_EQ(recorder.live_bytes(), bytes);  // the result
  EXPECT_LE(recorder.peak_bytes(),
            2 * bytes + 64);  // a layer's input and its output; a few bytes of padding
  const std::int64_t before = recorder.live_bytes();
  const auto full = forward_full(x, layers);
  // A pre-activation and an activation per layer; the last layer's are one tensor; the input was
  // there before.
  EXPECT_EQ(recorder.live_bytes() - before, (2 * depth - 1) * bytes);
  EXPECT_EQ(static_cast<std::int64_t>(full.activations.size()),
            count_stored_activations(depth, false));
}

INSTANTIATE_TEST_SUITE_P(Depths, LinearStackOfDepth, ::testing::Values(1, 2, 10, 100));

TEST(LinearStack, RecordsNothingInAutograd) {
  torch::manual_seed(5);
  auto layers = random_layers(3, 4, torch::kFloat);
  for (auto& layer : layers) layer.weight.requires_grad_();
  const auto x = torch::randn({2, 4}).requires_grad_();
  EXPECT_FALSE(forward_checkpointed(x, layers).requires_grad());
  EXPECT_FALSE(forward_full(x, layers).final_output.requires_grad());
  EXPECT_FALSE(backward_checkpointed(torch::ones({2, 4}), x, layers).grad_input.requires_grad());
  EXPECT_FALSE(layers[0].weight.grad().defined());
}

TEST(LinearStack, LeavesItsInputsAlone) {
  torch::manual_seed(6);
  const auto layers = random_layers(3, 4, torch::kFloat);
  const auto x = torch::randn({2, 4});
  const auto grad_output = torch::randn({2, 4});
  const auto x_before = x.clone();
  const auto grad_before = grad_output.clone();
  const auto weight_before = layers[1].weight.clone();
  backward_checkpointed(grad_output, x, layers);
  EXPECT_TRUE(same_bytes(x, x_before));
  EXPECT_TRUE(same_bytes(grad_output, grad_before));
  EXPECT_TRUE(same_bytes(layers[1].weight, weight_before));
}

/// The message of the c10::ValueError that `call` throws.
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const c10::ValueError& error) {
    return error.msg();
  }
  return "nothing was thrown";
}

TEST(LinearStack, NamesTheLayerWhoseShapeIsWrong) {
  const auto x = torch::ones({2, 4});
  const Layer good{torch::ones({4, 4}), torch::ones({4})};
  const std::vector<Layer> narrow = {good, {torch::ones({4, 3}), torch::ones({4})}};
  const std::vector<Layer> short_bias = {good, good, {torch::ones({4, 4}), torch::ones({3})}};
  EXPECT_THAT(
      error_of([&] { forward_full(x, narrow); }),
      AllOf(HasSubstr("forward_full"), HasSubstr("weight of layer 1"), HasSubstr("[4, 3]")));
  EXPECT_THAT(
      error_of([&] { forward_checkpointed(x, short_bias); }),
      AllOf(HasSubstr("forward_checkpointed"), HasSubstr("bias of layer 2"), HasSubstr("[3]")));
  EXPECT_THAT(error_of([&] { forward_full(torch::ones({4}), {good}); }), HasSubstr("[R, I]"));
  EXPECT_THAT(error_of([&] { forward_full(x, {}); }), HasSubstr("at least one layer"));
  EXPECT_THAT(error_of([&] { forward_checkpointed(x, {}); }), HasSubstr("at least one layer"));
}

TEST(LinearStack, NamesWhatBackwardWasGivenWrong) {
  const auto x = torch::ones({2, 4});
  const std::vector<Layer> layers(2, Layer{torch::ones({4, 4}), torch::ones({4})});
  const auto full = forward_full(x, layers);
  const auto good = torch::ones({2, 4});
  EXPECT_THAT(error_of([&] { backward_full(good, layers, {x}, full.pre_activations); }),
              HasSubstr("expected 3 activations and 2 pre-activations, got 1 and 2"));
  EXPECT_THAT(error_of([&] {
                backward_full(torch::ones({2, 3}), layers, full.activations, full.pre_activations);
              }),
              HasSubstr("expected grad_output [2, 4], got [2, 3]"));
  EXPECT_THAT(error_of([&] { backward_checkpointed(torch::ones({1, 4}), x, layers); }),
              HasSubstr("grad_output"));
}

TEST(CountStoredActivations, IsOneWithCheckpointingWhateverTheDepth) {
  EXPECT_EQ(count_stored_activations(10, false), 11);  // 10 + the input
  EXPECT_EQ(count_stored_activations(10, true), 1);
  EXPECT_EQ(count_stored_activations(0, false), 1);
  EXPECT_EQ(count_stored_activations(0, true), 1);
  EXPECT_THROW(count_stored_activations(-1, true), c10::ValueError);
}

RC_GTEST_PROP(LinearStack, IsExactForAnyShape, ()) {
  const auto widths = *rc::gen::suchThat(
      rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(1, 20)),
      [](const auto& w) { return w.size() >= 2 && w.size() <= 8; });
  const auto rows = *rc::gen::inRange<std::int64_t>(0, 12);
  torch::manual_seed(*rc::gen::inRange<std::int64_t>(0, 1000));
  const auto layers = random_layers(widths, torch::kDouble);
  const auto x = torch::randn({rows, widths.front()}, torch::kDouble);
  const auto grad_output = torch::randn({rows, widths.back()}, torch::kDouble);
  const auto full = full_gradients(grad_output, x, layers);
  RC_ASSERT(same_bytes(backward_checkpointed(grad_output, x, layers), full));
  const auto expected = with_autograd(grad_output, x, layers);
  RC_ASSERT(same_bytes(forward_checkpointed(x, layers), expected.output));
  RC_ASSERT(torch::allclose(full.grad_input, expected.gradients.grad_input, 1e-9, 1e-12));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    RC_ASSERT(
        torch::allclose(full.grad_weights[i], expected.gradients.grad_weights[i], 1e-9, 1e-12));
    RC_ASSERT(torch::allclose(full.grad_biases[i], expected.gradients.grad_biases[i], 1e-9, 1e-12));
  }
}

}  // namespace
}  // namespace reprise::linear_stack
