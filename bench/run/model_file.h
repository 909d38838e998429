// Model files: networks of a user's own as JSON, for `--model FILE`, and the built-in subjects written in that form.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/namespaces.h"
#include "models/subject.h"

namespace halfmark::bench {

// {"name": "tiny", "input": [3, 16, 16], "batch": 32, "data": "images", "classes": 10,
// "loss": {"loss": "cross_entropy", "smoothing": 0.1}, "layers": [{"layer": "conv2d",
// "name": "conv1", "out": 16, "kernel": 3}, {"layer": "add", "branches": [[...], []]}, ...]}. `where` is the name in
// messages. Throws Error "FILE:LINE: what is wrong".
Subject model_in(std::string_view text, const std::string& where);

// Reads the file and adds its model to the subjects, also at other batches: NAME/b64. Returns its id.
std::string add_model_file(const std::string& file);
// Of all files that were added: {"--model", PATH, ...}, the paths absolute, for a command line that needs the same models.
const std::vector<std::string>& model_file_options();

// The form above. Throws Error for a subject that is known to a function of a program only.
nlohmann::ordered_json model_json(const Subject& subject);

}  // namespace halfmark::bench
