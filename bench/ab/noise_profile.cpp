#include "bench/ab/noise_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/record/file.h"
#include "reports/record/json_parser.h"
#include "reports/record/report.h"
#include "reports/statistics/statistics.h"

namespace halfmark::bench {

namespace {

// Of a normal distribution: standard deviation / median of the absolute deviations (Hampel, J. Am. Statist. Assoc. 69,
// 1974), and the standard error of Hodges and Lehmann's estimate in units of sd / sqrt(n) (efficiency 3 / pi).
constexpr double kDeviation = 1.4826, kEfficiency = 0.955;
constexpr size_t kEnoughRuns = 3;  // runs needed to estimate the spread between runs

double robust_deviation(const std::vector<double>& values) {
  const double middle = median(values);
  std::vector<double> away;
  for (const double value : values) away.push_back(std::fabs(value - middle));
  return kDeviation * median(away);
}

}  // namespace

void NoiseProfile::add(const std::string& id, const std::vector<Pair>& pairs) {
  std::vector<double> shifts;
  for (const Pair& pair : pairs) shifts.push_back(std::log(pair.b) - std::log(pair.a));
  CaseNoise& one = cases[id];
  one.spreads.push_back(robust_deviation(shifts));
  one.shifts.push_back(hodges_lehmann(shifts));
}

double NoiseProfile::minimum_effect_of(const std::string& id, int pairs) const {
  const auto found = cases.find(id);
  if (found == cases.end() || found->second.spreads.empty()) return 0;
  const double error = median(found->second.spreads) / std::sqrt(kEfficiency * pairs);
  const double between = found->second.shifts.size() < kEnoughRuns ? 0 : robust_deviation(found->second.shifts);
  return std::expm1(3 * std::max(error, between));
}

NoiseProfile NoiseProfile::load(const std::filesystem::path& path) {
  const std::string where = path.string();
  const nlohmann::ordered_json json = parse_json(read_file(path), where, "noise profile");
  try {
    if (json.at("noise").get<int>() != kSchema)
      throw ReportError(where +
                        ": is a noise profile of a different version; create it again with `halfmark ab --learn`");
    NoiseProfile noise;
    json.at("machine").get_to(noise.machine);
    for (const auto& [id, one] : json.at("cases").items()) {
      CaseNoise& entry = noise.cases[id];
      one.at("spreads").get_to(entry.spreads), one.at("shifts").get_to(entry.shifts);
      for (const std::vector<double>* values : {&entry.spreads, &entry.shifts})
        for (const double value : *values)
          if (!std::isfinite(value)) throw ReportError(where + ": " + id + " contains a number that is not finite");
    }
    return noise;
  } catch (const nlohmann::json::exception&) {
    throw ReportError(where + ": is not a noise profile; `halfmark ab --learn` writes one");
  }
}

void NoiseProfile::save(const std::filesystem::path& path) const {
  nlohmann::ordered_json json{{"noise", kSchema}, {"machine", machine}, {"cases", nlohmann::ordered_json::object()}};
  for (const auto& [id, one] : cases) json["cases"][id] = {{"spreads", one.spreads}, {"shifts", one.shifts}};
  write_file(path, json.dump(1) + "\n");
}

}  // namespace halfmark::bench
