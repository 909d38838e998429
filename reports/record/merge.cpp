#include "reports/record/merge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "reports/record/provenance.h"

namespace halfmark::reports {

namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void differ(const NamedReport& a, const NamedReport& b, std::string_view what, std::string_view of_a,
                         std::string_view of_b) {
  throw ReportError(fmt::format("{} and {} do not belong together: {} is {} and {}; merge the shards of one run",
                                a.name, b.name, what, of_a, of_b));
}

Shard shard_of(const NamedReport& named) {
  const RunInfo& run = named.report.run;
  if (run.plan.cases == 0)
    throw ReportError(named.name + ": has no plan, because an older halfmark wrote it; run it again");
  if (run.shard.empty())
    throw ReportError(named.name + ": is not a shard; merge reports of `halfmark run --shard I/N`");
  const auto shard = shard_named(run.shard);
  if (!shard)
    throw ReportError(fmt::format("{}: its shard is '{}', which should be I/N; was it edited?", named.name, run.shard));
  const uint64_t all = shard->size(run.plan.cases), has = named.report.records.size();
  if (has > all || (run.complete && has != all))
    throw ReportError(fmt::format("{}: shard {} of {} cases has {} cases, and there are {} records; was it edited?",
                                  named.name, run.shard, run.plan.cases, all, has));
  return *shard;
}

void check_pair(const NamedReport& a, const NamedReport& b) {
  const RunInfo &here = a.report.run, &there = b.report.run;
  if (here.suite != there.suite) differ(a, b, "the suite", here.suite, there.suite);
  if (here.seed != there.seed) differ(a, b, "the seed", std::to_string(here.seed), std::to_string(there.seed));
  const auto shards = [](const RunInfo& run) { return run.shard.substr(run.shard.find('/') + 1); };
  if (shards(here) != shards(there)) differ(a, b, "the number of shards", shards(here), shards(there));
  const auto plan = [](const RunInfo& run) { return fmt::format("{} cases ({})", run.plan.cases, run.plan.hash); };
  if (plan(here) != plan(there)) differ(a, b, "the plan of cases, networks and data", plan(here), plan(there));
  if (const auto found = difference_of(a.report.environment, b.report.environment))
    differ(a, b, found->key, found->here, found->there);
}

// Facts that differ between shards are kept under the label of each shard.
Json environment_of(const std::vector<NamedReport>& shards) {
  Json whole = shards[0].report.environment;
  Json parts = Json::array();
  for (const NamedReport& named : shards) {
    const RunInfo& run = named.report.run;
    Json part = {{"shard", run.shard}, {"started", run.started}, {"seconds", run.seconds}, {"command", run.command}};
    for (const auto& [key, value] : named.report.environment.items()) {
      if (key != "devices" || !value.is_object() || !whole.contains(key)) {
        if (!whole.contains(key) || whole[key] != value) part[key] = value;
        continue;
      }
      for (const auto& [name, facts] : value.items()) {
        if (!whole[key].contains(name)) whole[key][name] = facts;
        if (whole[key][name] != facts) part[key][name] = facts;
      }
    }
    parts.push_back(std::move(part));
  }
  whole["shards"] = std::move(parts);
  return whole;
}

RunInfo run_of(const std::vector<NamedReport>& shards) {
  RunInfo run = shards[0].report.run;
  run.seconds = 0;
  for (const NamedReport& named : shards) {
    run.started = std::min(run.started, named.report.run.started);  // ISO 8601 in UTC sorts as text
    run.seconds += named.report.run.seconds;
  }
  run.shard.clear();
  run.planned = run.plan.cases;
  return run;
}

}  // namespace

Report merge(const std::vector<NamedReport>& shards, bool partial) {
  if (shards.empty()) throw ReportError("nothing to merge; name the reports of the shards");
  std::map<uint64_t, const NamedReport*> parts;
  uint64_t all = 0;
  for (const NamedReport& named : shards) {
    const Shard shard = shard_of(named);
    all = shard.parts;
    check_pair(shards[0], named);
    const auto [known, is_new] = parts.emplace(shard.part, &named);
    if (!is_new)
      throw ReportError(fmt::format("{} and {} are both shard {}; name each shard once", known->second->name,
                                    named.name, named.report.run.shard));
    if (!partial && !named.report.run.complete)
      throw ReportError(fmt::format("{}: is partial, {} of {} cases; finish it with --resume or add --partial",
                                    named.name, named.report.records.size(), shard.size(named.report.run.plan.cases)));
  }
  if (!partial && parts.size() != all) {
    std::vector<std::string> missing;
    for (uint64_t part = 1; part <= all && missing.size() < 10; ++part)
      if (!parts.contains(part)) missing.push_back(fmt::format("{}/{}", part, all));
    throw ReportError(fmt::format("{} of {} shards are missing ({}{}); name their reports too or add --partial",
                                  all - parts.size(), all, fmt::join(missing, ", "),
                                  missing.size() < all - parts.size() ? ", ..." : ""));
  }

  std::map<uint64_t, const Record*> in_order;
  std::unordered_map<std::string_view, const NamedReport*> owners;
  for (const auto& [part, named] : parts) {
    for (uint64_t i = 0; i < named->report.records.size(); ++i) {
      const Record& record = named->report.records[i];
      const auto [owner, is_new] = owners.emplace(record.id, named);
      if (!is_new)
        throw ReportError(fmt::format("{} and {} both have a record {}; was one edited?", owner->second->name,
                                      named->name, record.id));
      in_order[Shard{part, all}.place(i)] = &record;
    }
  }
  Report whole;
  whole.run = run_of(shards);
  whole.environment = environment_of(shards);
  std::vector<std::string> ids, cases;  // a plan of an older halfmark has the ids alone
  for (const auto& [place, record] : in_order) {
    whole.records.push_back(*record);
    ids.push_back(record->id);
    cases.push_back(planned_case(record->id, record->definition, record->data ? record->data->hash : ""));
  }
  whole.run.complete = ids.size() == whole.run.plan.cases;
  if (const std::string& hash = whole.run.plan.hash;
      whole.run.complete && plan_of(cases).hash != hash && plan_of(ids).hash != hash)
    throw ReportError(fmt::format("{}: the records of all shards do not match the plan {}; was a report edited?",
                                  shards[0].name, whole.run.plan.hash));
  return whole;
}

}  // namespace halfmark::reports
