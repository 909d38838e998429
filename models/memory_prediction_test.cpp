// The memory that is predicted from the description of a subject, compared with what a trial allocates.
#include "models/memory_prediction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <string_view>

#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

constexpr double kWithin = 0.05;

// A second step of a trial on a device of its own. The scale of the loss stays, so that no step is skipped.
struct Measured {
  size_t saved;
  MemoryUse peak;

  Measured(const Subject& subject, const Policy& policy, Settings settings) {
    TrialSpec spec;
    spec.subject = &subject, spec.policy = &policy, spec.seed = 1;
    spec.device = open_device("cpu");
    spec.settings = settings;
    MemoryLedger& ledger = spec.device->memory();
    Trial trial(spec);
    trial.train_step(0);
    ledger.reset_peak();
    trial.load_batch(1);
    trial.forward();
    saved = ledger.live().by_purpose[static_cast<size_t>(Purpose::saved)];
    trial.backward();
    trial.update();
    peak = ledger.tensor_peak();
  }
};

Settings with_fixed_scale(const Subject& subject, const Policy& policy) {
  Settings settings = subject.settings;
  settings.scaler = policy.scaler;
  if (policy.scaler.kind == ScalerSpec::Kind::dynamic) settings.scaler->kind = ScalerSpec::Kind::fixed;
  return settings;
}

std::string words_of(const MemoryUse& use) {
  std::string words = std::to_string(use.total) + ":";
  for (size_t i = 0; i < kPurposes; ++i)
    if (use.by_purpose[i])
      words += " " + std::string(name_of(static_cast<Purpose>(i))) + " " + std::to_string(use.by_purpose[i]);
  return words;
}

void expect_near(size_t predicted, size_t measured, const std::string& what) {
  const double difference = std::abs(static_cast<double>(predicted) - static_cast<double>(measured));
  EXPECT_LE(difference, kWithin * static_cast<double>(measured))
      << what << ": predicted " << predicted << ", measured " << measured;
}

void compare(const Subject& subject, const Policy& policy, const Settings& settings) {
  const MemoryPrediction predicted = predict_memory(subject, policy, settings);
  const Measured measured(subject, policy, settings);
  const std::string what = subject.id() + " " + std::string(policy.name);
  if (getenv("HM_SHOW"))
    printf("%-45s %-10s %.4f %.4f | %s | %s\n", subject.id().c_str(), std::string(policy.name).c_str(), double(measured.peak.total)/double(predicted.peak.total), double(measured.saved)/double(predicted.saved), words_of(predicted.peak).c_str(), words_of(measured.peak).c_str());
  SCOPED_TRACE("predicted " + words_of(predicted.peak) + "\nmeasured " + words_of(measured.peak));
  expect_near(predicted.peak.total, measured.peak.total, what + " in all");
  expect_near(predicted.saved, measured.saved, what + " saved");
  for (const Purpose exact :
       {Purpose::weights, Purpose::master, Purpose::gradients, Purpose::optimizer, Purpose::state, Purpose::input})
    EXPECT_EQ(predicted.peak.by_purpose[static_cast<size_t>(exact)],
              measured.peak.by_purpose[static_cast<size_t>(exact)])
        << what << ": " << name_of(exact);
}

bool is_small(const Subject& subject) { return getenv("HM_ALL") || subject.input.elements() <= 4096; }

TEST(MemoryPrediction, AgreesWithEverySmallSubjectUnderEveryPolicy) {
  for (const Subject& subject : subjects())
    for (const Policy& policy : policies())
      if (!policy.hidden && is_small(subject)) compare(subject, policy, with_fixed_scale(subject, policy));
}

}  // namespace
}  // namespace halfmark::models
