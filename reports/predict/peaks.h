// The published peaks of GPUs: peaks.json. The only place of the project that states them.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace halfmark::reports {

// A published number and where it stands.
struct PublishedFigure {
  double value = 0;    // FLOP/s, B/s or B
  std::string source;  // document
  std::string row;     // of its table: "Peak TF32 Tensor TFLOPS"
  std::string note;    // "half of 989 with sparsity"
};

struct PublishedGpu {
  std::string name;                  // "a100", of --predict
  std::string board;                 // "A100 SXM4 80 GB"
  std::string architecture;          // "ampere": sim:ampere computes its numbers
  std::vector<std::string> devices;  // patterns of the names that drivers report
  PublishedFigure memory, bandwidth;
  std::map<std::string, PublishedFigure>
      flops;                      // by type of the operands: "f32", "tf32", "f16", "f16-sum16", "bf16", "fp8", "fp4"
  std::set<std::string> without;  // types for which it has no matrix instruction
};

// Throws ReportError: a field is wrong, a number is not positive or its source is not in the list of sources.
std::vector<PublishedGpu> published_gpus_from(const nlohmann::ordered_json& json, std::string_view where);

// Those of the program.
const std::vector<PublishedGpu>& published_gpus();

// Names, architectures and devices that simulate them, in this order: all that --predict knows.
std::vector<std::string> names_of_published_gpus();

// The GPUs that have one of these names, in the order of the table.
std::vector<const PublishedGpu*> published_gpus_named(const std::vector<std::string>& names);

}  // namespace halfmark::reports
