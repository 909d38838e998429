// Part conclusions: which of two models is better? How often does a seed trained under the record's policy, or trained in fp32
// and evaluated in full half, say another than fp32 says over all seeds, and is that more often than a seed of fp32 does?
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/experiments/evaluation.h"
#include "accuracy/experiments/ranking.h"

namespace halfmark::accuracy {
namespace {

// The second model is the first one at another rate: that of the subject times 2^power. The closer, the smaller the gap.
struct OtherRate {
  std::string_view name;
  double power;
};
constexpr OtherRate kOtherRates[] = {{"2^-1", -1}, {"2^-1/4", -0.25}, {"2^-1/16", -0.0625}};

// The losses of one rate over the seeds.
struct LossesOfRate {
  std::vector<double> fp32;       // trained and evaluated in fp32
  std::vector<double> evaluated;  // trained in fp32, evaluated in full half
  std::vector<double> trained;    // trained under the policy, evaluated in fp32; empty: the policy is fp32
};

// A training that diverged is the worst, whatever it diverged to.
double ranked(double loss) { return std::isfinite(loss) ? loss : HUGE_VAL; }

LossesOfRate losses_at(const TrialSpec& given, double power, const EvaluationAxes& axes, const FormOfModel& fp32,
                       const FormOfModel& half) {
  LossesOfRate found;
  for (int64_t seed = 0; seed < axes.seeds; ++seed) {
    TrialSpec own = given;
    own.seed = given.seed + static_cast<uint64_t>(seed);
    own.settings.rate = given.settings.rate * std::exp2(power);
    TrialSpec wide = own.under(policy_named("fp32"));
    wide.settings.scaler.reset();
    Evaluator evaluator(wide, axes.samples);
    const ModelValues of_fp32 = train_checkpoints(wide, axes.steps, 1).back();
    found.fp32.push_back(ranked(evaluator.evaluate(of_fp32, fp32).loss));
    found.evaluated.push_back(ranked(evaluator.evaluate(of_fp32, half).loss));
    if (given.policy->name == "fp32") continue;
    found.trained.push_back(ranked(evaluator.evaluate(train_checkpoints(own, axes.steps, 1).back(), fp32).loss));
  }
  return found;
}

// Whether each seed says what is true of the two models. Of equal losses, and where both diverged, it says nothing, which
// is wrong.
std::vector<double> wrong_seeds(const std::vector<double>& first, const std::vector<double>& second, bool first_wins) {
  std::vector<double> wrong;
  for (size_t i = 0; i < first.size(); ++i)
    wrong.push_back(first_wins ? !(first[i] < second[i]) : !(second[i] < first[i]));
  return wrong;
}

std::optional<FormOfModel> form_called(std::string_view name) {
  for (const FormOfModel& form : forms_of_models())
    if (form.name == name) return form;
  return {};
}

}  // namespace

double more_often_by_chance(std::span<const double> wrong, std::span<const double> wrong_in_fp32) {
  int more = 0, discordant = 0;
  for (size_t i = 0; i < wrong.size(); ++i) {
    if (wrong[i] == wrong_in_fp32[i]) continue;
    ++discordant;
    more += wrong[i] > wrong_in_fp32[i];
  }
  // Binomial coefficients of n, one after the other; the seeds are too few for an overflow.
  double tail = 0, ways = 1;
  for (int k = 0; k <= discordant; ++k) {
    if (k >= more) tail += ways;
    ways = ways * (discordant - k) / (k + 1);
  }
  return std::min(1.0, std::ldexp(tail, -discordant));
}

void evaluate_conclusions(const TrialSpec& given, const EvaluationAxes& axes, FindingsWriter& out) {
  const FormOfModel fp32 = form_called("fp32").value(), half = form_called("full_fp16").value();
  const LossesOfRate first = losses_at(given, 0, axes, fp32, half);
  double least_evaluated = 1, least_trained = 1;
  for (const OtherRate& other : kOtherRates) {
    const LossesOfRate second = losses_at(given, other.power, axes, fp32, half);
    std::vector<double> gaps;
    for (size_t i = 0; i < first.fp32.size(); ++i) gaps.push_back(second.fp32[i] - first.fp32[i]);
    const SampleMean gap = sample_mean(gaps);
    const std::string at(other.name);
    Measurement& written = out.number("evaluation.conclusion_gap", at, gap.mean);
    written.samples = gaps;
    if (std::isfinite(gap.error)) written.standard_error = gap.error;
    const std::vector<double> of_fp32 = wrong_seeds(first.fp32, second.fp32, gap.mean > 0);
    const auto write = [&](const std::string& way, const std::vector<double>& wrong) {
      const double count = std::ranges::count(wrong, 1.0), all = static_cast<double>(wrong.size());
      Measurement& share = out.number("evaluation.conclusion_wrong", way + "/" + at, count / all);
      share.samples = wrong, share.standard_error = share_error(count, all);
    };
    const auto compare = [&](const std::string& way, const std::vector<double>& wrong, double& least) {
      write(way, wrong);
      const double chance = more_often_by_chance(wrong, of_fp32);
      out.number("evaluation.conclusion_chance", way + "/" + at, chance);
      least = std::min(least, chance);
    };
    write("fp32", of_fp32);
    compare("evaluated", wrong_seeds(first.evaluated, second.evaluated, gap.mean > 0), least_evaluated);
    if (first.trained.empty()) continue;
    compare("trained", wrong_seeds(first.trained, second.trained, gap.mean > 0), least_trained);
  }
  const double tests = std::size(kOtherRates);  // Bonferroni
  out.number("evaluation.conclusion_chance", "evaluated", std::min(1.0, tests * least_evaluated));
  if (!first.trained.empty())
    out.number("evaluation.conclusion_chance", "trained", std::min(1.0, tests * least_trained));
}

}  // namespace halfmark::accuracy
