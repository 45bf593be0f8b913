// SPDX-License-Identifier: Apache-2.0
#include "reprise/verify_gradients.h"

#include "reprise/checkpoint.h"
#include "tests/checkpoint_testing.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using ::testing::AllOf;
using testing::clones_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::random_leaf;
using testing::random_tensor;
using torch::Tensor;

/// A small recommender: two encoders, one of which is not used, and a head.
struct RecommenderImpl : torch::nn::Module {
  RecommenderImpl()
      : items(register_module("items", torch::nn::Embedding(10, 8))),
        history(register_module("history", torch::nn::GRU(8, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        head(register_module("head", torch::nn::Linear(8, 1))),
        unused(register_module("unused", torch::nn::Linear(8, 8))) {}

  Tensor encode(const Tensor& t) { return std::get<0>(history->forward(t))[-1]; }
  Tensor score(const Tensor& t) { return head(torch::dropout(norm(t), 0.25, true)); }

  torch::nn::Embedding items;
  torch::nn::GRU history;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear head;
  torch::nn::Linear unused;
};
TORCH_MODULE(Recommender);

class VerifyGradients : public testing::SeededTest {
 protected:
  Tensor plain() { return model_->score(model_->encode(model_->items(indices_))); }
  GradientReport compare(const std::function<Tensor()>& checkpointed) {
    return verify_gradients(named_tensors(*model_), [this] { return plain(); }, checkpointed);
  }
  static std::vector<std::string> different_names(const GradientReport& report) {
    std::vector<std::string> names;
    for (const auto& parameter : report.parameters) {
      if (!parameter.is_equal) names.push_back(parameter.name);
    }
    return names;
  }

  Recommender model_;
  Tensor indices_ = torch::tensor({{1, 2, 3}, {4, 1, 9}, {0, 0, 5}});
};

TEST_F(VerifyGradients, NamesParametersThenBuffers) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named_tensors(*model_)) names.push_back(name);
  ASSERT_EQ(names.size(), 14U);  // 1 + 4 + 2 + 2 + 2 parameters, 3 buffers
  EXPECT_EQ(names[0], "items.weight");
  EXPECT_EQ(names[1], "history.weight_ih_l0");
  EXPECT_EQ(names[10], "unused.bias");
  EXPECT_THAT(std::vector<std::string>(names.begin() + 11, names.end()),
              ElementsAre("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"));
}

TEST_F(VerifyGradients, FindsNothingWrongWithRegions) {
  for (const auto& options : testing::all_options()) {
    const auto report = compare([&] {
      const auto hidden = checkpoint(
          options, [this](const Tensor& t) { return model_->encode(t); }, model_->items(indices_));
      return checkpoint(options, [this](const Tensor& t) { return model_->score(t); }, hidden);
    });
    EXPECT_TRUE(report.is_equal()) << report.to_text();
    EXPECT_THAT(different_names(report), IsEmpty());
    EXPECT_EQ(report.parameters.size(), 11U);
    EXPECT_TRUE(report.has_equal_outputs && report.has_equal_random_stream);
    EXPECT_TRUE(report.is_plain_repeatable);
    EXPECT_THAT(report.differing_buffers, IsEmpty());
  }
}

TEST_F(VerifyGradients, NamesParametersThatAreNeverTrained) {
  const auto report = compare([this] { return plain(); });
  EXPECT_TRUE(report.is_equal());
  EXPECT_THAT(report.without_gradient(), ElementsAre("unused.weight", "unused.bias"));
  EXPECT_THAT(report.to_text(), AllOf(HasSubstr("unused.weight"), HasSubstr("unused.bias")));
  const auto& trained = report.parameters[0];
  EXPECT_EQ(trained.name, "items.weight");
  EXPECT_TRUE(trained.has_plain_gradient && trained.has_checkpointed_gradient);
  const auto& dead = report.parameters[9];
  EXPECT_EQ(dead.name, "unused.weight");
  EXPECT_FALSE(dead.has_plain_gradient || dead.has_checkpointed_gradient);
  EXPECT_TRUE(dead.is_equal);
}

/// A home-made checkpoint: it computes on a detached input, and forgets the way back.
TEST_F(VerifyGradients, FindsADetachedInput) {
  const auto report =
      compare([this] { return model_->score(model_->encode(model_->items(indices_).detach())); });
  EXPECT_FALSE(report.is_equal());
  EXPECT_THAT(different_names(report), ElementsAre("items.weight"));
  EXPECT_TRUE(report.parameters[0].has_plain_gradient);
  EXPECT_FALSE(report.parameters[0].has_checkpointed_gradient);
  EXPECT_TRUE(std::isinf(report.parameters[0].largest_difference));
  EXPECT_TRUE(report.has_equal_outputs);  // which is why nobody sees it
  EXPECT_THAT(report.without_gradient(), Not(Contains("items.weight")));
  EXPECT_THAT(report.to_text(), HasSubstr("items.weight"));
}

TEST_F(VerifyGradients, FindsADetachedBranch) {
  const auto with_branch = [this](bool is_cut) {
    const auto embedded = model_->items(indices_);
    const auto hidden = model_->encode(embedded);
    const auto branch = hidden + embedded[0] * 0.5;
    return model_->score(is_cut ? hidden.detach() + embedded[0] * 0.5 : branch);
  };
  const auto report = verify_gradients(
      named_tensors(*model_), [&] { return with_branch(false); },
      [&] { return with_branch(true); });
  EXPECT_FALSE(report.is_equal());
  // The embedding still gets a gradient, another one; the recurrent layer gets none.
  EXPECT_THAT(different_names(report),
              ElementsAre("items.weight", "history.weight_ih_l0", "history.weight_hh_l0",
                          "history.bias_ih_l0", "history.bias_hh_l0"));
  EXPECT_TRUE(report.parameters[0].has_checkpointed_gradient);
  EXPECT_GT(report.parameters[0].largest_difference, 0);
  EXPECT_TRUE(std::isfinite(report.parameters[0].largest_difference));
}

TEST_F(VerifyGradients, FindsBuffersThatAreUpdatedTwice) {
  const auto report = compare([this] {
    const auto hidden = model_->encode(model_->items(indices_));
    {
      const torch::NoGradGuard no_grad;
      model_->norm(hidden);
    }
    return model_->score(hidden);
  });
  EXPECT_FALSE(report.is_equal());
  EXPECT_THAT(different_names(report), IsEmpty());
  EXPECT_THAT(report.differing_buffers,
              ElementsAre("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"));
  EXPECT_THAT(report.to_text(), HasSubstr("norm.running_var"));
}

TEST_F(VerifyGradients, FindsAnotherRandomStream) {
  const auto report = compare([this] {
    const auto y = plain();
    torch::rand({1});
    return y;
  });
  EXPECT_FALSE(report.has_equal_random_stream);
  EXPECT_FALSE(report.is_equal());
  EXPECT_TRUE(report.has_equal_outputs);
  EXPECT_THAT(different_names(report), IsEmpty());
}

TEST_F(VerifyGradients, FindsAnotherDropoutMask) {
  const auto report = compare([this] {
    torch::rand({1});
    return plain();
  });
  EXPECT_FALSE(report.is_equal());
  EXPECT_FALSE(report.has_equal_outputs);
  EXPECT_THAT(different_names(report), Contains("head.weight"));
  EXPECT_TRUE(report.is_plain_repeatable);
}

TEST_F(VerifyGradients, FindsOtherOutputsWithTheSameGradients) {
  const auto report = compare([this] { return plain() + 1; });
  EXPECT_FALSE(report.has_equal_outputs);
  EXPECT_FALSE(report.is_equal());
  EXPECT_THAT(different_names(report), IsEmpty());
}

TEST_F(VerifyGradients, SaysWhenThePlainPassDoesNotAgreeWithItself) {
  int runs = 0;
  const auto report = verify_gradients(
      named_tensors(*model_), [&] { return plain() * ++runs; }, [&] { return plain() * ++runs; });
  EXPECT_FALSE(report.is_equal());
  EXPECT_FALSE(report.is_plain_repeatable);
}

TEST_F(VerifyGradients, LeavesBuffersGradientsAndGeneratorsAsTheyWere) {
  for (const auto& parameter : model_->head->parameters())
    parameter.mutable_grad() = torch::full_like(parameter, 3);
  const auto old_gradient = model_->head->weight.grad();
  torch::manual_seed(5);
  torch::randn({1});
  const auto values = clones_of(model_->parameters());
  const auto buffers = clones_of(model_->buffers());
  const auto state = at::detail::getDefaultCPUGenerator().get_state();
  for (const bool is_equal : {true, false}) {
    EXPECT_EQ(compare([&] { return is_equal ? plain() : plain() * torch::rand({1}); }).is_equal(),
              is_equal);
    testing::expect_same_bytes(model_->parameters(), values);
    testing::expect_same_bytes(model_->buffers(), buffers);
    EXPECT_TRUE(torch::equal(at::detail::getDefaultCPUGenerator().get_state(), state));
    EXPECT_TRUE(model_->head->weight.grad().is_same(old_gradient));
    EXPECT_TRUE(torch::equal(old_gradient, torch::full({1, 8}, 3.F)));
    EXPECT_FALSE(model_->items->weight.grad().defined());
  }
  EXPECT_ANY_THROW((void)compare([]() -> Tensor { throw std::runtime_error("out of luck"); }));
  testing::expect_same_bytes(model_->buffers(), buffers);
  EXPECT_TRUE(torch::equal(at::detail::getDefaultCPUGenerator().get_state(), state));
}

TEST(VerifyGradientsOf, ScalarsAndAnyShapeMeasuresTheDifference) {
  const auto a = torch::tensor({1.0, 2.0, 4.0}).requires_grad_();
  const NamedTensors named = {{"a", a}};
  const auto report = verify_gradients(
      named, [&] { return (a * 2).view({3, 1}); },
      [&] { return (a * torch::tensor({2.0, 2.5, 1.0})).sum(); });
  EXPECT_FALSE(report.is_equal());
  EXPECT_EQ(report.parameters[0].largest_difference, 1.0);  // |2 - 2|, |2 - 2.5|, |2 - 1|
  EXPECT_TRUE(verify_gradients(named, [&] { return a * a; }, [&] { return a * a; }).is_equal());
}

TEST(VerifyGradientsOf, BytesTellNanFromNumbersAndZeroFromMinusZero) {
  const auto a = torch::tensor({0.0, 1.0}).requires_grad_();
  const NamedTensors named = {{"a", a}};
  constexpr auto kNan = std::numeric_limits<double>::quiet_NaN();
  const auto compare = [&](std::pair<double, double> plain, std::pair<double, double> other) {
    return verify_gradients(
        named, [=] { return a * torch::tensor({plain.first, plain.second}); },
        [=] { return a * torch::tensor({other.first, other.second}); });
  };
  EXPECT_TRUE(compare({kNan, 1}, {kNan, 1}).is_equal());
  EXPECT_TRUE(std::isinf(compare({kNan, 1}, {2, 1}).parameters[0].largest_difference));
  EXPECT_TRUE(std::isinf(compare({2, 1}, {kNan, 1}).parameters[0].largest_difference));
  EXPECT_FALSE(compare({0.0, 1}, {-0.0, 1}).is_equal());
  EXPECT_EQ(compare({0.0, 1}, {-0.0, 1}).parameters[0].largest_difference, 0);
}

TEST(VerifyGradientsOf, SparseAndComplexGradientsComparesThem) {
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 4).sparse(true));
  const auto wave = torch::randn({4}, torch::kComplexFloat).requires_grad_();
  const auto indices = torch::tensor({1, 3, 3});
  const auto pass = [&](double scale) {
    return torch::real(table(indices).to(torch::kComplexFloat) * wave * wave.conj()).sum() * scale;
  };
  const NamedTensors parameters = {{"table", table->weight}, {"wave", wave}};
  const auto same = verify_gradients(parameters, [&] { return pass(1); }, [&] { return pass(1); });
  EXPECT_TRUE(same.is_equal()) << same.to_text();
  const auto other = verify_gradients(parameters, [&] { return pass(1); }, [&] { return pass(2); });
  for (const auto& parameter : other.parameters) {
    EXPECT_FALSE(parameter.is_equal) << parameter.name;
    EXPECT_GT(parameter.largest_difference, 0) << parameter.name;
  }
}

