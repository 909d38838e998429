// Every kernel row of real speed of a GPU on operands several times as large as its caches, each run in turn with a
// copy, so that a change of the clocks changes both: large/op/dtypes/shape/device/row.
//
// bytes/s: of the operands, each counted once in each direction that it goes, at the median time. copy: that, divided by
// the bytes per second of a cast of f32 to f32 of 1 GiB, at its median time. FLOP/s: if the operation counts them.
// With the software GPU and HALFMARK_SOFTWARE_GPU_WORK=FILE also what kernels execute and access, for each byte of the
// operands: instructions/byte (of PTX, of threads), requested and touched (kernel_work.h).
// HALFMARK_LARGE_BYTES: bytes of an operand and a result of an element-wise operation instead of 512 MiB.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/micro/kernel_work.h"
#include "bench/micro/measured.h"
#include "bench/micro/micro.h"
#include "bench/run/attainable.h"
#include "reports/statistics/statistics.h"

namespace halfmark::bench::micro {
namespace {

using ops_cases::Axes;

constexpr int kRuns = 15;
constexpr double kLanesOfWarp = 32;

// Operations that have no large case although a row of real speed exists, and why.
struct LeftOut {
  std::string_view operation, why;
};
constexpr LeftOut kLeftOut[] = {
    {DotProducts::name, "shows how an instruction adds; most of its operands are zeros that it adds itself"},
    {ScaledMatmul::name, "its operands are quantised on the host; quantize, and matmul of e4m3, are measured"},
    {DelayedScalingStep::name, "its operands are a thousand numbers for each tensor of a network"},
    {CtcLoss::name, "its steps wait for each other; its cases have five of them"},
    {CtcLossBackward::name, "as ctc_loss"},
};

template <class Op>
constexpr bool is_left_out() {
  return std::ranges::any_of(kLeftOut, [](const LeftOut& one) { return one.operation == Op::name; });
}

template <class Op, class... Ops>
constexpr bool kIsOneOf = (std::is_same_v<Op, Ops> || ...);
template <class Op>
constexpr bool kIsProduct = kIsOneOf<Op, Matmul, BatchedMatmul, FusedMatmul, FusedMatmulBackward>;
template <class Op>
constexpr bool kIsConvolution = kIsOneOf<Op, Conv2d, Conv2dBackwardData, Conv2dBackwardWeights, FusedConv2d>;
template <class Op>
constexpr bool kIsAttention = kIsOneOf<Op, Attention, AttentionBackward, PackedAttention, PackedAttentionBackward>;
// The row plans, with memory, before it answers whether it supports the operation.
template <class Op>
bool plans(const Kernel<Op>& kernel) {
  return kIsProduct<Op> || kIsConvolution<Op> || kIsAttention<Op> || kernel.name == "cudnn";
}
template <class Op>
constexpr bool kIsTrainedNorm = kIsOneOf<Op, BatchNorm, BatchNormBackward, NormalizeRows, NormalizeRowsBackward>;
// What cuDNN 9.19 has no engine for that computes as the row promises (kernels/cuda/README.md).
template <class Op>
bool cudnn_lacks(const Op& op, DType dtype) {
  const bool is_half = dtype == DType::f16 || dtype == DType::bf16;
  if (kIsAttention<Op>) return !is_half;
  if (kIsTrainedNorm<Op>) return dtype == DType::f64;
  if constexpr (kIsOneOf<Op, MaxPool2dBackward>) return !is_half || op.indices.layout() != Layout::nhwc;
  if constexpr (kIsOneOf<Op, BatchNormInference>) return !is_half || op.x.layout() != Layout::nhwc;
  if constexpr (kIsOneOf<Op, MaxPool2d>) return !is_half && op.x.layout() == Layout::nhwc;
  if constexpr (kIsOneOf<Op, AvgPool2d>) return dtype == DType::f64 && op.x.layout() == Layout::nhwc;
  if constexpr (kIsOneOf<Op, AvgPool2dBackward>) return !is_half && op.dy.layout() == Layout::nhwc;
  return false;
}
template <class Op>
constexpr bool kIsUpdate = kIsOneOf<Op, SgdStep, AdamStep>;
// Whether the layout of an image decides how the operation goes over it.
template <class Op>
constexpr bool kGoesByChannel =
    kIsOneOf<Op, AddBias, BiasGradient, BatchNorm, BatchNormInference, BatchNormBackward, BatchNormInferenceBackward,
             FusedBatchNorm, FusedBatchNormBackward, MaxPool2d, MaxPool2dBackward, AvgPool2d, AvgPool2dBackward,
             CopyChannels, Resample2d, Resample2dBackward, Reorder>;

struct LargeCase {
  Axes axes;        // of one case
  std::string tag;  // what the dtypes and the shape of the first operand do not say
};

// Images of about so many elements; all sizes here also exist small, for the software GPU.
Shape image_of(int64_t elements) {
  const int64_t channels = elements < (1 << 20) ? 8 : 64, side = elements < (1 << 20) ? 8 : 56;
  return {std::max<int64_t>(1, elements / (channels * side * side)), channels, side, side};
}
Shape rows_of(int64_t elements, int64_t width) { return {std::max<int64_t>(1, elements / width), width}; }

int64_t matrix_of(DType dtype, int64_t bytes) {  // 8192 for 512 MiB; f64, which is slower: 4096
  const double extent = std::sqrt(static_cast<double>(bytes) / (dtype == DType::f64 ? 32 : 8));
  return std::max<int64_t>(32, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(extent))));
}

