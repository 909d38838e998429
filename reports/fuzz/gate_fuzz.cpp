// Any bytes as rules of the gate and as acknowledgements.
#include <cstdint>

#include "reports/acknowledgement.h"
#include "reports/gate_rules.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    halfmark::gate_rules_from(halfmark::parse_json(text, "fuzz", "file of gate rules"), "fuzz");
  } catch (const halfmark::ReportError&) {
  }
  try {
    halfmark::Acknowledgements::from_json(halfmark::parse_json(text, "fuzz", "file of acknowledgements"), "fuzz");
  } catch (const halfmark::ReportError&) {
  }
  return 0;
}
