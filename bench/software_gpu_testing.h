// Shared by the tests of the program on a software GPU (kernels/cuda/software_gpu).
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "bench/run/program_testing.h"
#include "reports/record/paths_testing.h"
#include "reports/record/report.h"

namespace halfmark::bench {

struct Call {
  std::string name, place;
  uint64_t first = 0, last = 0, calls = 0;  // numbers of the first and the last call from this place; calls from there
};

struct Ran {
  int code = -1;
  std::string err, out;
  std::optional<Report> report;
  std::vector<Call> calls;
  double seconds = 0;
};

class SoftwareGpu : public ProcessTest {
 protected:
  static std::string folder_of_programs() { return test_folders::binary() + "/software_gpu"; }

  void SetUp() override {
    if (!std::filesystem::exists(folder_of_programs() + "/halfmark_cuda.so"))
      GTEST_SKIP() << "no plugin for the software GPU in " << folder_of_programs();
  }

  // With HALFMARK_LONG a run may be a long one.
  Ran ran(const std::string& variables, const std::string& arguments) const {
    const char* limit = std::getenv("HALFMARK_LONG") ? "1800" : "60";
    for (const char* file : {"report.json", "report.json.journal", "calls"}) std::filesystem::remove(folder_ / file);
    const auto begin = std::chrono::steady_clock::now();
    const Result result =
        shell("env HALFMARK_SOFTWARE_GPU=sm_90 HALFMARK_SOFTWARE_GPU_CALLS=calls " + variables + " timeout -k 5 " +
              limit + " " + quoted(folder_of_programs() + "/halfmark") + " " + arguments);
    Ran ran;
    ran.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ran.code = result.code, ran.err = result.err, ran.out = result.out;
    if (std::filesystem::exists(folder_ / "report.json")) ran.report = Report::load(folder_ / "report.json");
    std::ifstream calls(folder_ / "calls");
    std::string word;
    for (Call one; calls >> word >> one.name >> one.place >> one.first >> one.last >> one.calls;)
      ran.calls.push_back(one);
    return ran;
  }
};

}  // namespace halfmark::bench
