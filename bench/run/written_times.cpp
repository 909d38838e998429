#include "bench/run/written_times.h"

#include <cmath>
#include <utility>

#include "bench/run/time_in_turn.h"
#include "reports/statistics/statistics.h"

namespace halfmark::bench {

void write_samples(FindingsWriter& out, std::string_view metric, const std::string& at,
                   const std::vector<double>& samples) {
  out.number(metric, at, median(samples)).samples = samples;
}

void write_stop(FindingsWriter& out, const std::string& at, const Sampled& sampled, double target) {
  out.number("timing.target", at, target);
  if (std::isfinite(sampled.half_width)) out.number("timing.half_width", at, sampled.half_width);
  out.number("timing.stopped_by", at, static_cast<double>(sampled.stopped_by));
}

void write_contention(FindingsWriter& out, const Contention& found) {
  const std::pair<std::string_view, double> numbers[] = {{"contention.cpu", found.cpu},
                                                         {"contention.others", found.others},
                                                         {"contention.stolen", found.stolen},
                                                         {"contention.waiting", found.waiting},
                                                         {"contention.pressure", found.pressure}};
  for (const auto& [metric, value] : numbers)
    if (std::isfinite(value)) out.number(metric, "hot/step", value);
}

void write_ratio(FindingsWriter& out, std::string_view metric, const std::vector<double>& log_ratios,
                 double confidence) {
  const SpeedRatio ratio = speed_ratio(log_ratios, confidence).with_offset(kOffsetOfTrials);
  Measurement& written = out.number(metric, "hot", ratio.value);
  if (std::isfinite(ratio.upper) && ratio.lower > 0) written.interval = {ratio.lower, ratio.upper};
  for (const double log_ratio : log_ratios) written.samples.push_back(std::exp(log_ratio));
}

}  // namespace halfmark::bench
