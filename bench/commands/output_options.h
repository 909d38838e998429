// The options of `halfmark gate` and `halfmark ab` for the output files of a judgement, and writing them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/commands/command_line.h"
#include "bench/namespaces.h"
#include "reports/outputs/outputs.h"

namespace halfmark::bench {

struct OutputOptions {
  std::string markdown, junit, csv, json, gbench, smaller_is_better;
  bool annotations = false, all = false;

  void add_to(Command& command);
  // Throws ReportError about a file that cannot be written or is one of the inputs; call it before anything is measured.
  void check(const std::vector<std::filesystem::path>& inputs = {}) const;
  // Prints the judgement on standard output and writes every requested file.
  void write(const Judgement& judgement, const Report& candidate) const;

 private:
  OutputFiles files() const;
};

}  // namespace halfmark::bench
