// The bytes that libraries move to change layouts inside rows. The log of kernels counts the operands of operations; these are
// none: which layouts a library wants depends on the processor.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace halfmark::kernels {

// Counts, while it exists, the reorders in this thread that a KernelLog logs. An operation Reorder is not among them: its
// operands are in the log.
class ReorderBytes {
 public:
  struct Moved {
    std::string_view phase;
    uint64_t calls = 0, read = 0, written = 0;  // what the layouts hold, padding included
  };

  ReorderBytes();
  ~ReorderBytes();
  ReorderBytes(const ReorderBytes&) = delete;
  ReorderBytes& operator=(const ReorderBytes&) = delete;
  const std::vector<Moved>& by_phase() const { return moved_; }  // in order of first use
  void clear() { moved_.clear(); }

  static void add(uint64_t read, uint64_t written);  // of one reorder, called by the row of a library

 private:
  std::vector<Moved> moved_;
  ReorderBytes* outer_;
};

}  // namespace halfmark::kernels
