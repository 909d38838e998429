#include "bench/run/attainable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "kernels/ops/kernel.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"
#include "models/policy.h"

namespace halfmark::bench {

namespace {

// At least so many runs, and so many seconds of them: on a busy host seven runs of 1 ms were all slow, and the rate of a product
// 0.15 of the usual one.
constexpr int kRuns = 7;
constexpr double kSeconds = 0.1;
// Two times of equal work, taken one after the other on a busy machine, have differed by a factor of 1.8.
constexpr double kMuchSlower = 2;
constexpr int kFirstRuns = 2;
constexpr size_t kDrawn = 65537;  // different random numbers in an operand; a prime, so that rows do not repeat

// Seconds of the fastest of several runs; nothing if no kernel takes the work, or only one that emulates the arithmetic. Work
// that takes more than kMuchSlower times `other` in each of its first runs is not run further.
std::optional<double> fastest(Device& device, const std::function<void()>& work, double other = INFINITY) {
  try {
    const KernelLog log;
    work();
    if (log.any_emulated()) return {};
  } catch (const Unsupported&) {
    return {};
  }
  double best = INFINITY, spent = 0;
  for (int i = 0; i < kRuns || spent < kSeconds; ++i) {
    if (i >= kFirstRuns && best > kMuchSlower * other) break;
    const double seconds = device.time(work);
    if (!(seconds > 0)) return {};
    best = std::min(best, seconds), spent += seconds;
  }
  return best;
}

// By the fastest row of real speed, which need not be the first of the list.
std::optional<double> fastest_product(Device& device, const Matmul& op) {
  std::optional<double> best;
  for (const Kernel<Matmul>& row : device.kernels().of<Matmul>()) {
    if (row.speed != Speed::real || row.refuses(device, op)) continue;
    const std::optional<double> seconds = fastest(
        device, [&] { run_with(row, op); }, best.value_or(INFINITY));
    if (seconds && (!best || *seconds < *best)) best = seconds;
  }
  return best;
}

struct Product {
  std::string_view name;
  DType dtype;
  Math math;
};
std::vector<Product> products() {
  return {{"f32", DType::f32, {}},
          {"tf32", DType::f32, {.multiply = kTf32}},
          {"f16", DType::f16, {}},
          {"bf16", DType::bf16, {}},
          {"f64", DType::f64, {.multiply = kFp64, .accumulate = kFp64, .partial = kFp64}}};
}

bool is_gpu(const Device& device) { return device.name().starts_with("cuda:"); }

std::optional<double> number_of(const Record& record, std::string_view metric, std::string_view at) {
  for (const Measurement& one : record.measurements)
    if (one.metric == metric && one.at == at && std::isfinite(one.value) && one.value > 0) return one.value;
  return {};
}

// The product that a policy's layers compute: its low dtype, or tf32. Nothing: products of several types, or of codes of
// 8 or 4 bits, whose rate is not measured.
std::optional<std::string> product_of(const std::string& name) {
  const Policy& policy = policy_named(name);
  if (quantizes_products(policy) || !policy.layers.empty()) return std::nullopt;
  if (policy.low == DType::f32 && policy.math.multiply == kTf32) return "tf32";
  return std::string(name_of(policy.low));
}

}  // namespace

void fill_repeatedly(Tensor& tensor, std::span<const unsigned char> pattern) {
  constexpr size_t kBlock = size_t{8} << 20;  // copied to the device at a time
  const size_t size = tensor.bytes();
  HM_CHECK(!pattern.empty() || size == 0, "nothing to fill a tensor with");
  std::vector<unsigned char> block;
  while (block.size() < std::min(size, kBlock)) block.insert(block.end(), pattern.begin(), pattern.end());
  auto* memory = static_cast<unsigned char*>(tensor.data());
  if (size > block.size() && tensor.layout() == Layout::plain && is_floating(tensor.dtype()) &&
      !is_packed(tensor.dtype())) {
    // On the device, from what it has already.
    const LogPause pause;
    tensor.device().copy_in(memory, block.data(), block.size());
    const Tensor all = tensor.reshaped({tensor.elements()});
    const auto there = static_cast<int64_t>(block.size() / size_of(tensor.dtype()));
    for (int64_t at = there; at < all.elements(); at *= 2) {
      Tensor next = all.slice(at, std::min(at, all.elements() - at));
      kernels::run(Cast{.x = all.slice(0, next.elements()), .out = next});
    }
    tensor.device().synchronize();
    return tensor.touch();
  }
  for (size_t at = 0; at < size; at += block.size())
    tensor.device().copy_in(memory + at, block.data(), std::min(block.size(), size - at));
  tensor.touch();
}

LargeCopy::LargeCopy(Device& device, int64_t bytes)
    : x_(device, {bytes / 4}, DType::f32), out_(device, {bytes / 4}, DType::f32) {
  std::vector<unsigned char> pattern(4 * kDrawn);
  const RandomKey key(2);
  for (size_t i = 0; i < kDrawn; ++i) store(DType::f32, pattern.data(), i, key.normal(i));
  fill_repeatedly(x_, pattern);
}
double LargeCopy::bytes() const { return 2.0 * static_cast<double>(x_.bytes()); }
void LargeCopy::run() { kernels::run(Cast{.x = x_, .out = out_}); }

std::vector<std::pair<std::string, double>> attainable_of(Device& device) {
  std::vector<std::pair<std::string, double>> facts;
  if (!device.numerics().empty()) return facts;
  try {
    LargeCopy copy(device, int64_t{is_gpu(device) ? 1024 : 192} << 20);
    if (const auto seconds = fastest(device, [&] { copy.run(); }))
      facts.emplace_back("attainable.copy", copy.bytes() / *seconds);
  } catch (const Error&) {
    // Not enough memory for arrays of this size: no number.
  }
  const int64_t n = is_gpu(device) ? 4096 : 1024;
  for (const Product& product : products()) {
    const RandomKey key = RandomKey(1).child(product.name);
    std::vector<double> values(static_cast<size_t>(n * n));  // not zeros, as in the copy
    for (size_t i = 0; i < values.size(); ++i) values[i] = i < kDrawn ? key.normal(i) : values[i - kDrawn];
    const Tensor a = Tensor::from(device, {n, n}, product.dtype, values), b = a.clone();
    Tensor out(device, {n, n}, product.dtype == DType::f64 ? DType::f64 : DType::f32);
    if (product.dtype == DType::f16 || product.dtype == DType::bf16) out = Tensor(device, {n, n}, product.dtype);
    if (const auto seconds = fastest_product(device, {.a = a, .b = b, .out = out, .math = product.math}))
      facts.emplace_back(fmt::format("attainable.matmul.{}", product.name),
                         2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / *seconds);
  }
  return facts;
}

const std::vector<MetricRow>& roofline_table() {
  static const std::vector<MetricRow> rows = {
      {"roofline.bytes", "B", Better::neither, Kind::information,
       "bytes of the operands of all operations of a training step, each counted once in each operation that uses it"},
      {"roofline.intensity", "FLOP/B", Better::neither, Kind::information, "work.flops of a step / roofline.bytes"},
      {"roofline.share", "1", Better::neither, Kind::information,
       "least seconds of a step / time.step; the least: the larger of work.flops / roofline.attainable_matmul and "
       "roofline.bytes / roofline.attainable_copy. Above 1 if operands stay in caches; absent where products are "
       "quantised or of several types"},
      {"roofline.attainable_copy", "B/s", Better::neither, Kind::information,
       "bytes read and written per second by a cast of f32 to f32 larger than the caches, best of several, once in a "
       "run"},
      {"roofline.attainable_matmul", "FLOP/s", Better::neither, Kind::information,
       "of a large square matmul of the policy's type by the fastest row of the device, best of several, once in a "
       "run"},
  };
  return rows;
}

const AttainableRates::Rates& AttainableRates::of(Device& device) {
  const auto [place, is_new] = known_.try_emplace(device.name());
  if (is_new) place->second = attainable_of(device);
  return place->second;
}

void add_roofline(Record& record, const AttainableRates::Rates& rates) {
  const auto seconds = number_of(record, "time.step", "hot"), flops = number_of(record, "work.flops", "train"),
             bytes = number_of(record, "roofline.bytes", "hot");
  if (record.harness != "throughput" || !seconds || !bytes) return;
  if (std::ranges::any_of(record.kernels, [](const KernelUse& use) { return use.speed == "emulated"; })) return;
  const auto rate = [&](const std::string& name) {
    const auto found = std::ranges::find(rates, name, &std::pair<std::string, double>::first);
    return found == rates.end() ? 0.0 : found->second;
  };
  const std::optional<std::string> product = product_of(record.policy);
  if (!product) return;
  const double copy = rate("attainable.copy"), matmul = rate("attainable.matmul." + *product);
  if (copy <= 0 || (flops && matmul <= 0)) return;
  FindingsWriter out(roofline_table());
  out.number("roofline.attainable_copy", "", copy);
  double least = *bytes / copy;
  if (flops) {
    out.number("roofline.attainable_matmul", "", matmul);
    out.number("roofline.intensity", "hot", *flops / *bytes);
    least = std::max(least, *flops / matmul);
  }
  out.number("roofline.share", "hot", least / *seconds);
  for (Measurement& one : out.take().measurements) record.measurements.push_back(std::move(one));
}

}  // namespace halfmark::bench
