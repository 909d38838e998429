#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reports/text/compare.h"
#include "reports/text/summary.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

// Limits above which a number gets a notice. They do not affect the gate; they only keep the list short.
constexpr double kZeroedShare = 0.01;
constexpr double kNoopShare = 0.1;
constexpr double kHeadroomBits = 1;
constexpr double kLaunchBound = 0.5;  // time without gaps for launches / time of a step
constexpr double kOtherTime = 1.1;    // times of one step in two records, beyond the half-widths of both
constexpr size_t kSubjectsNamed = 3;

enum Rank { kUnmet, kFailed, kNonFinite, kBound, kTraining, kLost, kThin, kTimes, kRanks };

std::string place(const Measurement& one) { return one.at.empty() ? "" : " at " + one.at; }

// The notice about this measurement and its urgency.
std::optional<std::pair<Rank, std::string>> remark(const Measurement& one) {
  const std::string& metric = one.metric;
  if (metric.starts_with("lint.")) return std::nullopt;  // they have a section
  if (metric == "range.first_nonfinite") {
    return std::pair(kNonFinite, "the first tensor that is not finite is " + (one.at.empty() ? "unnamed" : one.at));
  }
  if ((metric == "error.nonfinite" || metric == "error.infinite" || metric == "error.nan") && one.value > 0) {
    const char* what = metric == "error.nan" ? "is NaN" : metric == "error.infinite" ? "is infinite" : "is not finite";
    return std::pair(kNonFinite, fmt::format("{} of {} {}", human_share(one.value), one.at, what));
  }
  // A rule may raise the loss scale to infinity: reference numbers try that with each.
  if (metric.starts_with("reference.") && one.at.starts_with("scaler/")) return std::nullopt;
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
    return std::pair(kTraining, one.value == 1 ? std::string("1 step was skipped")
                                               : fmt::format("{:.0f} steps were skipped", one.value));
  }
  if (metric == "error.zeroed" && one.value > kZeroedShare) {
    return std::pair(
        kLost, fmt::format("{} of {} is zero here but not in the fp64 reference", human_share(one.value), one.at));
  }
  if (metric == "range.headroom" && one.value < kHeadroomBits) {
    return std::pair(kThin, fmt::format("only {} of headroom{}", human(one.value, one.unit), place(one)));
  }
  return std::nullopt;
}

// A training with several seeds that did not end like that of fp32, with what the record tells about the reason.
std::optional<std::string> unlike_fp32(const Record& record) {
  const Measurement* verdict = find(record, "convergence.as_fp32", "");
  if (!verdict || verdict->value >= 0) return std::nullopt;
  const Measurement *gap = find(record, "convergence.loss_gap", ""),
                    *spread = find(record, "convergence.fp32_spread", ""),
                    *lost = find(record, "convergence.noop_updates", "");
  std::string text = "not trained to the loss of fp32";
  if (gap && spread)
    text += fmt::format(": gap {}, spread of fp32 over seeds {}", human(gap->value, "1"), human(spread->value, "1"));
  if (lost && lost->value > kNoopShare)
    text += fmt::format("; {} of the updates change nothing", human_share(lost->value));
  return text;
}

// A GPU that waits for the host most of the time says little about precisions.
std::optional<std::string> launch_bound(const Record& record) {
  const Measurement *step = find(record, "time.step", "hot"), *device = find(record, "time.device", "hot");
  if (!step || !device || device->value >= kLaunchBound * step->value) return std::nullopt;
  return "bound by launches: the GPU waits for the host most of a step; run ... launch=graph times it without these "
         "waits";
}

double half_width(const Record& record) {
  const Measurement* found = find(record, "timing.half_width", "hot/step");
  return found ? found->value : 0;
}

// Steps under this policy were timed in turn with steps under fp32, and fp32 has a record of its own. If its steps took
// other times in the two, the times of the two records cannot be compared.
std::optional<std::string> other_baseline(const Record& record, const Report& report) {
  const Measurement *step = find(record, "time.step", "hot"), *speedup = find(record, "speedup.step", "hot");
  if (!step || !speedup || !speedup->interval) return std::nullopt;
  const auto baseline = std::find_if(report.records.begin(), report.records.end(), [&](const Record& one) {
    return one.status == Status::ok && one.policy == kBaseline && one.subject == record.subject &&
           one.device == record.device && one.harness == record.harness && one.axes == record.axes;
  });
  if (baseline == report.records.end()) return std::nullopt;
  const Measurement* own = find(*baseline, "time.step", "hot");
  if (!own || !(own->value > 0)) return std::nullopt;
  const double in_turn = step->value * speedup->value, ratio = in_turn / own->value,
               noise = half_width(record) + half_width(*baseline) +
                       (speedup->interval->upper - speedup->interval->lower) / (2 * speedup->value);
  if (std::max(ratio, 1 / ratio) < kOtherTime + noise) return std::nullopt;
  return "fp32 took another time in turn with this policy than in its own record: compare by the speed-up, not by the "
         "times";
}