MeasuredSizes large_sizes(DType dtype, int64_t bytes) {
  const int64_t elements = bytes * 4 / bits_of(dtype);  // of an operand
  const bool small = elements < (1 << 20);
  const int64_t heads = small ? 2 : 16, steps = small ? 16 : 256, tokens = std::max<int64_t>(1, elements / 1024 / 8);
  MeasuredSizes sizes{.image = image_of(elements),
                      .loss = rows_of(elements, 1024),
                      .quantized = rows_of(elements, 4096),
                      .matrix = matrix_of(dtype, bytes)};
  sizes.single.softmax = rows_of(elements, 1024), sizes.single.scale = rows_of(elements, 1024);
  sizes.single.permute = {std::max<int64_t>(1, elements / (steps * 3 * heads * 64)), steps, 3, heads, 64};
  sizes.single.dropout = sizes.single.joined = sizes.image;
  sizes.single.lstm = rows_of(elements / 4, 1024);
  sizes.single.indices = {tokens, 8}, sizes.single.table = {tokens * 8, 1024};
  sizes.single.attention = {std::max<int64_t>(1, elements / (heads * steps * steps)), heads, steps, steps, 64};
  return sizes;
}

// The sums of a product of this dtype, as layers ask for them, with a tag.
std::vector<std::pair<ops_cases::ContractionTypes, std::string>> product_types(DType dtype) {
  using enum DType;
  if (dtype == f64) return {{{f64, f64, f64, {.multiply = kFp64, .accumulate = kFp64, .partial = kFp64}, ""}, ""}};
  if (dtype == f32) return {{{f32, f32, f32, {}, ""}, ""}, {{f32, f32, f32, {.multiply = kTf32}, ""}, "tf32"}};
  if (dtype == f16 || dtype == bf16) return {{{dtype, dtype, dtype, {}, ""}, ""}};
  if (dtype == e4m3)
    return {{{e4m3, e4m3, bf16, {}, ""}, ""}, {{e4m3, e4m3, bf16, {.fast_accumulate = true}, ""}, "fast"}};
  return {};
}

// Whether a product is of the types in which networks are trained.
bool is_of_layers(DType dtype, const std::string& tag) {
  return dtype == DType::f16 || dtype == DType::bf16 || tag == "tf32";
}

template <class Op>
void add_products(DType dtype, const Axes& axes, std::vector<LargeCase>& cases) {
  for (const auto& [types, tag] : product_types(dtype)) {
    if (kIsOneOf<Op, FusedMatmul, FusedMatmulBackward> && !is_of_layers(dtype, tag)) continue;
    LargeCase one{axes, tag};
    one.axes.contractions = {types};
    if (dtype == DType::e4m3) one.axes.matmul_forms = {ops_cases::MatmulForm::transpose_b};
    if (kIsOneOf<Op, BatchedMatmul>)
      for (ops_cases::MatmulSize& size : one.axes.matmuls) size = {size.m / 2, size.n / 2, size.k / 2};
    cases.push_back(std::move(one));
  }
}

