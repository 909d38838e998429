// The non-template parts of run(op).
#include "kernels/ops/dispatch.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace halfmark::kernels {

void Dispatch::log(const void* choice, const LoggedKernel& what, Repeats repeats) {
  KernelLog::count(choice, what);
  RepeatsWatch::see(repeats);
}

ops_detail::DispatchState& Dispatch::state(Device& device) {
  if (!device.dispatch) device.dispatch = std::make_shared<ops_detail::DispatchState>();
  return *static_cast<ops_detail::DispatchState*>(device.dispatch.get());
}

const ops_detail::Choice* Dispatch::known(const ops_detail::Choices& choices, const Signature& signature) {
  const auto found = choices.find(signature);
  return found == choices.end() ? nullptr : &found->second;
}

const ops_detail::Choice& Dispatch::keep(ops_detail::Choices& choices, Signature signature, ops_detail::Choice choice) {
  return choices.emplace(std::move(signature), std::move(choice)).first->second;
}

void Dispatch::refused(LoggedKernel& what, std::string_view row, const std::string& reason) {
  what.refusals.push_back(std::string(row) + ": " + reason);
}

void Dispatch::nobody(const LoggedKernel& what, const Device& device) {
  std::string text = device.name() + " has no kernel for " + what.operation + " " + what.dtypes;
  for (const std::string& refusal : what.refusals) text += "; " + refusal;
  throw Unsupported(text);
}

}  // namespace halfmark::kernels
