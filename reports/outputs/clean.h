// Makes texts of unknown origin safe to print: names in a report may contain any bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "reports/record/printable.h"

namespace halfmark::reports {

// Valid UTF-8 without the characters that XML 1.0 forbids and those that printable() replaces; tabs and line ends stay.
// Markup is not changed.
std::string xml_characters(std::string_view text);

// Text in a Markdown table cell that reads as it was written: no markup, no HTML, no mention of a person, no pipe.
std::string markdown_text(std::string_view text);

// The same as code: names, command lines. Nothing visible is added, so that a command copied from the page runs.
std::string markdown_code(std::string_view text);

// For the message and for a property of a GitHub workflow command.
std::string workflow_message(std::string_view text);
std::string workflow_property(std::string_view text);

// A valid text; if it is longer than the given number of bytes, its beginning and end with " .. " between.
std::string middle_cut(std::string_view text, size_t bytes);

// Valid UTF-8 of at most the given number of bytes. A longer name keeps its ends and gets a hash, so that names that
// differ only in the middle stay different.
std::string short_name(std::string_view name, size_t bytes);

}  // namespace halfmark::reports
