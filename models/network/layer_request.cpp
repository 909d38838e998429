#include "models/network/layer_request.h"

#include <variant>

#include "kernels/number/error.h"

namespace halfmark::models {

const Value& LayerRequest::value(std::string_view argument) const {
  if (const auto given = arguments->find(argument); given != arguments->end()) return given->second;
  for (const ArgumentRow& row : rows)
    if (row.name == argument && row.usual) return *row.usual;
  throw Error("there is no argument " + std::string(argument));
}

int64_t LayerRequest::count(std::string_view argument) const { return std::get<int64_t>(value(argument)); }
Size2d LayerRequest::extent(std::string_view argument) const {
  const Value& found = value(argument);
  if (const auto* both = std::get_if<int64_t>(&found)) return {static_cast<int>(*both)};
  const Extent& pair = std::get<Extent>(found);
  return {static_cast<int>(pair.h), static_cast<int>(pair.w)};
}
double LayerRequest::number(std::string_view argument) const { return std::get<double>(value(argument)); }
bool LayerRequest::flag(std::string_view argument) const { return std::get<bool>(value(argument)); }
const std::string& LayerRequest::word(std::string_view argument) const {
  return std::get<std::string>(value(argument));
}
const std::vector<double>& LayerRequest::numbers(std::string_view argument) const {
  return std::get<std::vector<double>>(value(argument));
}

void LayerRequest::check(bool holds, const std::string& what) const { HM_CHECK(holds, what); }

void LayerRequest::need_rank(int rank, std::string_view form) const {
  check(input.rank() == rank, "needs an input " + std::string(form) + ", not " + input.text());
}

}  // namespace halfmark::models
