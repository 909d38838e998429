#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "reports/compare.h"
#include "reports/table.h"

namespace halfmark {

namespace {

// Limits of what is worth a line. They gate nothing, they only keep the list short.
constexpr double kZeroedShare = 0.01;
constexpr double kNoopShare = 0.1;
constexpr double kHeadroomBits = 1;

enum Rank { kUnmet, kFailed, kNonFinite, kBound, kTraining, kLost, kThin, kSuspect, kRanks };

std::string place(const Measurement& one) { return one.at.empty() ? "" : " at " + one.at; }

// What this measurement has to say, and how urgently.
std::optional<std::pair<Rank, std::string>> remark(const Measurement& one) {
  const std::string& metric = one.metric;
  if (metric == "range.first_nonfinite") {
    return std::pair(kNonFinite, "the first tensor that is not finite is " + (one.at.empty() ? "unnamed" : one.at));
  }
  if ((metric == "error.nonfinite" || metric == "error.infinite" || metric == "error.nan") && one.value > 0) {
    const char* what = metric == "error.nan" ? "is NaN" : metric == "error.infinite" ? "is infinite" : "is not finite";
    return std::pair(kNonFinite, fmt::format("{} of {} {}", human_share(one.value), one.at, what));
  }
  if (!std::isfinite(one.value) && !metric.starts_with("time.")) {
    return std::pair(kNonFinite, fmt::format("{}{} is {}", metric, place(one), human(one.value, "1")));
  }
  if (one.kind == Kind::bounded && one.bound && one.better != Better::neither &&
      (one.better == Better::higher ? one.value < *one.bound : one.value > *one.bound)) {
    return std::pair(kBound, fmt::format("{}{} is {}, its bound is {}", metric, place(one), human(one.value, one.unit),
                                         human(*one.bound, one.unit)));
  }
  if (metric == "training.noop_updates" && one.value > kNoopShare) {
    return std::pair(kTraining, fmt::format("{} of the updates change nothing{}", human_share(one.value), place(one)));
  }
  if (metric == "training.skipped_steps" && one.value > 0) {
    return std::pair(kTraining, fmt::format("{:.0f} steps were skipped", one.value));
  }
  if (metric == "error.zeroed" && one.value > kZeroedShare) {
    return std::pair(kLost, fmt::format("{} of {} is zero here and not in the oracle", human_share(one.value), one.at));
  }
  if (metric == "range.headroom" && one.value < kHeadroomBits) {
    return std::pair(kThin, fmt::format("only {} of headroom{}", human(one.value, one.unit), place(one)));
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> worth_noticing(const Report& report) {
  std::array<std::vector<std::string>, kRanks> ranked;
  for (const Record& record : report.records) {
    const std::string who = fmt::format("{} on {}, {}: ", record.subject, record.device, record.policy);
    const std::string again = record.repro.empty() ? "" : " [" + record.repro + "]";
    if (record.expectation && !record.expectation->met) {
      const Expectation& expected = *record.expectation;
      ranked[kUnmet].push_back(fmt::format("{}expected {}{}{} {} {:.3g}, found {:.3g}{}", who, expected.metric,
                                           expected.at.empty() ? "" : " at ", expected.at, expected.relation,
                                           expected.limit, expected.found, again));
    } else if (record.status == Status::failed) {
      ranked[kFailed].push_back(fmt::format("{}{} failed: {}{}", who, record.harness, record.reason, again));
    }
    if (record.status != Status::ok && record.status != Status::suspect) continue;
    // The first of a kind stands for all: one NaN makes NaNs everywhere behind it.
    std::array<size_t, kRanks> more{};
    std::array<std::string, kRanks> first;
    for (const Measurement& one : record.measurements) {
      if (const auto found = remark(one)) {
        const auto& [rank, text] = *found;
        const bool names_the_origin = one.metric == "range.first_nonfinite";
        if (first[rank].empty() || names_the_origin) {
          more[rank] += first[rank].empty() ? 0 : 1;
          first[rank] = text;
        } else {
          ++more[rank];
        }
      }
    }
    for (size_t rank = 0; rank < kRanks; ++rank) {
      if (first[rank].empty()) continue;
      ranked[rank].push_back(who + first[rank] + (more[rank] ? fmt::format(", and {} more like it", more[rank]) : ""));
    }
  }
  size_t suspects = 0;
  for (const Record& record : report.records) suspects += record.status == Status::suspect;
  if (suspects > 0) {
    ranked[kSuspect].push_back(
        fmt::format("{} records are suspect: their times mean nothing here and are shown as \"suspect\"", suspects));
  }
  std::vector<std::string> all;
  std::set<std::string> seen;  // the same line from several harnesses is said once
  for (const auto& lines : ranked) {
    for (const std::string& line : lines) {
      if (seen.insert(line).second) all.push_back(line);
    }
  }
  return all;
}

}  // namespace halfmark
