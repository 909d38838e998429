// Fuzzes the journal of a run: expects a ReportError, or the complete records.
#include <cstdint>

#include "reports/record/journal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    halfmark::reports::Journal::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const halfmark::reports::ReportError&) {
  }
  return 0;
}
