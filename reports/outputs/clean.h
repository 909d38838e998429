// Texts of unknown origin made fit to print: names in a report may hold any bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "reports/record/printable.h"

namespace halfmark::reports {

// Valid UTF-8 without the characters that XML 1.0 forbids and those that printable() replaces; tabs and line ends stay.
// Markup is left alone.
std::string xml_characters(std::string_view text);

// Text in a Markdown table cell that reads as it was written: no markup, no HTML, no mention of a person, no pipe.
std::string markdown_text(std::string_view text);

// The same as code: names, command lines. Nothing visible is added, so that what is copied from the page runs.
std::string markdown_code(std::string_view text);

// For the message and for a property of a GitHub workflow command.
std::string workflow_message(std::string_view text);
std::string workflow_property(std::string_view text);

// The beginning and the end of a valid text that is longer than so many bytes, with " .. " between.
std::string middle_cut(std::string_view text, size_t bytes);

// Valid UTF-8 of at most so many bytes. A longer name keeps its ends and gets a number that tells apart those whose
// middle alone differs.
std::string short_name(std::string_view name, size_t bytes);

}  // namespace halfmark::reports
