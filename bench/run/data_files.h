// `--data PATH`: the files that take the place of drawn data in the cases of a command line.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/namespaces.h"
#include "bench/run/case.h"
#include "reports/record/report.h"

namespace halfmark::bench {

class DataFiles {
 public:
  explicit DataFiles(std::string path) : path_(std::move(path)) {}  // empty: drawn data
  // Sets the data of a case. Opens the files for the first subject of each kind of data. Throws Error where they, or
  // data drawn in their place, are not what the subject can learn from.
  void add_to(Case& one);

 private:
  std::string path_;
  std::map<DataKind, std::shared_ptr<const DataSet>> opened_;
};

// {"--data", PATH}, for a command line that measures this case again; empty: drawn data.
std::vector<std::string> data_options(const Case& one);

// What a record says about the data of its case; nothing: drawn.
std::optional<DataOrigin> data_origin(const Case& one);

}  // namespace halfmark::bench
