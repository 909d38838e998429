// Reads the facts of the machine and probes its arithmetic.
#include "bench/run/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "accuracy/probe/probe.h"
#include "bench/run/extension.h"
#include "bench/run/standard_streams.h"
#include "bench_build.h"  // written by CMake: version, compiler flags, build type, git revision
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/ops/ops.h"

namespace halfmark::bench {

namespace {

using Json = nlohmann::ordered_json;

// "model name : Example" of the first processor.
std::string cpu_line(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return "";
}

// The CPU flags that decide which kernels run.
std::string cpu_flags() {
  const std::string all = fmt::format(" {} ", cpu_line("flags"));
  std::string found;
  for (const char* flag : {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "avx512_fp16",
                           "avx_vnni", "amx_tile", "amx_bf16", "amx_fp16"})
    if (all.find(fmt::format(" {} ", flag)) != std::string::npos)
      found += fmt::format("{}{}", found.empty() ? "" : " ", flag);
  return found;
}

std::string os_name() {
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("PRETTY_NAME=")) return line.substr(13, line.size() - 14);
  return "unknown";
}

// What failed while kernels were chosen: the next one answered a probe then.
std::set<std::string> failures_in(const KernelLog& log) {
  std::set<std::string> failures;
  const auto add = [&](const std::string& text) {
    const bool failed = text.find("failed") != std::string::npos || text.find("not tried") != std::string::npos;
    if (failed) failures.insert(text);
  };
  for (const LoggedKernel& one : log.entries()) {
    for (const std::string& text : one.refusals) add(text);
    for (const std::string& text : one.choices) add(text);
  }
  return failures;
}

// Facts and probes of a device. A call that fails costs the rest of them and not the report, which says so.
Json facts_of(Device& device, bool probes) {
  Json facts = Json::object(), probed = Json::object();
  const KernelLog log;
  const auto attempt = [&](const auto& ask) {
    if (facts.contains("failed")) return;
    try {
      ask();
    } catch (const Error& error) {
      facts["failed"] = error.what();
      complain(fmt::format("{}: probing it for the environment of the report failed: {}", device.name(), error.what()));
    }
  };
  attempt([&] {
    for (const auto& [key, value] : device.describe()) facts[key] = value;
  });
  if (!device.numerics().empty()) facts["numerics"] = device.numerics();
  attempt([&] { probed["fp32_matmul_rounds_operands"] = rounds_fp32_operands(device); });
  // How its matmuls add. If two reports of one machine differ here, they used different libraries or kernels.
  if (probes)
    for (const char* types : {"f32>f32", "f16>f32", "bf16>f32"})
      attempt([&] {
        if (const auto fingerprint = probe::fingerprint_of(device, types))
          probed[fmt::format("probe.{}", types)] = *fingerprint;
      });
  facts["probed"] = probed;
  if (const auto failures = failures_in(log); !failures.empty()) facts["failures"] = failures;
  return facts;
}

Json from_environment() {
  Json set = Json::object();
  for (const char* name : {"OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OPENBLAS_NUM_THREADS",
                           "OPENBLAS_CORETYPE", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "NVIDIA_TF32_OVERRIDE",
                           "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING", "CUDA_LAUNCH_BLOCKING"})
    if (const char* value = std::getenv(name)) set[name] = value;
  // All variables of cuBLAS and cuDNN: some are undocumented.
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry, name = text.substr(0, text.find('='));
    for (const std::string_view prefix : {"CUBLAS_", "CUBLASLT_", "CUDNN_"})
      if (name.starts_with(prefix) && name.size() < text.size()) set[name] = text.substr(name.size() + 1);
  }
  return set;
}

}  // namespace

bool flushes_subnormals() {
  const volatile float tiny = 1e-40f;
  const volatile double small = 1e-310;
  const volatile float half = 0.5f;
  const volatile float single = tiny * half;
  const volatile double twice = small * 0.5;
  return single == 0 || twice == 0;
}

bool rounds_fp32_operands(Device& device) {
  // 1024.5 has 11 fraction bits: tf32 and fp16 keep 10, bf16 keeps 7.
  const std::vector<double> values(16 * 16, 1024.5);
  std::vector<double> identity(16 * 16, 0.0);
  for (size_t i = 0; i < 16; ++i) identity[i * 17] = 1;
  const Tensor a = Tensor::from(device, {16, 16}, DType::f32, values);
  const Tensor b = Tensor::from(device, {16, 16}, DType::f32, identity);
  Tensor out(device, {16, 16}, DType::f32);
  run(Matmul{.a = a, .b = b, .out = out, .math = Math{}});
  return out.values() != values;
}

std::string machine_name() {
  utsname system{};
  uname(&system);
  return system.nodename;
}

Json environment_of(const std::vector<Device*>& devices, bool probes) {
  Json environment = Json::object();
  utsname system{};
  uname(&system);
  environment["halfmark"] = {
      {"version", HALFMARK_VERSION}, {"git", built_revision()}, {"build_type", HALFMARK_BUILD_TYPE}};
  if (!extension().name.empty())
    environment["extension"] = {{"name", extension().name}, {"version", extension().version}};
  environment["machine"] = machine_name();
  environment["os"] = {{"name", os_name()}, {"kernel", fmt::format("{} {}", system.sysname, system.release)}};
  environment["cpu"] = {{"model", cpu_line("model name")},
                        {"architecture", system.machine},
                        {"flags", cpu_flags()},
                        {"cores", std::thread::hardware_concurrency()}};
  environment["memory_bytes"] =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  environment["compiler"] = {{"name", HALFMARK_COMPILER}, {"flags", HALFMARK_COMPILER_FLAGS}};
  Json libraries = Json::object();
  for (const auto& [name, version] : library_versions()) libraries[name] = version;
  environment["libraries"] = libraries;
  environment["variables"] = from_environment();
  Json present = Json::object();
  for (Device* device : devices) present[device->name()] = facts_of(*device, probes);
  environment["devices"] = present;
  Json absent = Json::object();
  for (const DeviceRow& row : known_devices())
    if (!row.absent.empty()) absent[row.name] = row.absent;
  environment["absent"] = absent;
  environment["probed"] = {{"flushes_subnormals", flushes_subnormals()}};
  return environment;
}

}  // namespace halfmark::bench
