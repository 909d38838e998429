#include "bench/run/device_meter.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "reports/statistics/statistics.h"

namespace halfmark::bench {

namespace {

using kernels::DeviceState;

constexpr double kLeastBetween = 0.005;  // seconds between two readings
constexpr double kCostShare = 20;        // and so many times what a reading takes: at most 5 % of the time
constexpr double kHertz = 1e6;           // of a MHz

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

DeviceMeter::DeviceMeter(Device& device, SecondsNow now) : device_(device), now_(std::move(now)) {
  const auto first = device_.state();
  if (!first) return;
  tells_ = true;
  was_slowed_ = !first->slowed_by.empty();
  most_others_ = first->other_processes;
  next_ = now_() + kLeastBetween;
}

bool DeviceMeter::counts() {
  if (!tells_) return true;
  const double begin = now_();
  const std::optional<DeviceState> found = device_.state();
  const double end = now_();
  next_ = end + std::max(kLeastBetween, kCostShare * (end - begin));
  if (!found) return true;
  const bool is_slowed = !found->slowed_by.empty();
  const bool counts = !is_slowed && !was_slowed_;
  std::set<std::string> reasons(found->slowed_by.begin(), found->slowed_by.end());
  for (const std::string& reason : reasons) ++slowed_by_[reason];
  // A NaN is replaced by a number and does not replace one.
  if (!(found->other_processes <= most_others_) && !std::isnan(found->other_processes))
    most_others_ = found->other_processes;
  was_slowed_ = is_slowed;
  readings_.push_back({*found, counts});
  return counts;
}

std::optional<bool> DeviceMeter::judge(bool is_needed) {
  if (!tells_) return true;
  if (!is_needed && now_() < next_) return {};
  return counts();
}

void DeviceMeter::write(FindingsWriter& out, const std::string& at, size_t discarded, double slowed) const {
  if (!tells_) return;
  out.number("device.discarded", at, static_cast<double>(discarded));
  out.number("device.slowed", at, slowed);
  for (const auto& [reason, count] : slowed_by_)
    out.number("device.slowed_by", at + "/" + reason, count / static_cast<double>(readings_.size()));
  if (std::isfinite(most_others_)) out.number("device.other_processes", at, most_others_);
}

void DeviceMeter::write_all(FindingsWriter& out, const std::string& at, size_t discarded, double slowed) const {
  if (!tells_) return;
  write(out, at, discarded, slowed);
  const std::pair<std::string_view, double> numbers[] = {
      {"device.core_clock", kHertz * median_of(&DeviceState::core_clock)},
      {"device.most_core_clock", kHertz * median_of(&DeviceState::most_core_clock)},
      {"device.memory_clock", kHertz * median_of(&DeviceState::memory_clock)},
      {"device.temperature", median_of(&DeviceState::temperature)},
      {"device.uncorrected_errors",
       readings_.empty() ? DeviceState::kUnknown : readings_.back().state.uncorrected_errors}};
  for (const auto& [metric, value] : numbers)
    if (std::isfinite(value)) out.number(metric, at, value);
}

double DeviceMeter::median_of(double DeviceState::*number) const {
  const bool any_counts = std::ranges::any_of(readings_, &Reading::counts);
  std::vector<double> known;
  for (const Reading& one : readings_)
    if ((one.counts || !any_counts) && std::isfinite(one.state.*number)) known.push_back(one.state.*number);
  return known.empty() ? DeviceState::kUnknown : median(std::move(known));
}

const std::vector<MetricRow>& device_table() {
  static const std::vector<MetricRow> rows = {
      {"device.core_clock", "Hz", Better::neither, Kind::information,
       "median clock of the multiprocessors, read after each round of timing in turn that counts"},
      {"device.most_core_clock", "Hz", Better::neither, Kind::information, "the highest clock that they can have"},
      {"device.memory_clock", "Hz", Better::neither, Kind::information, "median clock of the memory, likewise"},
      {"device.temperature", "degC", Better::neither, Kind::information, "median temperature, likewise"},
      {"device.discarded", "1", Better::neither, Kind::information,
       "rounds or samples that were dropped because the GPU gave a reason for a lower clock before or after them"},
      {"device.slowed", "1", Better::neither, Kind::information,
       "such rounds or samples / all, where they were kept because there were too few others; else 0"},
      {"device.slowed_by", "1", Better::neither, Kind::information,
       "readings in which the GPU gave this reason for a lower clock / readings; absent: in none"},
      {"device.other_processes", "1", Better::neither, Kind::information,
       "other processes that had a context on the GPU, at most at one time"},
      {"device.uncorrected_errors", "1", Better::neither, Kind::information,
       "uncorrected errors of the GPU's memory since its driver was loaded"},
      {"device.energy", "J", Better::neither, Kind::information,
       "energy of the whole GPU / steps that ran meanwhile, one after the other for a second or more between two "
       "changes of its counter; absent where that is not exact to 5 %"},
      {"device.power", "W", Better::neither, Kind::information, "the same energy / the seconds between these changes"},
  };
  return rows;
}

}  // namespace halfmark::bench
