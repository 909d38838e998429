#include "models/network/layer_request.h"

#include "kernels/number/error.h"
#include "kernels/number/named.h"

namespace halfmark::models {

Size2d LayerRequest::extent(std::string_view argument) const {
  const Extent pair = given.extent(argument);
  return {static_cast<int>(pair.h), static_cast<int>(pair.w)};
}

EarlierLayer& LayerRequest::earlier_layer(const std::string& wanted) const {
  const auto found = earlier->find(wanted);
  if (found != earlier->end()) return found->second;
  check(!earlier->empty(), "names the layer '" + wanted + "' before this one, which is the first");
  std::vector<std::string> known;
  for (const auto& [known_name, layer] : *earlier) known.push_back(known_name);
  kernels::throw_unknown_name("earlier layer", wanted, known);
}

void LayerRequest::check(bool holds, const std::string& what) const { HM_CHECK(holds, what); }

void LayerRequest::need_rank(int rank, std::string_view form) const {
  check(input.rank() == rank, "needs an input " + std::string(form) + ", not " + input.text());
}

}  // namespace halfmark::models
