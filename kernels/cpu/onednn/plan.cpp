// The engine, the caches of primitives and packed weights, and
// the conversion of operands to the layouts of a primitive.
#include "kernels/cpu/onednn/plan.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "kernels/cpu/onednn/onednn.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/number/convert.h"
#include "kernels/ops/reorder_bytes.h"

namespace halfmark::kernels {

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
}

std::string onednn_instructions() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  for (const auto& [bits, name] : {std::pair{0x3e7u, "avx512_core_amx"},
                                   {0x1efu, "avx512_core_fp16"},
                                   {0xe7u, "avx512_core_bf16"},
                                   {0x67u, "avx512_core_vnni"},
                                   {0x27u, "avx512_core"},
                                   {0x7u, "avx2"},
                                   {0x3u, "avx"},
                                   {0x1u, "sse41"}})
    if ((isa & bits) == bits) return name;
  return "unknown";
}

namespace {
std::atomic<uint64_t> reorders{0};
}

uint64_t onednn_reorders() { return reorders; }

bool onednn_computes_in(DType dtype) { return !onednn::refuses_dtype(dtype); }

void onednn_set_threads(int threads) {
  // Looked up by name, because halfmark is not compiled with OpenMP. A oneDNN on another runtime (TBB) keeps its own
  // number of threads.
  using SetThreads = void (*)(int);
  static const auto set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  thread_local int applied = 0;
  if (applied == threads || !set) return;
  set(threads);
  applied = threads;
}

