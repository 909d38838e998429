// Every call of the CUDA runtime and of its libraries in the plugin's sources is reached by a run whose calls fail in turn.
// The runs say from which places of the plugin they call; addr2line says of which lines those are.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/software_gpu_failures_testing.h"

namespace halfmark::bench {
namespace {

namespace fs = std::filesystem;

struct Site {
  std::string file, function, text;
  int line = 0;
};

// A line of code that calls a function, or the name of one, if it is called by name only.
struct Reached {
  std::set<std::tuple<std::string, std::string, int>> lines;  // function, file, line
  std::set<std::string> functions;
  std::set<std::pair<std::string, std::string>> in_device_files;  // function, name of the function that calls it
};

// Sites that no run reaches: what is in the line, and why.
struct Exception {
  const char *file, *text, *why;
  bool is_met = false;
};
std::vector<Exception> exceptions() {
  constexpr const char* kClosed =
      "an open device is not closed before the process ends, and one that cannot be opened has none";
  constexpr const char* kNvml = "of MIG instances and older drivers: nvml_test.cpp calls them";
  constexpr const char* kWaits = "no layer waits for the device or copies from the host while a step is recorded";
  constexpr const char* kFails = "a call fails while a step is recorded: which one that is depends on the machine";
  constexpr const char* kCompared =
      "the rows cudnn of norms come after halfmark's own: only tests of every row run them (compared_rows_test.cpp)";
  constexpr const char* kLarge = "of operands of more than 65542 elements, which no run here has";
  return {{"cudnn_norm_plan.cpp", "HM_CUDA(cudaMemsetAsync(", kCompared},
          {"trial.cpp", "cudaMemcpyAsync(begin + done", kLarge},
          {"cuda_device.cpp", "status = cudaMemGetInfo(",
           "after a refusal for lack of memory, which no run here has (kept_plans_test.cpp)"},
          {"cuda_device.cpp", "if (eviction_) ignore(cudaFree(", kClosed},
          {"cuda_device.cpp", "if (cudnn_) cudnnDestroy(", kClosed},
          {"cuda_device.cpp", "if (blaslt_) cublasLtDestroy(", kClosed},
          {"nvml.cpp", "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", kNvml},
          {"nvml.cpp", "nvmlDeviceGetComputeRunningProcesses_v2", kNvml},
          {"recorded_graph.cpp", "if (end() == cudaSuccess) ignore(cudaGraphDestroy(", kWaits},
          {"recorded_graph.cpp", "if (status == cudaSuccess) ignore(cudaGraphDestroy(", kFails},
          {"recorded_graph.cpp", "cudaMallocHost(", kWaits},
          {"recorded_graph.cpp", "cudaFreeHost(", kWaits},
          {"recorded_graph.cpp", "cudaGraphChildGraphNodeGetGraph(", "no stand-in records a graph within a graph"},
          {"rows.cpp", "cudaMemcpyAsync(", "no operation copies an image or filters that have the layout already"}};
}

// They return a text or a number, or the last error, and fail in no way of their own.
bool cannot_fail(const std::string& function) {
  static const std::regex kAnswers(
      ".*(GetErrorName|GetErrorString|GetStatusString|GetLastErrorString|GetLastError|"
      "cublasLtGetVersion|cudnnGetVersion|nvmlErrorString|ncclGetErrorString|_t)");
  return std::regex_match(function, kAnswers);
}

// The functions that a line calls: directly, and those that are looked up by name.
std::vector<std::string> functions_in(std::string line) {
  static const std::regex kCall(R"re((^|[^"\w])((cuda|cublasLt|cudnn)[A-Z]\w*)\()re");
  static const std::regex kName(R"re(("nvml|"nccl|loaded<\w+>\("cublas)([A-Z]\w*)")re");
  line = line.substr(0, line.find("//"));
  std::vector<std::string> functions;
  for (std::sregex_iterator one(line.begin(), line.end(), kCall), end; one != end; ++one)
    functions.push_back((*one)[2]);
  for (std::sregex_iterator one(line.begin(), line.end(), kName), end; one != end; ++one)
    functions.push_back((says((*one)[1], "nvml")   ? "nvml"
                         : says((*one)[1], "nccl") ? "nccl"
                                                   : "cublas") +
                        (*one)[2].str());
  std::erase_if(functions, cannot_fail);
  return functions;
}

std::vector<Site> sites() {
  std::vector<Site> all;
  for (const fs::directory_entry& entry : fs::directory_iterator(test_folders::source() + "/kernels/cuda")) {
    const std::string file = entry.path().filename(), kind = entry.path().extension();
    if ((kind != ".cpp" && kind != ".h" && kind != ".cu" && kind != ".cuh") || says(file, "_test")) continue;
    std::ifstream lines(entry.path());
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      for (const std::string& function : functions_in(line)) all.push_back({file, function, line, number});
    }
  }
  return all;
}

class SoftwareGpuCallSites : public SoftwareGpu {
 protected:
  // The lines from which a run calls; of an inlined function, those of its callers too.
  void add(const Ran& run, Reached& reached) const {
    std::vector<const Call*> calls;
    {
      std::ofstream addresses(folder_ / "addresses");
      for (const Call& call : run.calls) {
        const size_t plus = call.place.find('+');
        if (call.place.substr(0, plus) != "halfmark_cuda.so") continue;
        // The address is that of the instruction after the call.
        addresses << fmt::format("{:#x}\n", std::stoull(call.place.substr(plus + 1), nullptr, 16) - 1);
        calls.push_back(&call);
      }
    }
    const Result found =
        shell("addr2line -a -f -i -C -e " + quoted(folder_of_programs() + "/halfmark_cuda.so") + " < addresses");
    ASSERT_EQ(found.code, 0) << found.err;
    std::istringstream lines(found.out);
    size_t number = 0;
    for (std::string name, place; std::getline(lines, name);) {
      if (name.starts_with("0x")) {
        ++number;
        continue;
      }
      std::getline(lines, place);
      const std::string& function = calls.at(number - 1)->name;
      const size_t colon = place.rfind(':');
      const std::string file = fs::path(place.substr(0, colon)).filename();
      reached.functions.insert(function);
      const int line = std::atoi(place.c_str() + colon + 1);
      if (line == 0)
        reached.in_device_files.emplace(function, name);
      else
        reached.lines.emplace(function, file, line);
    }
  }
};

