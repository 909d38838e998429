// How long each operation of a piece of work takes on a device, while the work runs as always.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/tensor/device.h"

namespace halfmark::kernels {

// The operations that run on the device in this thread while the object exists; those that a row runs itself are part of its own. Between
// two of them a device may idle, until the host has enqueued the next one: that is not in any of the times.
class OperationTimes {
 public:
  explicit OperationTimes(Device& device);
  ~OperationTimes();
  OperationTimes(const OperationTimes&) = delete;
  OperationTimes& operator=(const OperationTimes&) = delete;

  struct Time {
    std::string_view operation;
    uint64_t calls = 0;
    double seconds = 0;
  };
  std::vector<Time> times() const;  // by operation, in order of first use; waits for the device

 private:
  friend struct Dispatch;
  struct Span {
    std::string_view operation;
    size_t begin, end;  // marks
  };
  static std::optional<size_t> begin(const Device& device);  // nothing: this operation is not timed
  static void end(std::string_view operation, size_t begin);

  const Device& device_;
  std::unique_ptr<TimeMarks> marks_;
  std::vector<Span> spans_;
  OperationTimes* outer_;
};

}  // namespace halfmark::kernels
