// Where a text stops to be JSON, for messages to those who typed it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace halfmark::reports {

// The line of a byte. Both are counted from 1.
size_t line_at(std::string_view text, size_t byte);

// The line of a key, by its number among all keys of the text in their order, counted from 0.
size_t line_of_key(std::string_view text, size_t number);

// "at line 5, column 3, where "data" begins (is a comma missing before it?)". `byte` is that at which the parser stopped,
// counted from 1, at most the size of the text.
std::string place_of_mistake(std::string_view text, size_t byte);

}  // namespace halfmark::reports
