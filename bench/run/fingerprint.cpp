// Computes FNV-1a over names and bit patterns.
#include "bench/run/fingerprint.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace halfmark::bench {

namespace {

class Hash {
 public:
  void add(std::string_view text) {
    for (const char c : text) byte(static_cast<unsigned char>(c));
    byte(0);
  }
  void add(double x) {
    const uint64_t bits = std::isnan(x) ? 0x7FF8000000000000u : std::bit_cast<uint64_t>(x);
    for (int i = 0; i < 8; ++i) byte(static_cast<unsigned char>(bits >> (8 * i)));
  }
  uint64_t value() const { return hash_; }

 private:
  void byte(unsigned char b) { hash_ = (hash_ ^ b) * 0x100000001B3u; }
  uint64_t hash_ = 0xCBF29CE484222325u;
};

// Families of information about times, which differ from run to run, and about how the batch was stored and the work
// started.
bool is_no_result(std::string_view metric) {
  const std::string_view family = metric.substr(0, metric.find('.'));
  return family == "time" || family == "timing" || family == "speedup" || family == "contention" || family == "data" ||
         family == "roofline" || family == "device" || family == "images" || family == "graph";
}

}  // namespace

std::string fingerprint_of(const Findings& findings) {
  Hash hash;
  for (const Measurement& m : findings.measurements) {
    // The numbers of the fp64 reference are the same for every policy and no result of the case.
    if (m.kind == Kind::sampled || is_no_result(m.metric) || m.metric.starts_with("reference.")) continue;
    hash.add(m.metric), hash.add(m.at), hash.add(m.value);
  }
  for (const Series& s : findings.series) {
    hash.add(s.metric), hash.add(s.at);
    for (const double x : s.x) hash.add(x);
    for (const double y : s.y) hash.add(y);
  }
  return fmt::format("{:016x}", hash.value());
}

}  // namespace halfmark::bench
