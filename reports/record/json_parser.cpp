#include "reports/record/json_parser.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "reports/record/error.h"
#include "reports/record/json_mistake.h"
#include "reports/record/printable.h"

namespace halfmark::reports {

namespace {

using Json = nlohmann::ordered_json;

// No report is nested deeper, and recursion over a deeper tree would overflow the stack.
constexpr size_t kDeepest = 64;

std::string not_json(std::string_view text, size_t byte, std::string_view where, std::string_view kind) {
  const bool is_report = kind == kReportKind;
  if (text.empty() && !is_report) return fmt::format("{}: is empty, not a {}", where, kind);
  if (text.empty()) return fmt::format("{}: is empty; was the run cut short? make the report again", where);
  // nlohmann counts from 1, and reports the position after the last character if the text ends too early.
  if (byte > text.size()) {
    return fmt::format("{}: ends in the middle after {} bytes; the file was cut short{}", where, text.size(),
                       is_report ? ", make the report again" : "");
  }
  return fmt::format("{}: is not valid JSON {}; is this a {}?", where, place_of_mistake(text, byte), kind);
}

// Callbacks of nlohmann's parser, which fixes their names; true means continue.
class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, std::string_view where, std::string_view kind, const Taker& taker)
      : text_(text), where_(where), kind_(kind), taker_(taker) {}

  Json take() { return std::move(root_); }

  bool null() { return add(nullptr), true; }
  bool boolean(bool value) { return add(value), true; }
  bool number_integer(Json::number_integer_t value) { return add(value), true; }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value), true; }
  bool number_float(Json::number_float_t value, const std::string&) { return add(value), true; }
  bool string(std::string& value) { return add(std::as_const(value)), true; }  // the buffer belongs to the parser
  bool binary(Json::binary_t&) { return false; }                               // not in text
  bool start_object(size_t) { return open(Json::value_t::object); }
  bool start_array(size_t) { return open(Json::value_t::array); }
  bool key(std::string& name) {
    if (open_.size() == 1) key_ = name;
    // Two values of one key: which of them counts would be a guess.
    Json& object = *open_.back();
    const size_t members = object.size();
    member_ = &object[name];
    if (object.size() == members)
      throw ReportError(fmt::format("{}: has \"{}\" twice in one object, again in line {}; was it edited?", where_,
                                    printable(name), line_of_key(text_, keys_)));
    ++keys_;
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool parse_error(size_t byte, const std::string& token, const Json::exception& error) {
    constexpr int kNumberTooLarge = 406;
    if (error.id == kNumberTooLarge)
      throw ReportError(fmt::format("{}: line {} holds {}, a number too large for a double{}", where_,
                                    line_at(text_, byte), printable(std::string_view(token).substr(0, 40)),
                                    kind_ == kReportKind ? "; infinity is written \"Infinity\"" : ""));
    throw ReportError(not_json(text_, byte, where_, kind_));
  }

 private:
  template <class Value>
  Json& add(Value&& value) {
    Json* place = &root_;
    if (!open_.empty()) {
      Json& parent = *open_.back();
      place = parent.is_array() ? &parent.emplace_back(nullptr) : member_;
    }
    *place = std::forward<Value>(value);
    return *place;
  }

  bool open(Json::value_t kind) {
    if (open_.size() == kDeepest)
      throw ReportError(fmt::format("{}: is nested deeper than {} levels; is this a {}?", where_, kDeepest, kind_));
    const bool is_taken_from = open_.size() == 1 && kind == Json::value_t::array && key_ == taker_.key;
    Json& opened = add(kind);
    if (is_taken_from) {
      source_ = &opened;
    }
    constexpr size_t kMembers = 8;  // a measurement has six to eight
    if (opened.is_object()) opened.get_ref<Json::object_t&>().reserve(kMembers);
    open_.push_back(&opened);
    return true;
  }

  bool close() {
    const Json* const closed = open_.back();
    open_.pop_back();
    if (closed == source_) source_ = nullptr;
    if (open_.empty() || open_.back() != source_ || !taker_.take) return true;
    if (taker_.take(root_, source_->back(), taken_)) {
      source_->get_ref<Json::array_t&>().pop_back();
      ++taken_;
    } else {
      source_ = nullptr;
    }
    return true;
  }

  std::string_view text_, where_, kind_;
  const Taker& taker_;
  Json root_;
  std::vector<Json*> open_;  // open objects and lists, outermost first
  Json* member_ = nullptr;   // latest key of the innermost object
  std::string key_;          // latest key of the outermost object
  size_t keys_ = 0;          // of all objects so far
  Json* source_ = nullptr;   // the list whose elements are taken, while it is open
  size_t taken_ = 0;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view where, const Taker& taker, std::string_view kind) {
  TreeBuilder builder(text, where, kind, taker);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

Json parse_json(std::string_view text, std::string_view where, std::string_view kind) {
  return parse_json(text, where, {}, kind);
}

}  // namespace halfmark::reports
