#include "bench/ab/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include <exception>
#include <functional>
#include <set>
#include <utility>

#include "bench/run/case.h"
#include "bench/run/performance.h"
#include "bench/run/timed_step.h"
#include "bench/run/timing.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/ops/kernel.h"
#include "reports/statistics/statistics.h"

namespace halfmark::bench {

namespace {

using Clock = std::chrono::steady_clock;
double elapsed(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A chain of dependent additions in assembly: counts core cycles, independent of the compiler.
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

// memcpy of the C library between two halves of a buffer that is allocated once.
void copy(size_t bytes, int times) {
  static std::vector<char> memory(size_t{64} << 20, 1);
  for (int i = 0; i < times; ++i) {
    std::memcpy(memory.data() + memory.size() / 2, memory.data(), bytes);
    asm volatile("" ::: "memory");
  }
}
void cache_work() { copy(size_t{256} << 10, 32); }
void memory_work() { copy(size_t{32} << 20, 1); }

// CPU time that the host has taken from this machine since its start, from the line "cpu user nice system idle iowait
// irq softirq steal ..." of /proc/stat, in ticks of 10 ms (proc(5)); 0 if unknown.
double stolen_seconds() {
  std::ifstream file("/proc/stat");
  std::string word;
  double ticks = 0;
  if (!(file >> word) || word != "cpu") return 0;
  for (int field = 0; field < 8; ++field)
    if (!(file >> ticks)) return 0;
  return ticks / 100;
}

constexpr std::string_view kGpuCanaryPrefix = "canary/cuda:";

// Clears memory so many times: some milliseconds at most.
struct GpuCanary {
  std::string_view name;
  int64_t bytes;
  int times;
};
// In the second-level cache of every GPU (4 MiB of the T4 at least), and eight times the largest (126 MiB of the B200).
constexpr GpuCanary kGpuCanaries[] = {{"/cache", int64_t{2} << 20, 64}, {"/memory", int64_t{1} << 30, 1}};

constexpr double kWarmUp = 0.02;      // seconds, for a case that was not the previous one
constexpr double kTimesBudget = 2.0;  // times the budget, until there are six samples

}  // namespace

const std::vector<Canary>& canaries() {
  static const std::vector<Canary> all{
      {"canary/clock", "the core's clock", &clock_work},
      {"canary/cache", "the second-level cache", &cache_work},
      {"canary/memory", "main memory", &memory_work},
  };
  return all;
}

std::vector<std::string> canary_ids(const std::vector<std::string>& cases) {
  std::vector<std::string> ids;
  for (const Canary& canary : canaries()) ids.emplace_back(canary.id);
  std::set<std::string> gpus;
  for (const std::string& id : cases)
    if (const size_t at = id.find("/cuda:"); at != std::string::npos)
      gpus.insert(id.substr(at + 1, id.find('/', at + 1) - at - 1));
  for (const std::string& gpu : gpus)
    for (const GpuCanary& canary : kGpuCanaries) ids.push_back("canary/" + gpu + std::string(canary.name));
  return ids;
}

std::string line_of(const ProcessSample& sample) {
  const nlohmann::ordered_json json{{"case", sample.id},
                                    {"seconds", sample.seconds},
                                    {"samples", sample.samples},
                                    {"half_width", sample.half_width},
                                    {"stolen", sample.stolen},
                                    {"wall", sample.wall},
                                    {"refused", sample.refused},
                                    {"reason", sample.reason},
                                    {"shared_pages", sample.shared_pages}};
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
    json.at("shared_pages").get_to(sample.shared_pages);
    return sample;
  } catch (const nlohmann::json::exception&) {
    throw Error("a build answered '" + line.substr(0, 120) +
                "', which is not a sample; is the build of the same halfmark version?");
  }
}

Sampler::Sampler(SamplerOptions options) : options_(std::move(options)), data_(options_.data) {
  if (options_.threads > 0) set_host_threads(options_.threads);
}

Sampler::~Sampler() = default;

ProcessSample Sampler::sample(const std::string& id) {
  ProcessSample result;
  result.id = id;
  result.shared_pages = options_.shared_pages;
  const auto start = Clock::now();
  const double stolen = stolen_seconds();
  try {
    measure(result);
  } catch (const std::exception& error) {
    prepared_.reset();
    result.reason = error.what();
    std::replace(result.reason.begin(), result.reason.end(), '\n', ' ');
  }
  result.stolen = stolen_seconds() - stolen;
  result.wall = elapsed(start);
  return result;
}

// A prepared case, which is kept for the next request of the same case.
struct Sampler::PreparedCase {
  std::string id;
  std::optional<std::string> refusal;
  std::optional<Trial> trial;
  std::optional<TimedStep> timed;
  Tensor memory;                 // of a canary of a GPU
  std::function<double()> step;  // seconds
};

std::shared_ptr<Device> Sampler::device(const std::string& name) {
  std::shared_ptr<Device>& device = devices_[name];
  if (!device) device = open_device(name);
  return device;
}

bool Sampler::prepare_canary(PreparedCase& prepared) {
  for (const Canary& canary : canaries())
    if (canary.id == prepared.id) {
      prepared.step = [work = canary.work] {
        const auto start = Clock::now();
        work();
        return elapsed(start);
      };
      return true;
    }
  const std::string_view id = prepared.id;
  for (const GpuCanary& canary : kGpuCanaries) {
    if (!id.starts_with(kGpuCanaryPrefix) || !id.ends_with(canary.name)) continue;
    const size_t start = std::string_view("canary/").size();
    const std::shared_ptr<Device> gpu = device(std::string(id.substr(start, id.size() - canary.name.size() - start)));
    if (!gpu->numerics().empty())
      prepared.refusal = "timings of simulated arithmetic are not valid (" + gpu->name() + ")";
    prepared.memory = Tensor(*gpu, Shape{canary.bytes}, DType::u8);
    prepared.step = [gpu, times = canary.times, &memory = prepared.memory] {
      return gpu->time([&] {
        for (int i = 0; i < times; ++i) memory.fill(0);
      });
    };
    return true;
  }
  return false;
}

std::unique_ptr<Sampler::PreparedCase> Sampler::prepare(const std::string& id) {
  auto prepared = std::make_unique<PreparedCase>();
  prepared->id = id;
  if (prepare_canary(*prepared)) return prepared;

  Case one = case_of(id);
  data_.add_to(one);
  if (one.harness->name != "throughput") throw Error(id + ": only cases of harness throughput have a time");
  TrialSpec spec = one.trial(device(one.device), options_.seed);
  prepared->refusal = refusal_of(*one.harness, spec);
  if (prepared->refusal) return prepared;
  spec.settings.rate = kStandstillRate;
  Trial& trial = prepared->trial.emplace(spec);
  trial.load_batch(0);
  const auto found = options_.slow_down.find(id);
  const double slow_down = found == options_.slow_down.end() ? 0 : found->second;
  TimedStep& timed = prepared->timed.emplace(trial, is_timed_as_graph(spec), slow_down);
  prepared->step = [&timed] { return timed.seconds(); };
  const KernelLog log;
  prepared->step();
  if (log.any_emulated()) prepared->refusal = "emulated arithmetic, its timing is not valid";
  return prepared;
}

void Sampler::measure(ProcessSample& result) {
  double warm_up = 0;
  if (!prepared_ || prepared_->id != result.id) {
    prepared_.reset();
    prepared_ = prepare(result.id);
    warm_up = kWarmUp;
  }
  if (prepared_->refusal) {
    result.refused = true;
    result.reason = *prepared_->refusal;
    return;
  }
  const auto start = Clock::now();
  do prepared_->step();  // at least once: another process may have used the caches
  while (elapsed(start) < warm_up);
  const Sampled sampled = sample_until(
      {.target = 0, .max_samples = 100'000, .budget = options_.seconds, .patience = kTimesBudget * options_.seconds},
      prepared_->step);
  result.seconds = median(sampled.samples);
  result.samples = static_cast<int64_t>(sampled.samples.size());
  result.half_width = sampled.half_width;
}

void answer_samples(std::istream& in, std::ostream& out, Sampler& sampler) {
  for (std::string id; std::getline(in, id);)
    if (!id.empty()) out << line_of(sampler.sample(id)) << std::endl;
}

}  // namespace halfmark::bench
