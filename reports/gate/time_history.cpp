#include "reports/gate/time_history.h"

#include <algorithm>
#include <cmath>

#include "reports/statistics/statistics.h"

namespace halfmark::reports {

bool is_stored_time(const Measurement& measurement) {
  return measurement.kind == Kind::sampled && (measurement.unit == "s" || measurement.unit.ends_with("/s"));
}

void TimeHistory::add(const Report& run, const Report& base, const Keys& keys) {
  EnvironmentDifference difference(base, run);
  const std::string day = run.run.started.substr(0, 10);
  bool counts = false;
  for (const Record& record : run.records) {
    if (record.status != Status::ok || !difference.in(keys, record.device).empty()) continue;
    for (const Measurement& one : record.measurements)
      if (is_stored_time(one) && std::isfinite(one.value) && one.value > 0) {
        values_[{record.id, one.metric, one.at}].push_back({day, std::log(one.value)});
        counts = true;
      }
  }
  if (counts) ++runs_, days_.insert(day);
  given_ = true;
}

std::optional<double> TimeHistory::largest_step(const std::string& id, const Measurement& time) const {
  const auto found = values_.find({id, time.metric, time.at});
  if (found == values_.end() || found->second.size() < kFewestRuns) return {};
  double largest = 0;
  for (size_t i = 1; i < found->second.size(); ++i)
    largest = std::max(largest, std::fabs(found->second[i].ln - found->second[i - 1].ln));
  return largest;
}

std::pair<double, size_t> TimeHistory::scatter_of(const std::vector<Value>& values) {
  std::map<std::string, std::pair<double, int>> days;  // sum, count
  for (const Value& one : values) days[one.day].first += one.ln, ++days[one.day].second;
  double mean = 0, squares = 0;
  for (const auto& [day, sum] : days) mean += sum.first / sum.second / static_cast<double>(days.size());
  for (const auto& [day, sum] : days) squares += std::pow(sum.first / sum.second - mean, 2);
  return {squares, days.size()};
}

std::optional<double> TimeHistory::day_spread(const std::string& id, const Measurement& time) const {
  const auto found = values_.find({id, time.metric, time.at});
  if (found == values_.end()) return {};
  const auto [own, own_days] = scatter_of(found->second);
  if (own_days < kFewestDays) return {};
  double squares = 0, freedom = 0;
  for (const auto& [key, values] : values_) {
    if (std::get<1>(key) != time.metric || std::get<2>(key) != time.at) continue;
    const auto [scatter, days] = scatter_of(values);
    if (days < kFewestDays) continue;
    squares += scatter, freedom += static_cast<double>(days - 1);
  }
  // The cases of one day have common causes, so all cases together are worth no more days than one.
  const double own_freedom = static_cast<double>(own_days - 1);
  return std::sqrt(std::max(own / own_freedom, squares / freedom)) * rms_upper_factor(own_freedom, 0.05);
}

}  // namespace halfmark::reports
