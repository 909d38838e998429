// Part rates: does full half evaluation rank learning rates as fp32 does, compared with two seeds of fp32?
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "accuracy/experiments/evaluation.h"
#include "accuracy/experiments/ranking.h"

namespace halfmark::accuracy {
namespace {

// Eight rates around the subject's own: 2^-5 to 2^2 times it.
constexpr int kLeastPower = -5, kMostPower = 2;

}  // namespace

void evaluate_rates(const TrialSpec& given, const EvaluationAxes& axes, FindingsWriter& out) {
  const FormOfModel *fp32 = nullptr, *half = nullptr;
  for (const FormOfModel& form : forms_of_models()) {
    if (form.name == "fp32") fp32 = &form;
    if (form.name == "full_fp16") half = &form;
  }
  std::vector<double> rates;
  for (int power = kLeastPower; power <= kMostPower; ++power) rates.push_back(std::ldexp(given.settings.rate, power));
  std::vector<std::vector<double>> losses, half_losses;  // [seed][rate]
  std::vector<double> taus, best_unchanged;
  for (int64_t seed = 0; seed < axes.seeds; ++seed) {
    TrialSpec spec = given;
    spec.seed = given.seed + static_cast<uint64_t>(seed);
    Evaluator evaluator(spec, axes.samples);
    losses.emplace_back(), half_losses.emplace_back();
    for (const double rate : rates) {
      spec.settings.rate = rate;
      const ModelValues trained = train_checkpoints(spec, axes.steps, 1).back();
      // A training that diverged is the worst, whatever it diverged to.
      const auto rank = [](double loss) { return std::isfinite(loss) ? loss : HUGE_VAL; };
      losses.back().push_back(rank(evaluator.evaluate(trained, *fp32).loss));
      half_losses.back().push_back(rank(evaluator.evaluate(trained, *half).loss));
    }
    taus.push_back(kendall_tau(losses.back(), half_losses.back()));
    best_unchanged.push_back(place_of_least(losses.back()) == place_of_least(half_losses.back()));
  }
  const SampleMean of_half = sample_mean(taus), of_best = sample_mean(best_unchanged);
  Measurement& tau = out.number("evaluation.rate_tau", "half", of_half.mean);
  tau.samples = taus, tau.standard_error = of_half.error;
  const TauOfPairs of_pairs = kendall_tau_of_pairs(losses);
  out.number("evaluation.rate_tau", "seeds", of_pairs.mean).standard_error = of_pairs.error;
  out.number("evaluation.best_rate_unchanged", "", of_best.mean).samples = best_unchanged;
  for (const auto& [at, all] : {std::pair{"fp32", &losses}, {"full_fp16", &half_losses}}) {
    std::vector<double> means(rates.size());
    for (const std::vector<double>& one : *all)
      for (size_t i = 0; i < means.size(); ++i) means[i] += one[i] / static_cast<double>(all->size());
    out.curve("evaluation.rate_loss", at, rates, means);
  }
}

}  // namespace halfmark::accuracy
