// From the path of `--data` to a data set, and whether a subject can learn from it.
#pragma once

#include <filesystem>
#include <memory>

#include "models/files/data_set.h"
#include "models/namespaces.h"
#include "models/subject.h"

namespace halfmark::models {

// Recognises the files by their names. Throws Error that names what was looked for and what is there, or the file that is
// wrong.
std::shared_ptr<const DataSet> open_data_set(const std::filesystem::path& path, DataKind kind);

// Throws Error that says which input and how many classes the files need, and sizes of the subject that have them.
void check_fits(const DataSet& data, const Subject& subject);

}  // namespace halfmark::models
