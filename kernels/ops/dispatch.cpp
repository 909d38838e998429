// The non-template parts of run(op).
#include "kernels/ops/dispatch.h"

#include <memory>

namespace halfmark::kernels {

void Dispatch::log(const void* choice, const LoggedKernel& what, Repeats repeats) {
  KernelLog::count(choice, what);
  RepeatsWatch::see(repeats);
}

ops_detail::DispatchState& Dispatch::state(Device& device) {
  if (!device.dispatch) device.dispatch = std::make_shared<ops_detail::DispatchState>();
  return *static_cast<ops_detail::DispatchState*>(device.dispatch.get());
}

void Dispatch::nobody(const LoggedKernel& what, const Device& device) {
  std::string text = device.name() + " has no kernel for " + what.operation + " " + what.dtypes;
  for (const std::string& refusal : what.refusals) text += "; " + refusal;
  throw Unsupported(text);
}

}  // namespace halfmark::kernels
