// Text by character: each character of a file is a class, and the label of a character is the next one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/files/bytes.h"
#include "models/files/data_set.h"
#include "models/namespaces.h"

namespace halfmark::models {

// The code points of UTF-8. Throws Error "WHERE: ..." with the place of the first byte that is not part of it: truncated or
// overlong sequences, surrogates, numbers above 0x10FFFF.
std::vector<char32_t> decode_utf8(Bytes file, const std::string& where);

// A data set of the kind `text`. The vocabulary is the set of the file's characters, numbered by code point. The first nine
// tenths are for training, where a sample begins at any character; held-out samples lie one after another in the rest.
std::shared_ptr<const DataSet> text_data_set(Bytes file, const std::string& where, DataFacts facts);

// Of a file, of a folder's input.txt, or of its only .txt file; null: the path has none.
std::shared_ptr<const DataSet> open_text(const std::filesystem::path& path);

}  // namespace halfmark::models