namespace onednn {
namespace {

Signature words_of(const Desc& desc) {
  Signature words;
  const Blocking b = blocking_of(desc);
  words.add(static_cast<int64_t>(onednn::type_of(desc)) | static_cast<int64_t>(desc.get_size()) << 8);
  for (const Dims* part : {&b.dims, &b.padded, &b.strides, &b.inner_blocks, &b.inner_axes}) {
    words.add(static_cast<int64_t>(part->size()));
    for (const int64_t word : *part) words.add(word);
  }
  return words;
}

std::mutex& plans_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::unordered_map<Signature, Plan, SignatureHash>& plans() {
  static std::unordered_map<Signature, Plan, SignatureHash> instance;
  return instance;
}

// What a device keeps between calls. Its tensors belong to the device, so the ledger shows them as workspace.
struct Kept {
  struct Packed {
    Tensor buffer;
    uint64_t version = 0;
    std::weak_ptr<const void> alive;
  };
  Tensor scratch;
  std::map<std::pair<uint64_t, const Plan*>, Packed> packed;  // by tensor and by plan; the plan determines both layouts
};

Kept& kept_by(Device& device) {
  auto& slot = static_cast<HostDevice&>(device).library;  // only host devices list oneDNN rows
  if (!slot) slot = std::make_shared<Kept>();
  return *static_cast<Kept*>(slot.get());
}

Tensor bytes_on(Device& device, size_t bytes) {
  const PurposeScope scope(Purpose::workspace);
  return Tensor(device, Shape{static_cast<int64_t>(bytes)}, DType::u8);
}

bool has(dnnl::cpu_isa isa) {
  const auto wanted = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

dnnl::reorder reorder_primitive(const Desc& given, const Desc& wanted) {
  static std::mutex mutex;
  static std::unordered_map<Signature, dnnl::reorder, SignatureHash> primitives;
  Signature key = words_of(given);
  key.add(static_cast<int64_t>(words_of(wanted).hash())), key.add(int64_t{host_threads()});
  const std::lock_guard lock(mutex);
  const auto found = primitives.find(key);
  if (found != primitives.end()) return found->second;
  return primitives.emplace(key, dnnl::reorder(dnnl::reorder::primitive_desc(engine(), given, engine(), wanted)))
      .first->second;
}

}  // namespace

std::string library_name() { return "oneDNN " + onednn_version(); }

dnnl::engine& engine() {
  static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

dnnl::stream& stream() {
  thread_local dnnl::stream instance(engine());
  return instance;
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Refusal refuses_dtype(DType dtype) {
  if (dtype == DType::f32) return {};
  if (dtype == DType::bf16) {
    if (has(dnnl::cpu_isa::avx512_core_bf16)) return {};
    return "no bf16 units on this CPU (oneDNN sees " + onednn_instructions() + ")";
  }
#if DNNL_VERSION_MAJOR >= 3
  if (dtype == DType::f16) {
    if (has(dnnl::cpu_isa::avx512_core_fp16)) return {};
    return "no fp16 units on this CPU (oneDNN sees " + onednn_instructions() + ")";
  }
#endif
  return library_name() + " does not compute in " + std::string(name_of(dtype)) + " on CPUs";
}

Refusal refuses_math(const Math& math, DType operand) {
  const Format& format = format_of(operand);
  const bool holds =
      math.multiply.exponent_bits >= format.exponent_bits && math.multiply.fraction_bits >= format.fraction_bits;
  if (!holds) {
    if (math.multiply == kTf32) return "oneDNN accepts tf32 on CPUs but ignores it";
    return "oneDNN multiplies " + std::string(name_of(operand)) + " as stored, not rounded to " +
           std::string(math.multiply.name);
  }
  if (!(math.accumulate == kFp32)) return "oneDNN accumulates in fp32, not " + std::string(math.accumulate.name);
  if (math.split_k != 1) return "oneDNN chooses the split of K";
  if (math.fast_accumulate) return "fast accumulation is not supported";
  return {};
}

Signature plan_signature(Signature signature, std::string_view operation) {
  signature.add(static_cast<int64_t>(std::hash<std::string_view>()(operation)));
  signature.add(int64_t{host_threads()});  // a primitive is split over threads when it is created
  return signature;
}

const Plan* find_plan(const Signature& signature) {
  onednn_set_threads(host_threads());
  const std::lock_guard lock(plans_mutex());
  const auto found = plans().find(signature);
  return found == plans().end() ? nullptr : &found->second;
}

const Plan& keep_plan(const Signature& signature, Plan plan) {
  const std::lock_guard lock(plans_mutex());
  return plans().emplace(signature, std::move(plan)).first->second;
}

std::string implementation_of(const Signature& signature, std::string_view operation) {
  const Plan* plan = find_plan(plan_signature(signature, operation));
  return plan ? plan->implementation : "";
}

void reorder_quietly(const Desc& given, const void* source, const Desc& wanted, void* target) {
  checked("reorder", [&] {
    onednn_set_threads(host_threads());
    dnnl::memory from(given, engine(), const_cast<void*>(source)), to(wanted, engine(), target);
    reorder_primitive(given, wanted).execute(stream(), from, to);
    stream().wait();
    openmp_team_was_used();
  });
}

void count_reorder() { ++reorders; }

void reorder(const Desc& given, const void* source, const Desc& wanted, void* target, DType dtype) {
  reorder_quietly(given, source, wanted, target);
  count_reorder();
  // One log entry per dtype; the log distinguishes entries by address.
  static const std::map<DType, LoggedKernel> lines = [] {
    std::map<DType, LoggedKernel> all;
    for (const DType each : dtypes()) {
      const std::string name(name_of(each));
      all[each] = {"reorder", "", name + "->" + name, "onednn", Speed::real, 0, {}};
    }
    return all;
  }();
  const LoggedKernel& line = lines.at(dtype);
  Dispatch::log(&line, line, Repeats::unproved);
  ReorderBytes::add(given.get_size(), wanted.get_size());
}

Tensor Call::buffer(size_t bytes) { return buffers_.emplace_back(bytes_on(device_, bytes)); }

void Call::bind(int argument, const Desc& desc, const void* memory) {
  arguments_.insert_or_assign(argument, dnnl::memory(desc, engine(), const_cast<void*>(memory)));
}

void Call::in(int argument, const Tensor& tensor, const Desc& given, const Desc& wanted) {
  in(argument, tensor, given, wanted, wanted);
}

void Call::in(int argument, const Tensor& tensor, const Desc& given, const Desc& wanted, const Desc& seen) {
  if (same_memory(given, wanted)) return bind(argument, seen, tensor.data());
  Tensor copy = buffer(wanted.get_size());
  reorder(given, tensor.data(), wanted, copy.data(), tensor.dtype());
  bind(argument, seen, copy.data());
}

void Call::packed(int argument, const Tensor& tensor, const Desc& given, const Desc& wanted) {
  auto& cache = kept_by(device_).packed;
  const std::pair key(tensor.id(), &plan_);
  auto found = cache.find(key);
  if (found == cache.end()) {
    if (same_memory(given, wanted)) return bind(argument, wanted, tensor.data());
    std::erase_if(cache, [](const auto& entry) { return entry.second.alive.expired(); });
    found = cache.emplace(key, Kept::Packed{bytes_on(device_, wanted.get_size()), tensor.version() + 1, tensor.watch()})
                .first;
  }
  Kept::Packed& packed = found->second;
  if (packed.version != tensor.version()) {
    reorder(given, tensor.data(), wanted, packed.buffer.data(), tensor.dtype());
    packed.version = tensor.version();
  }
  bind(argument, wanted, packed.buffer.data());
}

void Call::vector(int argument, const Tensor& tensor) {
  const Desc desc = plain_desc(dims_of(tensor.shape()), DataType::f32);
  if (tensor.dtype() == DType::f32) return bind(argument, desc, tensor.data());
  Tensor wide = buffer(desc.get_size());
  convert(tensor.dtype(), tensor.data(), DType::f32, wide.data(), static_cast<size_t>(tensor.elements()));
  bind(argument, desc, wide.data());
}

void Call::out(int argument, Tensor& tensor, const Desc& given, const Desc& wanted) {
  if (same_memory(given, wanted)) return bind(argument, wanted, tensor.data());
  Tensor copy = buffer(wanted.get_size());
  bind(argument, wanted, copy.data());
  late_.push_back({tensor, given, wanted, copy, false});
}

void Call::out(int argument, Tensor& tensor, const Desc& wanted) {
  materialize_as(tensor, wanted);
  out(argument, tensor, desc_of(tensor), wanted);
}

void Call::vector_out(int argument, Tensor& tensor) {
  tensor.materialize(Layout::plain);
  const Desc desc = plain_desc(dims_of(tensor.shape()), DataType::f32);
  if (tensor.dtype() == DType::f32) return bind(argument, desc, tensor.data());
  Tensor wide = buffer(desc.get_size());
  bind(argument, desc, wide.data());
  late_.push_back({tensor, desc, desc, wide, true});
}

void Call::run() {
  if (const size_t bytes = plan_.scratch.get_size()) {
    Tensor& scratch = kept_by(device_).scratch;
    if (scratch.empty() || scratch.bytes() < bytes) {
      scratch = Tensor();
      scratch = bytes_on(device_, bytes);
    }
    bind(DNNL_ARG_SCRATCHPAD, plan_.scratch, scratch.data());
  }
  checked(plan_.implementation.c_str(), [&] {
    plan_.primitive.execute(stream(), arguments_);
    stream().wait();
    openmp_team_was_used();
  });
  for (Late& late : late_) {
    if (late.vector)
      convert(DType::f32, late.buffer.data(), late.tensor.dtype(), late.tensor.data(),
              static_cast<size_t>(late.tensor.elements()));
    else
      reorder(late.wanted, late.buffer.data(), late.given, late.tensor.data(), late.tensor.dtype());
  }
}

}  // namespace onednn
}  // namespace halfmark::kernels
