// halfmark_micro: Google Benchmark over every kernel row of every present device,
// and over halfmark's rows compared with direct calls of the library. Its JSON is
// Google Benchmark's own, so that compare.py and similar tools can read it.
#include <benchmark/benchmark.h>

#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/micro/micro.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/devices.h"

// Removes --threads=N from the arguments; the others are for Google Benchmark.
static void take_threads(int& argc, char** argv) {
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument(argv[i]);
    if (argument.starts_with("--threads="))
      halfmark::kernels::set_host_threads(std::stoi(std::string(argument.substr(10))));
    else
      argv[kept++] = argv[i];
  }
  argc = kept;
}

int main(int argc, char** argv) {
  try {
    take_threads(argc, argv);
    std::vector<std::shared_ptr<halfmark::kernels::Device>> devices;
    for (const halfmark::kernels::DeviceRow& row : halfmark::kernels::known_devices()) {
      if (row.absent.empty())
        devices.push_back(halfmark::kernels::open_device(row.name));
      else
        std::cerr << row.name << " is absent: " << row.absent << "\n";
    }
    halfmark::bench::micro::register_peers();
    halfmark::bench::micro::register_rounding();
    halfmark::bench::micro::register_tensor_cores();
    halfmark::bench::micro::register_steps();
    halfmark::bench::micro::register_rows(devices);
    halfmark::bench::micro::register_large(devices);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "halfmark_micro: " << error.what() << "\n";
    return 2;
  }
}