// Two convolutions of ResNet-50 with a batch of 64.
void add_convolutions(DType dtype, int64_t bytes, const Axes& axes, std::vector<LargeCase>& cases) {
  if (dtype == DType::bf16) return;  // as f16; a library takes long to plan a convolution
  const int64_t n = std::max<int64_t>(1, bytes >> 23), divisor = bytes < (1 << 23) ? 8 : 1, side = divisor == 8 ? 7 : 1;
  for (const auto& [channels, extent] : {std::pair<int64_t, int64_t>{64, 56}, {256, 14}})
    for (const auto& [types, tag] : product_types(dtype)) {
      if (!is_of_layers(dtype, tag)) continue;
      const int64_t c = channels / divisor, s = extent / side;
      LargeCase one{axes, "nhwc-3x3" + (tag.empty() ? "" : "-" + tag)};
      one.axes.contractions = {types};
      one.axes.convolutions = {{"", {n, c, s, s}, {c, c, 3, 3}, {.pad_h = 1, .pad_w = 1}, 1}};
      one.axes.conv_layouts = {{Layout::nhwc, Layout::nhwc, Layout::nhwc}};
      cases.push_back(std::move(one));
    }
}

template <class Op>
std::vector<LargeCase> large_cases(DType dtype, int64_t bytes) {
  MeasuredSizes sizes = large_sizes(dtype, bytes);
  const int64_t elements = sizes.image.elements();
  std::vector<LargeCase> cases;
  const auto add = [&](const std::string& tag = "") -> Axes& {
    cases.push_back({measured_axes(dtype, sizes), tag});
    cases.back().axes.clip_limits = {16};  // of a norm of 17.25: repeated steps do not come near zero
    cases.back().axes.label_forms = {{.shape = sizes.loss}};
    return cases.back().axes;
  };
  if constexpr (kIsProduct<Op>) {
    add_products<Op>(dtype, measured_axes(dtype, sizes), cases);
  } else if constexpr (kIsConvolution<Op>) {
    add_convolutions(dtype, bytes, measured_axes(dtype, sizes), cases);
  } else if constexpr (kIsOneOf<Op, NormalizeRows, AddNormalizeRows, NormalizeRowsBackward, NormalizeRowsBackwardAdd>) {
    for (const int64_t width : {1024, 4096}) {
      const Shape rows = rows_of(elements, width);
      sizes.image = {rows[0], rows[1], 1, 1}, add();
    }
  } else if constexpr (kIsOneOf<Op, Softmax, SoftmaxBackward>) {
    for (const int64_t width : {1024, 4096}) sizes.single.softmax = rows_of(elements, width), add();
  } else if constexpr (kGoesByChannel<Op>) {
    if (kIsOneOf<Op, Resample2d, Resample2dBackward>) sizes.image = image_of(elements / 4);  // to twice its size
    add();
    sizes.layout = Layout::nhwc, add("nhwc");
    if (kIsOneOf<Op, FusedBatchNorm, FusedBatchNormBackward>)
      add("nhwc-without-addend").addends = {ops_cases::AddendForm::none};
  } else if constexpr (kIsOneOf<Op, Quantize>) {
    for (const char* rule : {"te-current-e4m3", "te-mxfp8-e4m3"}) add(rule).quantized = {{rule}};
  } else if constexpr (kIsOneOf<Op, Cast, CastTensors, CountedCast>) {
    for (const DType to : {DType::f32, DType::f16, DType::bf16, DType::e4m3})
      if (to == DType::f32 || dtype == DType::f32) add().cast_to = {to};
  } else if constexpr (kIsOneOf<Op, NarrowIndices>) {
    if (dtype == DType::f32) add();  // it has no dtype
  } else if constexpr (kIsUpdate<Op>) {
    add();
    if (dtype == DType::f16 || dtype == DType::bf16) {  // fp32 parameters with a copy for the layers
      sizes.image = image_of(elements / 2);
      add("low").sgd_types = {{DType::f32, dtype, DType::f32, dtype, true}};
    }
  } else {
    add();
  }
  return cases;
}

