#include "bench/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/case.h"
#include "bench/performance.h"
#include "bench/timing.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/ops/kernel.h"
#include "reports/statistics.h"

namespace halfmark {

namespace {

using Clock = std::chrono::steady_clock;
double elapsed(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A chain of additions that wait for each other: counts cycles of the core, whatever compiled the rest.
void clock_work() {
#if defined(__x86_64__)
  double x = 1;
  uint64_t left = 60'000;
  asm volatile(
      "1:\n\t"
      "addsd %[x], %[x]\n\taddsd %[x], %[x]\n\taddsd %[x], %[x]\n\taddsd %[x], %[x]\n\t"
      "addsd %[x], %[x]\n\taddsd %[x], %[x]\n\taddsd %[x], %[x]\n\taddsd %[x], %[x]\n\t"
      "dec %[left]\n\t"
      "jnz 1b"
      : [x] "+x"(x), [left] "+r"(left)::"cc");
#else
  volatile double x = 1;
  for (int i = 0; i < 100'000; ++i) x = x + x;
#endif
}

// The C library's own memcpy, between two halves of memory that stays.
void copy(size_t bytes, int times) {
  static std::vector<char> memory(size_t{64} << 20, 1);
  for (int i = 0; i < times; ++i) {
    std::memcpy(memory.data() + memory.size() / 2, memory.data(), bytes);
    asm volatile("" ::: "memory");
  }
}
void cache_work() { copy(size_t{256} << 10, 32); }
void memory_work() { copy(size_t{32} << 20, 1); }

// Time that the host took from this machine's cores since it started, from the line "cpu user nice system idle iowait
// irq softirq steal ..." in ticks of 10 ms (proc(5)); 0 where nobody says.
double stolen_seconds() {
  std::ifstream file("/proc/stat");
  std::string word;
  double ticks = 0;
  if (!(file >> word) || word != "cpu") return 0;
  for (int field = 0; field < 8; ++field)
    if (!(file >> ticks)) return 0;
  return ticks / 100;
}

// Makes a step longer by a share of itself, inside the timed region.
void linger(Clock::time_point start, double share) {
  const auto until = start + std::chrono::duration_cast<Clock::duration>((1 + share) * (Clock::now() - start));
  while (Clock::now() < until) {
  }
}

constexpr double kWarmUp = 0.02;   // seconds; at least two steps
constexpr double kPatience = 2.0;  // times the budget, until six samples are there

}  // namespace

const std::vector<Canary>& canaries() {
  static const std::vector<Canary> all{
      {"canary/clock", "the core's clock", &clock_work},
      {"canary/cache", "the second-level cache", &cache_work},
      {"canary/memory", "main memory", &memory_work},
  };
  return all;
}

std::string line_of(const ProcessSample& sample) {
  const nlohmann::ordered_json json{{"case", sample.id},         {"seconds", sample.seconds},
                                    {"samples", sample.samples}, {"half_width", sample.half_width},
                                    {"stolen", sample.stolen},   {"wall", sample.wall},
                                    {"refused", sample.refused}, {"reason", sample.reason}};
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

ProcessSample sample_of(const std::string& line) {
  try {
    const nlohmann::json json = nlohmann::json::parse(line);
    ProcessSample sample;
    json.at("case").get_to(sample.id), json.at("seconds").get_to(sample.seconds);
    json.at("samples").get_to(sample.samples), json.at("half_width").get_to(sample.half_width);
    json.at("stolen").get_to(sample.stolen), json.at("wall").get_to(sample.wall);
    json.at("refused").get_to(sample.refused), json.at("reason").get_to(sample.reason);
    return sample;
  } catch (const nlohmann::json::exception&) {
    throw Error("a build answered '" + line.substr(0, 120) + "', which is no sample; is it a halfmark of this age?");
  }
}

Sampler::Sampler(SamplerOptions options) : options_(std::move(options)) {
  if (options_.threads > 0) set_host_threads(options_.threads);
}

ProcessSample Sampler::sample(const std::string& id) {
  ProcessSample result;
  result.id = id;
  const auto start = Clock::now();
  const double stolen = stolen_seconds();
  try {
    measure(result);
  } catch (const std::exception& error) {
    result.reason = error.what();
    std::replace(result.reason.begin(), result.reason.end(), '\n', ' ');
  }
  result.stolen = stolen_seconds() - stolen;
  result.wall = elapsed(start);
  return result;
}

void Sampler::measure(ProcessSample& result) {
  const auto take = [&](const std::function<double()>& step) {
    const auto start = Clock::now();
    for (int done = 0; done < 2 || elapsed(start) < std::min(kWarmUp, options_.seconds); ++done) step();
    const Sampled sampled = sample_until(
        {.target = 0, .max_samples = 100'000, .budget = options_.seconds, .patience = kPatience * options_.seconds},
        step);
    result.seconds = median(sampled.samples);
    result.samples = static_cast<int64_t>(sampled.samples.size());
    result.half_width = sampled.half_width;
  };

  for (const Canary& canary : canaries())
    if (canary.id == result.id)
      return take([&] {
        const auto start = Clock::now();
        canary.work();
        return elapsed(start);
      });

  const Case one = case_of(result.id);
  if (one.harness->name != "throughput") throw Error(result.id + ": only cases of harness throughput have a time");
  std::shared_ptr<Device>& device = devices_[one.device];
  if (!device) device = open_device(one.device);
  TrialSpec spec = one.trial(device, options_.seed);
  if (const auto refusal = one.harness->refuses(spec)) {
    result.refused = true;
    result.reason = *refusal;
    return;
  }
  spec.settings.rate = kStandstillRate;
  Trial trial(spec);
  trial.load_batch(0);
  const auto found = options_.slow_down.find(result.id);
  const double slow_down = found == options_.slow_down.end() ? 0 : found->second;
  const auto step = [&] {
    return device->time([&] {
      const auto start = Clock::now();
      trial.forward();
      trial.backward();
      trial.update();
      if (slow_down > 0) linger(start, slow_down);
    });
  };
  const KernelLog log;
  step();
  if (log.any_emulated()) {
    result.refused = true;
    result.reason = "emulated arithmetic, its time means nothing";
    return;
  }
  take(step);
}

void answer_samples(std::istream& in, std::ostream& out, Sampler& sampler) {
  for (std::string id; std::getline(in, id);)
    if (!id.empty()) out << line_of(sampler.sample(id)) << std::endl;
}

}  // namespace halfmark
