// One subject as text: its layers, and the memory of a training step as predicted.
#pragma once

#include <string>

#include "bench/namespaces.h"
#include "models/subject.h"
#include "reports/text/table.h"

namespace halfmark::bench {

// Throws Error for a subject without a network.
std::string subject_text(const Subject& subject, const TextOptions& options);

}  // namespace halfmark::bench