TEST(VerifyGradientsOf, APassThatChangesAParameterStartsFromTheSameOne) {
  const auto weight = random_leaf({8});
  const auto before = weight.detach().clone();
  const auto pass = [&] {
    {
      const torch::NoGradGuard no_grad;
      weight.mul_(0.5);
    }
    return weight.exp().sum();
  };
  const auto report = verify_gradients({{"weight", weight}}, pass, pass);
  EXPECT_TRUE(report.is_equal()) << report.to_text();
  EXPECT_TRUE(testing::is_same_bytes(weight.detach(), before));
  const auto failing = [&]() -> Tensor {
    pass();
    throw std::runtime_error("out of luck");
  };
  EXPECT_THAT(testing::error_of(
                  [&] { static_cast<void>(verify_gradients({{"w", weight}}, pass, failing)); }),
              HasSubstr("out of luck"));
  EXPECT_TRUE(testing::is_same_bytes(weight.detach(), before));
}

TEST(VerifyGradientsOf, NothingIsRefused) {
  const auto a = random_leaf({3});
  const auto constant = random_tensor({3});
  const auto good = [&] {
    return a.exp();
  };
  const auto without = [&] {
    return constant * 2;
  };
  EXPECT_THROW((void)verify_gradients({{"a", a}}, without, good), c10::ValueError);
  EXPECT_THROW((void)verify_gradients({{"a", a}}, good, without), c10::ValueError);
  EXPECT_THROW((void)verify_gradients({{"c", constant}}, good, good), c10::ValueError);
  EXPECT_THROW((void)verify_gradients({}, good, good), c10::ValueError);
}

}  // namespace
}  // namespace reprise
