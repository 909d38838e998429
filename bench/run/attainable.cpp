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
template <class Op>
std::optional<double> fastest_product(Device& device, const Op& op) {
  std::optional<double> best;
  for (const Kernel<Op>& row : device.kernels().of<Op>()) {
    if (row.speed != Speed::real || row.refuses(device, op)) continue;
    const std::optional<double> seconds = fastest(
        device, [&] { run_with(row, op); }, best.value_or(INFINITY));
    if (seconds && (!best || *seconds < *best)) best = seconds;
  }
  return best;
}

struct Product {
  std::string_view name;
  DType dtype, out;
  Math math;
};
std::vector<Product> products() {
  return {{"f32", DType::f32, DType::f32, {}},
          {"tf32", DType::f32, DType::f32, {.multiply = kTf32}},
          {"f16", DType::f16, DType::f16, {}},
          {"bf16", DType::bf16, DType::bf16, {}},
          {"f16-fp16-sums", DType::f16, DType::f16, {.multiply = kFp16, .accumulate = kFp16, .partial = kFp16}},
          {"fp8", DType::e4m3, DType::bf16, {.fast_accumulate = true}},
          {"f64", DType::f64, DType::f64, {.multiply = kFp64, .accumulate = kFp64, .partial = kFp64}}};
}

// [n, n], the same random numbers again and again.
Tensor random_matrix(Device& device, int64_t n, const Product& product) {
  const RandomKey key = RandomKey(1).child(product.name);
  std::vector<double> values(static_cast<size_t>(n * n));  // not zeros, as in the copy
  for (size_t i = 0; i < values.size(); ++i) values[i] = i < kDrawn ? key.normal(i) : values[i - kDrawn];
  return Tensor::from(device, {n, n}, product.dtype, values);
}

std::optional<double> seconds_of(Device& device, int64_t n, const Product& product) {
  const Tensor a = random_matrix(device, n, product), b = a.clone();
  Tensor out(device, {n, n}, product.out);
  // Of FP8, GPUs before Blackwell take operands in which k is contiguous.
  const bool transpose_b = size_of(product.dtype) == 1;
  return fastest_product(device, Matmul{.a = a, .b = b, .out = out, .transpose_b = transpose_b, .math = product.math});
}

// Formats with scales of blocks. Only devices with a row of real speed have operands made for it.
std::optional<double> seconds_of(Device& device, int64_t n, const BlockFormat& format) {
  const auto& rows = device.kernels().of<ScaledMatmul>();
  if (std::ranges::none_of(rows, [](const Kernel<ScaledMatmul>& row) { return row.speed == Speed::real; })) return {};
  const Scaled a = repeated_rows(device, format, n, n, 1), b = repeated_rows(device, format, n, n, 2);
  Tensor out(device, {n, n}, DType::bf16);
  return fastest_product(device, ScaledMatmul{.a = a, .b = b, .out = out});
}

bool is_gpu(const Device& device) { return device.name().starts_with("cuda:"); }

std::optional<double> number_of(const Record& record, std::string_view metric, std::string_view at) {
  for (const Measurement& one : record.measurements)
    if (one.metric == metric && one.at == at && std::isfinite(one.value) && one.value > 0) return one.value;
  return {};
}

