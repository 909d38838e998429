// The non-template parts of run(op).
#include "kernels/ops/dispatch.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/ops/operation_times.h"

namespace halfmark::kernels {

void Dispatch::log(const void* choice, const LoggedKernel& what, Repeats repeats) {
  KernelLog::count(choice, what);
  RepeatsWatch::see(repeats);
}

std::optional<size_t> Dispatch::begin_time(const Device& device) { return OperationTimes::begin(device); }
void Dispatch::end_time(std::string_view operation, size_t begin) { OperationTimes::end(operation, begin); }

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
