// Reads the members of an object of a JSON file that somebody typed, and complains with the line.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "bench/namespaces.h"
#include "bench/run/json_lines.h"
#include "kernels/number/error.h"
#include "reports/record/json_parser.h"
#include "reports/record/printable.h"

namespace halfmark::bench {

// Of a name, a kind or an argument: a complaint repeats it.
inline constexpr size_t kLongestWord = 64;

// At most 40 characters.
inline std::string short_text(const nlohmann::ordered_json& value) {
  const std::string text = value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return printable(text.size() > 40 ? text.substr(0, 37) + "..." : text);
}

// An object of the file: reads its members and complains with the line where the wrong value begins, or where the object
// does.
class ObjectReader {
 public:
  using Json = nlohmann::ordered_json;

  ObjectReader(const Json& object, const JsonLines& lines, const std::string& where)
      : object_(object), lines_(lines), where_(where) {}

  [[noreturn]] void fail_at(const Json& value, const std::string& what) const {
    const size_t line = lines_.of(value);
    throw Error(fmt::format("{}:{}: {}", where_, line ? line : std::max<size_t>(1, lines_.of(object_)), what));
  }
  [[noreturn]] void fail(const std::string& what) const { fail_at(object_, what); }
  void check(bool holds, const std::string& what) const {
    if (!holds) fail(what);
  }
  void check_at(const Json& value, bool holds, const std::string& what) const {
    if (!holds) fail_at(value, what);
  }
  // The same at a member, or at the object if it has none of this key.
  void check_of(const char* key, bool holds, const std::string& what) const {
    check_at(object_.contains(key) ? object_.at(key) : object_, holds, what);
  }
  const Json& member(const char* key, const char* form) const {
    check(object_.contains(key), fmt::format("needs \"{}\": {}", key, form));
    return object_.at(key);
  }
  std::string word(const char* key, const char* form) const {
    const Json& value = member(key, form);
    check_at(value, value.is_string(), fmt::format("\"{}\" is {}, not {}", key, short_text(value), form));
    check_length(key, value);
    return value.get<std::string>();
  }
  void check_length(std::string_view key, const Json& word) const {
    const size_t length = word.get_ref<const std::string&>().size();
    check_at(word, length <= kLongestWord,
             fmt::format("\"{}\" is {}, a word of {} bytes; {} is the most", printable(key.substr(0, 40)),
                         short_text(word), length, kLongestWord));
  }
  int64_t count(const char* key, const char* form, int64_t most) const {
    return checked_count(member(key, form), fmt::format("\"{}\"", key), most);
  }
  int64_t checked_count(const Json& value, const std::string& what, int64_t most) const {
    check_at(value, value.is_number_integer(), fmt::format("{} is {}, not a whole number", what, short_text(value)));
    const uint64_t found =
        value.is_number_unsigned() ? value.get<uint64_t>() : 0;  // a negative one is out of range too
    check_at(value, found >= 1 && found <= static_cast<uint64_t>(most),
             fmt::format("{} is {}, not in 1 ... {}", what, short_text(value), most));
    return static_cast<int64_t>(found);
  }
  void only(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : object_.items())
      check_at(value, std::find(known.begin(), known.end(), key) != known.end(),
               fmt::format("unknown \"{}\"; known: {}", printable(key.substr(0, 40)), fmt::join(known, ", ")));
  }

 private:
  const Json& object_;
  const JsonLines& lines_;
  const std::string& where_;
};

}  // namespace halfmark::bench
