// What `halfmark gate` and `halfmark ab` share: the options that say where a judgement goes, and its way there.
#pragma once

#include <string>

#include "bench/commands/command_line.h"
#include "bench/namespaces.h"
#include "reports/outputs/outputs.h"

namespace halfmark::bench {

struct OutputOptions {
  std::string markdown, junit, csv, json, gbench, smaller_is_better;
  bool annotations = false, all = false;

  void add_to(Command& command);
  // Throws ReportError about a file that cannot be written: to be asked before anything is measured.
  void check() const;
  // The judgement on standard output, and every file that was asked for.
  void write(const Judgement& judgement, const Report& candidate) const;

 private:
  OutputFiles files() const;
};

}  // namespace halfmark::bench