// The operands of an operation that have values before it.
struct ReadOperands {
  std::vector<Tensor>& operands;
  void input(std::string_view, const Tensor& tensor) { add(tensor); }
  void updated(std::string_view, const Tensor& tensor) { add(tensor); }
  void output(std::string_view, const Tensor&) {}
  void attribute(const auto&) {}
  void add(const Tensor& tensor) {
    if (!tensor.empty()) operands.push_back(tensor);
  }
};
std::vector<Tensor> read_operands(const auto& op) {
  std::vector<Tensor> operands;
  op.visit(ReadOperands{operands});
  return operands;
}

// Numbers of each operand, from a small case of the same operation: so each has the numbers that the operation takes.
template <class Op>
std::vector<std::vector<unsigned char>> patterns_of(Device& device, Axes axes) {
  for (ops_cases::ConvLayouts& layouts : axes.conv_layouts) layouts.out = Layout::plain;  // else integers are drawn
  std::vector<std::vector<unsigned char>> patterns;
  with_case<Op>(device, axes, true, [&](const Op& op) {
    for (const Tensor& tensor : read_operands(op)) {
      // Without the last element if there are more, so that rows of powers of two are not all alike.
      const auto elements = static_cast<size_t>(tensor.elements());
      std::vector<unsigned char> bytes(tensor.bytes());
      device.copy_out(bytes.data(), tensor.data(), bytes.size());
      if (elements > 1 && !is_packed(tensor.dtype())) bytes.resize(bytes_for(tensor.dtype(), elements - 1));
      patterns.push_back(std::move(bytes));
    }
  });
  return patterns;
}

// Each entry of a table once, in an order without neighbours: a small case would name the first entries only.
void spread_indices(Tensor indices, int64_t entries) {
  constexpr int64_t kStep = 7919;  // a prime
  std::vector<double> values;
  for (int64_t i = 0; i < indices.elements(); ++i) values.push_back(static_cast<double>(i * kStep % entries));
  indices.set_values(values);
}
void set_indices(const auto&) {}
void set_indices(const Embedding& op) { spread_indices(op.indices, op.table.shape()[0]); }
void set_indices(const EmbeddingBackward& op) { spread_indices(op.indices, op.dtable.shape()[0]); }

struct Setting {
  std::shared_ptr<Device> device;
  int64_t bytes;
  std::optional<LargeCopy> copy = {};  // made by the first benchmark
};

template <class Op>
void measure_in_turn(benchmark::State& state, Setting& setting, const Kernel<Op>& kernel, const Op& op) {
  Device& device = *setting.device;
  if (const Refusal refusal = kernel.refuses(device, op)) return state.SkipWithError(refusal->c_str());
  const auto work = [&] { run_with(kernel, op); };
  const auto copy = [&] { setting.copy->run(); };
  work(), copy();  // plans are made
  std::vector<double> seconds, copied;
  for (auto _ : state) {
    seconds.push_back(device.time(work));
    copied.push_back(device.time(copy));
    state.SetIterationTime(seconds.back());
  }
  ops_detail::BytesVisitor visitor;
  op.visit(visitor);
  const auto bytes = static_cast<double>(visitor.read + visitor.written);
  const double rate = bytes / median(seconds);
  state.counters["bytes/s"] = rate;
  state.counters["copy"] = rate / (setting.copy->bytes() / median(copied));
  const double flops = flops_of(op);
  if (flops > 0) state.counters["FLOP/s"] = flops / median(seconds);
  if (const auto done = kernel_work(device, work)) {
    state.counters["instructions/byte"] = kLanesOfWarp * done->instructions / bytes;
    state.counters["requested"] = done->requested_bytes / bytes;
    state.counters["touched"] = done->touched_bytes / bytes;
  }
}