// Seconds of a step's products, each type at its rate; nothing if a rate is not known.
std::optional<double> seconds_of_products(const Record& record, const std::function<double(const std::string&)>& rate,
                                          double& flops) {
  double seconds = 0;
  for (const Measurement& one : record.measurements) {
    if (one.metric != "roofline.flops") continue;
    const double attained = rate("attainable.matmul." + one.at);
    if (attained <= 0) return {};
    flops += one.value, seconds += one.value / attained;
  }
  return seconds;
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

Scaled repeated_rows(Device& device, const BlockFormat& format, int64_t rows, int64_t k, uint64_t seed) {
  constexpr int64_t kRows = 16;
  const int64_t drawn = std::min(rows, kRows);
  std::vector<float> values(static_cast<size_t>(drawn * k));
  const RandomKey key(seed);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(key.normal(i));
  Scaled result = to_scaled(device, format, values, drawn, k);
  const auto repeat = [&](Tensor& few) {
    std::vector<unsigned char> bytes(few.bytes());
    device.copy_out(bytes.data(), few.data(), bytes.size());
    few = Tensor(device, {rows, few.shape()[1]}, few.dtype());
    fill_repeatedly(few, bytes);
  };
  repeat(result.codes), repeat(result.scales);
  return result;
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
  const double work = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  // Without memory for its operands a product has no rate; the others have theirs.
  const auto add = [&](std::string_view name, const std::function<std::optional<double>()>& seconds_of_product) {
    try {
      if (const auto seconds = seconds_of_product())
        facts.emplace_back(fmt::format("attainable.matmul.{}", name), work / *seconds);
    } catch (const Error&) {
      if (const std::string lost = device.lost(); !lost.empty()) throw Error(lost);
    }
  };
  for (const Product& product : products()) add(product.name, [&] { return seconds_of(device, n, product); });
  for (const BlockFormat& format : block_formats()) {
    if (format.name == "mxfp8-e4m3") add("mxfp8", [&] { return seconds_of(device, n, format); });
    if (format.name == "nvfp4") add("nvfp4", [&] { return seconds_of(device, n, format); });
  }
  return facts;
}

const std::vector<MetricRow>& roofline_table() {
  static const std::vector<MetricRow> rows = {
      {"roofline.bytes", "B", Better::neither, Kind::information,
       "bytes of the operands of all operations of a training step, each counted once in each operation that uses it"},
      {"roofline.flops", "FLOP", Better::neither, Kind::information,
       "of the products of a training step as computed, at the type that they multiply (f16-fp16-sums: with fp16 "
       "sums); a "
       "multiply-add is two. Of nvfp4 the zeros that fill a depth are among them"},
      {"roofline.intensity", "FLOP/B", Better::neither, Kind::information,
       "work.flops of a step / roofline.bytes: in a roofline the place beside throughput.flops, which counts the same "
       "FLOP. roofline.share counts roofline.flops in its place, which may be more: products that are computed again "
       "or "
       "in several parts, zeros that fill a depth"},
      {"roofline.share", "1", Better::neither, Kind::information,
       "least seconds of a step / time.step; the least: the larger of roofline.flops / roofline.attainable_matmul and "
       "roofline.bytes / roofline.attainable_copy. Above 1 if operands stay in caches; absent where the rate of a type "
       "is "
       "not known"},
      {"roofline.attainable_copy", "B/s", Better::neither, Kind::information,
       "bytes read and written per second by a cast of f32 to f32 larger than the caches, best of several, once in a "
       "run"},
      {"roofline.attainable_matmul", "FLOP/s", Better::neither, Kind::information,
       "of a large square matmul of the step's type by the fastest row of the device, best of several, once in a run; "
       "of "
       "several types, the rate of all when each has its own. fp8: e4m3 with one scale and fast accumulation; mxfp8 "
       "and nvfp4: "
       "with bringing scales into the library's layout"},
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
  double multiplied = 0;
  const std::optional<double> of_products = seconds_of_products(record, rate, multiplied);
  const double copy = rate("attainable.copy");
  if (copy <= 0 || !of_products) return;
  FindingsWriter out(roofline_table());
  out.number("roofline.attainable_copy", "", copy);
  if (multiplied > 0) out.number("roofline.attainable_matmul", "", multiplied / *of_products);
  if (flops) out.number("roofline.intensity", "hot", *flops / *bytes);
  const double least = std::max(*bytes / copy, *of_products);
  out.number("roofline.share", "hot", least / *seconds);
  for (Measurement& one : out.take().measurements) record.measurements.push_back(std::move(one));
}

}  // namespace halfmark::bench