// Device files are compiled without the numbers of lines: the function that calls must be one of that file.
bool is_reached(const Site& site, const Reached& reached) {
  if (site.function.starts_with("nvml") || site.function.starts_with("nccl") ||
      (site.function.starts_with("cublas") && !site.function.starts_with("cublasLt")))
    return reached.functions.contains(site.function);
  if (!site.file.ends_with(".cu") && !site.file.ends_with(".cuh"))
    // The line of a macro is that of its name.
    return reached.lines.contains({site.function, site.file, site.line}) ||
           reached.lines.contains({site.function, site.file, site.line - 1});
  std::ifstream file(test_folders::source() + "/kernels/cuda/" + site.file);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return std::any_of(reached.in_device_files.begin(), reached.in_device_files.end(), [&](const auto& one) {
    const std::string whole = one.second.substr(0, one.second.find('('));
    return one.first == site.function && says(text, whole.substr(whole.rfind(':') + 1) + "(");
  });
}

TEST_F(SoftwareGpuCallSites, AreAllReachedByARunWhoseCallsFail) {
  if (shell("addr2line --version").code != 0) GTEST_SKIP() << "addr2line is not installed";
  std::ofstream(folder_ / "rows.csv") << kRowsOfDots;
  Reached reached;
  for (const FailedRun& one : kFailedRuns) add(ran(one.variables, one.arguments), reached);
  for (const FailedCommand& one : kFailedCommands) add(ran(one.variables, one.arguments), reached);
  for (const FirstFailure& one : kFirstFailures)
    add(ran(fmt::format("{} HALFMARK_SOFTWARE_GPU_FAIL={}", one.run.variables, one.request), one.run.arguments),
        reached);
  if (reached.lines.size() < 50) GTEST_SKIP() << "the plugin has no numbers of lines in this kind of build";
  std::vector<Exception> left = exceptions();
  const std::vector<Site> all = sites();
  EXPECT_GT(all.size(), 130u);
  for (const Site& site : all) {
    const auto exception = std::find_if(left.begin(), left.end(), [&](const Exception& one) {
      // Of several functions in a line, the one that is named.
      const bool names_one = std::string_view(one.text).starts_with("nvml");
      return site.file == one.file && (names_one ? site.function == one.text : says(site.text, one.text));
    });
    const bool is_exception = exception != left.end();
    if (is_exception) exception->is_met = true;
    EXPECT_NE(is_reached(site, reached), is_exception)
        << site.file << ":" << site.line << ": " << site.function
        << (is_exception ? " is called, and so no exception" : " is called by no run whose calls fail");
  }
  for (const Exception& one : left) EXPECT_TRUE(one.is_met) << one.file << " has no line with " << one.text;
}

// The functions of the device files by name, with their text: each ends in a line that begins with a brace.
std::multimap<std::string, std::string> functions_of_device_files() {
  static const std::regex kBegins(R"re((template.*|inline.*|static.*|[\w:<>]+[*&]? )(\w+)\(.*)re");
  std::multimap<std::string, std::string> all;
  for (const fs::directory_entry& entry : fs::directory_iterator(test_folders::source() + "/kernels/cuda")) {
    if (entry.path().extension() != ".cu" && entry.path().extension() != ".cuh") continue;
    std::ifstream lines(entry.path());
    std::string name, text;
    for (std::string line; std::getline(lines, line);) {
      std::smatch parts;
      if (name.empty() && std::regex_match(line, parts, kBegins)) name = parts[2], text.clear();
      text += line + "\n";
      if (line.starts_with("}") || line.ends_with(";")) {
        if (line.starts_with("}") && !name.empty()) all.emplace(name, text);
        if (line.starts_with("}") || !line.starts_with(" ")) name.clear();
      }
    }
  }
  return all;
}

// Every function that launches kernels for the host code asks for the status of its launches, or one that it calls does.
TEST_F(SoftwareGpuCallSites, OfLaunchesAreAllChecked) {
  const auto functions = functions_of_device_files();
  std::set<std::string> checking = {"launched"};
  for (size_t before = 0; before != checking.size();) {
    before = checking.size();
    for (const auto& [name, text] : functions)
      if (says(text, "check(cudaGetLastError()") ||
          std::any_of(checking.begin(), checking.end(), [&text = text](const std::string& one) {
            return says(text, " " + one + "(") || says(text, " " + one + "<");
          }))
        checking.insert(name);
  }
  std::string headers;
  for (const fs::directory_entry& entry : fs::directory_iterator(test_folders::source() + "/kernels/cuda"))
    if (entry.path().extension() == ".h") headers += read(entry.path());
  int found = 0;
  for (const auto& [name, text] : functions) {
    if (!name.starts_with("launch_") || !says(headers, " " + name + "(")) continue;
    if (name == "launch_tcgen05") continue;  // a part of launch_dot
    ++found;
    EXPECT_TRUE(checking.contains(name)) << name << ": nothing checks its launches";
  }
  EXPECT_GT(found, 60);
}

}  // namespace
}  // namespace halfmark::bench
