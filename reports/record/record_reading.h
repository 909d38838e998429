// A record from the JSON of a report or of a journal.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "reports/record/json_reader.h"
#include "reports/record/record.h"

namespace halfmark::reports {

// Throws ReportError with the file and the place if a field is missing, has another type or contradicts another one.
// Fields that this program does not know are ignored: a later minor version may have them.
Record read_record(const JsonReader& json);

// `where` is the prefix of the message of a ReportError: "journal.jsonl, line 7".
Record record_from_json(const nlohmann::ordered_json& json, std::string_view where);

}  // namespace halfmark::reports
