#include "reports/claims/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "claims_shipped.h"
#include "reports/record/glob.h"
#include "reports/record/json_reader.h"

namespace halfmark::reports {

namespace {

using nlohmann::ordered_json;
using FieldNames = std::vector<std::string_view>;

constexpr std::string_view kClaimsKind = "list of claims";
constexpr std::string_view kTakes[] = {"only", "max", "min", "mean", "sum"};
constexpr std::string_view kOutcomeNames[] = {"CONFIRMED", "REFUTED", "CONDITIONAL", "INCONCLUSIVE",
                                              "NOT-TESTABLE-HERE"};

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// What makes an id of one in the file.
struct Ids {
  std::string device;
  std::vector<std::pair<std::string, std::string>> ends;  // in a quick run: the first that the id has is replaced

  std::string operator()(std::string id) const {
    id = replaced(std::move(id), "{device}", device);
    for (const auto& [from, to] : ends)
      if (id.ends_with(from)) return id.substr(0, id.size() - from.size()) + to;
    return id;
  }
};

std::vector<Expression> conditions(const JsonReader& json, const char* key, const Claim& claim) {
  std::vector<Expression> all;
  json.each(key, [&](const JsonReader& one) {
    try {
      all.emplace_back(one.text());
    } catch (const ReportError& error) {
      one.fail(error.what());
    }
    for (const std::string& name : all.back().names())
      if (!claim.numbers.contains(name)) one.fail(fmt::format("'{}': there is no number '{}'", one.text(), name));
  });
  return all;
}

NumberSource source_from(const JsonReader& json, const Ids& ids) {
  static const FieldNames kFields = {"case", "cases", "metric",  "curve",       "at",
                                     "take", "x",     "reaches", "falls_below", "estimate"};
  json.expect_object();
  json.expect_only(kFields);
  NumberSource source;
  if (const auto one = json.optional("case")) source.cases.push_back(ids(one->text()));
  json.each("cases", [&](const JsonReader& one) { source.cases.push_back(ids(one.text())); });
  if (source.cases.empty()) json.fail("has no case");
  source.is_curve = json.optional("curve").has_value();
  if (source.is_curve == json.optional("metric").has_value()) json.fail("needs either a metric or a curve");
  source.metric = json.text(source.is_curve ? "curve" : "metric");
  source.at = json.text("at");
  if (const auto take = json.optional("take")) source.take = take->one_of<NumberSource::Take>(kTakes);
  const auto read = [&](const char* key, std::optional<double>& number) {
    const auto member = json.optional(key);
    if (!member) return;
    if (!source.is_curve) member->fail("is for a curve");
    number = member->number();
  };
  if (const auto estimate = json.optional("estimate")) source.is_estimate = estimate->boolean();
  read("x", source.x), read("reaches", source.reaches), read("falls_below", source.falls_below);
  return source;
}

Claim claim_from(const JsonReader& json, std::string_view device, bool quick) {
  static const FieldNames kFields = {"id",      "claim",     "rule",    "note",  "cases",       "quick",
                                     "numbers", "confirmed", "refuted", "needs", "not_testable"};
  json.expect_object();
  json.expect_only(kFields);
  Claim claim;
  claim.id = json.required("id").text();
  claim.article = claim.id.substr(0, claim.id.find('-'));
  claim.text = json.required("claim").text();
  claim.note = json.text("note");
  claim.needs = json.text("needs");
  claim.not_testable = json.text("not_testable");
  if (!claim.not_testable.empty()) {
    for (const char* key : {"cases", "numbers", "confirmed", "refuted"})
      if (const auto member = json.optional(key)) member->fail("is given for a claim that is not testable");
    return claim;
  }
  claim.rule = json.required("rule").text();
  Ids ids{std::string(device), {}};
  const Ids full = ids;
  if (quick)
    json.each_member("quick",
                     [&](const std::string& from, const JsonReader& to) { ids.ends.emplace_back(from, to.text()); });
  std::set<std::string> seen;
  const auto add = [&](const std::string& id) {
    if (seen.insert(id).second) claim.cases.push_back(id);
  };
  json.each("cases", [&](const JsonReader& one) {
    add(ids(one.text()));
    claim.is_shortened = claim.is_shortened || ids(one.text()) != full(one.text());
  });
  json.each_member("numbers", [&](const std::string& name, const JsonReader& one) {
    NumberSource source = source_from(one, ids);
    for (const std::string& id : source.cases) add(id);
    claim.is_shortened = claim.is_shortened || source.cases != source_from(one, full).cases;
    claim.numbers.emplace(name, std::move(source));
  });
  claim.confirmed = conditions(json, "confirmed", claim);
  claim.refuted = conditions(json, "refuted", claim);
  if (claim.confirmed.empty() && claim.refuted.empty()) json.fail("has no condition");
  return claim;
}

// What keeps a verdict from being reached.
struct Obstacle {
  ClaimOutcome outcome;
  std::string reason;
};

const Record& record_of(const Report& report, const std::string& id, const RefusedCases& refused_cases = {}) {
  static const int kVersion = Record().case_version;  // that this program writes
  const auto found = std::ranges::find(report.records, id, &Record::id);
  const auto refuse = [&](const std::string& why) { throw Obstacle{ClaimOutcome::inconclusive, why}; };
  if (found == report.records.end())
    refuse((report.run.complete ? "the report has no case " : "the report, which is partial, has no case ") + id);
  if (found->case_version != kVersion)
    refuse(fmt::format("{}: is version {} of the case, this program decides by version {}; measure it again", id,
                       found->case_version, kVersion));
  if (found->data)
    refuse(fmt::format("{}: was measured on {}, the claims are about drawn data", id, found->data->name));
  if (found->intact == Intact::no)
    refuse(id + ": its checksum is wrong or missing: the report was changed after it was written; measure it again");
  if (const auto refused = refused_cases.find(id); refused != refused_cases.end()) refuse(id + ": " + refused->second);
  const auto reason = [&](const char* status) {
    return fmt::format("{}: {}", id,
                       found->reason.empty() ? fmt::format("{}, without a reason", status) : found->reason);
  };
  if (found->status == Status::skipped) throw Obstacle{ClaimOutcome::not_testable, reason("skipped")};
  if (found->status == Status::failed) refuse(reason("failed"));
  return *found;
}

// Two standard errors on each side. An error that is none says nothing, so that the number may be any.
UncertainNumber within_errors(double value, double error) {
  if (!(std::isfinite(error) && error >= 0))
    return {value, {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()}};
  return {value, {value - 2 * error, value + 2 * error}};
}

UncertainNumber uncertain(const NumberSource& source, const Record& record, const Measurement& one) {
  if (one.interval) return {one.value, *one.interval};
  if (source.is_estimate && !one.standard_error)
    throw Obstacle{ClaimOutcome::inconclusive, fmt::format("{}: {} at '{}' has no standard error; measure it again",
                                                           record.id, one.metric, one.at)};
  return within_errors(one.value, one.standard_error.value_or(0));
}

// The curve of the standard errors of another one, if the record has it.
const Series* errors_of(const Record& record, const Series& curve) {
  const auto is_it = [&](const Series& one) {
    return one.metric == curve.metric + "_standard_error" && one.at == curve.at && one.x == curve.x;
  };
  const auto found = std::ranges::find_if(record.series, is_it);
  return found == record.series.end() ? nullptr : &*found;
}

void add_of_curve(const NumberSource& source, const Record& record, const Series& curve,
                  std::vector<UncertainNumber>& found) {
  const Series* errors = errors_of(record, curve);
  if (source.is_estimate && !errors)
    throw Obstacle{ClaimOutcome::inconclusive,
                   fmt::format("{}: the curve {} at '{}' has no standard errors; measure it again", record.id,
                               curve.metric, curve.at)};
  const auto add = [&](double value, double error = 0) { found.push_back(within_errors(value, error)); };
  const auto add_point = [&](size_t i) { add(curve.y[i], errors ? errors->y[i] : 0); };
  if (source.x) {
    const auto place = std::ranges::find(curve.x, *source.x);
    if (place != curve.x.end()) add_point(static_cast<size_t>(place - curve.x.begin()));
    return;
  }
  if (!source.reaches && !source.falls_below) {
    for (size_t i = 0; i < curve.y.size(); ++i) add_point(i);
    return;
  }
  for (size_t i = 0; i < curve.x.size(); ++i)
    if (source.reaches ? curve.y[i] >= *source.reaches : curve.y[i] < *source.falls_below) return add(curve.x[i]);
  add(std::numeric_limits<double>::infinity());
}

UncertainNumber taken(const NumberSource& source, const std::vector<UncertainNumber>& found) {
  UncertainNumber all = found.front();
  const auto combine = [&](double& into, double next) {
    switch (source.take) {
      case NumberSource::Take::max:
        into = std::isnan(into) || std::isnan(next) ? std::nan("") : std::max(into, next);
        break;
      case NumberSource::Take::min:
        into = std::isnan(into) || std::isnan(next) ? std::nan("") : std::min(into, next);
        break;
      case NumberSource::Take::only:
      case NumberSource::Take::mean:
      case NumberSource::Take::sum:
        into += next;
        break;
    }
  };
  for (size_t i = 1; i < found.size(); ++i) {
    combine(all.value, found[i].value);
    combine(all.range.lower, found[i].range.lower), combine(all.range.upper, found[i].range.upper);
  }
  if (source.take == NumberSource::Take::mean)
    for (double* part : {&all.value, &all.range.lower, &all.range.upper}) *part /= static_cast<double>(found.size());
  return all;
}

// `unit`: of the number.
UncertainNumber number_of(const NumberSource& source, const Report& report, std::string& unit) {
  std::vector<UncertainNumber> found;
  for (const std::string& id : source.cases) {
    const Record& record = record_of(report, id);
    if (source.is_curve) {
      for (const Series& curve : record.series)
        if (curve.metric == source.metric && glob_matches(source.at, curve.at)) {
          add_of_curve(source, record, curve, found);
          unit = source.reaches || source.falls_below ? curve.x_unit : curve.y_unit;
        }
      continue;
    }
    for (const Measurement& one : record.measurements) {
      if (one.metric != source.metric || !glob_matches(source.at, one.at)) continue;
      if (misleads(record, one)) throw Obstacle{ClaimOutcome::not_testable, id + ": " + record.reason};
      found.push_back(uncertain(source, record, one));
      unit = one.unit;
    }
  }
  const std::string what = fmt::format("{} at '{}' of {}", source.metric, source.at, source.cases.front());
  if (found.empty()) throw Obstacle{ClaimOutcome::inconclusive, "the report has no " + what};
  if (source.take == NumberSource::Take::only && found.size() > 1)
    throw Obstacle{ClaimOutcome::inconclusive, "the report has several " + what};
  return taken(source, found);
}

// Of a list of conditions: yes if all hold, no if one does not; an empty list says nothing.
Truth all_hold(const std::vector<Expression>& list, const Numbers& numbers) {
  if (list.empty()) return Truth::no;
  Truth all = Truth::yes;
  for (const Expression& one : list) {
    const Truth truth = one.holds(numbers);
    if (truth == Truth::no) return Truth::no;
    if (truth == Truth::open) all = Truth::open;
  }
  return all;
}

ClaimOutcome outcome_of(const Claim& claim, const Numbers& numbers) {
  const Truth confirmed = all_hold(claim.confirmed, numbers), refuted = all_hold(claim.refuted, numbers);
  if (confirmed == Truth::yes) return ClaimOutcome::confirmed;
  if (refuted == Truth::yes) return ClaimOutcome::refuted;
  if (confirmed == Truth::open || refuted == Truth::open) return ClaimOutcome::inconclusive;
  return ClaimOutcome::conditional;
}

}  // namespace

std::string_view name_of(ClaimOutcome outcome) { return kOutcomeNames[static_cast<size_t>(outcome)]; }

ClaimList claims_from(const ordered_json& json, std::string_view where, std::string_view device, bool quick) {
  static const FieldNames kFields = {"claims", "about", "articles", "questions", "entries"};
  const JsonReader reader(json, where, kClaimsKind);
  reader.expect_object();
  reader.expect_only(kFields);
  if (const JsonReader version = reader.required("claims"); version.integer() != 1)
    version.fail(fmt::format("is version {}, this program reads version 1", version.integer()));
  ClaimList list;
  list.is_quick = quick;
  reader.each_member("articles",
                     [&](const std::string& name, const JsonReader& one) { list.articles.emplace(name, one.text()); });
  std::set<std::string> seen;
  reader.required("entries").each([&](const JsonReader& one) {
    list.claims.push_back(claim_from(one, device, quick));
    const Claim& claim = list.claims.back();
    if (!seen.insert(claim.id).second) one.fail("the id " + claim.id + " is there twice");
    if (!list.articles.contains(claim.article)) one.fail("the article " + claim.article + " is not listed");
  });
  reader.each("questions", [&](const JsonReader& one) {
    static const FieldNames kOfQuestion = {"question", "claims"};
    one.expect_object();
    one.expect_only(kOfQuestion);
    ClaimQuestion question{one.required("question").text(), {}};
    one.required("claims").each([&](const JsonReader& id) { question.claims.push_back(id.text()); });
    if (question.claims.size() < 2) one.fail("names fewer than two claims");
    for (const std::string& id : question.claims)
      if (!seen.contains(id)) one.fail("the claim " + id + " is not listed");
    list.questions.push_back(std::move(question));
  });
  return list;
}

ClaimList shipped_claims(std::string_view device, bool quick) {
  std::string text;
  for (const std::string_view part : kShippedClaims) text += part;
  return claims_from(parse_json(text, "claims.json", kClaimsKind), "claims.json", device, quick);
}

std::vector<ClaimVerdict> judge_claims(const ClaimList& list, const Report& report, std::string_view device,
                                       const RefusedCases& refused) {
  std::vector<ClaimVerdict> verdicts;
  for (const Claim& claim : list.claims) {
    ClaimVerdict& one = verdicts.emplace_back(ClaimVerdict{&claim, ClaimOutcome::not_testable, "", {}});
    if (!claim.not_testable.empty()) {
      one.reason = claim.not_testable;
      continue;
    }
    if (!device.starts_with(claim.needs)) {
      one.reason = fmt::format("needs a device {}, this is {}", claim.needs, device);
      continue;
    }
    Numbers numbers;
    try {
      for (const std::string& id : claim.cases) (void)record_of(report, id, refused);
      for (const auto& [name, source] : claim.numbers) {
        std::string unit = "1";
        const UncertainNumber number = number_of(source, report, unit);
        numbers.emplace(name, number);
        one.evidence.push_back({name, number, source.cases, source.metric, source.at, unit});
      }
      one.outcome = outcome_of(claim, numbers);
      if (one.outcome == ClaimOutcome::inconclusive) {
        const auto nan = std::ranges::find_if(
            one.evidence, [](const Evidence& evidence) { return std::isnan(evidence.number.value); });
        one.reason = nan == one.evidence.end() ? "the spread of the numbers does not decide the rule"
                                               : fmt::format("{} is NaN: {} at '{}' of {}", nan->name, nan->metric,
                                                             nan->at, nan->cases.front());
      }
    } catch (const Obstacle& obstacle) {
      one.outcome = obstacle.outcome, one.reason = obstacle.reason;
    }
  }
  return verdicts;
}

}  // namespace halfmark::reports
