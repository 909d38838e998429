#include "models/network/layer_request.h"

#include "kernels/number/error.h"

namespace halfmark::models {

Size2d LayerRequest::extent(std::string_view argument) const {
  const Extent pair = given.extent(argument);
  return {static_cast<int>(pair.h), static_cast<int>(pair.w)};
}

void LayerRequest::check(bool holds, const std::string& what) const { HM_CHECK(holds, what); }

void LayerRequest::need_rank(int rank, std::string_view form) const {
  check(input.rank() == rank, "needs an input " + std::string(form) + ", not " + input.text());
}

}  // namespace halfmark::models
