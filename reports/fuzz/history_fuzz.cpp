// Fuzzes files of a history: expects a ReportError, or a report or judgement that is compared with itself and printed.
#include <cstdint>
#include <string_view>

#include "reports/history/history.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  halfmark::reports::HistoryStore store;
  try {
    store.add("a", text);
    store.add("b", text);
    const halfmark::reports::History history = store.history({.metrics = {"*"}});
    to_json(history).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    text_of(history, {.all = true});
  } catch (const halfmark::reports::ReportError&) {
  }
  return 0;
}
