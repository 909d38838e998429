#include "reports/gate/acknowledgement.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cmath>

#include "reports/record/file.h"
#include "reports/record/glob.h"
#include "reports/record/json_parser.h"
#include "reports/record/json_reader.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

constexpr std::string_view kAcknowledgementKind = "file of acknowledgements";
constexpr double kAgreement = 0.01;

bool is_date(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  int parts[3] = {};
  const size_t begins[3] = {0, 5, 8}, lengths[3] = {4, 2, 2};
  for (size_t i = 0; i < 3; ++i) {
    const char* first = text.data() + begins[i];
    const char* last = first + lengths[i];
    if (*first < '0' || *first > '9' || std::from_chars(first, last, parts[i]).ptr != last) return false;
  }
  using namespace std::chrono;
  return year_month_day(year(parts[0]), month(static_cast<unsigned>(parts[1])), day(static_cast<unsigned>(parts[2])))
      .ok();
}

std::string filled(const JsonReader& json, const char* key) {
  const JsonReader member = json.required(key);
  std::string text = member.text();
  if (text.empty()) member.fail("is empty");
  return text;
}

Acknowledgement read_entry(const JsonReader& json) {
  static const std::vector<std::string_view> kFields = {"case", "metric", "at", "from", "to", "reason", "expires"};
  json.expect_only(kFields);
  Acknowledgement entry;
  entry.cases = filled(json, "case");
  entry.metric = json.text("metric");
  entry.at = json.text("at", entry.at);
  if (entry.metric.empty()) {
    if (json.optional("at")) json.fail("\"at\" without \"metric\": a fingerprint covers the whole case");
    entry.from = filled(json, "from"), entry.to = filled(json, "to");
  } else {
    entry.from_value = json.required("from").number(), entry.to_value = json.required("to").number();
  }
  if (entry.metric.starts_with("reference.") && entry.metric != kReferenceAll)
    json.required("metric").fail(fmt::format(
        "is \"{}\"; numbers of the fp64 reference are acknowledged together: \"{}\", from and to as the gate "
        "prints them",
        entry.metric, kReferenceAll));
  entry.reason = filled(json, "reason");
  entry.expires = filled(json, "expires");
  if (!is_date(entry.expires)) json.required("expires").fail("is not a date such as \"2026-03-01\"");
  return entry;
}

bool agrees(double a, double b) { return a == b || std::fabs(a - b) <= kAgreement * std::fabs(b); }

}  // namespace

Acknowledgements Acknowledgements::from_json(const nlohmann::ordered_json& json, std::string_view where) {
  static const std::vector<std::string_view> kFields = {"acknowledgements", "entries"};
  const JsonReader reader(json, where, kAcknowledgementKind);
  reader.expect_object();
  const JsonReader version = reader.required("acknowledgements");
  if (version.integer() != 1)
    version.fail(fmt::format("is version {}, this program reads version 1", version.integer()));
  reader.expect_only(kFields);
  Acknowledgements all;
  all.where_ = where;
  reader.required("entries").each([&](const JsonReader& one) { all.entries_.push_back(read_entry(one)); });
  return all;
}

Acknowledgements Acknowledgements::load(const std::string& path) {
  return from_json(parse_json(read_file(path), path, kAcknowledgementKind), path);
}

const Acknowledgement* Acknowledgements::find_bits(const std::string& id, const std::string& from,
                                                   const std::string& to, std::string_view today) {
  for (Acknowledgement& entry : entries_) {
    if (!entry.metric.empty() || entry.from != from || entry.to != to || !glob_matches(entry.cases, id)) continue;
    if (entry.expires < today) continue;
    entry.used = true;
    return &entry;
  }
  return nullptr;
}

const Acknowledgement* Acknowledgements::find_number(const std::string& id, const Measurement& from, double to,
                                                     std::string_view today) {
  for (Acknowledgement& entry : entries_) {
    if (entry.metric.empty() || !glob_matches(entry.metric, from.metric) || !glob_matches(entry.at, from.at)) continue;
    if (!glob_matches(entry.cases, id) || entry.expires < today) continue;
    const bool better = from.better == Better::lower    ? to <= entry.to_value
                        : from.better == Better::higher ? to >= entry.to_value
                                                        : false;
    if (!agrees(from.value, entry.from_value) || !(better || agrees(to, entry.to_value))) continue;
    entry.used = true;
    return &entry;
  }
  return nullptr;
}

const Acknowledgement* Acknowledgements::find_reference(const std::string& id, double from, double to,
                                                        std::string_view today) {
  const auto agree = [](double a, double b) { return std::fabs(a - b) <= kReferenceAgreement; };
  for (Acknowledgement& entry : entries_) {
    if (entry.metric != kReferenceAll || !glob_matches(entry.cases, id) || entry.expires < today) continue;
    if (!agree(from, entry.from_value) || !agree(to, entry.to_value)) continue;
    entry.used = true;
    return &entry;
  }
  return nullptr;
}

std::vector<std::string> Acknowledgements::remarks(std::string_view today) const {
  std::vector<std::string> found;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Acknowledgement& entry = entries_[i];
    const std::string about = printable(fmt::format("{}: entry {} about {}{}{}", where_, i + 1, entry.cases,
                                                    entry.metric.empty() ? "" : " ", entry.metric));
    if (entry.expires < today)
      found.push_back(fmt::format("{} expired on {}; renew or remove it", about, entry.expires));
    else if (!entry.used)
      found.push_back(about + " covers no change; remove it");
  }
  return found;
}

}  // namespace halfmark::reports