// "mlp/b8_i16_h24_o10 control=underflow": with the axes, because a subject may have a notice for each setting.
std::string whose(const Record& record) {
  std::string text = record.subject;
  for (const auto& [key, value] : record.axes) text += fmt::format(" {}={}", key, value);
  return text;
}

// The same notice about several subjects is one line.
class Notices {
 public:
  void add(size_t rank, const Record& record, const std::string& text) {
    const std::string line = fmt::format("{} on {}: {}", record.policy, record.device, text);
    const auto [found, is_new] = place_.try_emplace({rank, line}, notices_[rank].size());
    if (is_new) notices_[rank].push_back({line, {}});
    std::vector<std::string>& subjects = notices_[rank][found->second].subjects;
    std::string subject = whose(record);
    if (std::find(subjects.begin(), subjects.end(), subject) == subjects.end()) subjects.push_back(std::move(subject));
  }

  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (const auto& rank : notices_) {
      for (const Notice& notice : rank) {
        const size_t named = std::min(notice.subjects.size(), kSubjectsNamed);
        std::string line = fmt::format(
            "{} ({}", notice.line,
            fmt::join(notice.subjects.begin(), notice.subjects.begin() + static_cast<std::ptrdiff_t>(named), ", "));
        if (named < notice.subjects.size()) line += fmt::format(" and {} more", notice.subjects.size() - named);
        line += ')';
        lines.push_back(std::move(line));
      }
    }
    return lines;
  }

 private:
  struct Notice {
    std::string line;
    std::vector<std::string> subjects;
  };
  std::array<std::vector<Notice>, kRanks> notices_;
  std::map<std::pair<size_t, std::string>, size_t> place_;
};

}  // namespace

std::vector<std::string> worth_noticing(const Report& report) {
  Notices notices;
  for (const Record& record : report.records) {
    const std::string again = record.repro.empty() ? "" : fmt::format(" [{}]", record.repro);
    if (record.expectation && !record.expectation->met) {
      const Expectation& expected = *record.expectation;
      notices.add(
          kUnmet, record,
          fmt::format("expected {}{}{} {} {:.3g}, found {:.3g}{}", expected.metric, expected.at.empty() ? "" : " at ",
                      expected.at, expected.relation, expected.limit, expected.found, again));
    } else if (record.status == Status::failed) {
      notices.add(kFailed, record, fmt::format("{} failed: {}{}", record.harness, record.reason, again));
    }
    if (record.status != Status::ok && record.status != Status::suspect) continue;
    if (const Determinism& found = record.determinism; found.differing > 0)
      notices.add(kBound, record,
                  fmt::format("{}: {} of {} processes gave different bits than the first{}", record.harness,
                              found.differing, found.processes, again));
    if (record.expectation && record.expectation->met) continue;  // a negative control with the expected effect
    if (const auto text = unlike_fp32(record)) notices.add(kTraining, record, *text);
    if (record.status == Status::ok) {
      if (const auto text = launch_bound(record)) notices.add(kTimes, record, *text);
      if (const auto text = other_baseline(record, report)) notices.add(kTimes, record, *text);
    }
    // Only the first of a kind is listed: one NaN causes NaNs in everything computed from it.
    std::array<size_t, kRanks> count{};
    std::array<std::string, kRanks> first;
    for (const Measurement& one : record.measurements) {
      const auto found = remark(one);
      if (!found) continue;
      // The baseline shows how many gradients are 0 in this model; that is no loss.
      if (one.metric == "training.noop_updates" && record.policy == kBaseline) continue;
      const auto& [rank, text] = *found;
      if (count[rank]++ == 0 || one.metric == "range.first_nonfinite") first[rank] = text;
    }
    for (size_t rank = 0; rank < kRanks; ++rank) {
      if (count[rank] == 1) notices.add(rank, record, first[rank]);
      if (count[rank] > 1)
        notices.add(rank, record,
                    fmt::format("{} (and {} like it in this record)", first[rank], counted(count[rank] - 1, "remark")));
    }
  }
  return notices.lines();
}

}  // namespace halfmark::reports