template <class Op>
void measure(benchmark::State& state, Setting& setting, const Kernel<Op>& kernel, DType dtype, size_t number) {
  constexpr int64_t kPatternBytes = 64 << 10;
  Device& device = *setting.device;
  try {
    if (!setting.copy) setting.copy.emplace(device, 2 * setting.bytes);
    const auto patterns =
        patterns_of<Op>(device, large_cases<Op>(dtype, std::min(kPatternBytes, setting.bytes))[number].axes);
    device.return_kept_memory();
    with_case<Op>(device, large_cases<Op>(dtype, setting.bytes)[number].axes, false, [&](const Op& op) {
      std::vector<Tensor> operands = read_operands(op);
      for (size_t i = 0; i < operands.size(); ++i) fill_repeatedly(operands[i], patterns.at(i));
      set_indices(op);
      measure_in_turn(state, setting, kernel, op);
    });
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

// Tensors without memory: shapes, dtypes and layouts, from which a row sees whether it supports an operation.
class DeviceWithoutMemory : public Device {
 public:
  explicit DeviceWithoutMemory(const Device& device) : of_(device) {}
  std::string name() const override { return of_.name(); }
  std::vector<std::pair<std::string, std::string>> describe() const override { return of_.describe(); }
  const KernelTable& kernels() const override { return of_.kernels(); }
  void* allocate(size_t) override { return nowhere_; }
  void release(void*, size_t) noexcept override {}
  void copy_in(void*, const void*, size_t) override {}
  void clear(void*, size_t) override {}
  void copy_out(void*, const void*, size_t) override { HM_CHECK(false, "there are no values"); }
  double time(const std::function<void()>&) override { return 0; }
  void evict_caches() override {}
  Layout image_layout(DType dtype) const override { return of_.image_layout(dtype); }

 private:
  const Device& of_;
  alignas(256) char nowhere_[256] = {};
};

template <class Op>
void register_row(const std::shared_ptr<Setting>& setting, const Kernel<Op>& kernel, std::set<std::string>& names) {
  const Device& device = *setting->device;
  DeviceWithoutMemory shapes(device);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::e4m3}) {
    if (dtype == DType::e4m3 && kIsProduct<Op> && kernel.name != "cublaslt") continue;  // no other has them
    if (dtype == DType::e4m3 && (kIsAttention<Op> || kernel.name == "cudnn")) continue;
    const bool is_half = dtype == DType::f16 || dtype == DType::bf16;
    if (kIsOneOf<Op, FusedConv2d> && is_half && kernel.name == "cuda") continue;  // no row convolves them to f32
    const std::vector<LargeCase> cases = large_cases<Op>(dtype, setting->bytes);
    for (size_t number = 0; number < cases.size(); ++number)
      with_case<Op>(shapes, cases[number].axes, false, [&](const Op& op) {
        if (kernel.name == "cudnn" && cudnn_lacks(op, dtype)) return;
        // What a row refuses that plans first is skipped when it is run.
        if (!plans(kernel) && kernel.refuses(device, op)) return;
        const std::string name = "large/" + name_of_case(op, cases[number].tag, device.name(), kernel.name);
        if (!names.insert(name).second) return;
        benchmark::RegisterBenchmark(name.c_str(),
                                     [setting, &kernel, dtype, number](benchmark::State& state) {
                                       measure(state, *setting, kernel, dtype, number);
                                     })
            ->UseManualTime()
            ->Iterations(std::getenv("HALFMARK_SOFTWARE_GPU_WORK") ? 1 : kRuns);
      });
  }
}

template <class Op>
void register_list(const std::shared_ptr<Setting>& setting, const KernelList<Op>& list) {
  std::set<std::string> names;
  bool wanted = false;
  for (const Kernel<Op>& kernel : list) {
    if (kernel.speed != Speed::real || kernel.name == "cuda-direct") continue;
    wanted = true;
    if constexpr (!is_left_out<Op>()) register_row(setting, kernel, names);
  }
  HM_CHECK(!wanted || is_left_out<Op>() || !names.empty(),
           std::string(Op::name) + " has a row of real speed on " + setting->device->name() +
               " and no large case: large_cases() must give one, or kLeftOut a reason");
}

int64_t bytes_from_environment() {
  constexpr int64_t kBytes = 512 << 20;
  const char* text = std::getenv("HALFMARK_LARGE_BYTES");
  if (!text) return kBytes;
  char* end = nullptr;
  const long long bytes = std::strtoll(text, &end, 10);
  HM_CHECK(*text && !*end && bytes >= 4096 && bytes <= (int64_t{4} << 30),
           std::string("HALFMARK_LARGE_BYTES must be a number from 4096 to 2^32, not ") + text);
  return bytes;
}

}  // namespace

void register_large(const std::vector<std::shared_ptr<Device>>& devices) {
  for (const auto& device : devices) {
    if (!device->name().starts_with("cuda:")) continue;
    const auto setting = std::make_shared<Setting>(Setting{device, bytes_from_environment()});
    device->kernels().each([&](const auto& list) { register_list(setting, list); });
  }
}

}  // namespace halfmark::bench::micro
