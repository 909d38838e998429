// Any bytes as the journal of a run: a ReportError, or the records that are whole.
#include <cstdint>

#include "reports/record/journal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    halfmark::reports::Journal::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const halfmark::reports::ReportError&) {
  }
  return 0;
}
