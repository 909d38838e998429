// The times of earlier runs of one machine: how far they move between runs, and from day to day.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reports/gate/environment_difference.h"
#include "reports/gate/gate_rules.h"
#include "reports/record/report.h"

namespace halfmark::reports {

// A measured time or rate: sampled, in seconds or per second. Ratios (unit "1") are not.
bool is_stored_time(const Measurement& measurement);

class TimeHistory {
 public:
  // In order of time. `keys`: the facts by which a run of another machine or other software is left out.
  void add(const Report& run, const Report& base, const Keys& keys);

  // The largest |ln ratio| of two successive runs of this time; nullopt with fewer than kFewestRuns.
  std::optional<double> largest_step(const std::string& id, const Measurement& time) const;

  // Standard deviation of ln(time) of this case between days (UTC), from the means of the days: an upper bound with 95 %
  // confidence, of this case or of all cases together, whichever is larger. Noise of the runs and changes of the code
  // are in it, so it is rather too large. nullopt with fewer than kFewestDays.
  std::optional<double> day_spread(const std::string& id, const Measurement& time) const;

  bool given() const { return given_; }
  size_t runs() const { return runs_; }         // those that count
  size_t days() const { return days_.size(); }  // of these runs

  static constexpr size_t kFewestRuns = 5;   // the largest of four steps is exceeded by one in five later steps,
  static constexpr double kMargin = 2;       // so that the limit is twice that step
  static constexpr size_t kFewestDays = 10;  // with these the bound is 1.6 times the estimate, with 20 it is 1.4 times

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // id, metric, place
  struct Value {
    std::string day;  // 2026-11-23
    double ln;        // of the seconds or of the rate
  };
  // Sum of the squared deviations of the days from their mean, and how many days there are.
  static std::pair<double, size_t> scatter_of(const std::vector<Value>& values);

  std::map<Key, std::vector<Value>> values_;
  std::set<std::string> days_;
  size_t runs_ = 0;
  bool given_ = false;
};

}  // namespace halfmark::reports
