#include "bench/run/data_files.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>

#include "kernels/number/error.h"
#include "models/data_kinds.h"
#include "models/families.h"
#include "models/files/open.h"

namespace halfmark::bench {

namespace {

void check_drawn(const Subject& subject) {
  if (!subject.has_labels()) return;
  const int64_t least = models::least_drawn_classes(subject.data);
  const bool has_letter = subject.data == DataKind::text && models::family_named(subject.name);
  HM_CHECK(subject.classes >= least, fmt::format("{}: {} is {}, drawn {} needs {} or more", subject.id(),
                                                 has_letter ? "v (vocabulary)" : "\"classes\"", subject.classes,
                                                 models::row_of(subject.data).name, least));
}

}  // namespace

void DataFiles::add_to(Case& one) {
  if (path_.empty()) return check_drawn(*one.subject);
  std::shared_ptr<const DataSet>& data = opened_[one.subject->data];
  if (!data) data = open_data_set(path_, one.subject->data);
  check_fits(*data, *one.subject);
  one.data = data;
  // A record is read in other folders than that of its run.
  one.data_path = std::filesystem::absolute(path_).lexically_normal().string();
}

std::vector<std::string> data_options(const Case& one) {
  if (!one.data) return {};
  return {"--data", one.data_path};
}

std::optional<DataOrigin> data_origin(const Case& one) {
  if (!one.data) return {};
  const models::DataFacts& facts = one.data->facts();
  return DataOrigin{.kind = facts.kind,
                    .name = facts.name,
                    .hash = facts.hash,
                    .hashed = facts.hashed,
                    .normalisation = facts.normalisation,
                    .unit = facts.unit,
                    .training = facts.training,
                    .held_out = facts.held_out};
}

}  // namespace halfmark::bench
