// The list of subjects, and those at other sizes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "models/namespaces.h"
#include "models/subject.h"

namespace halfmark::models {

// Those that suites and globs choose from. Any other size is read from its id.
const std::vector<Subject>& subjects();
// Adds rows at the end. References and pointers to earlier rows become invalid.
void add_subjects(const std::vector<Subject>& more);
// Adds a row with a network, whose sizes are "b" and its batch; subject_named knows it at any batch. Likewise.
void add_model(const Subject& model);
// Whether ids of this name are read: a family, or a model that was added.
bool has_sizes(std::string_view name);
// One of the list, or that of a family at these sizes; it lives as long as the program. Throws Error that names the
// nearest known ones, or says what is wrong with the sizes: which letter, or which layer gets a shape that it cannot have.
// Call from one thread.
const Subject& subject_named(const std::string& id);
// The place in subjects(); those at other sizes follow in the order in which they were named.
size_t place_of(const Subject& subject);

}  // namespace halfmark::models
